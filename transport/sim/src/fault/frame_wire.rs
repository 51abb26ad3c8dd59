//! One direction of a wire for Ethernet frames of any protocol, without a clock or a socket.

use super::counters::FaultCounters;
use super::dice::{Hit, Hold, Mishap};
use super::frame_plan::{
    ETHERNET_HEADER_BYTES, FrameCounters, FramePlan, FrameRate, Outage, VLAN_TAG_BYTES,
};
use super::held::Parked;
use super::lane::{Lane, count_loss};
use crate::fault::dice::EXTEND_BYTES_MAX;
use crate::limits::IN_FLIGHT_PACKETS_MAX;
use std::collections::VecDeque;
use towpath_base::{Nanos, Time};

/// The EtherType of a VLAN tag, in the order of the wire.
const VLAN_TYPE: [u8; 2] = [0x81, 0x00];

/// UDP, as IP numbers protocols.
const UDP: u8 = 17;

/// The header of IPv6 that fragments have.
const IPV6_FRAGMENT: u8 = 44;

/// Where frames come out: when, and their bytes.
type Exit<'a> = dyn FnMut(Time, &[u8]) + 'a;

/// One direction of a wire: frames go in with the time, and come out with the time at which they
/// are due, damaged, copied, late or not at all, as a [`FramePlan`] says.
///
/// What befalls a frame depends on the seed, the plan, and how many frames met the faults before
/// it. A wire that is looked at late hands frames on late, but each with the time at which it was
/// due, and its rate is kept.
///
/// What it holds is bounded: the queue by its bytes and by
/// [`IN_FLIGHT_PACKETS_MAX`], what faults hold back by
/// [`HELD_PACKETS_MAX`](crate::limits::HELD_PACKETS_MAX) and
/// [`HELD_BYTES_MAX`](crate::limits::HELD_BYTES_MAX).
///
/// ```
/// use towpath_base::{Nanos, Time};
/// use towpath_sim::{FaultPlan, FramePlan, FrameWire};
///
/// let delay = FaultPlan::none().delay(Nanos::from_millis(20), Nanos::ZERO);
/// let mut wire = FrameWire::new(FramePlan { faults: delay, ..FramePlan::default() }, 7);
/// let mut out = Vec::new();
/// wire.offer(Time::ZERO, &[0; 60], &mut |at, frame| out.push((at, frame.to_vec())));
/// assert!(out.is_empty());
/// let due = wire.next_release().expect("a frame is held");
/// wire.release(due, &mut |at, frame| out.push((at, frame.to_vec())));
/// assert_eq!(out, [(Time(20_000_000), vec![0; 60])]);
/// ```
pub struct FrameWire {
    plan: FramePlan,
    queue: FrameQueue,
    lane: Lane<()>,
    /// No frame that keeps its order comes out before this.
    order_floor: Time,
    counters: FrameCounters,
}

/// Frames that wait for the wire or are on their way onto it.
#[derive(Default)]
struct FrameQueue {
    frames: VecDeque<(Time, Vec<u8>)>,
    bytes: usize,
    /// When the last of them has left.
    busy_until: Time,
}

impl FrameQueue {
    /// Queues a frame unless there is no room for it.
    fn join(&mut self, now: Time, rate: FrameRate, frame: &[u8]) -> bool {
        let is_full = self.bytes + frame.len() > rate.queue_bytes
            || self.frames.len() >= IN_FLIGHT_PACKETS_MAX;
        if is_full && !self.frames.is_empty() {
            return false;
        }
        let bit_ns = frame.len() as u128 * 8 * 1_000_000_000;
        let span = bit_ns.div_ceil(u128::from(rate.bits_per_s.get()));
        let leaves = self.busy_until.max(now) + Nanos(u64::try_from(span).unwrap_or(u64::MAX));
        self.busy_until = leaves;
        self.bytes += frame.len();
        self.frames.push_back((leaves, frame.to_vec()));
        true
    }

    fn next(&self) -> Option<Time> {
        self.frames.front().map(|(leaves, _)| *leaves)
    }

    fn leave(&mut self) -> Option<(Time, Vec<u8>)> {
        let (leaves, frame) = self.frames.pop_front()?;
        self.bytes -= frame.len();
        Some((leaves, frame))
    }
}

impl FrameWire {
    /// A wire on which nothing is yet. Two directions need seeds of their own.
    #[must_use]
    pub fn new(plan: FramePlan, seed: u64) -> Self {
        // Room for a false end of the largest frame.
        let frame_bytes_max =
            plan.mtu.map_or(usize::MAX, |mtu| payload_end(mtu, true) + EXTEND_BYTES_MAX);
        Self {
            lane: Lane::new(plan.faults.clone(), seed, frame_bytes_max),
            plan,
            queue: FrameQueue::default(),
            order_floor: Time::ZERO,
            counters: FrameCounters::default(),
        }
    }

    /// Adds an outage to those of the plan: of every frame, or of those alone that carry UDP.
    pub fn add_outage(&mut self, outage: Outage, is_for_udp: bool) {
        let plan = &mut self.plan;
        let outages = if is_for_udp { &mut plan.udp_outages } else { &mut plan.outages };
        outages.push(outage);
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> FrameCounters {
        self.counters
    }

    /// When the next frame moves on, if none is offered before.
    #[must_use]
    pub fn next_release(&self) -> Option<Time> {
        [self.queue.next(), self.lane.held.next_due()].into_iter().flatten().min()
    }

    /// Takes a frame at `now`, no earlier than any time before, and hands on to `exit` what is due:
    /// this frame too, unless it is lost or held.
    pub fn offer(&mut self, now: Time, frame: &[u8], exit: &mut Exit<'_>) {
        self.release(now, exit);
        self.counters.offered += 1;
        self.counters.offered_bytes += frame.len() as u64;
        if self.plan.mtu.is_some_and(|mtu| frame.len() > payload_end(mtu, is_tagged(frame))) {
            self.counters.too_large += 1;
        } else if self.is_down_for(now, frame) {
            self.counters.lost_down += 1;
        } else if let Some(rate) = self.plan.rate {
            let joined = self.queue.join(now, rate, frame);
            self.counters.queue_dropped += u64::from(!joined);
        } else {
            self.judge(now, frame, exit);
            // A copy that is made without a delay is due at once.
            self.release(now, exit);
        }
    }

    fn is_down_for(&self, now: Time, frame: &[u8]) -> bool {
        let is_down = |outages: &[Outage]| outages.iter().any(|outage| outage.covers(now));
        is_down(&self.plan.outages) || is_down(&self.plan.udp_outages) && carries_udp(frame)
    }

    /// Hands on to `exit` what is due at `now`.
    pub fn release(&mut self, now: Time, exit: &mut Exit<'_>) {
        loop {
            let held = self.lane.held.next_due().filter(|due| *due <= now);
            let queued = self.queue.next().filter(|leaves| *leaves <= now);
            match (held, queued) {
                // What has been on the wire for longer comes first.
                (Some(due), leaves) if leaves.is_none_or(|leaves| due <= leaves) => {
                    self.hand_on_held(due, exit);
                }
                (_, Some(_)) => {
                    if let Some((leaves, frame)) = self.queue.leave() {
                        self.judge(leaves, &frame, exit);
                    }
                }
                _ => break,
            }
        }
    }

    /// Rolls the dice for a frame that left the queue at `at`.
    fn judge(&mut self, at: Time, frame: &[u8], exit: &mut Exit<'_>) {
        let mut batch = FaultCounters::default();
        let passed_bytes = &mut self.counters.passed_bytes;
        match self.lane.roll(0, frame.len()) {
            None => {
                batch.passed += 1;
                *passed_bytes += frame.len() as u64;
                exit(at, frame);
            }
            Some(Hit::Lose(loss)) => count_loss(loss, &mut batch),
            Some(Hit::Suffer(mut mishap)) => {
                if self.plan.keeps_order {
                    keep_order(&mut mishap, at, &mut self.order_floor);
                }
                let parked = Parked { origin: (), bytes: frame.to_vec() };
                let mut hand_on = |parked: &Parked<()>| {
                    *passed_bytes += parked.bytes.len() as u64;
                    exit(at, &parked.bytes);
                    true
                };
                self.lane.befall(mishap, parked, at, &mut batch, &mut hand_on);
            }
        }
        self.lane.take(1, &mut batch);
        self.counters.faults = self.counters.faults.plus(batch);
        while self.lane.held.next_number().is_some_and(|number| number <= self.lane.number) {
            self.hand_on_held(at, exit);
        }
    }

    /// Hands on the first frame that is due at `now` or has been overtaken by then.
    fn hand_on_held(&mut self, now: Time, exit: &mut Exit<'_>) {
        let ready = self.lane.held.ready(now, self.lane.number).next();
        let Some(ticket) = ready.map(|(ticket, _)| ticket) else { return };
        if let Some(parked) = self.lane.held.take(ticket) {
            self.counters.faults.passed += 1;
            self.counters.passed_bytes += parked.bytes.len() as u64;
            exit(ticket.0.min(now), &parked.bytes);
        }
    }
}

/// Stretches the delay of a frame so that it comes out no earlier than the one before it.
fn keep_order(mishap: &mut Mishap, at: Time, floor: &mut Time) {
    if let Some(Hold::Delayed(span)) = &mut mishap.hold {
        *floor = (at + *span).max(*floor);
        *span = floor.since(at);
    }
}

fn is_tagged(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&VLAN_TYPE)
}

/// Whether a frame carries UDP, be it a fragment of it. Extension headers of IPv6 other than that
/// of fragments are not looked behind.
fn carries_udp(frame: &[u8]) -> bool {
    let at = if is_tagged(frame) { VLAN_TAG_BYTES } else { 0 };
    let ip = frame.get(at + ETHERNET_HEADER_BYTES..).unwrap_or_default();
    let Some(kind) = frame.get(at + 12..at + 14) else { return false };
    match kind {
        [0x08, 0x00] => ip.get(9) == Some(&UDP),
        [0x86, 0xdd] => match ip.get(6) {
            Some(&IPV6_FRAGMENT) => ip.get(40) == Some(&UDP),
            next => next == Some(&UDP),
        },
        _ => false,
    }
}

/// The length of a frame with a payload of `mtu` bytes.
fn payload_end(mtu: usize, is_tagged: bool) -> usize {
    mtu + ETHERNET_HEADER_BYTES + if is_tagged { VLAN_TAG_BYTES } else { 0 }
}
