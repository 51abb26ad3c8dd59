//! One-sided operations of a link: what its lane has at the device, and what callers name.

use crate::ids::LinkId;
use crate::lane_talk::{LaneTalk, OwnGrant};
use crate::wr_id::NO_QP;
use std::time::Duration;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Time};
use towpath_memory::{Berth, Buf, MemoryError, Pool, RegionId, SharedMemory};
use towpath_proto::wire::LaneRequest;
use towpath_proto::{GrantId, OpCounts, OpError, OpKey, OpKind};
use towpath_verbs::{CqNum, Device, PdNum, QpNum, QpState, Served, VerbError};

/// Which bytes of a peer's memory a one-sided operation is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose memory: the link.
    pub link: LinkId,
    /// Which memory, as [`Event::Granted`](crate::Event::Granted) told.
    pub grant: GrantId,
    /// Where in it, in bytes.
    pub offset: u32,
}

/// How to carry a one-sided operation out: token, deadline or timeout, fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpOptions {
    #[doc(hidden)]
    pub token: u64,
    pub(crate) deadline: Time,
    pub(crate) timeout: Option<Nanos>,
    pub(crate) fence: bool,
}

impl Default for OpOptions {
    fn default() -> Self {
        Self { token: 0, deadline: Time::NEVER, timeout: None, fence: false }
    }
}

impl OpOptions {
    /// The defaults: token 0, no deadline, no timeout, no fence.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A number of the caller's choice, which comes back with the outcome. Default 0.
    #[must_use]
    pub fn token(mut self, token: u64) -> Self {
        self.token = token;
        self
    }

    /// When to give the operation up, on the device's clock ([`Endpoint::now`]). What the device
    /// has by then comes to its own end, and is not repeated. Default: never.
    ///
    /// [`Endpoint::now`]: crate::Endpoint::now
    #[must_use]
    pub fn deadline(mut self, deadline: Time) -> Self {
        self.deadline = deadline;
        self
    }

    /// The same, counted from the call. If there is a [`deadline`](Self::deadline) as well, the
    /// earlier one counts. Default: never.
    #[must_use]
    pub fn timeout(mut self, span: Duration) -> Self {
        self.timeout = Some(span.into());
        self
    }

    /// Carries the operation out only when the READs and atomics before it on the link are done:
    /// what it writes then does not overtake what they fetch. Default: no.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.fence = true;
        self
    }

    /// With the timeout, if there is one, counted from `now` on.
    #[doc(hidden)]
    #[must_use]
    pub fn counted_from(self, now: Time) -> Self {
        Self { deadline: self.due(now), timeout: None, ..self }
    }

    pub(crate) fn due(&self, now: Time) -> Time {
        self.timeout.map_or(self.deadline, |span| self.deadline.min(now + span))
    }
}

/// What a link has for one-sided operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneReport {
    /// Its queue pair, unless it is just being made, or operations go by messages.
    pub qp_num: Option<QpNum>,
    /// Operations go by messages now, because an end has no queue pair for them.
    pub is_by_messages: bool,
    /// Operations that were asked for and whose [`Event::OpDone`](crate::Event::OpDone) was not
    /// taken.
    pub operations: usize,
    /// Those of them that the device has, or the peer by messages.
    pub posted: usize,
    /// The most of them that may be asked for.
    pub operations_max: usize,
    /// What the peer may reach: how many grants.
    pub grants: usize,
    /// How operations ended so far.
    pub counts: OpCounts,
}

/// Why an operation, or a grant, was refused. Nothing of it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// The link does not exist, or no longer exists.
    #[error("the link is gone; connect again")]
    NoSuchLink,
    /// As many links have lanes as may.
    #[error("{max} links have one-sided operations already; close one")]
    TooManyLanes {
        /// How many may have.
        max: usize,
    },
    /// The range is not inside the memory, is empty, or has 4 GiB or more.
    #[error("the range is empty, leaves the {bytes} bytes of the memory, or has 4 GiB or more")]
    Range {
        /// Bytes of the memory.
        bytes: usize,
    },
    /// The buffer is shorter than what is asked for.
    #[error("a buffer of {capacity} bytes is too short for {wanted}")]
    BufferTooShort {
        /// What it holds.
        capacity: usize,
        /// What is asked for.
        wanted: usize,
    },
    /// The grant does not allow it, or there is no room.
    #[error("{0}")]
    Op(#[from] OpError),
    /// A call to the device failed.
    #[error("{0}")]
    Verb(#[from] VerbError),
    /// There is no memory.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// The endpoint's worker has ended.
    #[error("the endpoint has shut down; start another one")]
    ShutDown,
}

/// An operation that was not taken on, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RejectedOp {
    /// The buffer, unchanged.
    pub buf: Buf,
    /// Why.
    #[source]
    pub error: LaneError,
}

/// What one operation has at this end.
#[derive(Debug)]
pub(crate) struct Landing {
    pub(crate) key: OpKey,
    pub(crate) berth: Berth,
    /// The buffer is of the lane: it holds a word.
    pub(crate) is_word: bool,
    pub(crate) lkey: u32,
    pub(crate) is_posted: bool,
}

/// What all lanes of an endpoint share.
#[derive(Default)]
pub(crate) struct Lanes {
    /// Made with the first queue pair.
    pub(crate) cq: Option<CqNum>,
    /// What lanes say by messages is in these; made with the first such message.
    pub(crate) bufs: Option<Pool>,
    /// Links whose lanes wait for one.
    pub(crate) short: Vec<LinkId>,
}

/// What the lane of a link has at the device.
pub(crate) struct LaneQp {
    /// None where the device has no queue pairs for lanes.
    pub(crate) pd: Option<PdNum>,
    pub(crate) qp_num: QpNum,
    pub(crate) psn: Psn,
    /// Its queue pair is in error.
    pub(crate) has_failed: bool,
    pub(crate) posted: usize,
    /// By the index of the operation.
    pub(crate) landings: Vec<Option<Landing>>,
    /// Eight bytes for each operation that has a word.
    pub(crate) words: Pool,
    pub(crate) words_lkey: Option<u32>,
    /// Keys of buffers' regions in the domain.
    pub(crate) regions: Vec<(RegionId, u32)>,
    /// What the peer may reach.
    pub(crate) grants: Vec<OwnGrant>,
    /// What goes by messages.
    pub(crate) talk: LaneTalk,
    /// What the peer did to grants by messages, and by earlier queue pairs; none as soon as the
    /// device did not count what came by one.
    pub(crate) served: Option<Served>,
}

impl LaneQp {
    /// With its domain, and the key of the words there.
    pub(crate) fn new(domain: Option<(PdNum, u32)>, words: Pool) -> Self {
        let (pd, words_lkey) = domain.unzip();
        Self {
            pd,
            qp_num: NO_QP,
            psn: Psn::new(0),
            has_failed: false,
            posted: 0,
            landings: Vec::new(),
            words,
            words_lkey,
            regions: Vec::new(),
            grants: Vec::new(),
            talk: LaneTalk::default(),
            served: Some(Served::default()),
        }
    }

    /// What the peer did to grants; none where the device does not count.
    pub(crate) fn served(&self, device: &impl Device) -> Option<Served> {
        let mut served = self.served?;
        if self.qp_num != NO_QP {
            served += device.served(self.qp_num)?;
        }
        Some(served)
    }

    /// Where a request of the peer leads, if it is allowed.
    pub(crate) fn reach(&self, request: &LaneRequest) -> Option<(&SharedMemory, usize)> {
        let grant = self.grants.iter().find(|grant| grant.id == request.grant)?;
        let OwnGrant { memory, range, rights, .. } = grant;
        let end = u64::from(request.offset) + u64::from(request.length);
        let fits = end <= range.len() as u64;
        (rights.allow(request.kind) && fits)
            .then(|| (memory, range.start + request.offset as usize))
    }

    /// The peer did something by a message.
    pub(crate) fn count(&mut self, kind: OpKind, length: u32) {
        let Some(served) = &mut self.served else { return };
        match kind {
            OpKind::Read => {
                served.reads += 1;
                served.read_bytes += u64::from(length);
            }
            OpKind::Write | OpKind::WriteWord { .. } => {
                served.writes += 1;
                served.write_bytes += u64::from(length);
            }
            OpKind::FetchAdd { .. } | OpKind::CmpSwap { .. } => served.atomics += 1,
        }
    }

    /// Takes the queue pair out, to be destroyed, and keeps what it served.
    pub(crate) fn take_qp(&mut self, device: &mut impl Device) -> Option<QpNum> {
        if self.qp_num != NO_QP && device.served(self.qp_num).is_some() {
            // A device with a thread of its own serves on until then, and would not be counted.
            let _ = device.modify_qp(self.qp_num, QpState::Err);
        }
        self.served = self.served(device);
        let qp_num = std::mem::replace(&mut self.qp_num, NO_QP);
        (qp_num != NO_QP).then_some(qp_num)
    }

    pub(crate) fn put(&mut self, landing: Landing) {
        let index = landing.key.index();
        if self.landings.len() <= index {
            self.landings.resize_with(index + 1, || None);
        }
        self.landings[index] = Some(landing);
    }

    pub(crate) fn at(&mut self, index: usize) -> Option<&mut Landing> {
        self.landings.get_mut(index)?.as_mut()
    }

    /// What an operation had, which has ended: its buffer, or its word.
    pub(crate) fn leave(&mut self, key: OpKey) -> (Option<u64>, Option<Buf>) {
        let landing = self.landings.get_mut(key.index()).and_then(Option::take);
        let Some(mut landing) = landing.filter(|landing| landing.key == key) else {
            return (None, None);
        };
        let Some(buf) = landing.berth.take() else { return (None, None) };
        if !landing.is_word {
            return (None, Some(buf));
        }
        let word = buf.first_chunk().map(|word| u64::from_ne_bytes(*word));
        (word, None)
    }

    /// Keys of all that is registered in the domain.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> {
        let regions = self.regions.iter().map(|&(_, key)| key);
        let grants = self.grants.iter().filter_map(|grant| grant.lkey);
        regions.chain(grants).chain(self.words_lkey)
    }
}
