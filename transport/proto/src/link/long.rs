//! Packets that the way swallows because they are long, while shorter ones get through
//! (docs/protocol.md section 9).
//!
//! A way that carries less than the link's MTU, and does not say so, looks like one that works:
//! probes, acks and short messages pass. What gives it away is that chunks with long packets are
//! lost one after the other. Then pairs of probes are sent, a short one before a long one. Pairs of
//! which only the short one is answered, many in a row, are no chance.

use super::Link;
use crate::carrier::Carrier;
use crate::event::{DownReason, Event, PathId, Transmit};
use crate::limits::{
    HEADER_BYTES, LONG_LOST_MIN, LONG_PAIRS_MIN, LONG_PROBE_INTERVAL, LONG_SILENCE,
};
use crate::path::{What, bit};
use crate::wire::Kind;
use towpath_base::{Nanos, Time};

/// A short probe and the long one behind it. The other way round they could leave as one run of
/// packets, which something on the way may drop as one.
#[derive(Clone, Copy, Debug)]
struct Pair {
    path: usize,
    short: u64,
    /// None while it was not sent.
    long: Option<u64>,
}

/// What is known of packets longer than half of the MTU: shorter ones fit the next MTU.
#[derive(Debug)]
pub(super) struct LongPackets {
    mtu_bytes: u32,
    /// Chunks with such packets that were lost since one of them got through, and the payload of
    /// the shortest, up to what fills a packet.
    lost: u32,
    shortest_lost: u32,
    /// When to ask next; `NEVER` while nothing is suspected.
    due: Time,
    /// The path that is asked, and whether its pair is still to be sent.
    on: usize,
    is_pair_due: bool,
    asked: Option<Pair>,
    /// Pairs in a row of which only the short probe was answered.
    swallowed: u32,
}

impl LongPackets {
    pub(super) fn new(mtu_bytes: u32) -> Self {
        Self {
            mtu_bytes,
            lost: 0,
            shortest_lost: u32::MAX,
            due: Time::NEVER,
            on: 0,
            is_pair_due: false,
            asked: None,
            swallowed: 0,
        }
    }

    /// Payload bytes of a chunk whose acknowledgement says that long packets get through; more than
    /// any has while nothing is suspected.
    #[inline]
    pub(super) fn least_payload(&self) -> u32 {
        self.shortest_lost
    }

    /// A chunk of so many payload bytes was lost.
    pub(super) fn on_lost(&mut self, payload_bytes: u32) {
        let fills_packet = self.mtu_bytes - HEADER_BYTES as u32;
        let payload_bytes = payload_bytes.min(fills_packet);
        if payload_bytes + HEADER_BYTES as u32 > self.mtu_bytes / 2 {
            self.lost = self.lost.saturating_add(1);
            self.shortest_lost = self.shortest_lost.min(payload_bytes);
        }
    }

    /// Long packets get through.
    #[cold]
    pub(super) fn on_passed(&mut self) {
        *self = Self { on: self.on, ..Self::new(self.mtu_bytes) };
    }

    /// When [`Link::ask_for_long_packets`] has something to do.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// A short probe went out; true when a long one is to follow.
    pub(super) fn on_short_probe(&mut self, index: usize, number: u64) -> bool {
        let begins = index == self.on && core::mem::take(&mut self.is_pair_due);
        if begins {
            self.asked = Some(Pair { path: index, short: number, long: None });
        }
        begins
    }

    /// Whether the next probe of a path is a long one.
    pub(super) fn wants_long_on(&self, index: usize) -> bool {
        self.asked.is_some_and(|pair| pair.path == index && pair.long.is_none())
    }
}

impl Link {
    /// Begins to ask when many chunks in a row were lost that have long packets, and none of them
    /// gets through for a while.
    pub(super) fn suspect_long_packets(&mut self, now: Time) {
        if self.long.lost >= LONG_LOST_MIN && self.long.due == Time::NEVER {
            self.long.due = now + LONG_SILENCE;
        }
    }

    /// Asks whether long packets get through, and ends the link when they do not.
    pub(super) fn ask_for_long_packets(&mut self, now: Time) {
        if self.long.due > now {
            return;
        }
        self.judge_pair();
        if self.long.swallowed >= LONG_PAIRS_MIN {
            return self.on_long_packets_lost(now);
        }
        let count = self.paths.len();
        let places = (1..=count).map(|step| (self.long.on + step) % count);
        let index = places.into_iter().find(|&index| self.can_ask(index));
        let Some(index) = index else { return self.long.on_passed() };
        self.long.due = now + self.pair_interval(index);
        (self.long.on, self.long.is_pair_due) = (index, true);
        self.paths.probes_due |= bit(index);
    }

    /// A carrier that repeats by itself would repeat the probe, and all behind it would wait.
    fn can_ask(&self, index: usize) -> bool {
        let path = &self.paths[index];
        self.paths.is_in_use(index) && !path.has_failed && !path.carrier.is_reliable()
    }

    /// Within this both probes are answered, if they are.
    fn pair_interval(&self, index: usize) -> Nanos {
        self.probe_interval(&self.paths[index]).saturating_mul(2).max(LONG_PROBE_INTERVAL)
    }

    /// The last pair has had its time. One whose short probe was not answered tells nothing; when a
    /// long one is answered, nothing is suspected any more.
    fn judge_pair(&mut self) {
        let Some(Pair { path, short, long: Some(long) }) = self.long.asked.take() else { return };
        let tx = &self.paths[path].tx;
        self.long.swallowed += u32::from(tx.is_acked(short) && !tx.is_acked(long));
    }

    /// A probe of a whole packet: filler stands behind its header.
    pub(super) fn transmit_long_probe(&mut self, now: Time, index: usize) -> Transmit {
        let (number, floor) = self.paths[index].tx.send(What::LongProbe, 0, now);
        self.paths.on_sent(now, index, 0);
        self.stats.path_probes += 1;
        // Another short one behind it, whose answer shows a gap where it is lost: else the path
        // would count as silent.
        self.paths.probes_due |= bit(index);
        if let Some(pair) = &mut self.long.asked {
            pair.long = Some(number);
        }
        let header = self.header(Kind::Probe, 0, index, number, floor);
        let filler_bytes = self.long.mtu_bytes - HEADER_BYTES as u32;
        Transmit { path: PathId(index as u8), header, payload: None, filler_bytes }
    }

    /// The MTU of a link is what its queue pairs were made with, so it is over; but not where it
    /// can ride on TCP, which finds out by itself how long its packets may be.
    fn on_long_packets_lost(&mut self, now: Time) {
        let mtu = self.peer.mtu;
        self.stats.long_packets_lost += 1;
        self.long.on_passed();
        self.events.push_back(Event::LongPacketsLost { mtu });
        if self.paths.ladder.has_refuge() {
            self.paths.ladder.note_narrow();
            return self.ride_on(now, Carrier::Tcp);
        }
        self.go_down(DownReason::LongPacketsLost { mtu });
    }
}
