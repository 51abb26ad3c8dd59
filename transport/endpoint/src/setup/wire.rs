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
    /// Reads on; the message once it is whole.
    pub(super) fn read(&mut self, stream: &mut TcpStream) -> Result<Option<Welcome>, ReadError> {
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
pub(super) struct Outbox {
    bytes: Vec<u8>,
    written: usize,
}

impl Outbox {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, written: 0 }
    }

    /// Writes on; true once everything is written.
    pub(super) fn write(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
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
