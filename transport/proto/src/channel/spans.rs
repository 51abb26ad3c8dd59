//! Which bytes of a piece or a segment are there, whatever their order.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// Bytes that are there, in spans that do not touch.
///
/// A map, so that a peer that sends every other few bytes costs no more than one that does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    /// Where each begins and ends.
    spans: BTreeMap<u32, u32>,
    bytes: u32,
}

impl Spans {
    /// How many bytes are there.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Whether all bytes of a range are there.
    pub(crate) fn has(&self, range: Range<u32>) -> bool {
        let before = self.spans.range(..=range.start).next_back();
        before.is_some_and(|(_, &end)| end >= range.end)
    }

    /// Whether any byte of a range is there.
    pub(crate) fn has_any(&self, range: Range<u32>) -> bool {
        let before = self.spans.range(..range.end).next_back();
        before.is_some_and(|(_, &end)| end > range.start)
    }

    /// Takes a range in, joined with what it touches.
    pub(crate) fn insert(&mut self, Range { mut start, mut end }: Range<u32>) {
        while let Some((&from, &until)) = self.spans.range(..=end).next_back()
            && until >= start
        {
            self.spans.remove(&from);
            self.bytes -= until - from;
            (start, end) = (start.min(from), end.max(until));
        }
        self.spans.insert(start, end);
        self.bytes += end - start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use towpath_base::Prng;

    const GRAIN: u32 = 8;

    #[test]
    fn parts_in_any_order_and_overlapping_make_the_piece_as_a_list_of_bytes_says() {
        for seed in 0..300 {
            let mut prng = Prng::new(seed);
            let len = prng.between(1, 3_000) as u32;
            let (mut parts, mut bytes) = (Spans::default(), vec![false; len as usize]);
            while parts.bytes() < len {
                let start = prng.below(u64::from(len.div_ceil(GRAIN))) as u32 * GRAIN;
                let most = len - start;
                let length = prng.between(1, u64::from(most)) as u32;
                let length = length.next_multiple_of(GRAIN).min(most);
                let (part, range) = (start..start + length, start as usize..);
                let range = &mut bytes[range][..length as usize];
                assert_eq!(
                    parts.has(part.clone()),
                    range.iter().all(|&there| there),
                    "seed {seed}"
                );
                let any = range.iter().any(|&there| there);
                assert_eq!(parts.has_any(part.clone()), any, "seed {seed}");
                parts.insert(part.clone());
                range.fill(true);
                assert!(parts.has(part));
                let count = bytes.iter().filter(|&&there| there).count();
                assert_eq!(parts.bytes() as usize, count, "seed {seed}");
            }
        }
    }
}
