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
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Time};
use towpath_verbs::QpNum;

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No lane is wanted, or ever again.
    #[default]
    None,
    /// Ours is to be made, not before this.
    Wanted(Time),
    /// The driver makes it.
    Making,
    Made(LaneWay),
}

/// Where a lane stands.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Of the half that we have, or are about to have.
    number: u32,
    stage: Stage,
    theirs: Option<LaneWay>,
    joined: Option<Joined>,
    /// The peer has taken our LANE, and so has connected its half.
    is_known: bool,
    /// When they were connected last.
    joined_at: Time,
    failures: u32,
    is_over: bool,
}

impl Life {
    /// A lane is wanted from now on.
    pub(crate) fn want(&mut self, now: Time) {
        if self.number == 0 && !self.is_over {
            (self.number, self.stage) = (1, Stage::Wanted(now));
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
            let failures = self.failures;
            self.begin_after(now, self.number.saturating_add(1));
            (self.failures, self.stage) = (failures, Stage::Wanted(now));
        }
    }

    /// The peer has acknowledged our LANE of this life.
    pub(crate) fn on_told_acked(&mut self, number: u32) {
        self.is_known |= number == self.number;
    }

    /// Our queue pair failed; false when it was known, or there is none.
    pub(super) fn on_failed(&mut self, now: Time) -> bool {
        if !matches!(self.stage, Stage::Made(_)) {
            return false;
        }
        self.begin_after(now, self.number.saturating_add(1));
        true
    }

    /// An operation was carried out.
    pub(super) fn on_success(&mut self) {
        self.failures = 0;
    }

    /// How long the next one waits: none of the first failures of late.
    fn wait(&self) -> Nanos {
        match self.failures.checked_sub(1) {
            None => Nanos::ZERO,
            Some(doublings) => {
                Nanos(LANE_RETRY_FIRST.0 << doublings.min(16)).min(LANE_RETRY_LONGEST)
            }
        }
    }

    /// Begins the next life: the later, the more of them have ended soon.
    fn begin_after(&mut self, now: Time, number: u32) {
        if self.joined.is_some() && now.since(self.joined_at) >= LANE_RETRY_LONGEST {
            self.failures = 0;
        }
        let at = now + self.wait();
        self.failures = self.failures.saturating_add(u32::from(self.number > 0));
        (self.number, self.stage) = (number, Stage::Wanted(at));
        (self.theirs, self.joined, self.is_known) = (None, None, false);
    }

    /// LANE: the peer has made its half of a life.
    pub(crate) fn on_told(&mut self, now: Time, number: u32, theirs: LaneWay) {
        if self.is_over || number < self.number {
            return;
        }
        if number > self.number {
            self.begin_after(now, number);
        }
        self.theirs = Some(theirs);
    }

    /// What is to be done now.
    pub(crate) fn poll_step(&mut self, now: Time) -> Option<LaneStep> {
        match (self.stage, self.theirs, self.joined) {
            (Stage::Wanted(at), ..) if at <= now => {
                self.stage = Stage::Making;
                Some(LaneStep::Make)
            }
            (Stage::Made(ours), Some(theirs), None) => {
                self.joined_at = now;
                let (LaneWay::QueuePair(ours), LaneWay::QueuePair(theirs)) = (ours, theirs) else {
                    self.joined = Some(Joined::Messages);
                    return None;
                };
                let rd_atomic = ours.rd_atomic.min(theirs.rd_atomic);
                self.joined = Some(Joined::QueuePairs { rd_atomic });
                Some(LaneStep::Join { theirs, rd_atomic })
            }
            _ => None,
        }
    }

    /// The driver has made our half; the number of the life that the peer is told.
    pub(crate) fn on_made(&mut self, ours: LaneWay) -> Option<u32> {
        if self.stage != Stage::Making {
            return None;
        }
        self.stage = Stage::Made(ours);
        Some(self.number)
    }

    /// The driver could not make it, now.
    pub(crate) fn on_make_failed(&mut self, now: Time) {
        if self.stage == Stage::Making {
            self.failures = self.failures.saturating_add(1);
            self.stage = Stage::Wanted(now + self.wait());
        }
    }

    pub(super) fn due(&self) -> Time {
        match self.stage {
            Stage::Wanted(at) => at,
            _ => Time::NEVER,
        }
    }

    pub(super) fn end(&mut self) {
        *self = Self { is_over: true, number: self.number, ..Self::default() };
    }
}
