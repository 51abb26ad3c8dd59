//! Requests that stopped half-way: told to whoever owns the server, counted, and logged.
//!
//! By the time that one is told of, all that it had here has come back: staged space, sums, what
//! was to go on to other servers, and credit.

use std::collections::VecDeque;

use towpath_fastpath::{ErrorReply, RouteKind};
use towpath_transport::{Device, LinkId, Region, Time};

use super::answer::Answer;
use super::ask::Place;
use super::pace::Pace;
use super::server::ChunkServer;
use crate::store::ChunkId;

/// Those that nobody has taken yet: the newest of more, so that who looks once in a while sees what
/// goes on, and a few hundred KiB.
const STOPPED_MAX: usize = 1024;

/// What has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedKind {
    /// A write of this server alone.
    Write,
    /// A write that goes on along a ring or tree.
    Copy,
    /// A data part of a stripe, which goes on to the servers with parity parts.
    Data,
    /// A data part of a stripe that was to be added to a parity part here.
    Sum,
    /// A range of a lost part that this server helped to make anew.
    Rebuild,
    /// A request without data.
    Other,
}

/// Why it has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Its client has cancelled it.
    Cancelled,
    /// The link of its client is gone.
    ClientGone,
    /// Its client has given up sending it.
    Abandoned,
    /// Its time is over.
    Deadline,
    /// Its data was damaged on the way.
    Damaged,
    /// A server that it was passed on to has refused it, is gone, or has failed.
    Chain,
    /// There was no room for it.
    Busy,
    /// The store refused it, or has failed.
    Refused,
    /// All of it was here and others have made it, and the store has not.
    Unmade,
    /// It was made here, and a server whose copy is not waited for may not have made it.
    Behind,
}

impl StopReason {
    /// All of them, each at its number.
    pub const ALL: [Self; 10] = [
        Self::Cancelled,
        Self::ClientGone,
        Self::Abandoned,
        Self::Deadline,
        Self::Damaged,
        Self::Chain,
        Self::Busy,
        Self::Refused,
        Self::Unmade,
        Self::Behind,
    ];

    /// In a word, as metrics have it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::ClientGone => "client_gone",
            Self::Abandoned => "abandoned",
            Self::Deadline => "deadline",
            Self::Damaged => "damaged",
            Self::Chain => "chain",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Unmade => "unmade",
            Self::Behind => "behind",
        }
    }

    /// Of a request that was answered before it was made; none where the answer is a good one.
    pub(super) fn of(answer: &Answer) -> Option<Self> {
        match answer {
            Answer::Error(error) => Some(match error {
                ErrorReply::WireCorrupt { .. } => Self::Damaged,
                ErrorReply::ReplicaRefused { .. } | ErrorReply::ReplicaLost { .. } => Self::Chain,
                ErrorReply::Busy | ErrorReply::NoSums | ErrorReply::NoSpace => Self::Busy,
                _ => Self::Refused,
            }),
            Answer::Unsupported => Some(Self::Refused),
            _ => None,
        }
    }
}

/// A request that has stopped half-way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// What it was.
    pub kind: StoppedKind,
    /// Why it has stopped.
    pub reason: StopReason,
    /// The chunk that it was for; 0 of one without data.
    pub chunk: ChunkId,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub byte_len: u64,
    /// The name of its tenant.
    pub tenant: String,
}

/// What it was about, while it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matter {
    pub(super) kind: StoppedKind,
    pub(super) place: Place,
}

impl Matter {
    /// What a write along a route is.
    pub(super) fn kind_of(route: RouteKind) -> StoppedKind {
        match route {
            RouteKind::Ring | RouteKind::Tree => StoppedKind::Copy,
            RouteKind::Stripe => StoppedKind::Data,
        }
    }
}

/// Those that nobody has taken yet.
#[derive(Debug, Default)]
pub(super) struct Stops {
    untaken: VecDeque<Stopped>,
    pace: Pace,
}

impl Stops {
    pub(super) fn next(&mut self) -> Option<Stopped> {
        self.untaken.pop_front()
    }

    pub(super) fn add(&mut self, now: Time, stopped: Stopped) {
        if let Some(others) = self.pace.others_when_due(now) {
            let Stopped { kind, reason, chunk, offset, byte_len, tenant } = &stopped;
            let reason = reason.label();
            tracing::info!(
                ?kind, reason, %chunk, offset, byte_len, tenant, others,
                "a request stopped half-way; nothing of it is left here"
            );
        }
        if self.untaken.len() == STOPPED_MAX {
            self.untaken.pop_front();
        }
        self.untaken.push_back(stopped);
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// The next request that has stopped half-way, the oldest first: of those that nobody has taken
    /// the newest 1,024 are kept. [`ServerStats::stopped`](super::ServerStats::stopped) counts all.
    pub fn next_stopped(&mut self) -> Option<Stopped> {
        self.watch.next_stopped()
    }

    /// A request has stopped half-way, and nothing of it is left here; or its copy elsewhere is not
    /// made.
    pub(super) fn note_stopped(&mut self, link: LinkId, matter: Matter, reason: StopReason) {
        self.stats.stopped[reason as usize] += 1;
        let Matter { kind, place: Place { chunk, offset, byte_len } } = matter;
        let tenants = self.sched.tenants();
        let tenant = tenants.name(tenants.of(link));
        let stopped = Stopped { kind, reason, chunk, offset, byte_len, tenant };
        self.watch.stopped(self.endpoint.now(), stopped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_for_who_looks_late() {
        let mut stops = Stops::default();
        for offset in 0..STOPPED_MAX as u64 + 10 {
            let (kind, reason) = (StoppedKind::Write, StopReason::Deadline);
            let (chunk, tenant) = (ChunkId(1), String::from("all"));
            let stopped = Stopped { kind, reason, chunk, offset, byte_len: 1, tenant };
            stops.add(Time::ZERO, stopped);
        }
        assert_eq!(stops.untaken.len(), STOPPED_MAX);
        assert_eq!(stops.untaken.front().map(|stopped| stopped.offset), Some(10));
    }

    #[test]
    fn each_reason_has_a_word_of_its_own_and_its_place() {
        for (place, reason) in StopReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
            let same = StopReason::ALL.iter().filter(|other| other.label() == reason.label());
            assert_eq!(same.count(), 1);
        }
        let of = |error| StopReason::of(&Answer::Error(error));
        assert_eq!(of(ErrorReply::Busy), Some(StopReason::Busy));
        assert_eq!(of(ErrorReply::NoSums), Some(StopReason::Busy));
        assert_eq!(of(ErrorReply::ReplicaLost { rank: 1 }), Some(StopReason::Chain));
        let refused = ErrorReply::ReplicaRefused { rank: 1, code: 7 };
        assert_eq!(of(refused), Some(StopReason::Chain));
        let damaged = ErrorReply::WireCorrupt { chunk: ChunkId(1), slice: 0 };
        assert_eq!(of(damaged), Some(StopReason::Damaged));
        assert_eq!(of(ErrorReply::StoreFailed), Some(StopReason::Refused));
        assert_eq!(StopReason::of(&Answer::Changed(1)), None);
    }
}
