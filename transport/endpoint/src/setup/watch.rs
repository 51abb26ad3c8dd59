//! The connections of links that are up, and of peers that were refused.

use super::wire::Outbox;
use super::{Host, Setup};
use crate::ids::LinkId;
use crate::limits::{LINGER_BYTES_MAX, LINGER_NS};
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use towpath_base::{Nanos, Time};
use towpath_proto::wire::Refusal;

/// The set-up connection of a link: its end is how a dead peer process is noticed at once.
pub(super) struct Watched {
    stream: TcpStream,
    pub(super) link: LinkId,
    outbox: Outbox,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, link: LinkId, outbox: Outbox) -> Self {
        Self { stream, link, outbox }
    }

    /// Whether the peer is still there. After the HELLO nothing is sent on the connection, so a
    /// byte is as much a breach as an end of file.
    fn is_silent(&self) -> bool {
        let quiet = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        };
        self.stream.peek(&mut [0]).as_ref().is_err_and(quiet)
    }
}

/// A peer that was refused. The system resets a connection that is closed with bytes unread, and
/// the reset would overtake the refusal: so they are read, for a while.
pub(super) struct Lingering {
    stream: TcpStream,
    outbox: Outbox,
    deadline: Time,
    bytes_left: usize,
}

impl Lingering {
    pub(super) fn new(stream: TcpStream, refusal: Refusal, now: Time) -> Self {
        let deadline = now + Nanos(LINGER_NS);
        let outbox = Outbox::new(refusal.emit());
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

impl Setup {
    /// Keeps the connection of a link that is up, on which `first` is still to be written: to
    /// carry a path, or as a sign of life alone.
    pub(super) fn keep(
        &mut self,
        host: &mut impl Host,
        stream: TcpStream,
        link: LinkId,
        first: Vec<u8>,
    ) {
        let carries_path = host.carries_path(link);
        self.news.add(host, &stream, carries_path.then_some(link.index));
        let is_told = self.news.are_told();
        if let Some((stream, first)) = host.give_stream(link, stream, (first, is_told)) {
            self.watched.push(Watched::new(stream, link, Outbox::new(first)));
        }
    }

    /// Whether nothing is left to be written on any.
    pub(super) fn poll_watched(&mut self, host: &mut impl Host) -> bool {
        let mut all_said = true;
        self.watched.retain_mut(|watched| {
            let alive = watched.outbox.write(&mut watched.stream).map(|said| {
                all_said &= said;
                watched.is_silent()
            });
            let alive = alive.unwrap_or(false);
            if !alive {
                host.peer_gone(watched.link);
            }
            alive
        });
        all_said
    }
}
