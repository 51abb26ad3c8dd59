//! What a server says of the slices of a chunk without sending them: checksums, and sketches.
//!
//! Copies of the same bytes in different chunks have different checksums of slices, as these are
//! bound to their place. [`Digest::content`] takes that off.

use crate::control::Name;
use crate::limits::IO_BYTES_MAX;
use crate::slice::{ChunkId, SLICE_BYTES, Span, slice_place};
use crate::wire::WireError;

/// Whole slices of a chunk, the last one up to where the range ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRange {
    /// First byte: that of a slice.
    pub offset: u64,
    /// Bytes, 1 to [`IO_BYTES_MAX`].
    pub length: u32,
}

impl SliceRange {
    /// A range, if it is one.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn new(offset: u64, length: u32) -> Result<Self, WireError> {
        if length == 0 || length as usize > IO_BYTES_MAX {
            return Err(WireError::Length(length));
        }
        if !offset.is_multiple_of(SLICE_BYTES as u64) {
            return Err(WireError::Unaligned(offset));
        }
        match offset.checked_add(length.into()) {
            Some(_) => Ok(Self { offset, length }),
            None => Err(WireError::Range { offset, length }),
        }
    }

    /// The slices that it touches.
    #[must_use]
    pub fn span(&self) -> Span {
        Span::new(self.offset, self.length.into())
    }

    /// How many of its slices a chunk of so many bytes has.
    #[must_use]
    pub fn slices_in(&self, byte_len: u64) -> u64 {
        let (span, slices) = (self.span(), byte_len.div_ceil(SLICE_BYTES as u64));
        slices.saturating_sub(span.first()).min(span.count())
    }
}

/// Asks for the checksums of the slices of a range, as far as the chunk has them.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DigestRequest {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
    /// First byte of the range: that of a slice.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Its length in bytes, 1 to [`IO_BYTES_MAX`].
    #[prost(uint32, tag = "3")]
    pub length: u32,
}

/// The checksums of slices.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DigestReply {
    /// The version of the chunk.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Its length in bytes.
    #[prost(uint64, tag = "2")]
    pub byte_len: u64,
    /// The [`slice_crc`](crate::slice::slice_crc) of each slice of the range that the chunk has;
    /// of a hole that of zeros.
    #[prost(fixed32, repeated, tag = "3")]
    pub crcs: Vec<u32>,
    /// Bit `i & 7` of byte `i / 8`: slice `i` of the range is a hole. Empty where none is.
    #[prost(bytes = "vec", tag = "4")]
    pub holes: Vec<u8>,
}

/// The checksums of the slices of a range of a chunk, of one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    chunk: ChunkId,
    first_slice: u64,
    reply: DigestReply,
}

impl Digest {
    /// What a server has answered, where it fits what it was asked.
    ///
    /// # Errors
    /// [`WireError::Slices`].
    pub fn check(chunk: ChunkId, range: SliceRange, reply: DigestReply) -> Result<Self, WireError> {
        let slices = reply.crcs.len();
        let holes = reply.holes.len();
        let beyond = reply.holes.last().map_or(0, |last| match slices % 8 {
            0 => 0,
            used => last >> used,
        });
        let has_holes = holes == 0 || holes == slices.div_ceil(8);
        if slices as u64 != range.slices_in(reply.byte_len) || !has_holes || beyond != 0 {
            return Err(WireError::Slices);
        }
        Ok(Self { chunk, first_slice: range.span().first(), reply })
    }

    /// The version of the chunk.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.reply.version
    }

    /// The length of the chunk in bytes.
    #[must_use]
    pub fn byte_len(&self) -> u64 {
        self.reply.byte_len
    }

    /// The checksums, each with the index of its slice in the chunk, as
    /// [`slice_crc`](crate::slice::slice_crc) makes them.
    pub fn crcs(&self) -> impl ExactSizeIterator<Item = (u64, u32)> {
        let crcs = self.reply.crcs.iter().enumerate();
        crcs.map(|(at, crc)| (self.first_slice + at as u64, *crc))
    }

    /// The checksums of the bytes alone, in the order of the slices: slices of the same bytes have
    /// the same one, wherever they are.
    pub fn content(&self) -> impl ExactSizeIterator<Item = u32> {
        self.crcs().map(|(slice, crc)| crc ^ slice_place(self.chunk, slice))
    }

    /// Whether a slice was never written, or was taken away, and reads as zeros. False of slices
    /// that the digest does not have.
    #[must_use]
    pub fn is_hole(&self, slice: u64) -> bool {
        let Some(at) = slice.checked_sub(self.first_slice) else { return false };
        let byte = usize::try_from(at / 8).ok().and_then(|byte| self.reply.holes.get(byte));
        byte.is_some_and(|byte| byte >> (at % 8) & 1 == 1)
    }
}

/// Asks for a sketch of each slice of a range, which the server reads for that.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SketchRequest {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Name,
    /// First byte of the range: that of a slice.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Its length in bytes, 1 to [`SKETCHED_BYTES_MAX`](crate::limits::SKETCHED_BYTES_MAX).
    #[prost(uint32, tag = "3")]
    pub length: u32,
    /// By which the linear function is drawn that makes the sketches.
    #[prost(fixed64, tag = "4")]
    pub seed: u64,
}

/// Sketches of slices.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SketchReply {
    /// The version of the chunk.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// Its length in bytes.
    #[prost(uint64, tag = "2")]
    pub byte_len: u64,
    /// The sketch of each slice of the range, its bytes in little-endian order.
    #[prost(fixed32, repeated, tag = "3")]
    pub sketches: Vec<u32>,
}

/// The sketches of the slices of a range of a chunk, of one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketches(SketchReply);

impl Sketches {
    /// What a server has answered, where it fits what it was asked.
    ///
    /// # Errors
    /// [`WireError::Slices`].
    pub fn check(range: SliceRange, reply: SketchReply) -> Result<Self, WireError> {
        let span = range.span();
        let fits = reply.sketches.len() as u64 == span.count() && span.end() <= reply.byte_len;
        if fits { Ok(Self(reply)) } else { Err(WireError::Slices) }
    }

    /// The version of the chunk.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// The sketches, in the order of the slices.
    pub fn sketches(&self) -> impl ExactSizeIterator<Item = [u8; 4]> {
        self.0.sketches.iter().map(|sketch| sketch.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::{hole_crc, slice_crc};
    use towpath_base::crc::crc32c;

    const CHUNK: ChunkId = ChunkId(7);

    fn range(offset: u64, length: u32) -> SliceRange {
        SliceRange::new(offset, length).expect("a range")
    }

    #[test]
    fn a_range_begins_with_a_slice_and_does_not_overflow() {
        assert_eq!(SliceRange::new(0, 0), Err(WireError::Length(0)));
        let long = IO_BYTES_MAX as u32 + 1;
        assert_eq!(SliceRange::new(0, long), Err(WireError::Length(long)));
        assert_eq!(SliceRange::new(4_095, 1), Err(WireError::Unaligned(4_095)));
        let (offset, length) = (u64::MAX - 4_095, 4_096);
        assert_eq!(SliceRange::new(offset, length), Err(WireError::Range { offset, length }));
        let range = range(8_192, 4_097);
        let in_chunk = [0, 8_192, 8_193, 12_289, 1 << 40].map(|bytes| range.slices_in(bytes));
        assert_eq!(in_chunk, [0, 0, 1, 2, 2]);
    }

    #[test]
    fn a_digest_tells_the_content_and_the_holes_of_its_slices() {
        let bytes = [9; SLICE_BYTES];
        let crcs = vec![hole_crc(CHUNK, 2), slice_crc(CHUNK, 3, &bytes)];
        let reply = DigestReply { version: 5, byte_len: 16_000, crcs, holes: vec![0b01] };
        let digest = Digest::check(CHUNK, range(8_192, 1 << 20), reply).expect("it fits");
        assert_eq!((digest.version(), digest.byte_len()), (5, 16_000));
        let content: Vec<u32> = digest.content().collect();
        assert_eq!(content, [crc32c(&[0; SLICE_BYTES]), crc32c(&bytes)]);
        let holes: Vec<bool> = (0..20).map(|slice| digest.is_hole(slice)).collect();
        assert_eq!(holes.iter().position(|is_hole| *is_hole), Some(2));
        assert_eq!(holes.iter().filter(|is_hole| **is_hole).count(), 1);
    }

    #[test]
    fn an_answer_to_another_question_is_refused() {
        let good = DigestReply { version: 5, byte_len: 16_000, crcs: vec![1, 2], holes: vec![3] };
        let check =
            |reply: &DigestReply| Digest::check(CHUNK, range(8_192, 1 << 20), reply.clone());
        assert!(check(&good).is_ok());
        for wrong in [
            DigestReply { crcs: vec![1], ..good.clone() },
            DigestReply { crcs: vec![1, 2, 3], ..good.clone() },
            DigestReply { byte_len: 8_192, ..good.clone() },
            DigestReply { holes: vec![4], ..good.clone() },
            DigestReply { holes: vec![0, 0], ..good.clone() },
        ] {
            assert_eq!(check(&wrong), Err(WireError::Slices), "{wrong:?}");
        }
    }

    #[test]
    fn sketches_of_another_range_are_refused() {
        let check = |byte_len, count| {
            let reply = SketchReply { version: 5, byte_len, sketches: vec![0x0403_0201; count] };
            Sketches::check(range(8_192, 4_097), reply)
        };
        let good = check(12_289, 2).expect("it fits");
        assert_eq!(good.sketches().collect::<Vec<_>>(), [[1, 2, 3, 4]; 2]);
        for (byte_len, count) in [(12_288, 2), (12_289, 1), (12_289, 3)] {
            assert_eq!(check(byte_len, count), Err(WireError::Slices));
        }
    }
}
