//! Requests over kernel TCP.

use super::{Sign, Transport, TransportError, Waiting, Watched};
use crate::limits::READ_BYTES;
use crate::wire::{Reply, WireError};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a server may take none of a request.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a server that listens on TCP.
#[derive(Debug)]
pub struct TcpTransport {
    addr: SocketAddr,
    waiting: Waiting,
    stream: TcpStream,
    /// Replies that came, and parts of them, from `begin` on.
    input: Vec<u8>,
    begin: usize,
    scratch: Box<[u8]>,
    /// The timeout that the socket has.
    timeout: Option<Duration>,
    /// A sign is raised when more comes.
    is_watched: bool,
    /// The last read took all that there was room for: more may be there.
    is_full: bool,
}

fn open(
    addr: SocketAddr,
    waiting: Waiting,
    timeout: Duration,
) -> Result<TcpStream, TransportError> {
    let opened = TcpStream::connect_timeout(&addr, timeout).and_then(|stream| {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        stream.set_nonblocking(waiting == Waiting::Polling)?;
        Ok(stream)
    });
    opened.map_err(|error| TransportError::Connect(error.into()))
}

fn gone(error: &io::Error) -> TransportError {
    TransportError::Gone(error.to_string())
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

impl TcpTransport {
    /// Connects.
    ///
    /// # Errors
    /// [`TransportError::Connect`]
    pub fn connect(
        addr: SocketAddr,
        waiting: Waiting,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let stream = open(addr, waiting, timeout)?;
        let scratch = vec![0; READ_BYTES].into();
        let (input, begin, timeout) = (Vec::new(), 0, None);
        let (is_watched, is_full) = (false, false);
        Ok(Self { addr, waiting, stream, input, begin, scratch, timeout, is_watched, is_full })
    }

    /// Gives a whole reply to `take`, if one has come.
    fn take_whole(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<bool, TransportError> {
        let rest = &self.input[self.begin..];
        let len = match Reply::parse(rest) {
            Ok((_, len)) => len,
            Err(WireError::Short(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        take(&rest[..len]);
        self.begin += len;
        if self.begin == self.input.len() {
            self.input.clear();
            self.begin = 0;
        }
        Ok(true)
    }

    fn read(&mut self, left: Duration) -> Result<(), TransportError> {
        if self.waiting == Waiting::Blocking && self.timeout != Some(left) {
            // The socket rounds up; zero would be for ever.
            let timeout = left.max(Duration::from_micros(1));
            self.stream.set_read_timeout(Some(timeout)).map_err(|error| gone(&error))?;
            self.timeout = Some(left);
        }
        let read = self.stream.read(&mut self.scratch);
        self.is_full = read.as_ref().is_ok_and(|&count| count == self.scratch.len());
        match read {
            Ok(0) => Err(TransportError::Gone(String::from("the server closed it"))),
            Ok(count) => {
                self.input.drain(..self.begin);
                self.begin = 0;
                self.input.extend_from_slice(&self.scratch[..count]);
                Ok(())
            }
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(gone(&error)),
        }
    }
}

impl Transport for TcpTransport {
    fn send(&mut self, request: &[u8]) -> Result<(), TransportError> {
        let until = Instant::now() + SEND_TIMEOUT;
        let mut rest = request;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_passing(&error) && Instant::now() < until => {}
                Err(error) => return Err(gone(&error)),
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        timeout: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let until = Instant::now() + timeout;
        let mut is_over = false;
        loop {
            if self.take_whole(take)? {
                return Ok(true);
            }
            if is_over {
                return Ok(false);
            }
            // The whole timeout, which the socket has already: setting it is a call of the system.
            self.read(timeout)?;
            is_over = Instant::now() >= until;
        }
    }

    fn renew(&mut self, timeout: Duration) -> Result<(), TransportError> {
        self.stream = open(self.addr, self.waiting, timeout)?;
        self.input.clear();
        (self.begin, self.timeout) = (0, None);
        (self.is_watched, self.is_full) = (false, false);
        Ok(())
    }
}

impl Watched for TcpTransport {
    fn watch(&mut self, sign: &Sign) -> Result<bool, TransportError> {
        if !self.is_watched {
            sign.of_file(&self.stream).map_err(|error| gone(&error))?;
            self.is_watched = true;
        }
        // A sign says what is new, and not what is left.
        Ok(self.is_full)
    }
}
