//! Bytes of a file that are changed, cut into pieces that are each changed as one.

use std::ops::Range;

use towpath_fastpath::SLICE_BYTES;

use crate::layout::Layout;

/// New bytes of one data part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) part: usize,
    /// Where they lie in the piece.
    pub(crate) at: usize,
    /// Where they come from.
    pub(crate) from: Range<usize>,
}

/// The same slices of each part, of which some data parts change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it begins in the parts.
    pub(crate) offset: u64,
    /// Bytes of each part.
    pub(crate) bytes: usize,
    pub(crate) patches: Vec<Patch>,
}

impl Piece {
    /// How many of the bytes it changes.
    pub(crate) fn changed(&self) -> usize {
        self.patches.iter().map(|patch| patch.from.len()).sum()
    }
}

/// Cuts `len` bytes of a file from `offset` on, which are within it. What is remembered of a piece
/// has `most` bytes, but for what it has of one slice of each part.
pub(crate) fn pieces(layout: &Layout, offset: u64, len: usize, most: usize) -> Vec<Piece> {
    let stripes = layout.stripes();
    let (data, spare) = (layout.policy.data(), layout.policy.parts() - layout.policy.data());
    let (mut pieces, mut done) = (Vec::new(), 0);
    while done < len {
        let (stripe, first) = stripes.around(offset + done as u64);
        let last = stripe.bytes.min(first + len - done);
        // The bytes of each data part that change, as they lie in its unit.
        let of = |part: usize| {
            let begin = part * stripe.unit;
            first.max(begin) - begin..last.min(begin + stripe.unit).max(begin) - begin
        };
        let parts: Vec<(usize, Range<usize>)> = (0..data)
            .map(|part| (part, of(part)))
            .filter(|(_, range)| range.start < range.end)
            .collect();
        let slice = SLICE_BYTES;
        let begin = parts.iter().map(|(_, range)| range.start / slice * slice).min().unwrap_or(0);
        let end = parts.iter().map(|(_, range)| range.end.next_multiple_of(slice)).max();
        let end = end.unwrap_or(begin);
        let window = (most / (parts.len() + spare) / slice).max(1) * slice;
        for column in (begin..end).step_by(window) {
            let until = end.min(column + window);
            let patches = parts.iter().filter_map(|(part, range)| {
                let (from, to) = (range.start.max(column), range.end.min(until));
                let source = part * stripe.unit + from - first + done;
                (from < to).then(|| Patch {
                    part: *part,
                    at: from - column,
                    from: source..source + to - from,
                })
            });
            let patches: Vec<Patch> = patches.collect();
            if !patches.is_empty() {
                let offset = stripe.offset + column as u64;
                pieces.push(Piece { offset, bytes: until - column, patches });
            }
        }
        done += last - first;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Node;
    use towpath_base::Prng;
    use towpath_fastpath::ChunkId;

    fn layout(policy: &str, bytes: u64, unit_bytes: u32) -> Layout {
        let policy: crate::Policy = policy.parse().expect("a policy");
        let node = |n: usize| Node {
            server: ([10, 0, 0, n as u8], 7400).into(),
            chunk: ChunkId(n as u128),
            version: Some(1),
        };
        let nodes = (0..policy.parts()).map(node).collect();
        Layout { bytes, policy, unit_bytes, generation: 0, nodes, left: Vec::new() }
    }

    #[test]
    fn every_byte_is_changed_once_and_lands_where_it_is_read() {
        let seed = 62;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        for _ in 0..500 {
            let policy = ["rs:3+2", "rs:1+1", "flat:3", "rs:4+0"][prng.below(4) as usize];
            let bytes = prng.between(1, 150_000);
            let layout = layout(policy, bytes, [4_096, 16_384][prng.below(2) as usize]);
            let offset = prng.below(bytes);
            let len = prng.between(1, bytes - offset) as usize;
            let most = prng.between(4_096, 100_000) as usize;
            let mut is_changed = vec![false; len];
            for piece in pieces(&layout, offset, len, most) {
                assert!(piece.bytes.is_multiple_of(SLICE_BYTES));
                assert!(piece.offset + piece.bytes as u64 <= layout.stripes().part_bytes());
                for patch in &piece.patches {
                    assert!(patch.at + patch.from.len() <= piece.bytes);
                    for (index, source) in patch.from.clone().enumerate() {
                        assert!(!std::mem::replace(&mut is_changed[source], true));
                        let in_part = piece.offset + (patch.at + index) as u64;
                        let stripes = layout.stripes();
                        let (stripe, at) = stripes.around(offset + source as u64);
                        assert_eq!(patch.part, at / stripe.unit);
                        assert_eq!(in_part, stripe.offset + (at % stripe.unit) as u64);
                    }
                }
            }
            assert!(is_changed.iter().all(|changed| *changed));
        }
    }

    #[test]
    fn a_piece_has_no_more_than_is_remembered_at_once() {
        let layout = layout("rs:3+2", 1 << 20, 16_384);
        let cut = pieces(&layout, 0, 49_152, 5 * 8_192);
        let places: Vec<_> = cut.iter().map(|piece| (piece.offset, piece.bytes)).collect();
        assert_eq!(places, [(0, 8_192), (8_192, 8_192)]);
        let small = pieces(&layout, 16_384 + 5_000, 100, 1 << 20);
        let patches = vec![Patch { part: 1, at: 904, from: 0..100 }];
        assert_eq!(small, [Piece { offset: 4_096, bytes: 4_096, patches }]);
        // The end of one part and the begin of the next one lie far apart.
        let both = pieces(&layout, 16_380, 8, 4 * 4_096);
        let places: Vec<_> = both.iter().map(|piece| (piece.offset, piece.changed())).collect();
        assert_eq!(places, [(0, 4), (12_288, 4)]);
    }
}
