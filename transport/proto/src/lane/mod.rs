//! One-sided operations: a lane beside the messages of a link, never inside their numbering
//! (docs/protocol.md section 11).
//!
//! A lane is one RC queue pair at each end, in a protection domain of the link. RC orders and
//! repeats; what is here is the rest: which memory the peer has granted, which operations wait or
//! are posted, and the lives of the queue pair. The link's `flow` says how much of them the network
//! bears.
//!
//! Lives are counted and begun by [`Remake`]. A half is made only when that of the life before is
//! destroyed, and nothing of it is posted any more. So what the peer tells is the fence as well:
//! no packet of an earlier life changes memory there from then on, and a write may be repeated.
//! A half may be none: an end whose device has no such queue pairs, or whose link rides on TCP,
//! says that operations go by messages of the link in that life (`wire::lane`).
//!
//! | file | what it does |
//! |---|---|
//! | `grants` | what each end lets the other reach |
//! | `ops` | the table of operations, their order and their outcomes |

mod grants;
mod ops;
#[cfg(test)]
mod tests;

pub use grants::{Grant, GrantId, Rights};
pub use ops::{Denied, OpCounts, OpEnd, OpError, OpKey, OpKind, OpOutcome, OpPost, OpRequest};

use crate::limits::{LANE_OPS_MAX, LANE_RETRY_FIRST, LANE_RETRY_LONGEST};
use crate::remake::{Backoff, Remake, Step};
use alloc::collections::VecDeque;
use grants::Grants;
use ops::Ops;
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

/// What the driver has to do for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneStep {
    /// Destroy the queue pair that there is, give back what was posted to it as [`OpEnd::Lost`], or
    /// wait for the answers to what went by messages, then make another, or none:
    /// [`Link::lane_made`](crate::Link::lane_made).
    Make,
    /// Connect ours to the peer's.
    Join {
        /// The peer's.
        theirs: LaneHalf,
        /// READs and atomics that may be under way.
        rd_atomic: u8,
    },
}

/// How operations travel once both ends have told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joined {
    QueuePairs {
        /// READs and atomics that may be under way.
        rd_atomic: u8,
    },
    Messages,
}

/// What a lane has to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneEvent {
    Granted(Grant),
    Revoked(GrantId),
    OpDone { op: OpKey, token: u64, outcome: OpOutcome },
}

/// The lane of one link.
#[derive(Debug)]
pub struct Lane {
    grants: Grants,
    ops: Ops,
    remake: Remake<LaneWay>,
    /// Our half of the life that is on, once it is made.
    ours: Option<LaneWay>,
    joined: Option<Joined>,
    /// The peer has taken our LANE, and so has connected its half.
    is_known: bool,
    /// The link is down.
    is_over: bool,
    /// Bounded by the grants and operations that there are.
    events: VecDeque<LaneEvent>,
    /// When the pacer lets the next operation go.
    paced_until: Time,
}

impl Lane {
    pub(crate) fn new() -> Self {
        Self {
            grants: Grants::default(),
            ops: Ops::new(LANE_OPS_MAX),
            remake: Remake::absent(BACKOFF, Time::ZERO),
            ours: None,
            joined: None,
            is_known: false,
            is_over: false,
            events: VecDeque::new(),
            paced_until: Time::NEVER,
        }
    }

    /// Operations whose outcome was not taken.
    #[must_use]
    pub fn live(&self) -> usize {
        self.ops.live()
    }

    /// How operations ended so far.
    #[must_use]
    pub fn counts(&self) -> OpCounts {
        self.ops.counts
    }

    /// Whether operations go by messages now: carry out what
    /// [`Link::poll_op`](crate::Link::poll_op) tells on
    /// [the channel of the lane](crate::Link::open_lane_channel).
    #[must_use]
    pub fn is_by_messages(&self) -> bool {
        self.joined() == Some(Joined::Messages)
    }

    /// The next thing that the driver has to do for the queue pair: nothing where nobody has
    /// granted anything, whatever the peer says of a lane. Ask as for
    /// [`Link::poll_renew`](crate::Link::poll_renew).
    pub fn poll_step(&mut self, now: Time) -> Option<LaneStep> {
        if !self.grants.were_any() {
            return None;
        }
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

    /// The driver could not make our half: it is asked again, later.
    pub fn make_failed(&mut self, now: Time) {
        self.remake.on_make_failed(now);
    }

    /// Which life is on, from 1, or is the next one: alike at both ends once it is joined.
    #[must_use]
    pub fn life(&self) -> u32 {
        self.remake.life()
    }

    /// Operations went by messages, none is posted, and our end can have a queue pair again: the
    /// next life begins. That is no failure.
    pub fn renew(&mut self, now: Time) {
        if self.is_by_messages() {
            self.leave_life();
            self.remake.renew(now);
        }
    }

    /// The peer takes no operations by messages, or there is no channel for them: those that wait
    /// end as not carried out.
    pub fn refuse(&mut self) {
        self.ops.end_waiting(&mut self.events);
    }

    /// Takes the next event. The key of an operation lives until its own is taken here.
    pub(crate) fn poll_event(&mut self) -> Option<LaneEvent> {
        let event = self.events.pop_front()?;
        if let LaneEvent::OpDone { op, .. } = event {
            self.ops.free(op);
        }
        Some(event)
    }

    /// Grants memory of ours: its number, and what GRANT calls it.
    pub(crate) fn grant(&mut self, now: Time, rights: Rights) -> Result<(GrantId, u32), OpError> {
        let granted = self.grants.grant(rights)?;
        if !self.is_over {
            self.remake.want(now);
        }
        Ok(granted)
    }

    /// Takes a grant of ours back; false when there is none.
    pub(crate) fn revoke(&mut self, id: GrantId) -> bool {
        self.grants.revoke(id)
    }

    /// Whether the peer may reach memory of ours.
    pub(crate) fn has_granted(&self) -> bool {
        self.grants.has_ours()
    }

    /// GRANT of the peer; false when it is none that a peer may make.
    pub(crate) fn on_grant(&mut self, told: u32, range: (u64, u32), rkey: u32) -> bool {
        let grant = self.grants.on_grant(told, range, rkey);
        self.events.extend(grant.ok().flatten().map(LaneEvent::Granted));
        grant.is_ok()
    }

    /// REVOKE of the peer; false as for [`on_grant`](Self::on_grant).
    pub(crate) fn on_revoke(&mut self, id: u32) -> bool {
        let was_known = self.grants.on_revoke(id);
        if was_known == Ok(true) {
            self.events.push_back(LaneEvent::Revoked(GrantId(id)));
        }
        was_known.is_ok()
    }

    /// Takes an operation on.
    pub(crate) fn submit(&mut self, request: &OpRequest) -> Result<OpKey, OpError> {
        let theirs = self.grants.theirs(request.grant).ok_or(OpError::NoSuchGrant);
        let taken = theirs.and_then(|theirs| theirs.check(request));
        let taken = taken.and_then(|()| self.ops.push(request));
        self.ops.counts.refused += u64::from(taken.is_err());
        taken
    }

    /// The next operation to post. `charge` counts its bytes against the window of the link, or
    /// says when to ask again.
    pub(crate) fn poll_op(
        &mut self,
        now: Time,
        charge: impl FnOnce(u64) -> Result<(), Time>,
    ) -> Option<OpPost> {
        self.paced_until = Time::NEVER;
        let joined = self.joined()?;
        let Self { ops, grants, events, paced_until, .. } = self;
        loop {
            let (key, op) = ops.next()?;
            let Some(theirs) = grants.theirs(op.request.grant) else {
                let denied = OpOutcome::Denied(Denied::Revoked);
                ops.end(key, op.unless_it_happened(denied), events);
                continue;
            };
            let post = theirs.post(key, &op.request);
            let Joined::QueuePairs { rd_atomic } = joined else {
                ops.on_posted(now, key, false);
                return Some(post);
            };
            if op.request.kind.is_answered() && ops.answered_posted() >= usize::from(rd_atomic) {
                return None;
            }
            if let Err(at) = charge(op.charge()) {
                *paced_until = at;
                return None;
            }
            ops.on_posted(now, key, true);
            return Some(post);
        }
    }

    /// The device is done with an operation. Returns what was charged for it, if anything was, and
    /// when it was posted.
    pub(crate) fn on_op_done(&mut self, key: OpKey, end: OpEnd) -> Option<(u64, Time)> {
        let (charge, posted_at) = self.ops.on_returned(key)?;
        if end == OpEnd::Done {
            self.remake.forgive();
        }
        self.ops.settle(key, end, &mut self.events);
        Some((charge?, posted_at))
    }

    /// How operations travel, when both halves are connected. What is posted sooner finds no queue
    /// pair that takes it, and RC tries again after its timeout only.
    fn joined(&self) -> Option<Joined> {
        self.joined.filter(|_| self.is_known)
    }

    /// Nothing of this life goes on.
    fn leave_life(&mut self) {
        (self.ours, self.joined, self.is_known) = (None, None, false);
    }

    /// The queue pair failed: what was posted comes back as lost. False if that was known, or there
    /// is none.
    pub(crate) fn on_failed(&mut self, now: Time) -> bool {
        let was_made = self.ours.is_some();
        if was_made {
            self.leave_life();
            self.remake.fail(now);
        }
        was_made
    }

    /// The driver has made our half; the number of the life that the peer is told.
    pub(crate) fn on_made(&mut self, ours: LaneWay) -> Option<u32> {
        let number = self.remake.on_made()?;
        self.ours = Some(ours);
        Some(number)
    }

    /// LANE: the peer has made its half of a life.
    pub(crate) fn on_told(&mut self, now: Time, number: u32, theirs: LaneWay) {
        if !self.is_over && self.remake.on_told(now, number, theirs) {
            self.on_failed(now);
        }
    }

    /// The peer has acknowledged our LANE of this life.
    pub(crate) fn on_told_acked(&mut self, number: u32) {
        self.is_known |= number == self.remake.life();
    }

    /// When something is due.
    pub(crate) fn due(&self) -> Time {
        let life = if self.grants.were_any() { self.remake.due() } else { Time::NEVER };
        self.paced_until.min(self.ops.next_deadline()).min(life)
    }

    /// Gives up what is late.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        if self.ops.next_deadline() <= now {
            self.ops.expire(now, &mut self.events);
        }
    }

    /// The link is down: everything ends, as soon as the device has let go of it.
    pub(crate) fn end_all(&mut self) {
        self.leave_life();
        (self.remake, self.is_over) = (Remake::absent(BACKOFF, Time::ZERO), true);
        self.ops.end_all(&mut self.events);
    }
}
