//! Chunk names, the place-bound checksum of a 4 KiB slice, and which slices a range touches.

use crate::session::random;
use core::fmt;
use core::str::FromStr;
use std::sync::LazyLock;

use thiserror::Error;
use towpath_base::crc::crc32c;

/// Bytes of one slice: the unit that has a checksum of its own, and the page of the store.
pub const SLICE_BYTES: usize = 4096;

/// The name of a chunk, shown as 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u128);

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a chunk is named by 32 hexadecimal digits")]
pub struct ParseChunkIdError;

impl ChunkId {
    /// A name that nobody else has chosen, by chance.
    #[must_use]
    pub fn random() -> Self {
        Self(random())
    }
}

impl FromStr for ChunkId {
    type Err = ParseChunkIdError;

    fn from_str(text: &str) -> Result<Self, ParseChunkIdError> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(ParseChunkIdError);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| ParseChunkIdError)
    }
}

/// Checksum of a whole slice, bound to its place (docs/store-core.md section 11).
///
/// `data` shorter than a slice, which only the last one of a chunk is, counts as padded with
/// zeros. Longer data is a bug of the caller.
#[must_use]
pub fn slice_crc(chunk: ChunkId, slice_index: u64, data: &[u8]) -> u32 {
    debug_assert!(data.len() <= SLICE_BYTES);
    let content = if data.len() == SLICE_BYTES {
        crc32c(data)
    } else {
        let mut padded = [0u8; SLICE_BYTES];
        padded[..data.len()].copy_from_slice(data);
        crc32c(&padded)
    };
    content ^ slice_place(chunk, slice_index)
}

/// Checksum of a slice that was never written and reads as zeros.
#[must_use]
pub fn hole_crc(chunk: ChunkId, slice_index: u64) -> u32 {
    static ZEROS: LazyLock<u32> = LazyLock::new(|| crc32c(&[0; SLICE_BYTES]));
    *ZEROS ^ slice_place(chunk, slice_index)
}

/// Checksum of part of a slice: of `bytes` alone, bound to chunk, slice, offset and length
/// (docs/store-core.md section 11).
#[must_use]
pub fn fragment_crc(chunk: ChunkId, slice_index: u64, offset_in_slice: u32, bytes: &[u8]) -> u32 {
    crc32c(bytes) ^ fragment_place(chunk, slice_index, offset_in_slice, bytes.len() as u32)
}

/// The part of a [`fragment_crc`] that does not depend on the bytes.
pub(crate) fn fragment_place(
    chunk: ChunkId,
    slice_index: u64,
    offset_in_slice: u32,
    length: u32,
) -> u32 {
    let mut place = [0u8; 32];
    place[..16].copy_from_slice(&chunk.0.to_le_bytes());
    place[16..24].copy_from_slice(&slice_index.to_le_bytes());
    place[24..28].copy_from_slice(&offset_in_slice.to_le_bytes());
    place[28..].copy_from_slice(&length.to_le_bytes());
    crc32c(&place)
}

/// The part of a [`slice_crc`] that does not depend on the bytes.
pub(crate) fn slice_place(chunk: ChunkId, slice_index: u64) -> u32 {
    let mut place = [0u8; 24];
    place[..16].copy_from_slice(&chunk.0.to_le_bytes());
    place[16..].copy_from_slice(&slice_index.to_le_bytes());
    crc32c(&place)
}

/// The slices that a byte range touches, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    offset: u64,
    byte_len: u64,
}

impl Span {
    /// The range of `byte_len` bytes from `offset`; `byte_len` is at least one and the end does
    /// not overflow.
    #[must_use]
    pub fn new(offset: u64, byte_len: u64) -> Self {
        debug_assert!(byte_len > 0 && offset.checked_add(byte_len).is_some());
        Self { offset, byte_len }
    }

    /// Index of the first slice touched.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.offset / SLICE_BYTES as u64
    }

    /// How many slices are touched.
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.end() - 1) / SLICE_BYTES as u64 - self.first() + 1
    }

    /// The first byte.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.offset
    }

    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.byte_len
    }

    /// The part of slice `slice_index` inside the range: offset in the slice, and length.
    #[must_use]
    pub fn part(&self, slice_index: u64) -> (usize, usize) {
        let start = slice_index * SLICE_BYTES as u64;
        let from = self.offset.max(start) - start;
        let to = self.end().min(start + SLICE_BYTES as u64) - start;
        (from as usize, (to - from) as usize)
    }

    /// Whether slice `slice_index` lies wholly inside the range.
    #[must_use]
    pub fn covers(&self, slice_index: u64) -> bool {
        self.part(slice_index).1 == SLICE_BYTES
    }
}

/// The checksums that a writer sends with `bytes` at `offset`: one per touched slice,
/// [`slice_crc`] where the slice is covered whole and [`fragment_crc`] where it is not.
#[must_use]
pub fn writer_crcs(chunk: ChunkId, offset: u64, bytes: &[u8]) -> Vec<u32> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let span = Span::new(offset, bytes.len() as u64);
    let mut rest = bytes;
    (span.first()..span.first() + span.count())
        .map(|slice| {
            let (from, len) = span.part(slice);
            let (part, after) = rest.split_at(len);
            rest = after;
            if len == SLICE_BYTES {
                slice_crc(chunk, slice, part)
            } else {
                fragment_crc(chunk, slice, from as u32, part)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_fits_only_its_own_place() {
        let data = [7u8; SLICE_BYTES];
        let crc = slice_crc(ChunkId(1), 2, &data);
        assert_ne!(crc, slice_crc(ChunkId(2), 2, &data));
        assert_ne!(crc, slice_crc(ChunkId(1), 3, &data));
        let fragment = fragment_crc(ChunkId(1), 2, 8, &data[..16]);
        assert_ne!(fragment, fragment_crc(ChunkId(1), 2, 9, &data[..16]));
    }

    #[test]
    fn a_short_slice_counts_as_padded_with_zeros() {
        let mut padded = [0u8; SLICE_BYTES];
        padded[..3].copy_from_slice(b"abc");
        assert_eq!(slice_crc(ChunkId(9), 0, b"abc"), slice_crc(ChunkId(9), 0, &padded));
        assert_eq!(slice_crc(ChunkId(9), 4, b""), hole_crc(ChunkId(9), 4));
    }

    #[test]
    fn names_survive_their_text_and_other_texts_are_refused() {
        let id = ChunkId(0xfeed_0000_0000_0001);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("12".parse::<ChunkId>(), Err(ParseChunkIdError));
        assert_eq!(format!("+{:031x}", 1).parse::<ChunkId>(), Err(ParseChunkIdError));
    }

    #[test]
    fn a_span_says_which_part_of_each_slice_it_touches() {
        let span = Span::new(4000, 4292);
        assert_eq!((span.first(), span.count(), span.end()), (0, 3, 8292));
        assert_eq!(span.part(0), (4000, 96));
        assert!(span.covers(1));
        assert_eq!(span.part(2), (0, 100));
    }
}
