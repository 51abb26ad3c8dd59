//! The sending side of a path: outstanding numbers, acknowledgement, loss by gaps.

mod digest;
mod lost;

pub(crate) use digest::AckDigest;
pub(crate) use lost::Lost;

use super::frames::{FrameRing, Span};
use super::order::Order;
use crate::limits::NUMBER_WINDOW;
use crate::piece::SendFrame;
use crate::slots::Key;
use alloc::boxed::Box;
use alloc::vec;
use core::hint::cold_path;
use core::ops::Range;
use towpath_base::Time;
use towpath_verbs::Mtu;

/// Numbers that a fresh path remembers: what a window of some MiB holds.
const RING_FIRST: usize = 64;

/// What travels under a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Nothing,
    /// Frames of messages.
    Data,
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
    frames: Span,
    sent_at: Time,
    charge: u32,
    state: State,
    /// The device has not returned the work request yet.
    posted: bool,
    /// What it carries is under another number, too.
    is_copy: bool,
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
    frames: FrameRing,
    /// Of numbers below the frames are not needed any more.
    frames_from: u64,
    in_flight_bytes: u64,
    order: Order,
}

impl Sent {
    const UNUSED: Self = Self {
        what: What::Nothing,
        frames: Span::EMPTY,
        sent_at: Time::ZERO,
        charge: 0,
        state: State::Done,
        posted: false,
        is_copy: false,
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
            frames: FrameRing::default(),
            frames_from: 0,
            in_flight_bytes: 0,
            order: Order::new(),
        }
    }

    /// As if `number` transmissions had been sent and acknowledged.
    #[cfg(test)]
    pub(crate) fn starting_at(number: u64) -> Self {
        let mut window = Self::new();
        (window.next, window.floor, window.floor_told) = (number, number, number);
        (window.cumulative, window.decided, window.returned) = (number, number, number);
        window.frames_from = number;
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

    /// Whether another chunk of frames may be sent, beside that it has a number: there is room for
    /// what is to be known of the frames.
    pub(crate) fn has_room_for_frames(&mut self) -> bool {
        self.frames.has_room() || {
            cold_path();
            self.release_frames();
            self.frames.has_room()
        }
    }

    /// Lets go of the frames of what is acknowledged, or was lost and sent again, and is not posted
    /// any more.
    fn release_frames(&mut self) {
        self.frames_from = self.frames_from.max(self.next.saturating_sub(self.ring.len() as u64));
        while self.frames_from < self.next {
            let sent = self.at(self.frames_from);
            if sent.state == State::Outstanding || sent.posted {
                let frames = sent.frames;
                self.frames.release(frames);
                return;
            }
            self.frames_from += 1;
        }
        self.frames.release(self.frames.none());
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

    /// Uses the next number for frames; returns it and the floor to tell.
    #[inline]
    pub(crate) fn send_frames(
        &mut self,
        frames: &[SendFrame],
        charge: u32,
        now: Time,
    ) -> (u64, u64) {
        if !self.frames.has_room_now(frames.len()) {
            cold_path();
            self.release_frames();
        }
        let frames = self.frames.push(frames);
        self.use_number(What::Data, frames, charge, now)
    }

    /// Uses the next number for something else; returns it and the floor to tell.
    pub(crate) fn send(&mut self, what: What, charge: u32, now: Time) -> (u64, u64) {
        let none = self.frames.none();
        self.use_number(what, none, charge, now)
    }

    #[inline(always)]
    fn use_number(&mut self, what: What, frames: Span, charge: u32, now: Time) -> (u64, u64) {
        debug_assert!(self.has_number(), "asked before");
        let number = self.next;
        let mut place = self.at_mut(number);
        if !place.is_over() {
            place = self.grown_at(number);
        }
        let state = State::Outstanding;
        let (posted, is_copy) = (true, false);
        *place = Sent { what, frames, sent_at: now, charge, state, posted, is_copy };
        self.next += 1;
        self.in_flight_bytes += u64::from(charge);
        self.floor_told = self.floor_to_tell(number);
        (number, self.floor_told)
    }

    /// What the number carries that was used last is under another one, too, which is outstanding
    /// or was lost: so when this one is lost nothing more is to be sent again.
    pub(crate) fn note_copy(&mut self) {
        if let Some(number) = self.next.checked_sub(1) {
            self.at_mut(number).is_copy = true;
        }
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

    /// All numbers up to this one whose work requests may be with the device.
    pub(crate) fn posted_upto(&self, number: u64) -> Range<u64> {
        self.returned..number.saturating_add(1)
    }

    /// The device has returned the work requests of these numbers, the last of them at `timestamp`.
    /// Hands on the frames that they carried that were not returned before. Says when the last was
    /// handed to the device, and when it left, if both are known.
    pub(crate) fn returned(
        &mut self,
        numbers: Range<u64>,
        timestamp: Option<Time>,
        mut each: impl FnMut(&SendFrame),
    ) -> Option<(Time, Time)> {
        let Self { ring, next, returned, frames, .. } = self;
        let mut times = None;
        let (len, end) = (ring.len() as u64, numbers.end.min(*next));
        for number in numbers.start.max(next.saturating_sub(len))..end {
            let sent = &mut ring[(number & (len - 1)) as usize];
            if !core::mem::take(&mut sent.posted) {
                continue;
            }
            let at = timestamp.filter(|_| number + 1 == end && sent.state == State::Outstanding);
            if let Some(at) = at {
                times = Some((sent.sent_at, at));
                sent.sent_at = sent.sent_at.max(at);
            }
            frames.get(sent.frames).for_each(&mut each);
        }
        if numbers.start <= *returned {
            *returned = end.max(*returned);
        }
        times
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

    /// Takes in an ack; calls `acked` for each number that it newly acknowledges: with what that
    /// carried, and its charge; and `frame_acked` for each of its frames.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        (largest, base): (u64, u64),
        words: impl Iterator<Item = (u64, u64)>,
        mut acked: impl FnMut(&What, u32),
        mut frame_acked: impl FnMut(&SendFrame),
    ) -> AckDigest {
        let mut digest = AckDigest {
            timed_out_numbers: self.timed_out,
            largest_before: self.largest_acked,
            lowest: u64::MAX,
            ..AckDigest::default()
        };
        let news = self.largest_acked.is_none_or(|seen| largest > seen);
        if news {
            self.largest_acked = Some(largest);
        }
        let start = self.cumulative.max(self.next.saturating_sub(self.ring.len() as u64));
        let end = base.min(self.next);
        let Self { ring, frames, floor_told, .. } = self;
        let mask = ring.len() - 1;
        for number in start..end {
            let sent = &mut ring[number as usize & mask];
            // A number that was declared lost may lie below a floor that we told: then the peer's
            // cumulative word says nothing about it.
            let is_told = sent.state != State::Lost || number >= *floor_told;
            if is_told && digest.take_in(number, largest, sent) {
                acked(&sent.what, sent.charge);
                frames.get(sent.frames).for_each(&mut frame_acked);
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
                        acked(&sent.what, sent.charge);
                        let span = sent.frames;
                        self.frames.get(span).for_each(&mut frame_acked);
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
        self.note_order(now, &digest);
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
        digest.gone = self.timed_out_lost;
        digest.timeouts_were_false = Some(self.timed_out_lost == 0);
        (self.timed_out, self.floor_held) = (NONE_TIMED_OUT, u64::MAX);
    }

    /// What an ack says of the order of the path.
    fn note_order(&mut self, now: Time, digest: &AckDigest) {
        if let Some(late) = digest.oldest_late {
            cold_path();
            self.order.on_late(self.order.newest_sent_at().since(late));
        }
        if let Some(sent_at) = digest.largest_sent_at {
            self.order.on_newest(now, sent_at);
        }
        self.order.on_ack(digest.is_disordered);
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
}

#[cfg(test)]
mod tests;
