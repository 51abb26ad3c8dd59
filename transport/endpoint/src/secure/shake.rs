//! A handshake on a set-up connection, in front of its HELLOs.

use crate::setup::Outbox;
use std::io::{self, Read};
use std::net::TcpStream;
use towpath_base::Time;
use towpath_secure::{Handshake, HandshakeError, Outcome};

/// Bytes that are looked at in one go: a whole flight, unless certificates are many.
const LOOK_BYTES: usize = 4096;

/// A handshake under way, and what is still to be written of it.
pub(crate) struct Shake {
    handshake: Handshake,
    out: Outbox,
}

/// Why a handshake ends.
pub(crate) enum ShakeError {
    Handshake(HandshakeError),
    /// The connection.
    Broken(io::Error),
}

impl From<HandshakeError> for ShakeError {
    fn from(error: HandshakeError) -> Self {
        Self::Handshake(error)
    }
}

/// How far a handshake got.
pub(crate) struct Progress {
    pub(crate) is_done: bool,
    /// Something came, which may have cost the work of a signature.
    pub(crate) has_worked: bool,
}

impl Shake {
    pub(super) fn new(handshake: Handshake) -> Self {
        Self { handshake, out: Outbox::default() }
    }

    /// Takes bytes that were read before it was known that a handshake comes.
    pub(crate) fn begin_with(&mut self, now: Time, bytes: &[u8]) -> Result<(), HandshakeError> {
        // The first record of a handshake is longer than that.
        self.handshake.receive(now, bytes).map(|_| ())
    }

    /// Goes on as far as that goes without waiting. It takes no byte behind the handshake. After an
    /// error [`last_words`](Self::last_words) are to be sent.
    pub(crate) fn step(
        &mut self,
        stream: &mut TcpStream,
        now: Time,
    ) -> Result<Progress, ShakeError> {
        let mut has_worked = false;
        loop {
            let handshake = &mut self.handshake;
            self.out.append(|bytes| handshake.transmit(bytes));
            let is_written = self.out.write(stream).map_err(ShakeError::Broken)?;
            if self.handshake.is_done() {
                return Ok(Progress { is_done: is_written, has_worked });
            }
            let mut bytes = [0; LOOK_BYTES];
            let count = match stream.peek(&mut bytes) {
                Ok(0) => return Err(HandshakeError::Closed.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.handshake.check_deadline(now)?;
                    return Ok(Progress { is_done: false, has_worked });
                }
                Err(error) => return Err(ShakeError::Broken(error)),
            };
            has_worked = true;
            let received = self.handshake.receive(now, &bytes[..count]);
            let taken = *received.as_ref().unwrap_or(&count);
            stream.read_exact(&mut bytes[..taken]).map_err(ShakeError::Broken)?;
            received?;
        }
    }

    /// What tells the peer why the handshake has failed.
    pub(crate) fn last_words(mut self) -> Outbox {
        let handshake = &mut self.handshake;
        self.out.append(|bytes| handshake.transmit(bytes));
        self.out
    }

    /// What a handshake that is done leaves behind.
    pub(crate) fn finish(self) -> Result<Outcome, HandshakeError> {
        self.handshake.finish()
    }
}
