//! Peers that were refused.

use super::wire::Outbox;
use crate::limits::{LINGER_BYTES_MAX, LINGER_NS};
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use towpath_base::{Nanos, Time};

/// A peer that was refused. The system resets a connection that is closed with bytes unread, and
/// the reset would overtake the refusal: so they are read, for a while.
pub(super) struct Lingering {
    stream: TcpStream,
    /// What tells it why.
    outbox: Outbox,
    deadline: Time,
    bytes_left: usize,
}

impl Lingering {
    pub(super) fn new(stream: TcpStream, outbox: Outbox, now: Time) -> Self {
        let deadline = now + Nanos(LINGER_NS);
        Self { stream, outbox, deadline, bytes_left: LINGER_BYTES_MAX }
    }

    pub(super) fn is_done(&mut self, now: Time) -> bool {
        match self.outbox.write(&mut self.stream) {
            Err(_) => return true,
            // The peer may be gone already; then reading says so.
            Ok(true) => drop(self.stream.shutdown(Shutdown::Write)),
            Ok(false) => {}
        }
        let mut bytes = [0; 256];
        while self.bytes_left > 0 {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(read) => self.bytes_left = self.bytes_left.saturating_sub(read),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return true,
            }
        }
        now >= self.deadline || self.bytes_left == 0
    }
}
