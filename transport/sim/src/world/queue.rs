//! What the queues of a switch do: marks, and the class of a packet.

use towpath_base::Prng;

/// Marks of congestion: none below `min_bytes` in the queue, all from `max_bytes` up, and in
/// between with a probability that rises from 0 to `p_max_ppm`.
///
/// Only packets that say that they are capable of it (the ECN bits of the traffic class are not
/// zero) are marked, and none are dropped instead. A packet sees the queue that it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnConfig {
    /// Bytes in the queue below which nothing is marked.
    pub min_bytes: u64,
    /// Bytes in the queue from which all is marked.
    pub max_bytes: u64,
    /// The probability just below `max_bytes`, in parts per million.
    pub p_max_ppm: u32,
}

impl EcnConfig {
    pub(super) fn marks(self, queued_bytes: u64, prng: &mut Prng) -> bool {
        if queued_bytes >= self.max_bytes {
            return true;
        }
        // In whole numbers, so that no machine rounds otherwise.
        let above = u128::from(queued_bytes.saturating_sub(self.min_bytes));
        let span = u128::from(self.max_bytes.saturating_sub(self.min_bytes));
        let p_ppm = (above * u128::from(self.p_max_ppm)).checked_div(span).unwrap_or(0);
        p_ppm > 0 && u128::from(prng.below(1_000_000)) < p_ppm
    }
}

/// The ECN bits of a traffic class.
const ECN_MASK: u8 = 0b11;

/// `tclass` with the mark "congestion experienced", where its sender is capable of it.
pub(super) fn marked(tclass: u8) -> Option<u8> {
    (tclass & ECN_MASK != 0).then_some(tclass | ECN_MASK)
}
