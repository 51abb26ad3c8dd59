//! One-sided operations: a lane beside the messages of a link, never inside their numbering
//! (docs/protocol.md section 11).
//!
//! A lane is one RC queue pair at each end, in a protection domain of the link. RC orders and
//! repeats; what is here is the rest: which memory the peer has granted, which operations wait or
//! are posted, and the lives of the queue pair. The link's `flow` says how much of them the network
//! bears. Where an end has no such queue pair, operations go as messages of the link
//! (`wire::lane`).
//!
//! | file | what it does |
//! |---|---|
//! | `grants` | what each end lets the other reach |
//! | `ops` | the table of operations, their order and their outcomes |
//! | `life` | how the queue pair comes to be, and is made anew |

mod grants;
mod life;
mod ops;
#[cfg(test)]
mod tests;

pub use grants::{Grant, GrantId, Rights};
use life::Joined;
pub use life::{LaneHalf, LaneStep, LaneWay};
pub use ops::{Denied, OpCounts, OpEnd, OpError, OpKey, OpKind, OpOutcome, OpPost, OpRequest};

use crate::config::LinkConfig;
use alloc::collections::VecDeque;
pub(crate) use grants::GrantMessage;
use grants::Grants;
use life::Life;
use ops::Ops;
use towpath_base::Time;

/// What a lane has to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneEvent {
    Granted(Grant),
    Revoked(GrantId),
    OpDone { op: OpKey, token: u64, outcome: OpOutcome },
}

/// The lane of one link.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) grants: Grants,
    pub(crate) life: Life,
    ops: Ops,
    /// Bounded by the grants and operations that there are.
    events: VecDeque<LaneEvent>,
    /// When the pacer lets the next operation go.
    paced_until: Time,
}

impl Lane {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        Self {
            grants: Grants::default(),
            life: Life::default(),
            ops: Ops::new(config.limits.lane_ops_max),
            events: VecDeque::new(),
            paced_until: Time::NEVER,
        }
    }

    /// Takes the next event. The key of an operation lives until its own is taken here.
    pub(crate) fn poll_event(&mut self) -> Option<LaneEvent> {
        let event = self.events.pop_front()?;
        if let LaneEvent::OpDone { op, .. } = event {
            self.ops.free(op);
        }
        Some(event)
    }

    /// Operations whose outcome was not taken.
    pub(crate) fn live(&self) -> usize {
        self.ops.live()
    }

    /// How operations ended so far.
    pub(crate) fn counts(&self) -> OpCounts {
        self.ops.counts
    }

    /// What the driver has to do: nothing where nobody has granted anything, whatever the peer says
    /// of a lane.
    pub(crate) fn poll_step(&mut self, now: Time) -> Option<LaneStep> {
        if self.grants.were_any() { self.life.poll_step(now) } else { None }
    }

    /// The peer takes no operations: those that wait are not carried out.
    pub(crate) fn refuse(&mut self) {
        self.ops.end_waiting(&mut self.events);
    }

    /// GRANT of the peer; false when it is none that a peer may make.
    pub(crate) fn on_grant(&mut self, told: &GrantMessage) -> bool {
        match self.grants.on_grant(told) {
            Ok(Some(grant)) => self.events.push_back(LaneEvent::Granted(grant)),
            Ok(None) => {}
            Err(()) => return false,
        }
        true
    }

    /// REVOKE of the peer; false as for [`on_grant`](Self::on_grant).
    pub(crate) fn on_revoke(&mut self, id: u32) -> bool {
        match self.grants.on_revoke(id) {
            Ok(true) => self.events.push_back(LaneEvent::Revoked(GrantId(id))),
            Ok(false) => {}
            Err(()) => return false,
        }
        true
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
        let Self { ops, grants, life, events, paced_until } = self;
        let joined = life.joined()?;
        loop {
            let (key, op) = ops.next()?;
            let Some(theirs) = grants.theirs(op.request.grant) else {
                ops.drop_next();
                ops.end(key, op.denied(Denied::Revoked), events);
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
            self.life.on_success();
        }
        self.ops.settle(key, end, &mut self.events);
        Some((charge?, posted_at))
    }

    /// The queue pair failed: what was posted comes back as lost. False if that was known.
    pub(crate) fn on_failed(&mut self, now: Time) -> bool {
        self.life.on_failed(now)
    }

    /// Whether operations go by messages now.
    pub(crate) fn is_by_messages(&self) -> bool {
        self.life.joined() == Some(Joined::Messages)
    }

    /// When something is due.
    pub(crate) fn due(&self) -> Time {
        let life = if self.grants.were_any() { self.life.due() } else { Time::NEVER };
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
        self.life.end();
        self.ops.end_all(&mut self.events);
    }
}
