//! What happened to each packet: a running hash, and the last events for a failing test.

use super::flight::Flight;
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
    /// A fault of a wire took it.
    DroppedFault,
    /// No way to its destination is left.
    DroppedNoRoute,
    /// It was in a switch or on a cable that went down.
    DroppedDown,
}

/// One packet's end on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When.
    pub time: Time,
    /// The number of the [wire](super::WireId) that it was on, or waited for.
    pub wire: u32,
    /// What became of it.
    pub fate: PacketFate,
    /// The index of the source port that it left from.
    pub source_port: u16,
    /// Its length, BTH to ICRC.
    pub byte_len: u64,
    /// A hash of its length, its class and its bytes, the middle of a long packet left out; equal
    /// for two copies.
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

    fn bytes(&mut self, bytes: &[u8]) {
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
        self.word(bytes.len() as u64);
        for (mut lane, word) in lanes.into_iter().zip(last.chunks_exact(8)) {
            lane.word(u64::from_le_bytes(word.try_into().expect("a chunk of exactly eight")));
            self.word(lane.0);
        }
    }
}

/// The bytes at either end of a longer packet that its digest covers. The headers are at one end
/// and the ICRC at the other, so that a packet of a device that differs anywhere differs here.
const DIGEST_ENDS_BYTES: usize = 64;

/// What a packet carries, or a train of so many packets with its token.
pub(super) fn content_of(train: Option<(u32, u64)>, parts: &[&[u8]]) -> u64 {
    let mut whole = Fold::START;
    if let Some((packets, token)) = train {
        whole.word(u64::from(packets) << 1 | 1);
        whole.word(token);
    }
    let byte_len: usize = parts.iter().map(|part| part.len()).sum();
    // Short of what both ends take they would overlap.
    let tail_bytes = byte_len.saturating_sub(DIGEST_ENDS_BYTES).min(DIGEST_ENDS_BYTES);
    let (mut ends, mut head_bytes) = ([0; 2 * DIGEST_ENDS_BYTES], 0);
    for part in parts {
        let taken = part.len().min(DIGEST_ENDS_BYTES - head_bytes);
        ends[head_bytes..][..taken].copy_from_slice(&part[..taken]);
        head_bytes += taken;
    }
    let mut left = tail_bytes;
    for part in parts.iter().rev() {
        let taken = part.len().min(left);
        left -= taken;
        ends[head_bytes + left..][..taken].copy_from_slice(&part[part.len() - taken..]);
    }
    whole.bytes(&ends[..head_bytes + tail_bytes]);
    whole.0
}

/// What `content` is after damage of this digest.
pub(super) fn damaged(content: u64, digest: u64) -> u64 {
    let mut whole = Fold(content);
    whole.word(digest);
    whole.0
}

fn digest_of(flight: &Flight) -> u64 {
    let mut whole = Fold::START;
    whole.word(u64::from(flight.byte_len) << 8 | u64::from(flight.tclass));
    whole.word(flight.content);
    whole.0
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

    pub(super) fn record(&mut self, time: Time, flight: &Flight, fate: PacketFate) {
        let digest = digest_of(flight);
        let (wire, source_port) = (flight.wire, flight.source_port);
        self.hash.word(time.0);
        self.hash.word(u64::from(wire) << 32 | u64::from(source_port) << 8 | fate as u64);
        self.hash.word(digest);
        if self.keep == 0 {
            return;
        }
        if self.kept.len() == self.keep {
            self.kept.pop_front();
        }
        self.kept.push_back(TraceEvent {
            time,
            wire,
            fate,
            source_port,
            byte_len: u64::from(flight.byte_len),
            digest,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;

    fn flight(bytes: &[u8]) -> Flight {
        Flight {
            next: 0,
            wire: 0,
            ingress: 0,
            dest_host: 0,
            flow: 0,
            ready_at: Time::ZERO,
            tail_at: Time::ZERO,
            content: content_of(None, &[bytes]),
            byte_len: bytes.len() as u32,
            packets: 1,
            source_port: 0,
            tclass: 0,
            is_judged: false,
            is_train: false,
            is_damaged: false,
            bytes: bytes.to_vec(),
            source: SocketAddr::from(([0; 4], 0)),
            token: 0,
        }
    }

    fn train(packets: u32, token: u64) -> Flight {
        Flight { content: content_of(Some((packets, token)), &[b"abc"]), ..flight(b"abc") }
    }

    #[test]
    fn the_hash_depends_on_time_wire_port_class_bytes_length_damage_and_fate() {
        use PacketFate::{Delivered, DroppedQueue};
        let base = flight(b"abc");
        let events = [
            (5, base.clone(), Delivered),
            (6, base.clone(), Delivered),
            (5, Flight { wire: 1, ..base.clone() }, Delivered),
            (5, Flight { source_port: 1, ..base.clone() }, Delivered),
            (5, Flight { tclass: 3, ..base.clone() }, Delivered),
            (5, flight(b"abd"), Delivered),
            (5, flight(b"abc\0"), Delivered),
            (5, Flight { byte_len: 4, ..base.clone() }, Delivered),
            (5, Flight { content: damaged(base.content, 1), ..base.clone() }, Delivered),
            (5, Flight { content: damaged(base.content, 2), ..base.clone() }, Delivered),
            (5, train(1, 0), Delivered),
            (5, train(1, 1), Delivered),
            (5, train(2, 1), Delivered),
            (5, base, DroppedQueue),
        ];
        let mut hashes = vec![Trace::new().hash()];
        for (time, flight, fate) in &events {
            let mut trace = Trace::new();
            trace.record(Time(*time), flight, *fate);
            hashes.push(trace.hash());
        }
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), events.len() + 1);
    }

    #[test]
    fn every_byte_of_a_packet_counts_in_its_place() {
        let plain = [0x11; 100];
        let mut digests = vec![digest_of(&flight(&plain)), digest_of(&flight(&plain[1..]))];
        for at in 0..plain.len() {
            let mut other = plain;
            other[at] ^= 0x80;
            digests.push(digest_of(&flight(&other)));
        }
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), 102);
    }

    #[test]
    fn it_does_not_matter_how_a_packet_is_cut_into_parts() {
        let bytes: Vec<u8> = (0..200).collect();
        for byte_len in [0, 1, 63, 64, 65, 127, 128, 129, 200] {
            let bytes = &bytes[..byte_len];
            for (one, two) in (0..=byte_len).map(|cut| bytes.split_at(cut)) {
                let (left, right) = two.split_at(two.len() / 3);
                let cut = content_of(None, &[one, left, right]);
                assert_eq!(cut, content_of(None, &[bytes]), "{byte_len} at {}", one.len());
            }
        }
    }

    #[test]
    fn both_ends_of_a_long_packet_count() {
        let plain = [0x11; 4096];
        for at in [0, DIGEST_ENDS_BYTES - 1, 4096 - DIGEST_ENDS_BYTES, 4095] {
            let mut other = plain;
            other[at] ^= 1;
            assert_ne!(digest_of(&flight(&plain)), digest_of(&flight(&other)), "byte {at}");
        }
    }

    #[test]
    fn only_the_last_events_are_kept() {
        let mut trace = Trace::new();
        trace.keep(2);
        for time in 1..=3 {
            trace.record(Time(time), &flight(b"x"), PacketFate::Delivered);
        }
        let times: Vec<u64> = trace.kept().iter().map(|event| event.time.0).collect();
        assert_eq!(times, [2, 3]);
    }
}
