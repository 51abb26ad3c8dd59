//! The offset of each request of a job.

use towpath_base::Prng;

/// Rounds of the permutation: three mix well, and one more costs a multiplication.
const ROUNDS: usize = 4;

/// Draws blocks of `0..blocks`: one after the other, or in random order. A pass has each block
/// once, then the next pass begins.
#[derive(Debug)]
pub(super) struct Offsets {
    blocks: u64,
    /// Blocks drawn in this pass.
    drawn: u64,
    /// None for sequential offsets.
    order: Option<(Prng, Permutation)>,
}

impl Offsets {
    /// Blocks in their order.
    pub(super) fn sequential(blocks: u64) -> Self {
        Self { blocks, drawn: 0, order: None }
    }

    /// Blocks in an order that `prng` draws, another one in each pass.
    pub(super) fn random(blocks: u64, mut prng: Prng) -> Self {
        let first = Permutation::draw(blocks, &mut prng);
        Self { blocks, drawn: 0, order: Some((prng, first)) }
    }

    /// The next block.
    pub(super) fn draw(&mut self) -> u64 {
        if self.drawn == self.blocks {
            self.drawn = 0;
            if let Some((prng, order)) = &mut self.order {
                *order = Permutation::draw(self.blocks, prng);
            }
        }
        let place = self.drawn;
        self.drawn += 1;
        self.order.as_ref().map_or(place, |(_, order)| order.at(place))
    }
}

/// A random order of `0..count` that takes no memory: a Feistel network over the next power of
/// four, walked until it hits the range.
#[derive(Debug)]
struct Permutation {
    count: u64,
    /// Bits of each half of a number.
    half: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    fn draw(count: u64, prng: &mut Prng) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let keys = [(); ROUNDS].map(|()| prng.next_u64());
        Self { count, half: bits.div_ceil(2).max(1), keys }
    }

    /// The number at a place. The domain has at most four times as many numbers as the range.
    fn at(&self, place: u64) -> u64 {
        let mut number = self.mix(place);
        while number >= self.count {
            number = self.mix(number);
        }
        number
    }

    fn mix(&self, number: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for key in self.keys {
            let product = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) = (right, left ^ ((product ^ (product >> 29)) >> 17 & mask));
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(offsets: &mut Offsets, blocks: u64) -> Vec<u64> {
        (0..blocks).map(|_| offsets.draw()).collect()
    }

    #[test]
    fn each_pass_has_each_block_once_and_another_order() {
        for blocks in [1, 2, 3, 7, 64, 1000, 16_385] {
            let mut offsets = Offsets::random(blocks, Prng::new(blocks));
            let (first, second) = (pass(&mut offsets, blocks), pass(&mut offsets, blocks));
            for order in [&first, &second] {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..blocks), "{blocks}");
            }
            if blocks >= 64 {
                assert_ne!(first, second, "{blocks}");
                let in_line = first.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
                assert!(in_line < first.len() / 8, "{in_line} of {blocks} follow the one before");
            }
        }
    }

    #[test]
    fn a_seed_gives_its_order_again_and_another_seed_another() {
        let order = |seed| pass(&mut Offsets::random(500, Prng::new(seed)), 1200);
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn sequential_offsets_go_round() {
        let mut offsets = Offsets::sequential(3);
        assert_eq!(pass(&mut offsets, 7), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn random_blocks_are_spread_over_the_whole_range_early() {
        let blocks = 1 << 16;
        let mut offsets = Offsets::random(blocks, Prng::new(3));
        let mut counts = [0_u32; 16];
        pass(&mut offsets, 4096).into_iter().for_each(|at| counts[(at >> 12) as usize] += 1);
        // 256 expected of each sixteenth, with a standard deviation of 15.5.
        assert!(counts.iter().all(|count| (160..=352).contains(count)), "{counts:?}");
    }
}
