//! A network card: packets one after the other, and the state of queue pairs, in a cache.

use super::plan::{Plan, Transport};
use towpath_base::Prng;

/// One card, and the direction of the wire that leaves it.
#[derive(Debug)]
pub(super) struct Card {
    /// When it has handled what it has to.
    free: u64,
    /// When the state of all that it misses is fetched.
    fetched: u64,
    /// When the wire has carried what it has to.
    sent: u64,
    /// Queue pairs of which the state is at hand.
    cached: Vec<u32>,
    /// By queue pair: where in `cached`, and beyond it where not.
    places: Vec<u32>,
    capacity: usize,
    packet: u64,
    miss: u64,
    /// Packets whose queue pair was not at hand.
    pub(super) misses: u64,
}

const NOWHERE: u32 = u32::MAX;

impl Card {
    /// Thousands of clients are on more than one machine, so only the server's card may have too
    /// many queue pairs; and none where the kernel has the connections.
    pub(super) fn new(plan: &Plan, at_server: bool) -> Self {
        let hardware = &plan.hardware;
        let each = if plan.transport.is_rc() { hardware.cache_rc.max(1) } else { 1 };
        let is_bounded = at_server && plan.transport != Transport::Tcp;
        let capacity = if is_bounded { hardware.cache / each } else { u64::from(plan.clients) };
        Self {
            free: 0,
            fetched: 0,
            sent: 0,
            cached: Vec::new(),
            places: vec![NOWHERE; plan.clients as usize],
            capacity: capacity.max(1) as usize,
            packet: plan.packet(),
            miss: hardware.miss,
            misses: 0,
        }
    }

    /// When a packet of a queue pair that is there now has been handled.
    pub(super) fn pass(&mut self, now: u64, queue_pair: u32, prng: &mut Prng) -> u64 {
        self.free = now.max(self.free) + self.packet;
        if self.places[queue_pair as usize] != NOWHERE {
            return self.free;
        }
        self.keep(queue_pair, prng);
        self.misses += 1;
        self.fetched = self.free.max(self.fetched) + self.miss;
        self.fetched
    }

    /// Puts the state of a queue pair in the place of another, any of them.
    fn keep(&mut self, queue_pair: u32, prng: &mut Prng) {
        let place = if self.cached.len() < self.capacity {
            self.cached.push(queue_pair);
            self.cached.len() - 1
        } else {
            let place = prng.below(self.capacity as u64) as usize;
            self.places[self.cached[place] as usize] = NOWHERE;
            self.cached[place] = queue_pair;
            place
        };
        self.places[queue_pair as usize] = place as u32;
    }

    /// When the last byte of a packet that is ready now has left.
    pub(super) fn send(&mut self, ready: u64, bytes: u64, line_gbps: u64) -> u64 {
        self.sent = ready.max(self.sent) + bytes * 8 / line_gbps;
        self.sent
    }
}
