//! Whole set-up messages out of and into a non-blocking socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use towpath_proto::wire::{HelloError, PREFIX_BYTES, Welcome};

/// Why no message comes.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The bytes are no set-up message.
    Hello(HelloError),
    /// The connection broke; no error is an end of file.
    Broken(Option<io::Error>),
}

/// A message that is coming in. It reads no byte behind the message.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// What has come in so far.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads on; the message once it is whole.
    pub(super) fn read(&mut self, stream: &mut impl Read) -> Result<Option<Welcome>, ReadError> {
        loop {
            let wanted = match self.bytes.first_chunk::<PREFIX_BYTES>() {
                None => PREFIX_BYTES,
                Some(prefix) => Welcome::byte_len(prefix).map_err(ReadError::Hello)?,
            };
            if self.bytes.len() == wanted {
                return Welcome::parse(&self.bytes).map(Some).map_err(ReadError::Hello);
            }
            let start = self.bytes.len();
            self.bytes.resize(wanted, 0);
            let read = stream.read(&mut self.bytes[start..]);
            self.bytes.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(ReadError::Broken(None)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Broken(Some(error))),
            }
        }
    }
}

/// A message that is going out.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    written: usize,
}

impl Outbox {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, written: 0 }
    }

    /// Lets `append` put more behind what is to be written.
    pub(crate) fn append(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
        append(&mut self.bytes);
    }

    /// Writes on; true once everything is written.
    pub(crate) fn write(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        while self.written < self.bytes.len() {
            match stream.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;
    use towpath_base::serial::Psn;
    use towpath_proto::wire::{AppProtocol, Hello, HelloPath, Refusal};
    use towpath_proto::{Carrier, Class};
    use towpath_verbs::{Mtu, QpNum};

    /// A socket that gives its bytes in pieces, with pauses, and then ends.
    struct Dribble<'a> {
        bytes: &'a [u8],
        prng: &'a mut Prng,
    }

    impl Read for Dribble<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.prng.below(4) {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                1 => Err(io::ErrorKind::Interrupted.into()),
                _ => {
                    let most = into.len().min(self.bytes.len());
                    let count = self.prng.between(most.min(1) as u64, most as u64) as usize;
                    let (now, later) = self.bytes.split_at(count);
                    into[..count].copy_from_slice(now);
                    self.bytes = later;
                    Ok(count)
                }
            }
        }
    }

    fn hello() -> Vec<u8> {
        let path =
            HelloPath { carrier: Carrier::Uc, qp_num: QpNum(17), psn: Psn::new(99), generation: 7 };
        let hello = Hello {
            further_addrs: Vec::new(),
            seal: None,
            instance: 5,
            class: Class::Gold,
            dscp: 46,
            addr: "10.0.0.1:4791".parse().unwrap(),
            mtu: Mtu::Mtu1024,
            cuts_each_send: true,
            omits_icrc: false,
            chunk_bytes_max: 57_344,
            charge_bytes: 1_280,
            window_bytes: 1 << 20,
            path_chunks: 4096,
            control: path,
            paths: vec![path; 3],
            app: AppProtocol::named("app"),
        };
        hello.emit()
    }

    #[test]
    fn a_message_in_pieces_is_the_same_and_nothing_behind_it_is_read() {
        let seed = 11;
        let mut prng = Prng::new(seed);
        for round in 0..20_000 {
            let message = if prng.chance(0.8) { hello() } else { Refusal::Full.emit() };
            let mut bytes = message.clone();
            bytes.extend_from_slice(b"behind");
            let changed = prng.chance(0.5);
            if changed {
                let at = prng.below(message.len() as u64) as usize;
                bytes[at] ^= 1 << prng.below(8);
            }
            let cut = if prng.chance(0.2) { prng.below(bytes.len() as u64) } else { u64::MAX };
            bytes.truncate(cut.min(bytes.len() as u64) as usize);
            let mut stream = Dribble { bytes: &bytes, prng: &mut prng };
            let mut inbox = Inbox::default();
            let end = loop {
                match inbox.read(&mut stream) {
                    Ok(None) => {}
                    end => break end,
                }
            };
            let left = stream.bytes.len();
            let context = format!("seed {seed}, round {round}: {end:?}");
            match end {
                Ok(_) => {
                    assert!(!changed, "{context}");
                    assert_eq!(bytes.len() - left, message.len(), "{context}");
                }
                Err(ReadError::Hello(_)) => assert!(changed, "{context}"),
                Err(ReadError::Broken(error)) => {
                    assert!(error.is_none() && left == 0, "{context}");
                    assert!(bytes.len() < message.len() || changed, "{context}");
                }
            }
        }
    }
}
