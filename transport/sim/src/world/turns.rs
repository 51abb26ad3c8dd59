//! Whose turn it is among the queues of a port.

use super::queue::EcnConfig;
use crate::limits::CLASSES;

/// One queue of a port. By default it takes its turn strictly by its number, and is in all else as
/// the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueConfig {
    /// When it may send.
    pub turn: Turn,
    /// Bytes that may wait in it, headers counted in; `None` for as many as the port says.
    pub buffer_bytes: Option<u64>,
    /// When packets that join it are marked; `None` for as the port says.
    pub ecn: Option<EcnConfig>,
}

/// When a queue may send, among those of its port that have something to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// Before every queue with a weight, and before strict ones with a higher number.
    #[default]
    Strict,
    /// In turns with the others that have one, so that the bytes of each are in the proportion of
    /// the weights; 0 counts as 1. What waits is served by the least start tag (start-time fair
    /// queueing), so that a queue that was empty is served soon and has nothing saved up.
    Weight(u16),
}

/// A byte of a queue with weight 1, in virtual time: enough for weights of 16 bits to count. So
/// 64 bits last for 20,000 s of 100 Gb/s.
const TICKS_PER_BYTE: u64 = 1 << 16;

/// The queues of a port that are not all as the port.
pub(super) struct Turns {
    /// Virtual ticks of a byte; zero for a strict queue.
    ticks_per_byte: [u64; CLASSES],
    /// Of each queue: the virtual time at which its head starts.
    starts: [u64; CLASSES],
    /// The start of what was served last.
    now: u64,
    room_bytes: [u64; CLASSES],
}

impl Turns {
    /// `None` where every queue is as the port, whose queues each have `port_bytes`.
    pub(super) fn new(queues: &[QueueConfig; CLASSES], port_bytes: u64) -> Option<Box<Self>> {
        let differs =
            |queue: &QueueConfig| queue.turn != Turn::Strict || queue.buffer_bytes.is_some();
        if !queues.iter().any(differs) {
            return None;
        }
        let ticks = |queue: &QueueConfig| match queue.turn {
            Turn::Strict => 0,
            Turn::Weight(weight) => TICKS_PER_BYTE / u64::from(weight.max(1)),
        };
        Some(Box::new(Self {
            ticks_per_byte: queues.each_ref().map(ticks),
            starts: [0; CLASSES],
            now: 0,
            room_bytes: queues.map(|queue| queue.buffer_bytes.unwrap_or(port_bytes)),
        }))
    }

    pub(super) fn room_bytes(&self, class: usize) -> u64 {
        self.room_bytes[class]
    }

    /// When the head of a queue starts, in virtual time; `None` of a strict queue.
    pub(super) fn start(&self, class: usize) -> Option<u64> {
        (self.ticks_per_byte[class] > 0).then_some(self.starts[class])
    }

    /// A queue has something to send that had nothing, or might not: what it missed is gone.
    pub(super) fn on_begin(&mut self, class: usize) {
        self.starts[class] = self.starts[class].max(self.now);
    }

    /// The head of a queue is sent.
    pub(super) fn on_send(&mut self, class: usize, bytes: u64) {
        if let Some(start) = self.start(class) {
            self.now = start;
            self.starts[class] = start + bytes * self.ticks_per_byte[class];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets of these lengths of queues that always have some, by turns; returns the bytes
    /// of each.
    fn serve(turns: &mut Turns, lengths: &[(usize, u64)], count: usize) -> [u64; CLASSES] {
        let mut sent = [0; CLASSES];
        for _ in 0..count {
            let next = lengths.iter().min_by_key(|(class, _)| turns.start(*class));
            let &(class, bytes) = next.expect("a queue");
            turns.on_send(class, bytes);
            sent[class] += bytes;
        }
        sent
    }

    fn weights(weights: [u16; CLASSES]) -> Box<Turns> {
        let queue = |weight| QueueConfig { turn: Turn::Weight(weight), ..QueueConfig::default() };
        Turns::new(&weights.map(queue), 1_000).expect("weights differ from the default")
    }

    #[test]
    fn bytes_are_in_the_proportion_of_the_weights_whatever_the_lengths() {
        let mut turns = weights([6, 3, 1, 0]);
        let sent = serve(&mut turns, &[(0, 100), (1, 4_000), (2, 900), (3, 64)], 100_000);
        let whole: u64 = sent.iter().sum();
        for (bytes, weight) in sent.into_iter().zip([6, 3, 1, 1]) {
            let share = bytes as f64 / whole as f64;
            assert!((share - f64::from(weight) / 11.0).abs() < 0.002, "{sent:?}");
        }
    }

    #[test]
    fn a_queue_that_was_empty_has_nothing_saved_up() {
        let mut turns = weights([1; CLASSES]);
        serve(&mut turns, &[(0, 1_000)], 100);
        turns.on_begin(1);
        let sent = serve(&mut turns, &[(0, 1_000), (1, 1_000)], 100);
        assert_eq!(sent[..2], [50_000, 50_000]);
    }

    #[test]
    fn a_port_without_wishes_needs_no_turns() {
        let mut queues = [QueueConfig::default(); CLASSES];
        assert!(Turns::new(&queues, 1_000).is_none());
        queues[2].buffer_bytes = Some(7);
        let turns = Turns::new(&queues, 1_000).expect("one has a room of its own");
        assert_eq!([0, 1, 2, 3].map(|class| turns.room_bytes(class)), [1_000, 1_000, 7, 1_000]);
        assert_eq!(turns.start(2), None);
    }
}
