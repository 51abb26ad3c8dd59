//! Packs: several short chunks in one SEND (docs/protocol.md section 3).

use super::{VERSION, payload_bytes};
use crate::limits::{HEADER_BYTES, PACK_ALIGN_BYTES, PACKED_BYTES_MAX};

/// How far behind the end of a header the next one begins where a payload of so many bytes is in
/// between.
#[must_use]
#[inline]
pub const fn next_in_pack(payload_bytes: usize) -> usize {
    payload_bytes.next_multiple_of(PACK_ALIGN_BYTES)
}

/// Whether a chunk begins here, rather than filler.
#[must_use]
#[inline]
pub fn begins_chunk(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES && bytes[0] == VERSION
}

/// The headers and payloads that stand one behind the other from here on, unchecked but for their
/// lengths: they end with filler, with what is cut off, and with a payload that is too long for a
/// pack.
///
/// ```
/// use towpath_proto::wire::{VERSION, packed};
///
/// let mut bytes = [0; 72 + 64 + 8];
/// (bytes[0], bytes[1], bytes[40]) = (VERSION, 1, 3);
/// bytes[64..67].copy_from_slice(b"abc");
/// (bytes[72], bytes[73], bytes[72 + 40]) = (VERSION, 1, 5);
/// let payloads: Vec<&[u8]> = packed(&bytes).map(|(_, payload)| payload).collect();
/// assert_eq!(payloads, [&b"abc"[..], &[0; 5]]);
/// ```
pub fn packed(bytes: &[u8]) -> impl Iterator<Item = (&[u8; HEADER_BYTES], &[u8])> {
    let mut left = bytes;
    core::iter::from_fn(move || {
        let (header, behind) = left.split_first_chunk().filter(|_| begins_chunk(left))?;
        let payload = &behind[..payload_bytes(header, behind.len())];
        left = behind.get(next_in_pack(payload.len())..).unwrap_or_default();
        (payload.len() <= PACKED_BYTES_MAX).then_some((header, payload))
    })
    .fuse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use towpath_base::Prng;

    /// A header that says so many bytes of payload, and the payload.
    fn chunk(mark: u8, length: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        (bytes[0], bytes[1], bytes[8]) = (VERSION, 1, mark);
        bytes[40..44].copy_from_slice(&length.to_le_bytes());
        bytes.resize(HEADER_BYTES + length as usize, mark);
        bytes
    }

    fn in_pack(chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for chunk in chunks {
            bytes.resize(bytes.len().next_multiple_of(PACK_ALIGN_BYTES), 0);
            bytes.extend_from_slice(chunk);
        }
        bytes
    }

    fn lengths(bytes: &[u8]) -> Vec<usize> {
        packed(bytes).map(|(_, payload)| payload.len()).collect()
    }

    #[test]
    fn chunks_are_found_behind_each_other_until_something_else_comes() {
        let chunks = [chunk(1, 1), chunk(2, 8), chunk(3, 512), chunk(4, 13)];
        let bytes = in_pack(&chunks);
        let found: Vec<u8> = packed(&bytes).map(|(header, _)| header[8]).collect();
        assert_eq!(found, [1, 2, 3, 4]);
        for (header, payload) in packed(&bytes) {
            assert!(payload.iter().all(|&byte| byte == header[8]));
        }
        let mut filled = bytes.clone();
        filled.resize(bytes.len().next_multiple_of(PACK_ALIGN_BYTES) + 100, 0);
        assert_eq!(lengths(&filled), [1, 8, 512, 13], "filler is no chunk");
        assert_eq!(lengths(&bytes[..bytes.len() - 1]), [1, 8, 512, 12], "refused by its length");
        assert_eq!(lengths(&[]), [0; 0]);
        let too_long = in_pack(&[chunk(1, 1), chunk(2, 513), chunk(3, 1)]);
        assert_eq!(lengths(&too_long), [1]);
    }

    #[test]
    fn any_bytes_come_to_an_end_within_themselves() {
        let mut prng = Prng::new(7);
        for _ in 0..20_000 {
            let mut bytes = in_pack(&[chunk(1, 5), chunk(2, 64), chunk(3, 30), chunk(4, 8)]);
            for _ in 0..prng.below(6) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] = prng.next_u32() as u8;
            }
            bytes.truncate(prng.below(bytes.len() as u64 + 1) as usize);
            let mut at = 0;
            for (header, payload) in packed(&bytes) {
                assert_eq!(header, &bytes[at..at + HEADER_BYTES]);
                at += HEADER_BYTES;
                assert_eq!(payload, &bytes[at..at + payload.len()]);
                at += next_in_pack(payload.len());
            }
        }
    }
}
