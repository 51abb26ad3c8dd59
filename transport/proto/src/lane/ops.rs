//! The table of operations, their order and their outcomes.

use super::LaneEvent;
use super::grants::{GrantId, Rights};
use crate::limits::LANE_CHARGE_BYTES;
use crate::slots::{Key, Slots};
use alloc::collections::VecDeque;
use towpath_base::Time;
use towpath_verbs::SendOp;

/// What an operation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpKind {
    /// Fetches a range.
    #[default]
    Read,
    /// Writes a range.
    Write,
    /// Writes a word of eight bytes, at once: the latest value wins.
    WriteWord {
        /// In the byte order of this host.
        value: u64,
    },
    /// Adds to a word and fetches what it was.
    FetchAdd {
        /// What is added, wrapping.
        add: u64,
    },
    /// Swaps a word if it equals `compare`, and fetches what it was.
    CmpSwap {
        /// What must be there.
        compare: u64,
        /// What is put there then.
        swap: u64,
    },
}

impl OpKind {
    /// Whether the peer's device answers with bytes, of which it remembers so many at a time.
    pub(super) fn is_answered(self) -> bool {
        !matches!(self, Self::Write | Self::WriteWord { .. })
    }

    /// Whether a second time would be one too many.
    fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CmpSwap { .. })
    }
}

/// An operation that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpRequest {
    /// What it does.
    pub kind: OpKind,
    /// On which memory of the peer.
    pub grant: GrantId,
    /// Where in it, in bytes.
    pub offset: u32,
    /// How many bytes; 8 for words.
    pub length: u32,
    /// When it is given up.
    pub deadline: Time,
    /// Only after the READs and atomics before it are done.
    pub fence: bool,
    /// The caller's word.
    pub token: u64,
}

impl Default for OpRequest {
    fn default() -> Self {
        Self {
            kind: OpKind::Read,
            grant: GrantId(0),
            offset: 0,
            length: 0,
            deadline: Time::NEVER,
            fence: false,
            token: 0,
        }
    }
}

/// An operation under way. Never reused for another one while anyone could still name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpKey(pub(crate) Key);

impl OpKey {
    /// A small dense index, for the driver's own tables; unique among the live ones of a link.
    #[must_use]
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpOutcome {
    /// It was carried out, once.
    Executed,
    /// The peer does not allow it, and it was not carried out.
    Denied(Denied),
    /// It was not carried out, and will not be.
    NotExecuted,
    /// It may have been carried out, once, or not at all: the queue pair was lost meanwhile, or the
    /// link.
    Unknown,
}

/// Why an operation was denied after it had been taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denied {
    /// The peer has revoked the grant.
    Revoked,
    /// The peer's device refused it: what was granted is not reachable any more. Of a range that is
    /// written, packets that came before that have changed memory. Or this end's device knows the
    /// memory of the buffer no more.
    Device,
}

/// Why an operation is not taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The link is down, or leaves.
    #[error("the link is down")]
    LinkDown,
    /// No such grant of the peer is known: it was revoked, or its event has not come yet.
    #[error("no such grant is known: wait until the peer's grant is told")]
    NoSuchGrant,
    /// The grant does not allow such an operation.
    #[error("the grant allows {rights:?} only")]
    Rights {
        /// What it allows.
        rights: Rights,
    },
    /// The range is empty, or leaves what was granted.
    #[error("the range is empty, or leaves the {byte_len} bytes that were granted")]
    Range {
        /// How many bytes were.
        byte_len: u32,
    },
    /// A word is not at a multiple of eight bytes.
    #[error("a word must be at a multiple of 8 bytes")]
    Misaligned,
    /// There are as many operations, or grants, as there may be: wait for outcomes.
    #[error("{max} are under way already: wait for outcomes")]
    Full {
        /// How many may be.
        max: usize,
    },
}

/// An operation to post. Every one is signaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpPost {
    /// Which.
    pub key: OpKey,
    /// What it does.
    pub kind: OpKind,
    /// The same in the words of the device.
    pub op: SendOp,
    /// The same in the words of the peer: on which of its grants,
    pub grant: GrantId,
    /// and where in it, in bytes.
    pub offset: u32,
    /// Bytes at this end.
    pub length: u32,
    /// Only after the READs and atomics before it are done.
    pub fence: bool,
}

/// How the device was done with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpEnd {
    /// It was carried out.
    Done,
    /// The peer's device refused it.
    Refused,
    /// The queue pair failed, and whether it was carried out is not known.
    Lost,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It waits to be posted.
    #[default]
    Queued,
    /// The device has it.
    Posted,
    /// The device has it, and it is not posted again whatever becomes of it.
    Expired,
    /// It has its outcome, and the device has it still.
    Ending(OpOutcome),
    /// Its outcome waits to be taken.
    Ended,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Op {
    pub(super) request: OpRequest,
    state: State,
    /// Its place in the order of asking.
    order: u64,
    posted_at: Time,
    /// While it is posted it counts against the window of the lane.
    is_charged: bool,
    /// The device had it once, and lost it.
    was_lost: bool,
}

impl Op {
    /// What it counts against the window, in bytes.
    pub(super) fn charge(&self) -> u64 {
        u64::from(self.request.length) + LANE_CHARGE_BYTES
    }

    /// The outcome of what is not posted again: what the device has lost may have been carried out
    /// then, whatever became of it since.
    pub(super) fn unless_it_happened(&self, outcome: OpOutcome) -> OpOutcome {
        match self.request.kind {
            // A READ changes nothing, however often.
            OpKind::Read => outcome,
            _ if self.was_lost => OpOutcome::Unknown,
            _ => outcome,
        }
    }
}

/// How the operations that were asked for ended; each number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// [`OpOutcome::Executed`].
    pub executed: u64,
    /// [`OpOutcome::Denied`].
    pub denied: u64,
    /// [`OpOutcome::NotExecuted`].
    pub not_executed: u64,
    /// [`OpOutcome::Unknown`].
    pub unknown: u64,
    /// Not taken on: [`OpError`].
    pub refused: u64,
}

impl OpCounts {
    fn note(&mut self, outcome: OpOutcome) {
        *match outcome {
            OpOutcome::Executed => &mut self.executed,
            OpOutcome::Denied(_) => &mut self.denied,
            OpOutcome::NotExecuted => &mut self.not_executed,
            OpOutcome::Unknown => &mut self.unknown,
        } += 1;
    }
}

/// All operations of a lane.
#[derive(Debug)]
pub(super) struct Ops {
    pub(super) counts: OpCounts,
    slots: Slots<Op>,
    max: usize,
    /// What waits to be posted, for the first time or again, in the order of asking.
    waiting: VecDeque<(u64, Key)>,
    /// Operations that were asked for.
    asked: u64,
    /// Posted READs and atomics.
    answered: usize,
    next_deadline: Time,
}

impl Ops {
    pub(super) fn new(max: usize) -> Self {
        Self {
            counts: OpCounts::default(),
            slots: Slots::new(max),
            max,
            waiting: VecDeque::new(),
            asked: 0,
            answered: 0,
            next_deadline: Time::NEVER,
        }
    }

    pub(super) fn live(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn push(&mut self, request: &OpRequest) -> Result<OpKey, OpError> {
        let (key, op) = self.slots.take().ok_or(OpError::Full { max: self.max })?;
        self.asked += 1;
        *op = Op { request: *request, order: self.asked, ..Op::default() };
        self.waiting.push_back((self.asked, key));
        self.next_deadline = self.next_deadline.min(request.deadline);
        Ok(OpKey(key))
    }

    pub(super) fn free(&mut self, key: OpKey) {
        self.slots.free(key.0);
    }

    pub(super) fn answered_posted(&self) -> usize {
        self.answered
    }

    /// The next one to post.
    pub(super) fn next(&mut self) -> Option<(OpKey, Op)> {
        loop {
            let &(_, key) = self.waiting.front()?;
            match self.slots.get(key).filter(|op| op.state == State::Queued) {
                Some(op) => return Some((OpKey(key), *op)),
                None => drop(self.waiting.pop_front()),
            }
        }
    }

    /// The one that [`next`](Self::next) told was posted.
    pub(super) fn on_posted(&mut self, now: Time, key: OpKey, is_charged: bool) {
        self.waiting.pop_front();
        let Some(op) = self.slots.get_mut(key.0) else { return };
        (op.state, op.posted_at, op.is_charged) = (State::Posted, now, is_charged);
        self.answered += usize::from(op.request.kind.is_answered());
    }

    /// The device gave one back: its charge, if it had one, and when it was posted.
    pub(super) fn on_returned(&mut self, key: OpKey) -> Option<(Option<u64>, Time)> {
        let op = self.slots.get(key.0)?;
        if matches!(op.state, State::Queued | State::Ended) {
            return None;
        }
        self.answered -= usize::from(op.request.kind.is_answered());
        Some((op.is_charged.then(|| op.charge()), op.posted_at))
    }

    /// What becomes of one that the device gave back.
    pub(super) fn settle(&mut self, key: OpKey, end: OpEnd, events: &mut VecDeque<LaneEvent>) {
        let Some(op) = self.slots.get_mut(key.0) else { return };
        let may_repeat = op.state == State::Posted && !op.request.kind.is_atomic();
        let outcome = match (end, op.state) {
            (OpEnd::Done, _) => OpOutcome::Executed,
            (OpEnd::Refused, _) => op.unless_it_happened(OpOutcome::Denied(Denied::Device)),
            (OpEnd::Lost, State::Ending(outcome)) => outcome,
            (OpEnd::Lost, _) => {
                op.was_lost = true;
                if may_repeat {
                    op.state = State::Queued;
                    let order = op.order;
                    let place = self.waiting.partition_point(|&(before, _)| before < order);
                    self.waiting.insert(place, (order, key.0));
                    return;
                }
                op.unless_it_happened(OpOutcome::NotExecuted)
            }
        };
        self.end(key, outcome, events);
    }

    /// Gives one that the device does not have its outcome.
    pub(super) fn end(&mut self, key: OpKey, outcome: OpOutcome, events: &mut VecDeque<LaneEvent>) {
        let Some(op) = self.slots.get_mut(key.0).filter(|op| op.state != State::Ended) else {
            return;
        };
        op.state = State::Ended;
        self.counts.note(outcome);
        events.push_back(LaneEvent::OpDone { op: key, token: op.request.token, outcome });
    }

    pub(super) fn next_deadline(&self) -> Time {
        self.next_deadline
    }

    /// Ends what `is_over` and waits. What the device has comes to its own end: `leave` says which.
    fn give_up(
        &mut self,
        is_over: impl Fn(&OpRequest) -> bool,
        leave: impl Fn(&mut Op),
        events: &mut VecDeque<LaneEvent>,
    ) {
        let keys: VecDeque<Key> = self.slots.keys().collect();
        self.next_deadline = Time::NEVER;
        for key in keys {
            let Some(op) = self.slots.get_mut(key) else { continue };
            match op.state {
                State::Queued if is_over(&op.request) => {
                    let outcome = op.unless_it_happened(OpOutcome::NotExecuted);
                    self.end(OpKey(key), outcome, events);
                    continue;
                }
                State::Posted | State::Expired if is_over(&op.request) => leave(op),
                _ => {}
            }
            if matches!(op.state, State::Queued | State::Posted) {
                self.next_deadline = self.next_deadline.min(op.request.deadline);
            }
        }
    }

    /// Gives up what is late. What the device has is not repeated.
    pub(super) fn expire(&mut self, now: Time, events: &mut VecDeque<LaneEvent>) {
        self.give_up(|op| op.deadline <= now, |op| op.state = State::Expired, events);
    }

    /// Gives up what waits to be posted.
    pub(super) fn end_waiting(&mut self, events: &mut VecDeque<LaneEvent>) {
        self.give_up(|_| true, |_| {}, events);
    }

    /// Everything ends: what waits now, what is posted when the device has let go of it.
    pub(super) fn end_all(&mut self, events: &mut VecDeque<LaneEvent>) {
        let leave = |op: &mut Op| {
            op.was_lost = true;
            op.state = State::Ending(op.unless_it_happened(OpOutcome::NotExecuted));
        };
        self.give_up(|_| true, leave, events);
    }
}
