//! What a sealed packet says in clear: `docs/secure-links.md` section 5.

use crate::limits::{HEADER_BYTES, PATHS_MAX};
use crate::peers::Role;
use crate::schedule::LinkTag;

/// Where the fields of a sealed link lie: in place of the checksums of body and header.
const MARK: usize = 56;
/// Where the number of a chunk lies (`docs/protocol.md` section 3).
const CHUNK_NUMBER: usize = 8;
/// Where the number of an ack lies (`docs/protocol.md` section 4).
const ACK_NUMBER: usize = 16;

const SERVER_BIT: u8 = 1 << 7;
const ACK_BIT: u8 = 1 << 6;
const PATH_BITS: u8 = (1 << 5) - 1;
const MODE_BITS: u8 = 3;

fn mark(header: &[u8; HEADER_BYTES]) -> [u8; HEADER_BYTES - MARK] {
    let mut mark = [0; HEADER_BYTES - MARK];
    mark.copy_from_slice(&header[MARK..]);
    mark
}

/// What counts numbers by itself: the chunks of a path, or the acks of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Chunks that are sent on this path, by their transmission number.
    Chunks(u8),
    /// Acks of what came on this path, by their own number.
    Acks(u8),
}

impl Stream {
    /// The index of the path.
    #[must_use]
    pub fn path(self) -> u8 {
        match self {
            Self::Chunks(path) | Self::Acks(path) => path,
        }
    }

    /// A dense index, below twice [`PATHS_MAX`].
    pub(crate) fn index(self) -> usize {
        let path = usize::from(self.path() & PATH_BITS);
        match self {
            Self::Chunks(_) => path,
            Self::Acks(_) => PATHS_MAX + path,
        }
    }

    /// The number in a header of this stream.
    pub(crate) fn number(self, header: &[u8; HEADER_BYTES]) -> u64 {
        let at = match self {
            Self::Chunks(_) => CHUNK_NUMBER,
            Self::Acks(_) => ACK_NUMBER,
        };
        let mut number = [0; 8];
        number.copy_from_slice(&header[at..at + 8]);
        u64::from_le_bytes(number)
    }

    /// The byte that names the stream and its sender, in headers and nonces.
    pub(crate) fn code(self, sender: Role) -> u8 {
        let side = if sender == Role::Server { SERVER_BIT } else { 0 };
        let kind = if matches!(self, Self::Acks(_)) { ACK_BIT } else { 0 };
        side | kind | self.path() & PATH_BITS
    }
}

/// The last eight bytes of a sealed packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which number counts.
    pub stream: Stream,
    /// Who sent it.
    pub sender: Role,
    /// The code of the mode, 0 to 3.
    pub mode: u8,
    /// The low 16 bits of the epoch of its key.
    pub epoch: u16,
    /// The low 6 bits of the newest epoch that its sender has opened a packet of.
    pub echo: u8,
    /// Of which link it is.
    pub link: LinkTag,
}

impl Mark {
    /// How many bits of an epoch an echo has.
    pub(crate) const ECHO_BITS: u8 = (1 << 6) - 1;

    /// Reads it. Every header has one: what it says is checked against the link.
    #[must_use]
    pub fn parse(header: &[u8; HEADER_BYTES]) -> Self {
        let [stream, flags, epoch_0, epoch_1, tag_0, tag_1, tag_2, tag_3] = mark(header);
        let path = stream & PATH_BITS;
        let is_ack = stream & ACK_BIT != 0;
        Self {
            stream: if is_ack { Stream::Acks(path) } else { Stream::Chunks(path) },
            sender: if stream & SERVER_BIT != 0 { Role::Server } else { Role::Client },
            mode: flags & MODE_BITS,
            epoch: u16::from_le_bytes([epoch_0, epoch_1]),
            echo: flags >> 2,
            link: LinkTag([tag_0, tag_1, tag_2, tag_3]),
        }
    }

    /// Writes it.
    pub fn emit(&self, header: &mut [u8; HEADER_BYTES]) {
        header[MARK] = self.stream.code(self.sender);
        header[MARK + 1] = self.mode & MODE_BITS | self.echo << 2;
        header[MARK + 2..MARK + 4].copy_from_slice(&self.epoch.to_le_bytes());
        header[MARK + 4..].copy_from_slice(&self.link.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_reads_back() {
        for byte in 0..=u8::MAX {
            let mut header = [0xa5; HEADER_BYTES];
            header[MARK] = byte & !0x20;
            header[MARK + 1] = byte.rotate_left(3);
            let mark = Mark::parse(&header);
            let mut written = [0xa5; HEADER_BYTES];
            mark.emit(&mut written);
            assert_eq!(written, header, "{mark:?}");
        }
    }

    #[test]
    fn chunks_and_acks_have_their_numbers_where_the_protocol_says() {
        let mut header = [0; HEADER_BYTES];
        header[8..16].copy_from_slice(&7_u64.to_le_bytes());
        header[16..24].copy_from_slice(&(9_u64 << 40).to_le_bytes());
        assert_eq!(Stream::Chunks(3).number(&header), 7);
        assert_eq!(Stream::Acks(3).number(&header), 9 << 40);
    }

    #[test]
    fn no_two_streams_share_a_code_or_an_index() {
        let paths = 0..PATHS_MAX as u8;
        let streams: Vec<Stream> =
            paths.flat_map(|path| [Stream::Chunks(path), Stream::Acks(path)]).collect();
        let mut codes: Vec<u8> = Vec::new();
        let mut indexes: Vec<usize> = Vec::new();
        for stream in streams {
            codes.extend([Role::Client, Role::Server].map(|sender| stream.code(sender)));
            indexes.push(stream.index());
        }
        for list in [codes.iter().map(|code| usize::from(*code)).collect(), indexes] {
            let all = list.len();
            let distinct: std::collections::BTreeSet<usize> = list.into_iter().collect();
            assert_eq!(distinct.len(), all);
        }
    }
}
