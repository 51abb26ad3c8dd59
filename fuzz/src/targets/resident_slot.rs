//! A slot of a resident chunk, as one READ of it came.

use crate::class;
use towpath_base::crc::crc32c;
use towpath_fastpath::ChunkId;
use towpath_fastpath::resident::{Found, SLOT_BYTES, TRAILER_BYTES, inspect};
use towpath_fastpath::slice::{SLICE_BYTES, slice_crc};

/// Which slice is looked for.
const CHUNK: ChunkId = ChunkId(7);
const SLICE: u64 = 3;

/// One byte that says which checksums are made right first (bits 0 and 1) and how many bytes are
/// missing (bits 4 to 7), one byte that the slice is full of, then the trailer.
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((&[how, fill], rest)) = input.split_first_chunk() else { return 0 };
    let mut slot = vec![fill; SLICE_BYTES];
    let mut trailer = [0; TRAILER_BYTES];
    let len = rest.len().min(TRAILER_BYTES);
    trailer[..len].copy_from_slice(&rest[..len]);
    let right = slice_crc(CHUNK, SLICE, &slot);
    if how & 1 != 0 {
        trailer[24..28].copy_from_slice(&right.to_le_bytes());
    }
    if how & 2 != 0 {
        let seal = crc32c(&[&trailer[..28], &trailer[32..]].concat());
        trailer[28..32].copy_from_slice(&seal.to_le_bytes());
    }
    slot.extend_from_slice(&trailer);
    slot.truncate(SLOT_BYTES - usize::from(how >> 4));
    let found = inspect(CHUNK, SLICE, &slot);
    match found {
        Found::Whole { version } => {
            assert_eq!(slot.len(), SLOT_BYTES);
            assert_eq!(trailer[..16], CHUNK.0.to_le_bytes());
            assert_eq!(trailer[16..24], SLICE.to_le_bytes());
            assert_eq!(trailer[24..28], right.to_le_bytes());
            assert_eq!(trailer[32..], version.to_le_bytes(), "no bit says otherwise");
            class(&[1, u64::from(version.leading_zeros())])
        }
        Found::Differs { .. } => 2,
        Found::Torn => 3,
        Found::Moved => 4,
        Found::Absent => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;
    use towpath_fastpath::resident::Trailer;

    #[test]
    fn the_seeds_of_resident_slot_are_as_made() {
        let slice_crc = slice_crc(CHUNK, SLICE, &[9; SLICE_BYTES]);
        let whole = Trailer { chunk: CHUNK, slice: SLICE, slice_crc, version: 5, is_absent: false };
        let with = |how, trailer: Trailer| [&[how, 9], &trailer.emit()[..]].concat();
        let made = [
            ("whole", with(0, whole)),
            ("absent", with(0, Trailer { is_absent: true, ..whole })),
            ("other", with(0, Trailer { slice: SLICE + 1, ..whole })),
            ("differs", with(0, Trailer { slice_crc: 1, ..whole })),
            ("short", with(0x10, whole)),
            ("free", vec![0, 9]),
        ];
        seeds::check("resident_slot", &made);
        let outcomes: Vec<u64> = made.iter().map(|(_, input)| run(input)).collect();
        assert_eq!(outcomes[1..], [5, 4, 2, 3, 4]);
    }
}
