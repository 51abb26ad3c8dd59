//! One handshake: takes bytes, gives bytes, and ends with a peer and a secret.

use super::host::{Host, Verdict};
use super::{HandshakeError, PeerIdentity};
use crate::clock::WallTime;
use crate::identity::PublicKey;
use crate::limits::{HANDSHAKE_BYTES_MAX, HANDSHAKE_NS, RECORD_BYTES_MAX};
use crate::mode::{Mode, Sealing};
use crate::peers::{PeerName, Role};
use crate::schedule::PairSecret;
use rustls::Connection;
use std::io::{self, Read as _, Write as _};
use towpath_base::Time;
use zeroize::Zeroizing;

/// The exporter of RFC 8446 section 7.5.
const EXPORTER: &[u8] = b"EXPORTER-towpath-secure-1";
/// Type, version and length of a TLS record.
const RECORD_HEADER_BYTES: usize = 5;
/// Types of TLS records: change_cipher_spec, alert, handshake, application_data.
const RECORD_TYPES: core::ops::RangeInclusive<u8> = 20..=23;
/// What each end says last, inside of TLS: these bytes, its mode, and zeros. The client has no
/// other way to learn that the server has accepted it.
const CONFIRMATION: [u8; 8] = *b"towpath\x01";
const CONFIRMATION_BYTES: usize = 16;

/// A handshake under way.
///
/// Its owner sends what [`transmit`](Self::transmit) gives, hands what comes to
/// [`receive`](Self::receive), and asks [`is_done`](Self::is_done) after each. After an error it
/// sends what there is, which tells the peer why, and closes the connection.
#[derive(Debug)]
pub struct Handshake {
    connection: Connection,
    verdict: Verdict,
    ours: PublicKey,
    sealing: Sealing,
    deadline: Time,
    /// A TLS record that came in parts. Records are fed to TLS one by one, so that what follows the
    /// last one is left on the stream.
    record: Vec<u8>,
    /// Bytes that were taken.
    taken: usize,
    has_confirmed: bool,
    /// What the peer said last.
    confirmation: Vec<u8>,
}

/// What a handshake leaves behind.
#[derive(Debug)]
pub struct Outcome {
    /// Who the peer is.
    pub peer: PeerIdentity,
    /// The secret of this pair of hosts.
    pub secret: PairSecret,
    /// How its links are protected.
    pub sealing: Sealing,
}

impl Handshake {
    /// Begins as the client, with whom `wanted` names, or with any peer that may be a server.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn client(
        host: &Host,
        wanted: Option<&PeerName>,
        wall: WallTime,
        now: Time,
    ) -> Result<Self, HandshakeError> {
        let verdict = Verdict::default();
        let connection = host.connect(wanted, wall, &verdict);
        Self::begin(host, connection, verdict, now)
    }

    /// Begins as the server.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn server(host: &Host, wall: WallTime, now: Time) -> Result<Self, HandshakeError> {
        let verdict = Verdict::default();
        let connection = host.accept(wall, &verdict);
        Self::begin(host, connection, verdict, now)
    }

    fn begin(
        host: &Host,
        connection: Result<Connection, rustls::Error>,
        verdict: Verdict,
        now: Time,
    ) -> Result<Self, HandshakeError> {
        let ours = host.public();
        Ok(Self {
            connection: connection.map_err(|error| HandshakeError::of_tls(error, ours))?,
            verdict,
            ours,
            sealing: host.sealing(),
            deadline: Time(now.0.saturating_add(HANDSHAKE_NS.0)),
            record: Vec::new(),
            taken: 0,
            has_confirmed: false,
            confirmation: Vec::new(),
        })
    }

    /// When the handshake fails unless it is done.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// Which end this is.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.connection {
            Connection::Client(_) => Role::Client,
            Connection::Server(_) => Role::Server,
        }
    }

    /// Takes bytes that came, and returns how many it took. What follows the end of the handshake
    /// is left.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn receive(&mut self, now: Time, bytes: &[u8]) -> Result<usize, HandshakeError> {
        self.check_deadline(now)?;
        let mut left = bytes;
        while !left.is_empty() && !self.is_done() {
            let wanted = self.record_len()?;
            let (part, rest) = left.split_at(left.len().min(wanted - self.record.len()));
            self.taken += part.len();
            if self.taken > HANDSHAKE_BYTES_MAX {
                return Err(HandshakeError::TooMuch);
            }
            self.record.extend_from_slice(part);
            left = rest;
            self.feed_if_whole()?;
        }
        Ok(bytes.len() - left.len())
    }

    /// Fails when the time is over. It is called at the deadline.
    ///
    /// # Errors
    /// [`HandshakeError::TimedOut`].
    pub fn check_deadline(&self, now: Time) -> Result<(), HandshakeError> {
        let is_late = now >= self.deadline && !self.is_done();
        if is_late { Err(HandshakeError::TimedOut) } else { Ok(()) }
    }

    /// Appends what there is to be sent.
    pub fn transmit(&mut self, into: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // A vector takes all.
            if self.connection.write_tls(into).is_err() {
                return;
            }
        }
    }

    /// Whether both ends are through. What [`transmit`](Self::transmit) gives has to be sent still.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.has_confirmed && self.confirmation.len() == CONFIRMATION_BYTES
    }

    /// What the handshake leaves behind.
    ///
    /// # Errors
    /// [`HandshakeError::Closed`], where it is not done: whoever calls this then has lost the
    /// connection.
    pub fn finish(self) -> Result<Outcome, HandshakeError> {
        let is_done = self.is_done();
        let Some(Ok(peer)) = self.verdict.get().filter(|_| is_done) else {
            return Err(HandshakeError::Closed);
        };
        // A secret of another mode is another secret.
        let context = [self.sealing.mode().code()];
        let mut exported = Zeroizing::new([0; 32]);
        self.connection
            .export_keying_material(&mut exported[..], EXPORTER, Some(&context))
            .map_err(HandshakeError::Tls)?;
        Ok(Outcome { peer: peer.clone(), secret: PairSecret::new(exported), sealing: self.sealing })
    }

    /// Bytes of the record that comes, as far as its header says.
    fn record_len(&self) -> Result<usize, HandshakeError> {
        let Some(header) = self.record.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(RECORD_HEADER_BYTES);
        };
        let [kind, major, _, len @ ..] = *header;
        let len = usize::from(u16::from_be_bytes(len));
        let is_record = RECORD_TYPES.contains(&kind) && major == 3 && len <= RECORD_BYTES_MAX;
        if is_record { Ok(RECORD_HEADER_BYTES + len) } else { Err(HandshakeError::NotTls) }
    }

    fn feed_if_whole(&mut self) -> Result<(), HandshakeError> {
        if self.record.len() < RECORD_HEADER_BYTES || self.record.len() < self.record_len()? {
            return Ok(());
        }
        let mut record = &self.record[..];
        // TLS takes 4 KiB at a time, and what it buffers is bounded.
        while !record.is_empty() {
            if !matches!(self.connection.read_tls(&mut record), Ok(1..)) {
                return Err(HandshakeError::TooMuch);
            }
        }
        self.record.clear();
        let state = self.connection.process_new_packets().map_err(|error| self.error(error))?;
        if state.peer_has_closed() {
            return Err(HandshakeError::Closed);
        }
        if !self.connection.is_handshaking() {
            self.confirm()?;
            self.read_confirmation()?;
        }
        Ok(())
    }

    fn error(&self, error: rustls::Error) -> HandshakeError {
        match self.verdict.get() {
            Some(Err(refused)) => refused.clone(),
            _ => HandshakeError::of_tls(error, self.ours),
        }
    }

    fn confirm(&mut self) -> Result<(), HandshakeError> {
        if self.has_confirmed {
            return Ok(());
        }
        if !Host::is_ours(&self.connection) {
            return Err(HandshakeError::OtherProtocol);
        }
        let mut confirmation = [0; CONFIRMATION_BYTES];
        confirmation[..CONFIRMATION.len()].copy_from_slice(&CONFIRMATION);
        confirmation[CONFIRMATION.len()] = self.sealing.mode().code();
        let written = self.connection.writer().write_all(&confirmation);
        self.has_confirmed = written.is_ok();
        written.map_err(|_| HandshakeError::Closed)
    }

    fn read_confirmation(&mut self) -> Result<(), HandshakeError> {
        let mut bytes = [0; CONFIRMATION_BYTES + 1];
        let len = match self.connection.reader().read(&mut bytes) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return Err(HandshakeError::Closed),
        };
        self.confirmation.extend_from_slice(&bytes[..len]);
        if self.confirmation.len() > CONFIRMATION_BYTES {
            return Err(HandshakeError::OtherProtocol);
        }
        let Some(said) = self.confirmation.first_chunk::<CONFIRMATION_BYTES>() else {
            return Ok(());
        };
        let (name, rest) = said.split_at(CONFIRMATION.len());
        let (mode, rest) = (rest[0], &rest[1..]);
        let theirs = Mode::from_code(mode).filter(|_| name == CONFIRMATION);
        let theirs = theirs.filter(|_| rest.iter().all(|byte| *byte == 0));
        let theirs = theirs.ok_or(HandshakeError::OtherProtocol)?;
        Ok(self.sealing.mode().agree(theirs)?)
    }
}
