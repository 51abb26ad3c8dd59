//! The bytes of a cluster's messages: cheap to write, cheap to check, no two alike.

use towpath_base::Prng;

/// Messages start at one of so many places of the table; a prime, so that no stride of flow or
/// number repeats early.
const PLACES: u64 = 65_521;

/// A table of random bytes. A message is the piece of it at a place that flow and number decide,
/// so that writing one is a copy and checking one is a comparison, both at the speed of memory.
/// Two messages have the same place once in 65,521 times.
#[derive(Debug)]
pub(super) struct Pattern {
    table: Vec<u8>,
}

impl Pattern {
    /// For messages of at most `message_bytes_max`.
    #[must_use]
    pub(super) fn new(seed: u64, message_bytes_max: u32) -> Self {
        let mut table = vec![0; PLACES as usize + message_bytes_max as usize];
        Prng::new(seed).fill(&mut table);
        Self { table }
    }

    /// The `len` bytes from `offset` on of message `number` of `flow`.
    ///
    /// # Panics
    /// When the message is longer than the pattern was made for.
    #[must_use]
    pub(super) fn piece(&self, flow: usize, number: u64, offset: usize, len: usize) -> &[u8] {
        let mixed = (flow as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ number;
        let place = (mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 16) % PLACES;
        &self.table[place as usize + offset..][..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_differ_in_flow_number_and_offset() {
        let pattern = Pattern::new(1, 4096);
        let of = |flow, number, offset| pattern.piece(flow, number, offset, 64);
        for (flow, number) in [(0, 0), (1, 0), (0, 1), (99, 5), (5_999, 1_000)] {
            let here = of(flow, number, 0);
            for other in [of(flow + 1, number, 0), of(flow, number + 1, 0), of(flow, number, 1)] {
                assert_ne!(here, other);
            }
        }
    }

    #[test]
    fn pieces_lie_in_the_whole() {
        let pattern = Pattern::new(1, 4096);
        let whole = pattern.piece(7, 9, 0, 4096);
        assert_eq!(pattern.piece(7, 9, 1000, 3096), &whole[1000..]);
    }
}
