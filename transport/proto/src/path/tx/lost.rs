//! Declaring numbers lost: by gaps, by timeouts.

use super::{NONE_TIMED_OUT, SendWindow, Span, State, What};
use crate::path::frames::FrameRing;
use crate::piece::SendFrame;
use towpath_base::Time;

impl SendWindow {
    /// Declares lost what was overtaken for long enough (docs/protocol.md section 5).
    pub(crate) fn detect_losses(&mut self, now: Time, lost: impl FnMut(&What, u32, Lost<'_>)) {
        self.order.begin();
        let Some(largest) = self.largest_acked else { return };
        self.declare_lost_below(largest, Some(now), lost);
    }

    /// When [`detect_losses`](Self::detect_losses) finds what no ack shows.
    pub(crate) fn overtaken_due(&self) -> Time {
        self.order.due()
    }

    /// Declares everything outstanding lost.
    pub(crate) fn time_out(&mut self, mut lost: impl FnMut(&What, u32, Lost<'_>)) {
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
        self.declare_lost_below(end, None, |what, charge, frames| {
            count += 1;
            lost(what, charge, frames);
        });
        self.timed_out_lost += count;
    }

    /// Declares lost what is outstanding below `end`: as far as the order of the path says so
    /// `now`, or all of it.
    fn declare_lost_below(
        &mut self,
        end: u64,
        now: Option<Time>,
        mut lost: impl FnMut(&What, u32, Lost<'_>),
    ) {
        let mut number = self.decided.max(self.floor);
        while number < end {
            let sent = self.at(number);
            if sent.state == State::Outstanding {
                let sent_at = sent.sent_at;
                // Those behind it were sent later.
                if now.is_some_and(|now| !self.order.is_lost(now, sent_at)) {
                    break;
                }
                let sent = self.at_mut(number);
                sent.state = State::Lost;
                let (what, charge, frames) = (sent.what, sent.charge, sent.frames);
                let is_copy = sent.is_copy;
                self.in_flight_bytes -= u64::from(charge);
                lost(&what, charge, Lost { ring: &self.frames, frames, is_copy });
            }
            number += 1;
        }
        self.decided = self.decided.max(number);
        self.advance_floor();
    }

    /// What the newest outstanding number carries: a tail-loss probe sends it again.
    pub(crate) fn newest_outstanding(&self) -> Option<(What, impl Iterator<Item = &SendFrame>)> {
        let mut numbers = (self.floor..self.next).rev();
        let newest = numbers.find(|&number| self.at(number).state == State::Outstanding)?;
        let sent = self.at(newest);
        Some((sent.what, self.frames.get(sent.frames)))
    }
}

/// The frames of a chunk that is lost.
pub(crate) struct Lost<'a> {
    ring: &'a FrameRing,
    frames: Span,
    /// What the chunk carried is under another number, too.
    pub(crate) is_copy: bool,
}

impl<'a> Lost<'a> {
    /// The frames.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &'a SendFrame> + use<'a> {
        self.ring.get(self.frames)
    }
}
