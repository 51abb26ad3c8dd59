//! The lane: grants, operations, a driver that makes its queue pair, and the device that it is on.

use super::Host;
use std::collections::{HashMap, VecDeque};
use towpath_base::Nanos;
use towpath_base::serial::Psn;
use towpath_proto::{
    Grant, GrantId, LaneHalf, LaneStep, LaneWay, OpEnd, OpKey, OpKind, OpOutcome, OpPost,
    OpRequest, Rights, Side,
};
use towpath_verbs::{QpNum, RemoteAddr, SendOp};

/// What is granted is this long, and lies so far from the next.
const GRANT_BYTES: u32 = 4096;
const GRANTS_APART: u64 = 1 << 20;

/// Memory of our own that the peer may reach, or might.
struct Own {
    id: GrantId,
    remote: RemoteAddr,
    is_live: bool,
}

/// An operation without an outcome.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    kind: OpKind,
    /// Its place in the order of asking.
    order: u64,
    posted: u32,
    executed: u32,
    /// The device has it.
    is_posted: bool,
}

/// What the device has.
struct Posted {
    post: OpPost,
    /// The peer's device has carried it out, and its answer is on the way.
    is_executed: bool,
}

/// Books of the lane.
#[derive(Default)]
pub(crate) struct Lane {
    /// What the peer has granted, and not revoked.
    pub(super) granted: Vec<Grant>,
    ours: Vec<Own>,
    pub(super) live: HashMap<OpKey, Asked>,
    asked: u64,
    posted: VecDeque<Posted>,
    /// The latest in the order of asking that was carried out on this queue pair.
    executed: u64,
    /// Our queue pair, and the peer's that it is connected to.
    half: Option<QpNum>,
    theirs: Option<QpNum>,
    is_broken: bool,
    /// Queue pairs that were made.
    made: u32,
    /// The next one cannot be made.
    pub(crate) is_poor: bool,
}

fn is_answered(kind: OpKind) -> bool {
    !matches!(kind, OpKind::Write | OpKind::WriteWord { .. })
}

fn is_atomic(kind: OpKind) -> bool {
    matches!(kind, OpKind::FetchAdd { .. } | OpKind::CmpSwap { .. })
}

fn remote_of(op: &SendOp) -> RemoteAddr {
    match *op {
        SendOp::Read { remote }
        | SendOp::Write { remote }
        | SendOp::FetchAdd { remote, .. }
        | SendOp::CmpSwap { remote, .. } => remote,
        other => panic!("{other:?} is no operation of a lane"),
    }
}

impl Host {
    /// READs and atomics that the device of a side answers at a time.
    fn rd_atomic(&self) -> u8 {
        if self.side == Side::Client { 4 } else { 3 }
    }

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
        let Ok(key) = self.link.operate(&request) else { return };
        let grant = grants.iter().find(|grant| grant.id == named).expect("it was granted");
        assert!(offset + length <= grant.byte_len, "within the grant");
        self.lane.asked += 1;
        let order = self.lane.asked;
        let asked = Asked { kind, order, posted: 0, executed: 0, is_posted: false };
        assert!(self.lane.live.insert(key, asked).is_none(), "a key names one operation");
    }

    /// Grants memory of our own, or takes the oldest grant back.
    pub(crate) fn grant(&mut self, is_new: bool) {
        if !is_new {
            let oldest = self.lane.ours.iter_mut().find(|own| own.is_live);
            let Some(own) = oldest else { return };
            own.is_live = false;
            assert!(self.link.revoke(own.id) && !self.link.revoke(own.id), "revoked once");
            return;
        }
        let number = self.lane.ours.len() as u64 * 2 + u64::from(self.side == Side::Client);
        let remote = RemoteAddr { addr: (1 + number) * GRANTS_APART, rkey: 1000 + number as u32 };
        let range = (remote.addr, GRANT_BYTES);
        if let Ok(id) = self.link.grant(self.now, range, remote.rkey, Rights::ALL) {
            self.lane.ours.push(Own { id, remote, is_live: true });
        }
    }

    /// What a driver does for the lane.
    pub(super) fn drive_lane(&mut self) {
        while let Some(step) = self.link.lane_mut().and_then(|lane| lane.poll_step(self.now)) {
            match step {
                LaneStep::Make => {
                    self.end_ops(usize::MAX, OpEnd::Lost);
                    let lane = &mut self.lane;
                    (lane.half, lane.theirs, lane.executed) = (None, None, 0);
                    if std::mem::take(&mut lane.is_poor) {
                        self.link.lane_mut().expect("it has a step").make_failed(self.now);
                        continue;
                    }
                    lane.made += 1;
                    let qp_num = QpNum(lane.made * 2 + u32::from(self.side == Side::Client));
                    (lane.half, lane.is_broken) = (Some(qp_num), false);
                    let half = LaneHalf { qp_num, psn: Psn::new(3), rd_atomic: self.rd_atomic() };
                    self.link.lane_made(LaneWay::QueuePair(half));
                }
                LaneStep::Join { theirs, rd_atomic } => {
                    assert!(rd_atomic <= theirs.rd_atomic.min(self.rd_atomic()));
                    self.lane.theirs = Some(theirs.qp_num);
                }
            }
        }
        while let Some(post) = self.link.poll_op(self.now) {
            self.post_op(post);
        }
    }

    fn post_op(&mut self, post: OpPost) {
        let most = usize::from(self.rd_atomic());
        let lane = &mut self.lane;
        assert!(lane.theirs.is_some(), "the queue pair is connected");
        let asked = lane.live.get_mut(&post.key).expect("it is under way");
        assert!(!std::mem::replace(&mut asked.is_posted, true), "the device has it once");
        asked.posted += 1;
        assert!(asked.posted == 1 || !is_atomic(asked.kind), "an atomic is posted once");
        assert_eq!(asked.kind, post.kind);
        lane.posted.push_back(Posted { post, is_executed: false });
        let answered = lane.posted.iter().filter(|posted| is_answered(posted.post.kind)).count();
        assert!(answered <= most, "no more than both ends allow");
    }

    /// What the device asks of the peer's next, and between which queue pairs.
    pub(crate) fn next_op(&self) -> Option<(OpPost, QpNum, QpNum)> {
        let lane = &self.lane;
        let next = lane.posted.iter().find(|posted| !posted.is_executed)?;
        Some((next.post, lane.half?, lane.theirs?)).filter(|_| !lane.is_broken)
    }

    /// Whether our queue pair `to` takes what comes from the peer's.
    pub(crate) fn takes_ops(&self, to: QpNum, from: QpNum) -> bool {
        let lane = &self.lane;
        lane.half == Some(to) && lane.theirs == Some(from) && !lane.is_broken
    }

    /// Whether the device lets the peer do that; it names what it was granted in any case.
    pub(crate) fn reaches(&self, post: &OpPost) -> bool {
        let own = self.lane.ours.iter().find(|own| own.id == post.grant).expect("it was granted");
        let (named, from) = (remote_of(&post.op), own.remote);
        assert_eq!((named.rkey, named.addr), (from.rkey, from.addr + u64::from(post.offset)));
        assert!(post.offset + post.length <= GRANT_BYTES, "nothing beyond what was granted");
        own.is_live
    }

    /// The peer's device has carried out what was next.
    pub(crate) fn on_executed(&mut self) {
        let lane = &mut self.lane;
        let next = lane.posted.iter_mut().find(|posted| !posted.is_executed).expect("the next");
        next.is_executed = true;
        let asked = lane.live.get_mut(&next.post.key).expect("it is under way");
        assert!(asked.order > lane.executed, "in the order of asking");
        lane.executed = asked.order;
        asked.executed += 1;
        assert!(asked.executed == 1 || !is_atomic(asked.kind), "an atomic is carried out once");
    }

    /// Answers to at most so many operations come.
    pub(crate) fn answer_ops(&mut self, most: usize) {
        for _ in 0..most {
            if !self.lane.posted.front().is_some_and(|posted| posted.is_executed) {
                break;
            }
            self.end_ops(1, OpEnd::Done);
        }
    }

    /// The peer's device refuses what was next: the queue pair goes to error.
    pub(crate) fn on_refused(&mut self) {
        self.answer_ops(usize::MAX);
        self.end_ops(1, OpEnd::Refused);
        self.break_lane(false);
    }

    /// The queue pair goes to error, and gives back what it has, the newest first or last.
    pub(crate) fn break_lane(&mut self, newest_first: bool) {
        if self.lane.half.is_none() || std::mem::replace(&mut self.lane.is_broken, true) {
            return;
        }
        if newest_first {
            self.lane.posted.make_contiguous().reverse();
        }
        self.link.lane_failed(self.now);
        self.end_ops(usize::MAX, OpEnd::Lost);
    }

    /// The same, and nobody notices: nothing is posted there.
    pub(crate) fn break_unseen(&mut self) {
        self.lane.is_broken = true;
    }

    /// What was posted to a queue pair in error comes back.
    pub(crate) fn flush_broken(&mut self) {
        if self.lane.is_broken && !self.lane.posted.is_empty() {
            self.link.lane_failed(self.now);
            self.end_ops(usize::MAX, OpEnd::Lost);
        }
    }

    /// Whether every operation has had its outcome.
    pub(super) fn has_no_ops(&self) -> bool {
        self.lane.live.is_empty()
    }

    /// The device is done with its oldest operations.
    pub(crate) fn end_ops(&mut self, most: usize, end: OpEnd) {
        for _ in 0..most.min(self.lane.posted.len()) {
            let Some(Posted { post, .. }) = self.lane.posted.pop_front() else { break };
            let asked = self.lane.live.get_mut(&post.key).expect("it has no outcome yet");
            asked.is_posted = false;
            asked.executed = asked.executed.max(u32::from(end == OpEnd::Done));
            self.link.handle_op_done(self.now, post.key, end, None);
        }
    }

    /// An operation has its outcome.
    pub(super) fn on_op_done(&mut self, op: OpKey, outcome: OpOutcome) {
        let asked = self.lane.live.remove(&op).expect("one outcome");
        assert!(!asked.is_posted, "the device holds nothing of it");
        match outcome {
            OpOutcome::Executed => assert!(asked.executed > 0, "it was carried out"),
            OpOutcome::Denied(_) | OpOutcome::NotExecuted => {
                assert!(asked.kind == OpKind::Read || asked.executed == 0, "it was not");
            }
            OpOutcome::Unknown => assert!(asked.kind != OpKind::Read && asked.posted > 0),
        }
        self.note(13 + u64::from(outcome == OpOutcome::Unknown));
    }
}
