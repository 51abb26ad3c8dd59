//! The framing of messages on kernel TCP: an 8-byte header, then the payload.

use crate::perftest::error::RunError;

/// Bytes of a frame header: length (u32, little-endian), kind, flags, two reserved zero bytes.
pub(super) const HEADER_BYTES: usize = 8;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message.
    Data,
    /// How many messages its sender has received since the connection began (so that an ack that
    /// comes late is harmless); 8 bytes.
    Ack,
    /// No more messages in this row; empty.
    End,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) length: u32,
    pub(super) kind: Kind,
    /// Its receiver answers with an [`Kind::Ack`].
    pub(super) confirm: bool,
}

impl Header {
    pub(super) fn emit(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4] = match self.kind {
            Kind::Data => 0,
            Kind::Ack => 1,
            Kind::End => 2,
        };
        bytes[5] = u8::from(self.confirm);
        bytes
    }

    pub(super) fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Self, RunError> {
        let [a, b, c, d, kind, flags, 0, 0] = bytes else { return Err(RunError::BadFrame) };
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Ack,
            2 => Kind::End,
            _ => return Err(RunError::BadFrame),
        };
        let confirm = match flags {
            0 => false,
            1 => true,
            _ => return Err(RunError::BadFrame),
        };
        Ok(Self { length: u32::from_le_bytes([a, b, c, d]), kind, confirm })
    }
}

/// Takes frames out of a stream of bytes, wherever reads cut it.
#[derive(Debug, Default)]
pub(super) struct Parser {
    header: [u8; HEADER_BYTES],
    have: usize,
    current: Option<Header>,
    offset: usize,
}

/// A step of a parser.
pub(super) enum Step<'a> {
    /// Bytes of a frame's payload, from `offset` on; `end` says that the frame is whole.
    Piece { header: Header, offset: usize, piece: &'a [u8], end: bool },
    /// All bytes are used up.
    Dry,
}

impl Parser {
    /// Takes the next step into `bytes`, and moves it on.
    #[inline]
    pub(super) fn step<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Step<'a>, RunError> {
        let header = match self.current {
            Some(header) => header,
            None => match self.take_header(bytes)? {
                Some(header) => header,
                None => return Ok(Step::Dry),
            },
        };
        let rest = header.length as usize - self.offset;
        if bytes.is_empty() && rest > 0 {
            self.current = Some(header);
            return Ok(Step::Dry);
        }
        let (piece, after) = bytes.split_at(rest.min(bytes.len()));
        *bytes = after;
        let (offset, end) = (self.offset, piece.len() == rest);
        if end {
            (self.current, self.offset) = (None, 0);
        } else {
            (self.current, self.offset) = (Some(header), offset + piece.len());
        }
        Ok(Step::Piece { header, offset, piece, end })
    }

    #[inline]
    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<Option<Header>, RunError> {
        if self.have == 0
            && let Some((header, after)) = bytes.split_first_chunk()
        {
            *bytes = after;
            return Header::parse(*header).map(Some);
        }
        let count = (HEADER_BYTES - self.have).min(bytes.len());
        let (head, after) = bytes.split_at(count);
        self.header[self.have..self.have + count].copy_from_slice(head);
        self.have += count;
        *bytes = after;
        if self.have < HEADER_BYTES {
            return Ok(None);
        }
        self.have = 0;
        Header::parse(self.header).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (length, kind, confirm) in
            [(3, Kind::Data, false), (5, Kind::Data, true), (0, Kind::End, true)]
        {
            bytes.extend_from_slice(&Header { length, kind, confirm }.emit());
            bytes.extend((0..length as u8).map(|n| n + 1));
        }
        bytes
    }

    #[test]
    fn frames_come_out_whole_wherever_reads_cut_the_stream() {
        let bytes = frames();
        for cut in 1..=bytes.len() {
            let (mut parser, mut payloads, mut kinds) = (Parser::default(), vec![], vec![]);
            for mut part in bytes.chunks(cut) {
                while let Step::Piece { header, offset, piece, end } =
                    parser.step(&mut part).unwrap()
                {
                    assert_eq!(offset == 0, piece.first().is_none_or(|&byte| byte == 1));
                    payloads.extend_from_slice(piece);
                    if end {
                        kinds.push((header.kind, header.confirm));
                    }
                }
            }
            assert_eq!(payloads, [1, 2, 3, 1, 2, 3, 4, 5], "cut at {cut}");
            let wanted = [(Kind::Data, false), (Kind::Data, true), (Kind::End, true)];
            assert_eq!(kinds, wanted, "cut at {cut}");
        }
    }

    #[test]
    fn a_header_with_unknown_kind_flag_or_reserved_byte_is_refused() {
        let good = Header { length: 1, kind: Kind::Ack, confirm: true }.emit();
        assert!(Header::parse(good).is_ok());
        for (at, value) in [(4, 3), (5, 2), (6, 1), (7, 1)] {
            let mut bad = good;
            bad[at] = value;
            assert!(matches!(Header::parse(bad), Err(RunError::BadFrame)), "byte {at}");
        }
    }
}
