//! Received bytes against their checksums: by what the link took of them, or in one pass.

use crate::run::Places;
use crate::slice::{
    ChunkId, SLICE_BYTES, Span, fragment_crc, fragment_place, slice_crc, slice_place,
};
use towpath_base::crc::Crc32c;

/// Which bytes of a chunk are checked, and how its last slice ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// The chunk.
    pub chunk: ChunkId,
    /// The bytes.
    pub span: Span,
    /// Where the chunk ends, for reads: a slice that is covered from its start to there comes
    /// with the checksum of the whole padded slice. None for writes.
    pub chunk_bytes: Option<u64>,
}

impl Coverage {
    /// Whether slice `slice_index`, of which `len` bytes from `from` on are covered, has the
    /// checksum of a whole slice.
    fn is_whole(&self, slice_index: u64, from: usize, len: usize) -> bool {
        let end = slice_index * SLICE_BYTES as u64 + (from + len) as u64;
        len == SLICE_BYTES || from == 0 && self.chunk_bytes == Some(end)
    }

    /// The checksum that `bytes`, the covered part of a slice, must have.
    fn crc(&self, slice_index: u64, from: usize, bytes: &[u8]) -> u32 {
        if self.is_whole(slice_index, from, bytes.len()) {
            slice_crc(self.chunk, slice_index, bytes)
        } else {
            fragment_crc(self.chunk, slice_index, from as u32, bytes)
        }
    }
}

/// A slice of which not all bytes have come yet.
struct Open {
    crc: Crc32c,
    got: usize,
}

/// Checks bytes that come in `pieces`, cut anywhere, against one checksum per touched slice.
///
/// Pieces are (offset in the data, bytes, CRC32C of pages), in order and without gaps, as
/// [`data_pieces_with_crcs`](towpath_rpc::Parcel::data_pieces_with_crcs) gives them. A whole slice
/// that is a page whose CRC32C the link took costs nothing but the comparison; one that lies in one
/// piece, as all do that an honest sender of whole pages cut, one pass.
///
/// # Errors
/// The index in its chunk of the first slice that does not have its checksum, or whose bytes or
/// checksum are missing.
pub fn verify_slices<'a>(
    coverage: Coverage,
    pieces: impl IntoIterator<Item = (usize, &'a [u8], &'a [u32])>,
    crcs: &[u32],
) -> Result<(), u64> {
    let span = coverage.span;
    let mut slice = span.first();
    let mut expected = crcs.iter();
    let mut at = 0;
    let mut open: Option<Open> = None;
    let mut places = Places::from(coverage.chunk, slice);
    for (offset, piece, pages) in pieces {
        if offset != at {
            return Err(slice);
        }
        at += piece.len();
        let mut bytes = piece;
        while !bytes.is_empty() {
            if slice >= span.first() + span.count() {
                return Err(slice - 1);
            }
            let (from, len) = span.part(slice);
            let got = open.as_ref().map_or(0, |open| open.got);
            let begun = piece.len() - bytes.len();
            let (part, rest) = bytes.split_at(bytes.len().min(len - got));
            bytes = rest;
            let known = (part.len() == SLICE_BYTES).then(|| page_at(pages, begun)).flatten();
            let crc = if let Some(content) = known {
                content ^ places.of(slice)
            } else if part.len() == len {
                coverage.crc(slice, from, part)
            } else {
                let state = open.get_or_insert_with(|| Open { crc: Crc32c::new(), got: 0 });
                state.crc.update(part);
                state.got += part.len();
                if state.got < len {
                    continue;
                }
                let Some(Open { crc, .. }) = open.take() else { return Err(slice) };
                coverage.finish(slice, from, len, crc)
            };
            if expected.next() != Some(&crc) {
                return Err(slice);
            }
            slice += 1;
        }
    }
    let whole = slice == span.first() + span.count() && expected.next().is_none();
    if whole { Ok(()) } else { Err(slice.min(span.first() + span.count() - 1)) }
}

/// The CRC32C of the page that begins at `at`, if one does and it is known.
fn page_at(pages: &[u32], at: usize) -> Option<u32> {
    pages.get(at / SLICE_BYTES).copied().filter(|_| at.is_multiple_of(SLICE_BYTES))
}

impl Coverage {
    /// As [`crc`](Self::crc), of bytes that were taken in one by one.
    fn finish(&self, slice_index: u64, from: usize, len: usize, mut crc: Crc32c) -> u32 {
        if self.is_whole(slice_index, from, len) {
            crc.update(&[0; SLICE_BYTES][len..]);
            return crc.value() ^ slice_place(self.chunk, slice_index);
        }
        crc.value() ^ fragment_place(self.chunk, slice_index, from as u32, len as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::writer_crcs;
    use towpath_base::Prng;
    use towpath_base::crc::crc32c;

    const CHUNK: ChunkId = ChunkId(77);

    type Piece<'a> = (usize, &'a [u8], &'a [u32]);

    /// `bytes` cut at random places, with an empty piece now and then.
    fn cut<'a>(bytes: &'a [u8], prng: &mut Prng) -> Vec<Piece<'a>> {
        let longest = [1, 7, 100, 4000, 9000, 70_000][prng.below(6) as usize];
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let len = prng.below(longest + 1).min((bytes.len() - at) as u64) as usize;
            pieces.push((at, &bytes[at..at + len], &[][..]));
            at += len;
        }
        pieces
    }

    #[test]
    fn wherever_the_pieces_are_cut_the_answer_is_that_of_the_whole() {
        let seed = 41;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        for round in 0..600 {
            let mut bytes = vec![0; prng.between(1, 20_000) as usize];
            prng.fill(&mut bytes);
            let offset = prng.below(3) * 4096 + prng.below(2) * prng.below(4096);
            let span = Span::new(offset, bytes.len() as u64);
            let coverage = Coverage { chunk: CHUNK, span, chunk_bytes: None };
            let crcs = writer_crcs(CHUNK, offset, &bytes);
            let whole = [(0, &bytes[..], &[][..])];
            assert_eq!(verify_slices(coverage, whole, &crcs), Ok(()), "round {round}");
            assert_eq!(verify_slices(coverage, cut(&bytes, &mut prng), &crcs), Ok(()));
            let at = prng.below(bytes.len() as u64);
            bytes[at as usize] ^= 1 << prng.below(8);
            let bad = Err((offset + at) / 4096);
            let whole = [(0, &bytes[..], &[][..])];
            assert_eq!(verify_slices(coverage, whole, &crcs), bad, "round {round}");
            assert_eq!(verify_slices(coverage, cut(&bytes, &mut prng), &crcs), bad);
        }
    }

    #[test]
    fn the_last_slice_of_a_chunk_has_the_checksum_of_its_padded_whole() {
        let mut prng = Prng::new(1);
        let mut bytes = [0; 5000];
        prng.fill(&mut bytes);
        let crcs = [slice_crc(CHUNK, 0, &bytes[..4096]), slice_crc(CHUNK, 1, &bytes[4096..])];
        let span = Span::new(0, 5000);
        let at_end = Coverage { chunk: CHUNK, span, chunk_bytes: Some(5000) };
        for pieces in [vec![(0, &bytes[..], &[][..])], cut(&bytes, &mut prng)] {
            assert_eq!(verify_slices(at_end, pieces.clone(), &crcs), Ok(()));
            let inside = Coverage { chunk_bytes: Some(5001), ..at_end };
            assert_eq!(verify_slices(inside, pieces.clone(), &crcs), Err(1));
            let elsewhere = Coverage { chunk: ChunkId(78), ..at_end };
            assert_eq!(verify_slices(elsewhere, pieces, &crcs), Err(0));
        }
    }

    #[test]
    fn missing_and_spare_bytes_and_checksums_are_refused() {
        let bytes = [9; 10_000];
        let crcs = writer_crcs(CHUNK, 100, &bytes);
        let span = Span::new(100, 10_000);
        let coverage = Coverage { chunk: CHUNK, span, chunk_bytes: None };
        let check =
            |bytes: &[u8], crcs: &[u32]| verify_slices(coverage, [(0, bytes, &[][..])], crcs);
        assert_eq!(check(&bytes, &crcs), Ok(()));
        assert_eq!(check(&bytes[..9_999], &crcs), Err(2));
        assert_eq!(check(&[], &crcs), Err(0));
        assert_eq!(check(&[9; 10_001], &crcs), Err(2));
        assert_eq!(check(&bytes, &crcs[..2]), Err(2));
        assert_eq!(check(&bytes, &[&crcs[..], &[0]].concat()), Err(2));
        let gap = [(0, &bytes[..5000], &[][..]), (5001, &bytes[5001..], &[])];
        assert_eq!(verify_slices(coverage, gap, &crcs), Err(1));
    }

    #[test]
    fn the_crcs_of_pages_stand_for_the_bytes_of_whole_slices_and_of_no_others() {
        let seed = 42;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        for offset in [0, 4096, 5000] {
            let mut bytes = vec![0; 3 * SLICE_BYTES + 77];
            prng.fill(&mut bytes);
            let (sent, crcs) = (bytes.clone(), writer_crcs(CHUNK, offset, &bytes));
            let pages: Vec<u32> = bytes.chunks_exact(SLICE_BYTES).map(crc32c).collect();
            let span = Span::new(offset, bytes.len() as u64);
            let coverage = Coverage { chunk: CHUNK, span, chunk_bytes: None };
            let check = |bytes: &[u8], pages: &[u32]| {
                let (first, rest) = bytes.split_at(SLICE_BYTES);
                let (known, other) = pages.split_at(1);
                let pieces = [(0, first, known), (SLICE_BYTES, rest, other)];
                verify_slices(coverage, pieces, &crcs)
            };
            assert_eq!(check(&bytes, &pages), Ok(()), "{offset}");
            let wrong: Vec<u32> = pages.iter().map(|crc| crc ^ 1).collect();
            bytes[..3 * SLICE_BYTES].fill(0);
            let is_aligned = offset.is_multiple_of(4096);
            assert_eq!(check(&bytes, &pages).is_ok(), is_aligned, "only CRCs are looked at");
            assert_eq!(check(&sent, &wrong).is_ok(), !is_aligned, "only bytes are looked at");
            bytes.copy_from_slice(&sent);
            bytes[3 * SLICE_BYTES] ^= 1;
            assert_eq!(check(&bytes, &pages), Err(offset / 4096 + 3), "the rest has no CRC");
        }
    }
}
