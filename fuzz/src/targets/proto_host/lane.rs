//! The lane: grants, operations, and a driver that makes its queue pair.

use super::Host;
use std::collections::{HashMap, VecDeque};
use towpath_base::Nanos;
use towpath_base::serial::Psn;
use towpath_proto::{
    Grant, GrantId, LaneHalf, LaneStep, LaneWay, OpEnd, OpKey, OpKind, OpOutcome, OpRequest, Rights,
};
use towpath_verbs::QpNum;

/// What is granted is this long.
const GRANT_BYTES: u32 = 4096;

/// Books of the lane.
#[derive(Default)]
pub(crate) struct Lane {
    /// What the peer has granted, and not revoked.
    pub(super) granted: Vec<Grant>,
    ours: Vec<GrantId>,
    /// Operations without an outcome, and whether the device has them.
    pub(super) live: HashMap<OpKey, bool>,
    posted: VecDeque<(OpKey, OpKind)>,
}

impl Host {
    /// Operates on memory that the peer may have granted.
    pub(crate) fn operate(&mut self, kind: u8, nth: u8, (offset, length): (u32, u32)) {
        let grants = &self.lane.granted;
        let named = grants.get(usize::from(nth)).map_or(GrantId(nth.into()), |grant| grant.id);
        let kind = match kind % 5 {
            0 => OpKind::Read,
            1 => OpKind::Write,
            2 => OpKind::WriteWord { value: 1 },
            3 => OpKind::FetchAdd { add: 1 },
            _ => OpKind::CmpSwap { compare: 1, swap: 2 },
        };
        let is_word = !matches!(kind, OpKind::Read | OpKind::Write);
        let length = if is_word { 8 } else { length };
        let late = self.now + Nanos(1 << (nth % 32));
        let request = OpRequest {
            kind,
            grant: named,
            offset,
            length,
            deadline: if nth & 1 == 0 { towpath_base::Time::NEVER } else { late },
            ..OpRequest::default()
        };
        let Ok(key) = self.link.operate(self.now, &request) else { return };
        let grant = grants.iter().find(|grant| grant.id == named).expect("it was granted");
        assert!(offset + length <= grant.byte_len, "within the grant");
        assert!(self.lane.live.insert(key, false).is_none(), "a key names one operation");
    }

    /// Grants memory of our own, or takes the oldest grant back.
    pub(crate) fn grant(&mut self, is_new: bool) {
        if is_new {
            let range = (0x1000, GRANT_BYTES);
            self.lane.ours.extend(self.link.grant(self.now, range, 5, Rights::ALL));
        } else if !self.lane.ours.is_empty() {
            let id = self.lane.ours.remove(0);
            assert!(self.link.revoke(id) && !self.link.revoke(id), "revoked once");
        }
    }

    /// What a driver does for the lane.
    pub(super) fn drive_lane(&mut self) {
        while let Some(step) = self.link.poll_lane(self.now) {
            match step {
                LaneStep::Make => {
                    self.end_ops(usize::MAX, OpEnd::Lost);
                    let (qp_num, psn) = (QpNum(11), Psn::new(3));
                    let half = LaneHalf { qp_num, psn, rd_atomic: 4 };
                    self.link.lane_made(LaneWay::QueuePair(half));
                }
                LaneStep::Join { rd_atomic, .. } => assert!(rd_atomic <= 4),
            }
        }
        while let Some(post) = self.link.poll_op(self.now) {
            let posted = self.lane.live.get_mut(&post.key).expect("it is under way");
            assert!(!std::mem::replace(posted, true), "the device has it once");
            self.lane.posted.push_back((post.key, post.kind));
            let is_answered =
                |kind: &OpKind| !matches!(kind, OpKind::Write | OpKind::WriteWord { .. });
            let answered = self.lane.posted.iter().filter(|(_, kind)| is_answered(kind)).count();
            assert!(answered <= 4, "no more than both ends allow");
        }
    }

    /// The device is done with its oldest operations.
    pub(crate) fn end_ops(&mut self, most: usize, end: OpEnd) {
        for _ in 0..most.min(self.lane.posted.len()) {
            let Some((key, _)) = self.lane.posted.pop_front() else { break };
            self.lane.live.insert(key, false);
            self.link.handle_op_done(self.now, key, end);
        }
    }

    /// An operation has its outcome.
    pub(super) fn on_op_done(&mut self, op: OpKey, outcome: OpOutcome) {
        let was_posted = self.lane.live.remove(&op);
        assert_eq!(was_posted, Some(false), "one outcome, and the device holds nothing of it");
        self.note(13 + u64::from(outcome == OpOutcome::Unknown));
    }
}
