//! A slot: one slice in memory that clients read by themselves, and what one READ of it says.

use crate::slice::{ChunkId, SLICE_BYTES, slice_crc};
use towpath_base::crc::crc32c;

/// Bytes behind the slice.
pub const TRAILER_BYTES: usize = 40;

/// Bytes of a slot: a slice and its trailer.
pub const SLOT_BYTES: usize = SLICE_BYTES + TRAILER_BYTES;

/// Bytes of a buffer that holds the slots of `byte_len` bytes of slices, in whole pages.
#[must_use]
pub const fn slots_bytes(byte_len: usize) -> usize {
    (byte_len.div_ceil(SLICE_BYTES) * SLOT_BYTES).next_multiple_of(4096)
}

/// Where in a slot the word lies that marks it: the last one.
pub const MARK_AT: usize = SLOT_BYTES - 8;

/// The largest version that a slot can have.
pub const VERSION_MAX: u64 = ABSENT - 1;

/// In the mark: the slot is being rewritten.
const REWRITTEN: u64 = 1 << 63;
/// In the mark: the slot is of this slice, whose bytes are not here.
const ABSENT: u64 = 1 << 62;

/// What stands behind a slice in its slot (docs/storage-protocol.md section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The chunk.
    pub chunk: ChunkId,
    /// Index of the slice in the chunk.
    pub slice: u64,
    /// Checksum of the slice, bound to its place ([`slice_crc`]).
    pub slice_crc: u32,
    /// Version of the chunk when the slot was written, 1 to [`VERSION_MAX`].
    pub version: u64,
    /// The bytes are not here: only the server has them.
    pub is_absent: bool,
}

/// What a trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// No slice has the slot.
    Free,
    /// The slot is being rewritten, or was while it was read, or the trailer was changed.
    Unsettled,
    /// It is a trailer.
    Settled(Trailer),
}

impl Trailer {
    /// The trailer as bytes; the last eight are the mark.
    #[must_use]
    pub fn emit(&self) -> [u8; TRAILER_BYTES] {
        debug_assert!((1..=VERSION_MAX).contains(&self.version));
        let mark = self.version | if self.is_absent { ABSENT } else { 0 };
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..16].copy_from_slice(&self.chunk.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.slice.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.slice_crc.to_le_bytes());
        bytes[32..].copy_from_slice(&mark.to_le_bytes());
        let seal = seal_of(&bytes);
        bytes[28..32].copy_from_slice(&seal.to_le_bytes());
        bytes
    }

    /// The mark of a slot that is being rewritten to `version`, as its bytes lie in memory.
    #[must_use]
    pub fn rewritten_mark(version: u64) -> [u8; 8] {
        (version | REWRITTEN).to_le_bytes()
    }

    fn read(bytes: &[u8; TRAILER_BYTES]) -> Said {
        let mark = u64::from_le_bytes(array(bytes, 32));
        if *bytes == [0; TRAILER_BYTES] {
            return Said::Free;
        }
        let version = mark & !ABSENT;
        let sealed = u32::from_le_bytes(array(bytes, 28)) == seal_of(bytes);
        if !sealed || !(1..=VERSION_MAX).contains(&version) {
            return Said::Unsettled;
        }
        Said::Settled(Self {
            chunk: ChunkId(u128::from_le_bytes(array(bytes, 0))),
            slice: u64::from_le_bytes(array(bytes, 16)),
            slice_crc: u32::from_le_bytes(array(bytes, 24)),
            version,
            is_absent: mark & ABSENT != 0,
        })
    }
}

/// The seal binds all other bytes of a trailer together.
fn seal_of(bytes: &[u8; TRAILER_BYTES]) -> u32 {
    let mut sealed = [0; TRAILER_BYTES - 4];
    sealed[..28].copy_from_slice(&bytes[..28]);
    sealed[28..].copy_from_slice(&bytes[32..]);
    crc32c(&sealed)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// What one READ of a slot found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// The slice, whole, as it was at this version of its chunk.
    Whole {
        /// Version of the chunk when the slot was written.
        version: u64,
    },
    /// The slot was being rewritten: read it again.
    Torn,
    /// The trailer is whole and of this slice, and the bytes are not those that it tells of: they
    /// are of two versions, or were changed on their way. Bytes that are still wrong when the same
    /// version is read again were changed.
    Differs {
        /// Version that the trailer tells.
        version: u64,
    },
    /// The slot is free, or another slice's: the chunk was deleted or has moved.
    Moved,
    /// The slot is of this slice, and only the server has the bytes.
    Absent,
}

/// Says what `slot`, the bytes of one READ, holds of slice `slice` of `chunk`. Bytes of any other
/// length than [`SLOT_BYTES`] are no slot, and count as torn. One pass over the slice.
#[must_use]
pub fn inspect(chunk: ChunkId, slice: u64, slot: &[u8]) -> Found {
    let Some((bytes, trailer)) = slot.split_at_checked(SLICE_BYTES) else { return Found::Torn };
    let Ok(trailer) = trailer.try_into() else { return Found::Torn };
    match Trailer::read(trailer) {
        Said::Free => Found::Moved,
        Said::Unsettled => Found::Torn,
        Said::Settled(found) if (found.chunk, found.slice) != (chunk, slice) => Found::Moved,
        Said::Settled(Trailer { is_absent: true, .. }) => Found::Absent,
        Said::Settled(Trailer { version, slice_crc: expected, .. }) => {
            match slice_crc(chunk, slice, bytes) == expected {
                true => Found::Whole { version },
                false => Found::Differs { version },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    const CHUNK: ChunkId = ChunkId(0x1122_3344_5566_7788_99aa_bbcc_ddee_ff00);

    fn slot(chunk: ChunkId, slice: u64, version: u64, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; SLICE_BYTES];
        Prng::new(seed).fill(&mut bytes);
        let slice_crc = slice_crc(chunk, slice, &bytes);
        let trailer = Trailer { chunk, slice, slice_crc, version, is_absent: false };
        bytes.extend_from_slice(&trailer.emit());
        bytes
    }

    #[test]
    fn a_trailer_is_these_bytes() {
        let trailer = Trailer {
            chunk: CHUNK,
            slice: 0x0102_0304,
            slice_crc: 0xa1b2_c3d4,
            version: 0x0506,
            is_absent: false,
        };
        let golden = [
            0x00, 0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
            0x22, 0x11, 4, 3, 2, 1, 0, 0, 0, 0, 0xd4, 0xc3, 0xb2, 0xa1, 0, 0, 0, 0, 6, 5, 0, 0, 0,
            0, 0, 0,
        ];
        let bytes = trailer.emit();
        assert_eq!(bytes[..28], golden[..28]);
        assert_eq!(bytes[28..32], SEAL_GOLDEN);
        assert_eq!(bytes[32..], golden[32..]);
        let absent = Trailer { is_absent: true, ..trailer }.emit();
        assert_eq!(absent[32..], [6, 5, 0, 0, 0, 0, 0, 0x40]);
        assert_eq!(Trailer::rewritten_mark(0x0506), [6, 5, 0, 0, 0, 0, 0, 0x80]);
        assert_eq!((SLOT_BYTES, MARK_AT), (4136, 4128));
    }

    /// CRC32C of the 28 bytes before it and the eight behind it, computed by another program.
    const SEAL_GOLDEN: [u8; 4] = [240, 49, 142, 196];

    #[test]
    fn a_whole_slot_is_told_from_those_of_other_slices_and_from_free_ones() {
        let bytes = slot(CHUNK, 3, 9, 1);
        assert_eq!(inspect(CHUNK, 3, &bytes), Found::Whole { version: 9 });
        assert_eq!(inspect(CHUNK, 4, &bytes), Found::Moved);
        assert_eq!(inspect(ChunkId(CHUNK.0 + 1), 3, &bytes), Found::Moved);
        assert_eq!(inspect(CHUNK, 3, &[0; SLOT_BYTES]), Found::Moved);
        assert_eq!(inspect(CHUNK, 3, &bytes[1..]), Found::Torn);
        assert_eq!(inspect(CHUNK, 3, &[&bytes[..], &[0]].concat()), Found::Torn);
        assert_eq!(inspect(CHUNK, 3, &[]), Found::Torn);
        let mut absent = vec![7; SLICE_BYTES];
        let trailer = Trailer { chunk: CHUNK, slice: 3, slice_crc: 0, version: 9, is_absent: true };
        absent.extend_from_slice(&trailer.emit());
        assert_eq!(inspect(CHUNK, 3, &absent), Found::Absent);
    }

    /// A chunk whose name was chosen so that its checksums are those of another is told from that.
    #[test]
    fn a_place_with_the_same_checksum_is_not_the_same_place() {
        let bytes = [5; SLICE_BYTES];
        let target = slice_crc(CHUNK, 0, &bytes);
        // CRC is affine: names that differ in 33 bits have two combinations that collide. The
        // search is by elimination over the 32 bits of the checksum.
        let base = slice_crc(ChunkId(0), 0, &bytes);
        let effect = |bit: u32| slice_crc(ChunkId(1 << bit), 0, &bytes) ^ base;
        let mut basis: Vec<(u32, u128)> = Vec::new();
        let mut same = None;
        for bit in 0..33 {
            let (mut value, mut name) = (effect(bit), 1u128 << bit);
            for &(have, made) in &basis {
                if value ^ have < value {
                    (value, name) = (value ^ have, name ^ made);
                }
            }
            if value == 0 {
                same = Some(ChunkId(CHUNK.0 ^ name));
                break;
            }
            basis.push((value, name));
            basis.sort_unstable_by(|a, b| b.cmp(a));
        }
        let twin = same.expect("33 names span 32 bits");
        assert_eq!(slice_crc(twin, 0, &bytes), target);
        assert_ne!(twin, CHUNK);
        let mut of_twin = bytes.to_vec();
        let trailer =
            Trailer { chunk: twin, slice: 0, slice_crc: target, version: 1, is_absent: false };
        of_twin.extend_from_slice(&trailer.emit());
        assert_eq!(inspect(CHUNK, 0, &of_twin), Found::Moved);
    }

    #[test]
    fn every_changed_bit_of_a_slot_is_noticed() {
        let bytes = slot(CHUNK, 3, 9, 1);
        for bit in 0..SLOT_BYTES * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let found = inspect(CHUNK, 3, &changed);
            match bit / 8 < SLICE_BYTES {
                true => assert_eq!(found, Found::Differs { version: 9 }, "bit {bit}"),
                false => assert_eq!(found, Found::Torn, "bit {bit}"),
            }
        }
    }

    /// A writer and a reader that goes through the slot once: whatever words the reader has of
    /// which version, it takes the slot as whole only if all are of one.
    #[test]
    fn words_of_two_versions_are_never_a_whole_slot() {
        let seed = 11;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let old = slot(CHUNK, 3, 9, 1);
        let new = slot(CHUNK, 3, 10, 2);
        let words = SLOT_BYTES / 8;
        for round in 0..20_000 {
            let from = prng.below(words as u64 + 1) as usize;
            let to = from + prng.below((words - from) as u64 + 1) as usize;
            let mut mixed = old.clone();
            mixed[from * 8..to * 8].copy_from_slice(&new[from * 8..to * 8]);
            if prng.below(4) == 0 {
                mixed[MARK_AT..].copy_from_slice(&Trailer::rewritten_mark(10));
            }
            let found = inspect(CHUNK, 3, &mixed);
            let is_right = match &mixed {
                same if *same == old => found == Found::Whole { version: 9 },
                same if *same == new => found == Found::Whole { version: 10 },
                _ => matches!(found, Found::Torn | Found::Differs { .. }),
            };
            assert!(is_right, "round {round}: words {from} to {to} give {found:?}");
        }
    }
}
