//! What happened to each packet: a running hash, and the last events for a failing test.

use core::fmt;
use std::collections::VecDeque;
use towpath_base::Time;

/// What became of a packet on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// It reached the receive buffer.
    Delivered,
    /// The queue of the wire was full.
    DroppedQueue,
    /// The receive buffer was full.
    DroppedRxBuffer,
    /// Its destination is not at the other end.
    Misaddressed,
}

/// One packet's end on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When.
    pub time: Time,
    /// The number of the wire: links in the order in which they were laid, two wires each, first
    /// the one away from the first end.
    pub wire: u32,
    /// What became of it.
    pub fate: PacketFate,
    /// The index of the source port that it left from.
    pub source_port: u16,
    /// Its length, BTH to ICRC.
    pub byte_len: u32,
    /// A hash of its bytes alone, equal for two copies.
    pub digest: u64,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>14} ns  wire {:<3} port {:<3} {:>5} bytes  {:016x}  {:?}",
            self.time.0, self.wire, self.source_port, self.byte_len, self.digest, self.fate
        )
    }
}

/// Each step is a bijection of the state for a given word and of the word for a given state: one
/// word that differs always shows.
#[derive(Clone, Copy)]
struct Fold(u64);

impl Fold {
    /// FNV's offset basis: any start that is not zero would do.
    const START: Self = Self(0xcbf2_9ce4_8422_2325);

    fn word(&mut self, word: u64) {
        let mixed = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn digest(bytes: &[u8]) -> u64 {
        // Four chains side by side: one would wait for its own multiplication every eight bytes.
        let mut lanes = [Self::START; 4];
        let mut blocks = bytes.chunks_exact(32);
        for block in blocks.by_ref() {
            for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
                lane.word(u64::from_le_bytes(word.try_into().expect("a chunk of exactly eight")));
            }
        }
        let mut last = [0; 32];
        last[..blocks.remainder().len()].copy_from_slice(blocks.remainder());
        let mut whole = Self::START;
        whole.word(bytes.len() as u64);
        for (mut lane, word) in lanes.into_iter().zip(last.chunks_exact(8)) {
            lane.word(u64::from_le_bytes(word.try_into().expect("a chunk of exactly eight")));
            whole.word(lane.0);
        }
        whole.0
    }
}

pub(super) struct Trace {
    hash: Fold,
    kept: VecDeque<TraceEvent>,
    keep: usize,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self { hash: Fold::START, kept: VecDeque::new(), keep: 0 }
    }

    pub(super) fn keep(&mut self, events: usize) {
        self.keep = events;
        self.kept.truncate(0);
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash.0
    }

    pub(super) fn kept(&self) -> Vec<TraceEvent> {
        self.kept.iter().copied().collect()
    }

    pub(super) fn record(
        &mut self,
        time: Time,
        wire: usize,
        source_port: u16,
        bytes: &[u8],
        fate: PacketFate,
    ) {
        let digest = Fold::digest(bytes);
        self.hash.word(time.0);
        self.hash.word((wire as u64) << 32 | u64::from(source_port) << 8 | fate as u64);
        self.hash.word(digest);
        if self.keep == 0 {
            return;
        }
        if self.kept.len() == self.keep {
            self.kept.pop_front();
        }
        self.kept.push_back(TraceEvent {
            time,
            wire: wire as u32,
            fate,
            source_port,
            byte_len: bytes.len() as u32,
            digest,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(events: &[(u64, usize, u16, &[u8], PacketFate)]) -> u64 {
        let mut trace = Trace::new();
        for &(time, wire, source_port, bytes, fate) in events {
            trace.record(Time(time), wire, source_port, bytes, fate);
        }
        trace.hash()
    }

    #[test]
    fn the_hash_depends_on_time_wire_port_bytes_length_and_fate() {
        use PacketFate::{Delivered, DroppedQueue};
        let base = hash_of(&[(5, 0, 0, b"abc", Delivered)]);
        assert_eq!(base, hash_of(&[(5, 0, 0, b"abc", Delivered)]));
        for other in [
            hash_of(&[(6, 0, 0, b"abc", Delivered)]),
            hash_of(&[(5, 1, 0, b"abc", Delivered)]),
            hash_of(&[(5, 0, 1, b"abc", Delivered)]),
            hash_of(&[(5, 0, 0, b"abd", Delivered)]),
            hash_of(&[(5, 0, 0, b"abc\0", Delivered)]),
            hash_of(&[(5, 0, 0, b"abc", DroppedQueue)]),
            hash_of(&[]),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn every_byte_of_a_packet_counts_in_its_place() {
        let plain = [0x11; 100];
        let mut digests = vec![Fold::digest(&plain), Fold::digest(&plain[1..])];
        for at in 0..plain.len() {
            let mut other = plain;
            other[at] ^= 0x80;
            digests.push(Fold::digest(&other));
        }
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 102);
    }

    #[test]
    fn only_the_last_events_are_kept() {
        let mut trace = Trace::new();
        trace.keep(2);
        for time in 1..=3 {
            trace.record(Time(time), 0, 0, b"x", PacketFate::Delivered);
        }
        let times: Vec<u64> = trace.kept().iter().map(|event| event.time.0).collect();
        assert_eq!(times, [2, 3]);
    }
}
