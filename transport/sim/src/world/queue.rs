//! What a switch does about full queues beside dropping: it marks, or it pauses.

use crate::limits::CLASSES;
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

/// Priority flow control: a switch that holds too much of what came in on one wire tells the other
/// end of it to pause, class by class, and to go on once it holds little.
///
/// A pause takes effect once it has crossed the cable, after the packet (or train) that is being
/// sent then; it overtakes what waits and is never lost. What came in on a wire that is paused
/// waits in the switch for as long as it must, so the buffer of the port is no limit to it; the
/// limit is `xoff_bytes + headroom_bytes`, beyond which it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcConfig {
    /// Above so many bytes of one wire and class the wire is paused.
    pub xoff_bytes: u64,
    /// At so many bytes or less it goes on.
    pub xon_bytes: u64,
    /// Room for what is under way when a pause is sent: the round trip of the cable at its rate,
    /// and two packets.
    pub headroom_bytes: u64,
}

impl Default for PfcConfig {
    /// 64 KiB and 32 KiB, and the headroom of 500 m of cable at 100 Gb/s.
    fn default() -> Self {
        Self { xoff_bytes: 64 << 10, xon_bytes: 32 << 10, headroom_bytes: 96 << 10 }
    }
}

/// What a switch holds of one wire that leads to it.
pub(super) struct Ingress {
    config: PfcConfig,
    held_bytes: [u64; CLASSES],
    is_pausing: [bool; CLASSES],
}

impl Ingress {
    pub(super) fn new(config: PfcConfig) -> Self {
        Self { config, held_bytes: [0; CLASSES], is_pausing: [false; CLASSES] }
    }

    pub(super) fn has_room(&self, class: usize, bytes: u64) -> bool {
        let limit = self.config.xoff_bytes.saturating_add(self.config.headroom_bytes);
        self.held_bytes[class] + bytes <= limit
    }

    /// Holds more; true when the wire is to be paused for it.
    pub(super) fn enter(&mut self, class: usize, bytes: u64) -> bool {
        self.held_bytes[class] += bytes;
        let pauses = !self.is_pausing[class] && self.held_bytes[class] > self.config.xoff_bytes;
        self.is_pausing[class] |= pauses;
        pauses
    }

    /// Holds less; true when the wire is to go on.
    pub(super) fn leave(&mut self, class: usize, bytes: u64) -> bool {
        self.held_bytes[class] -= bytes;
        let resumes = self.is_pausing[class] && self.held_bytes[class] <= self.config.xon_bytes;
        self.is_pausing[class] &= !resumes;
        resumes
    }
}
