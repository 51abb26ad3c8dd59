//! The receiving side of a path: which numbers came in, and what ack is due.

use crate::limits::{DISORDER_MEMORY, NUMBER_WINDOW};
use crate::wire::HOLD_UNKNOWN;
use core::hint::cold_path;
use towpath_base::{Nanos, Time, WindowBitmap};

/// Received transmission numbers of one path and direction.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    received: WindowBitmap,
    /// The largest number received and when.
    largest: Option<(u64, Time)>,
    /// When it was first told; `NEVER` before.
    told_at: Time,
    pub(crate) acks_sent: u64,
    /// Numbers that came behind larger ones, and when the last did.
    disordered: u16,
    disordered_at: Option<Time>,
}

impl ReceiveWindow {
    pub(crate) fn new() -> Self {
        let received = WindowBitmap::new(0, NUMBER_WINDOW as usize);
        Self {
            received,
            largest: None,
            told_at: Time::NEVER,
            acks_sent: 0,
            disordered: 0,
            disordered_at: None,
        }
    }

    /// Takes in the sender's floor: nothing below it will be sent or asked for again.
    pub(crate) fn advance(&mut self, floor: u64) {
        self.received.advance_to(floor);
    }

    /// Takes in an accepted number.
    #[inline(always)]
    pub(crate) fn accept(&mut self, number: u64, at: Time) {
        let is_new = self.received.insert(number);
        if self.largest.is_none_or(|(largest, _)| number > largest) {
            (self.largest, self.told_at) = (Some((number, at)), Time::NEVER);
        } else if is_new {
            cold_path();
            self.disordered = self.disordered.wrapping_add(1);
            self.disordered_at = Some(at);
        }
    }

    /// How many numbers came behind larger ones, low bits.
    pub(crate) fn disordered(&self) -> u16 {
        self.disordered
    }

    /// Whether any did of late.
    pub(crate) fn is_disordered(&self, now: Time) -> bool {
        self.disordered_at.is_some_and(|at| now < at + DISORDER_MEMORY)
    }

    /// An ack that leaves now tells the largest number, which came in at `at`: how long that was
    /// held, and will be for the `lag` that is still to come. What was told before is told again
    /// because that may be lost, and how long that took to be noticed is no delay of ours:
    /// [`HOLD_UNKNOWN`].
    #[inline]
    pub(crate) fn tell(&mut self, now: Time, at: Time, lag: Nanos) -> u32 {
        if now > self.told_at {
            return HOLD_UNKNOWN;
        }
        self.told_at = now;
        (now + lag).since(at).0.min(u64::from(HOLD_UNKNOWN)) as u32
    }

    /// The largest number and when it came in.
    pub(crate) fn largest(&self) -> Option<(u64, Time)> {
        self.largest
    }

    /// Everything below was received or lies below the sender's floor.
    pub(crate) fn base(&self) -> u64 {
        // The floor may pass the largest number when all later ones were lost.
        self.received.base()
    }

    /// Nothing is missing up to the largest number.
    pub(crate) fn is_complete(&self) -> bool {
        self.largest.is_some_and(|(largest, _)| self.received.base() > largest)
    }

    pub(crate) fn word_at(&self, number: u64) -> u64 {
        self.received.word_at(number)
    }
}
