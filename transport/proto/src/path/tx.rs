//! The sending side of a path: outstanding numbers, acknowledgement, loss by gaps.

use crate::event::SendKey;
use crate::limits::{NUMBER_WINDOW, REORDER_WINDOW_MAX};
use crate::slots::Key;
use alloc::boxed::Box;
use alloc::vec;
use core::hint::cold_path;
use towpath_base::Time;
use towpath_verbs::Mtu;

/// Numbers that a fresh path remembers: what a window of some MiB holds.
const RING_FIRST: usize = 64;

/// Acks without a late one after which the reorder window shrinks by one.
const REORDER_DECAY_ACKS: u32 = 256;

/// One chunk of a message, as it was cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataChunk {
    pub(crate) send: SendKey,
    pub(crate) segment: u8,
    pub(crate) last: bool,
    /// Where in the segment.
    pub(crate) segment_offset: u32,
    /// Where in the message.
    pub(crate) offset: u32,
    pub(crate) length: u32,
    pub(crate) index: u32,
}

/// What travels under a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Nothing,
    Data(DataChunk),
    /// A control chunk, by its key in the link's table.
    Control(Key),
    /// It only asks whether the path works.
    Probe,
    /// A probe of a packet of this size: whether the path carries such.
    LongProbe(Mtu),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Acknowledged, or never used.
    Done,
    Outstanding,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    what: What,
    sent_at: Time,
    charge: u32,
    state: State,
    /// The device has not returned the work request yet.
    posted: bool,
}

/// What an ack newly told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckDigest {
    pub(crate) acked_chunks: u32,
    pub(crate) acked_bytes: u64,
    /// What is not in flight any more.
    pub(crate) landed_bytes: u64,
    /// The smallest and the largest number newly acknowledged, when any was.
    pub(crate) lowest: u64,
    pub(crate) highest: u64,
    /// When the largest acknowledged number was sent, if this ack is the first to tell of it.
    pub(crate) largest_sent_at: Option<Time>,
    /// How many were acknowledged after they had been declared lost.
    pub(crate) spurious: u32,
    /// Those of them that a timeout had declared lost, not a gap.
    pub(crate) timed_out: u32,
    /// Of how many that a timeout had declared lost it will never be known whether they came.
    pub(crate) unknown: u32,
    /// What the last timeouts declared lost is known: whether all of it had come.
    pub(crate) timeouts_were_false: Option<bool>,
    /// The numbers that they declared lost.
    timed_out_numbers: (u64, u64),
}

impl AckDigest {
    pub(crate) const NOTHING: Self = Self {
        acked_chunks: 0,
        acked_bytes: 0,
        landed_bytes: 0,
        lowest: u64::MAX,
        highest: 0,
        largest_sent_at: None,
        spurious: 0,
        timed_out: 0,
        unknown: 0,
        timeouts_were_false: None,
        timed_out_numbers: NONE_TIMED_OUT,
    };

    /// Takes in that `number` is acknowledged; true when it was not before. What it carried is
    /// looked at in its place: a copy would cost more than the rest.
    #[inline(always)]
    fn take_in(&mut self, number: u64, largest: u64, sent: &mut Sent) -> bool {
        let charge = u64::from(sent.charge);
        match sent.state {
            State::Done => return false,
            State::Outstanding => self.landed_bytes += charge,
            State::Lost => {
                let (first, end) = self.timed_out_numbers;
                self.spurious += 1;
                self.timed_out += u32::from((first..end).contains(&number));
            }
        }
        sent.state = State::Done;
        if number == largest {
            self.largest_sent_at = Some(sent.sent_at);
        }
        self.acked_chunks += 1;
        self.acked_bytes += charge;
        self.lowest = self.lowest.min(number);
        self.highest = self.highest.max(number);
        true
    }
}

/// No timeout whose outcome is open.
const NONE_TIMED_OUT: (u64, u64) = (u64::MAX, u64::MAX);

/// The numbers of one path and direction, from the oldest outstanding on.
///
/// The ring grows with what is under way, up to [`NUMBER_WINDOW`]: most links of a host with
/// thousands of peers are idle.
#[derive(Debug)]
pub(crate) struct SendWindow {
    /// A power of two long; it holds the last `ring.len()` numbers.
    ring: Box<[Sent]>,
    next: u64,
    /// The oldest outstanding number, or `next`.
    floor: u64,
    /// The largest floor that a header has told the peer: the peer's cumulative word about numbers
    /// from there on can be believed.
    floor_told: u64,
    /// The numbers from the first to the last that timeouts declared lost, and how many of them no
    /// ack has told of.
    timed_out: (u64, u64),
    timed_out_lost: u32,
    /// The peer, which may only be slow, is told no higher floor than the first of them until
    /// something sent later is acknowledged: so its acks tell which of them came.
    floor_held: u64,
    /// Everything below was looked at by a cumulative acknowledgement.
    cumulative: u64,
    /// Everything below is acknowledged or declared lost.
    decided: u64,
    /// The device has returned everything below.
    returned: u64,
    largest_acked: Option<u64>,
    in_flight_bytes: u64,
    reorder_window: u64,
    acks_in_order: u32,
}

impl Sent {
    const UNUSED: Self = Self {
        what: What::Nothing,
        sent_at: Time::ZERO,
        charge: 0,
        state: State::Done,
        posted: false,
    };

    /// Nothing will ask for it any more.
    fn is_over(&self) -> bool {
        self.state == State::Done && !self.posted
    }
}

impl SendWindow {
    pub(crate) fn new() -> Self {
        Self {
            ring: vec![Sent::UNUSED; RING_FIRST].into_boxed_slice(),
            next: 0,
            floor: 0,
            floor_told: 0,
            timed_out: NONE_TIMED_OUT,
            timed_out_lost: 0,
            floor_held: u64::MAX,
            cumulative: 0,
            decided: 0,
            returned: 0,
            largest_acked: None,
            in_flight_bytes: 0,
            reorder_window: 0,
            acks_in_order: 0,
        }
    }

    /// As if `number` transmissions had been sent and acknowledged.
    #[cfg(test)]
    pub(crate) fn starting_at(number: u64) -> Self {
        let mut window = Self::new();
        (window.next, window.floor, window.floor_told) = (number, number, number);
        (window.cumulative, window.decided, window.returned) = (number, number, number);
        window
    }

    fn at(&self, number: u64) -> &Sent {
        &self.ring[number as usize & (self.ring.len() - 1)]
    }

    fn at_mut(&mut self, number: u64) -> &mut Sent {
        let mask = self.ring.len() - 1;
        &mut self.ring[number as usize & mask]
    }

    /// The ring is as long as it gets.
    fn is_full_grown(&self) -> bool {
        self.ring.len() as u64 == NUMBER_WINDOW
    }

    /// Whether the ring still knows a number that was used.
    fn remembers(&self, number: u64) -> bool {
        number < self.next && self.next - number <= self.ring.len() as u64
    }

    /// The place of a number, in a ring twice as long unless it is as long as it gets.
    #[cold]
    fn grown_at(&mut self, number: u64) -> &mut Sent {
        if !self.is_full_grown() {
            self.grow();
        }
        self.at_mut(number)
    }

    /// Doubles the ring.
    fn grow(&mut self) {
        let len = self.ring.len();
        let mut ring = vec![Sent::UNUSED; 2 * len].into_boxed_slice();
        for number in self.next.saturating_sub(len as u64)..self.next {
            ring[number as usize & (2 * len - 1)] = *self.at(number);
        }
        self.ring = ring;
    }

    /// Whether another number may be used: within the bitmap, and its place is free.
    pub(crate) fn has_number(&self) -> bool {
        let has_place = !self.is_full_grown() || !self.at(self.next).posted;
        self.next - self.floor < NUMBER_WINDOW && has_place
    }

    /// The number that the next transmission gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    pub(crate) fn any_outstanding(&self) -> bool {
        self.floor < self.next
    }

    /// How many numbers lie between the oldest outstanding one and the next.
    pub(crate) fn span(&self) -> u64 {
        self.next - self.floor
    }

    /// When the oldest outstanding number was sent; `NEVER` when none is.
    pub(crate) fn oldest_sent_at(&self) -> Time {
        if self.any_outstanding() { self.at(self.floor).sent_at } else { Time::NEVER }
    }

    /// Uses the next number; returns it and the floor to tell.
    #[inline(always)]
    pub(crate) fn send(&mut self, what: What, charge: u32, now: Time) -> (u64, u64) {
        debug_assert!(self.has_number(), "asked before");
        let number = self.next;
        let mut place = self.at_mut(number);
        if !place.is_over() {
            place = self.grown_at(number);
        }
        *place = Sent { what, sent_at: now, charge, state: State::Outstanding, posted: true };
        self.next += 1;
        self.in_flight_bytes += u64::from(charge);
        self.floor_told = self.floor_to_tell(number);
        (number, self.floor_told)
    }

    /// The floor that goes with a number: the oldest outstanding one, or the oldest that may have
    /// come although a timeout declared it lost.
    #[inline(always)]
    fn floor_to_tell(&mut self, number: u64) -> u64 {
        let floor = self.floor.min(self.floor_held);
        if number - floor >= NUMBER_WINDOW - 1 {
            // Headers and acks reach no further.
            cold_path();
            self.tell_floor();
            return self.floor;
        }
        floor
    }

    /// Tells the peer the floor as it is: what a timeout declared lost stays unknown, and an ack of
    /// what comes next can say that nothing is missing.
    pub(crate) fn tell_floor(&mut self) {
        self.floor_held = u64::MAX;
    }

    /// The device has returned the work request of `number`. Gives what it carried, once.
    pub(crate) fn returned(&mut self, number: u64, timestamp: Option<Time>) -> Option<What> {
        if !self.remembers(number) {
            return None;
        }
        let sent = self.at_mut(number);
        if !core::mem::take(&mut sent.posted) {
            return None;
        }
        if let Some(at) = timestamp.filter(|_| sent.state == State::Outstanding) {
            sent.sent_at = sent.sent_at.max(at);
        }
        Some(sent.what)
    }

    /// The device has returned the work requests of all numbers up to `number`, the last of them at
    /// `timestamp`. Hands on what they carried that were not returned before.
    pub(crate) fn returned_upto(
        &mut self,
        number: u64,
        timestamp: Option<Time>,
        mut each: impl FnMut(&What),
    ) {
        let Self { ring, next, returned, .. } = self;
        let (len, end) = (ring.len() as u64, (number + 1).min(*next));
        for number in (*returned).max(next.saturating_sub(len))..end {
            let sent = &mut ring[(number & (len - 1)) as usize];
            if !core::mem::take(&mut sent.posted) {
                continue;
            }
            let at = timestamp.filter(|_| number + 1 == end && sent.state == State::Outstanding);
            if let Some(at) = at {
                sent.sent_at = sent.sent_at.max(at);
            }
            each(&sent.what);
        }
        *returned = end.max(*returned);
    }

    /// Whether an ack that names `largest` can be true.
    pub(crate) fn was_sent(&self, largest: u64) -> bool {
        largest < self.next
    }

    /// Whether a number that was used not long ago is acknowledged.
    pub(crate) fn is_acked(&self, number: u64) -> bool {
        self.remembers(number) && self.at(number).state == State::Done
    }

    /// Whether an ack without a bitmap can tell anything that is not known.
    pub(crate) fn is_news(&self, largest: u64, base: u64) -> bool {
        self.largest_acked.is_none_or(|seen| largest > seen) || base > self.cumulative
    }

    /// Takes in an ack; calls `acked` for everything that it newly acknowledges.
    pub(crate) fn on_ack(
        &mut self,
        largest: u64,
        base: u64,
        words: impl Iterator<Item = (u64, u64)>,
        mut acked: impl FnMut(&What),
    ) -> AckDigest {
        let mut digest = AckDigest { timed_out_numbers: self.timed_out, ..AckDigest::NOTHING };
        let news = self.largest_acked.is_none_or(|seen| largest > seen);
        if news {
            self.largest_acked = Some(largest);
        }
        let start = self.cumulative.max(self.next.saturating_sub(self.ring.len() as u64));
        let end = base.min(self.next);
        let floor_told = self.floor_told;
        for number in start..end {
            let sent = self.at_mut(number);
            // A number that was declared lost may lie below a floor that we told: then the peer's
            // cumulative word says nothing about it.
            let is_told = sent.state != State::Lost || number >= floor_told;
            if is_told && digest.take_in(number, largest, sent) {
                acked(&sent.what);
            }
        }
        self.cumulative = self.cumulative.max(end);
        for (first, word) in words {
            let mut bits = word;
            while bits != 0 {
                let number = first + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                if self.remembers(number) {
                    let sent = self.at_mut(number);
                    if digest.take_in(number, largest, sent) {
                        acked(&sent.what);
                    }
                }
            }
        }
        if !news {
            digest.largest_sent_at = None;
        }
        self.in_flight_bytes -= digest.landed_bytes;
        if self.timed_out != NONE_TIMED_OUT {
            cold_path();
            self.settle_timed_out(&mut digest);
        }
        self.adapt_reorder_window(&digest);
        self.advance_floor();
        digest
    }

    /// Of what timeouts declared lost all is known when all of it has come, or something has that
    /// was sent later.
    fn settle_timed_out(&mut self, digest: &mut AckDigest) {
        self.timed_out_lost = self.timed_out_lost.saturating_sub(digest.timed_out);
        if self.timed_out_lost > 0 && self.largest_acked < Some(self.timed_out.1) {
            return;
        }
        if self.floor_held == u64::MAX {
            // Nothing says that they did not come.
            digest.unknown = core::mem::take(&mut self.timed_out_lost);
        }
        digest.timeouts_were_false = Some(self.timed_out_lost == 0);
        (self.timed_out, self.floor_held) = (NONE_TIMED_OUT, u64::MAX);
    }

    fn adapt_reorder_window(&mut self, digest: &AckDigest) {
        // What a timeout declared lost was late, and out of no order.
        if digest.spurious > digest.timed_out {
            self.reorder_window = (self.reorder_window * 2 + 1).min(REORDER_WINDOW_MAX);
            self.acks_in_order = 0;
            return;
        }
        self.acks_in_order += 1;
        if self.acks_in_order >= REORDER_DECAY_ACKS {
            self.acks_in_order = 0;
            self.reorder_window = self.reorder_window.saturating_sub(1);
        }
    }

    fn advance_floor(&mut self) {
        while self.floor < self.next && self.at(self.floor).state != State::Outstanding {
            self.floor += 1;
        }
    }

    /// Transmissions after the newest that was acknowledged.
    pub(crate) fn sent_since_acked(&self) -> u64 {
        self.largest_acked.map_or(self.next, |largest| self.next - 1 - largest)
    }

    /// Declares lost what lies more than the reorder window below the largest acknowledged number
    /// (docs/protocol.md section 5).
    pub(crate) fn detect_losses(&mut self, lost: impl FnMut(&What, u32)) {
        let Some(largest) = self.largest_acked else { return };
        self.declare_lost_below(largest.saturating_sub(self.reorder_window), lost);
    }

    /// Declares everything outstanding lost.
    pub(crate) fn time_out(&mut self, mut lost: impl FnMut(&What, u32)) {
        let (first, end) = (self.floor, self.next);
        if first == end {
            return;
        }
        if self.timed_out == NONE_TIMED_OUT {
            (self.timed_out.0, self.timed_out_lost) = (first, 0);
            self.floor_held = first;
        }
        self.timed_out.1 = end;
        let mut count = 0;
        self.declare_lost_below(end, |what, charge| {
            count += 1;
            lost(what, charge);
        });
        self.timed_out_lost += count;
    }

    fn declare_lost_below(&mut self, end: u64, mut lost: impl FnMut(&What, u32)) {
        let start = self.decided.max(self.floor);
        for number in start..end {
            let sent = self.at_mut(number);
            if sent.state == State::Outstanding {
                sent.state = State::Lost;
                let (what, charge) = (sent.what, sent.charge);
                self.in_flight_bytes -= u64::from(charge);
                lost(&what, charge);
            }
        }
        self.decided = self.decided.max(end);
        self.advance_floor();
    }

    /// The newest outstanding chunk: what a tail-loss probe sends again.
    pub(crate) fn newest_outstanding(&self) -> Option<What> {
        let mut numbers = (self.floor..self.next).rev();
        let newest = numbers.find(|&number| self.at(number).state == State::Outstanding)?;
        Some(self.at(newest).what)
    }
}

#[cfg(test)]
mod tests;
