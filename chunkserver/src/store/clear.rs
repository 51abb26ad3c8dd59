//! What takes bytes of a chunk away, as a record of the log says it.

use super::bytes::{u32_at, u64_at};
use super::limits::CHUNK_BYTES_MAX;
use super::slice::SLICE_BYTES;

/// Slices that a chunk has at most.
pub(crate) const CHUNK_SLICES_MAX: u64 = CHUNK_BYTES_MAX / SLICE_BYTES as u64;

/// Bytes of the body of a record before the slices that are put in place of others.
const FIXED_BYTES: usize = 32;
const PUT_BYTES: usize = 16;

/// How long a chunk is after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// As long as before.
    Kept,
    /// At least so many bytes.
    AtLeast(u64),
    /// So many bytes.
    Exactly(u64),
}

impl Length {
    /// The length of a chunk that had `byte_len` bytes.
    pub(crate) fn of(self, byte_len: u64) -> u64 {
        match self {
            Self::Kept => byte_len,
            Self::AtLeast(least) => byte_len.max(least),
            Self::Exactly(exact) => exact,
        }
    }

    fn code(self) -> (u32, u64) {
        match self {
            Self::Kept => (0, 0),
            Self::AtLeast(byte_len) => (1, byte_len),
            Self::Exactly(byte_len) => (2, byte_len),
        }
    }
}

/// A slice that is put in place of the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlicePut {
    /// Its index.
    pub slice: u64,
    /// Its page.
    pub page: u32,
    /// Its checksum.
    pub crc: u32,
}

/// What a record says of slices that are taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClearBody {
    /// The first slice that becomes a hole.
    pub first: u64,
    /// How many do.
    pub count: u64,
    /// How long the chunk is then.
    pub length: Length,
    /// Slices at the edges of the range, of which a part was taken away.
    pub puts: [Option<SlicePut>; 2],
}

impl ClearBody {
    /// Whether a slice becomes a hole.
    pub(crate) fn takes(&self, slice: u64) -> bool {
        (self.first..self.first + self.count).contains(&slice)
    }

    /// The slices that are put in place of others.
    pub fn puts(&self) -> impl Iterator<Item = SlicePut> {
        self.puts.into_iter().flatten()
    }

    pub(crate) fn encoded_len(&self) -> usize {
        FIXED_BYTES + self.puts().count() * PUT_BYTES
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (rule, byte_len) = self.length.code();
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&byte_len.to_le_bytes());
        out.extend_from_slice(&rule.to_le_bytes());
        out.extend_from_slice(&(self.puts().count() as u32).to_le_bytes());
        for SlicePut { slice, page, crc } in self.puts() {
            out.extend_from_slice(&slice.to_le_bytes());
            out.extend_from_slice(&page.to_le_bytes());
            out.extend_from_slice(&crc.to_le_bytes());
        }
    }
}

/// Reads the body of a record; names the field that is wrong otherwise.
pub(crate) fn parse(body: &[u8]) -> Result<ClearBody, &'static str> {
    let Some((fixed, list)) = body.split_at_checked(FIXED_BYTES) else {
        return Err("body_len");
    };
    let (first, count, byte_len) = (u64_at(fixed, 0), u64_at(fixed, 8), u64_at(fixed, 16));
    if first.checked_add(count).is_none_or(|end| end > CHUNK_SLICES_MAX) {
        return Err("slices");
    }
    let length = match (u32_at(fixed, 24), byte_len) {
        (0, 0) => Length::Kept,
        (1, 1..=CHUNK_BYTES_MAX) => Length::AtLeast(byte_len),
        (2, 0..=CHUNK_BYTES_MAX) => Length::Exactly(byte_len),
        _ => return Err("byte_len"),
    };
    let (entries, rest) = list.as_chunks::<PUT_BYTES>();
    if !rest.is_empty() || entries.len() != u32_at(fixed, 28) as usize || entries.len() > 2 {
        return Err("body_len");
    }
    let mut clear = ClearBody { first, count, length, puts: [None; 2] };
    for (at, entry) in entries.iter().enumerate() {
        let put =
            SlicePut { slice: u64_at(entry, 0), page: u32_at(entry, 8), crc: u32_at(entry, 12) };
        let is_next = clear.puts().all(|before| before.slice < put.slice);
        if !is_next || put.slice >= CHUNK_SLICES_MAX || clear.takes(put.slice) {
            return Err("slice");
        }
        if put.page == 0 {
            return Err("page");
        }
        clear.puts[at] = Some(put);
    }
    Ok(clear)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_as_it_was_written_and_one_that_nobody_writes_is_refused() {
        let put = |slice, page| Some(SlicePut { slice, page, crc: 9 });
        let clear = ClearBody {
            first: 3,
            count: 4,
            length: Length::AtLeast(30_000),
            puts: [put(2, 77), put(7, 78)],
        };
        let bytes = |clear: ClearBody| {
            let mut bytes = Vec::new();
            clear.encode(&mut bytes);
            assert_eq!(bytes.len(), clear.encoded_len());
            bytes
        };
        for puts in [[None, None], [put(2, 77), None], clear.puts] {
            for length in [Length::Kept, clear.length, Length::Exactly(0)] {
                let clear = ClearBody { puts, length, ..clear };
                assert_eq!(parse(&bytes(clear)), Ok(clear));
            }
        }
        for (wrong, field) in [
            (ClearBody { count: CHUNK_SLICES_MAX, ..clear }, "slices"),
            (ClearBody { length: Length::AtLeast(0), ..clear }, "byte_len"),
            (ClearBody { length: Length::Exactly(CHUNK_BYTES_MAX + 1), ..clear }, "byte_len"),
            (ClearBody { puts: [put(3, 77), None], ..clear }, "slice"),
            (ClearBody { puts: [put(7, 77), put(2, 78)], ..clear }, "slice"),
            (ClearBody { puts: [put(2, 0), None], ..clear }, "page"),
        ] {
            assert_eq!(parse(&bytes(wrong)), Err(field));
        }
        assert_eq!(parse(&bytes(clear)[..40]), Err("body_len"));
        assert_eq!(parse(&[0; 8]), Err("body_len"));
    }
}
