//! Messages in a stream: what came and is not taken yet, what is to go and has not gone.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::TcpStream;

use towpath_memory::Buf;
use towpath_rpc::Header;
use towpath_rpc::limits::HEADER_BYTES;

use super::{BLOCK_MAX, Outcome};

/// What one read of the socket may bring: some messages of the longest kind.
const READ_BYTES: usize = 256 << 10;

/// Parts of one gathering write; the system takes no more.
const PARTS_MAX: usize = 512;

/// Bytes that are to go: made here, or of a buffer of the store, which goes back when they went.
pub(crate) enum Part {
    Made(Vec<u8>),
    Read(Buf),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Made(bytes) => bytes,
            Self::Read(buf) => buf,
        }
    }
}

/// A whole message.
pub(crate) struct Came<'a> {
    pub(crate) header: Header,
    pub(crate) body: &'a [u8],
    pub(crate) data: &'a [u8],
}

pub(crate) struct Stream {
    socket: TcpStream,
    /// What came, from `taken` on not taken yet.
    came: Vec<u8>,
    taken: usize,
    room: Box<[u8]>,
    out: VecDeque<Part>,
    /// Bytes of the first of these that have gone.
    gone: usize,
}

impl Stream {
    pub(crate) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let (came, room) = (Vec::new(), vec![0; READ_BYTES].into());
        Ok(Self { socket, came, taken: 0, room, out: VecDeque::new(), gone: 0 })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether something waits until the socket takes more.
    pub(crate) fn wants_to_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// Takes in what has come; false when that is nothing.
    pub(crate) fn read(&mut self) -> io::Result<bool> {
        match self.socket.read(&mut self.room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.came.drain(..self.taken);
                self.taken = 0;
                self.came.extend_from_slice(&self.room[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The next whole message.
    pub(crate) fn next(&mut self) -> Outcome<Option<Came<'_>>> {
        let left = &self.came[self.taken..];
        if left.len() < HEADER_BYTES {
            return Ok(None);
        }
        let header = Header::parse(left)?;
        let (body, data) = (header.body_len as usize, header.data_len as usize);
        if data > BLOCK_MAX {
            return Err("a message is longer than any".into());
        }
        let Some(message) = left.get(HEADER_BYTES..HEADER_BYTES + body + data) else {
            return Ok(None);
        };
        self.taken += HEADER_BYTES + message.len();
        let (body, data) = message.split_at(body);
        Ok(Some(Came { header, body, data }))
    }

    /// Puts a part of a message behind those that are to go.
    pub(crate) fn put(&mut self, part: Part) {
        self.out.push_back(part);
    }

    /// Sends what the socket takes now.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            let mut slices = Vec::with_capacity(self.out.len().min(PARTS_MAX));
            slices.extend(self.out.iter().take(PARTS_MAX).map(|part| IoSlice::new(part.bytes())));
            let mut parts = &mut slices[..];
            IoSlice::advance_slices(&mut parts, self.gone);
            match self.socket.write_vectored(parts) {
                Ok(count) => self.gone += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            while let Some(part) = self.out.front() {
                let len = part.bytes().len();
                if self.gone < len {
                    break;
                }
                self.gone -= len;
                self.out.pop_front();
            }
        }
        Ok(())
    }
}
