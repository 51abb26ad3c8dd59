//! How the queue pair of a lane comes to be, and is made anew.
//!
//! Lives are numbered alike at both ends. Whoever wants one, or whose queue pair has failed, makes
//! its half of the next life and tells of it. A half is made only when that of the life before is
//! destroyed, and nothing of it is posted any more. So what the peer tells is the fence as well:
//! no packet of an earlier life changes memory there from then on, and a write may be repeated.
//!
//! A half may be none: an end whose device has no such queue pairs, or whose link rides on TCP,
//! says that operations go by messages in that life.

use crate::limits::{LANE_RETRY_FIRST, LANE_RETRY_LONGEST};
use crate::path::{Backoff, Remake, Step};
use towpath_base::Time;
use towpath_base::serial::Psn;
use towpath_verbs::QpNum;

/// The first failure of late is not waited for.
const BACKOFF: &Backoff = &Backoff {
    free: 1,
    first: LANE_RETRY_FIRST,
    longest: LANE_RETRY_LONGEST,
    forgive_after: LANE_RETRY_LONGEST,
};

/// One end's half of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneHalf {
    /// Its queue pair.
    pub qp_num: QpNum,
    /// The number of the first packet that it sends.
    pub psn: Psn,
    /// READs and atomics that it answers at a time.
    pub rd_atomic: u8,
}

/// How operations travel in a life, as one end has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneWay {
    /// Over a queue pair, if the peer has one too.
    QueuePair(LaneHalf),
    /// As messages, which the driver of the peer carries out.
    Messages,
}

/// How they travel once both ends have told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    QueuePairs {
        /// READs and atomics that may be under way.
        rd_atomic: u8,
    },
    Messages,
}

/// What the driver has to do for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneStep {
    /// Destroy the queue pair that there is, give back what was posted to it as
    /// [`OpEnd::Lost`](super::OpEnd), or wait for the answers to what went by messages, then make
    /// another, or none: [`Link::lane_made`](crate::Link::lane_made).
    Make,
    /// Connect ours to the peer's.
    Join {
        /// The peer's.
        theirs: LaneHalf,
        /// READs and atomics that may be under way.
        rd_atomic: u8,
    },
}

/// Where a lane stands.
#[derive(Debug)]
pub(crate) struct Life {
    remake: Remake<LaneWay>,
    /// Of the life that is on, once it is made.
    ours: Option<LaneWay>,
    joined: Option<Joined>,
    /// The peer has taken our LANE, and so has connected its half.
    is_known: bool,
    is_over: bool,
}

impl Default for Life {
    fn default() -> Self {
        let remake = Remake::absent(BACKOFF, Time::ZERO);
        Self { remake, ours: None, joined: None, is_known: false, is_over: false }
    }
}

impl Life {
    /// A lane is wanted from now on.
    pub(crate) fn want(&mut self, now: Time) {
        if !self.is_over {
            self.remake.want(now);
        }
    }

    /// How operations travel, when both halves are connected. What is posted sooner finds no queue
    /// pair that takes it, and RC tries again after its timeout only.
    pub(super) fn joined(&self) -> Option<Joined> {
        self.joined.filter(|_| self.is_known)
    }

    /// Operations went by messages, and a queue pair can be made again: the next life. No failure.
    pub(crate) fn renew(&mut self, now: Time) {
        if self.joined() == Some(Joined::Messages) {
            self.leave();
            self.remake.renew(now);
        }
    }

    /// The peer has acknowledged our LANE of this life.
    pub(crate) fn on_told_acked(&mut self, number: u32) {
        self.is_known |= number == self.remake.life();
    }

    /// Our queue pair failed; false when it was known, or there is none.
    pub(super) fn on_failed(&mut self, now: Time) -> bool {
        let was_made = self.ours.is_some();
        if was_made {
            self.leave();
            self.remake.fail(now);
        }
        was_made
    }

    /// Nothing of this life goes on.
    fn leave(&mut self) {
        (self.ours, self.joined, self.is_known) = (None, None, false);
    }

    /// An operation was carried out.
    pub(super) fn on_success(&mut self) {
        self.remake.forgive();
    }

    /// LANE: the peer has made its half of a life.
    pub(crate) fn on_told(&mut self, now: Time, number: u32, theirs: LaneWay) {
        if !self.is_over && self.remake.on_told(now, number, theirs) {
            self.on_failed(now);
        }
    }

    /// What is to be done now.
    pub(crate) fn poll_step(&mut self, now: Time) -> Option<LaneStep> {
        let theirs = match self.remake.poll(now)? {
            Step::Make => return Some(LaneStep::Make),
            Step::Join(theirs) => theirs,
        };
        let (Some(LaneWay::QueuePair(ours)), LaneWay::QueuePair(theirs)) = (self.ours, theirs)
        else {
            self.joined = Some(Joined::Messages);
            return None;
        };
        let rd_atomic = ours.rd_atomic.min(theirs.rd_atomic);
        self.joined = Some(Joined::QueuePairs { rd_atomic });
        Some(LaneStep::Join { theirs, rd_atomic })
    }

    /// The driver has made our half; the number of the life that the peer is told.
    pub(crate) fn on_made(&mut self, ours: LaneWay) -> Option<u32> {
        let number = self.remake.on_made()?;
        self.ours = Some(ours);
        Some(number)
    }

    /// The driver could not make it, now.
    pub(crate) fn on_make_failed(&mut self, now: Time) {
        self.remake.on_make_failed(now);
    }

    pub(super) fn due(&self) -> Time {
        self.remake.due()
    }

    pub(super) fn end(&mut self) {
        *self = Self { is_over: true, ..Self::default() };
    }
}
