//! Hedged reads: what the server has not answered in time, its replica is asked too.
//!
//! The first good answer wins; the other request is given up. Hedges are a bounded share of the
//! reads ([`HedgeConfig::budget_percent`]). A read that the server cannot serve (it is gone, or its
//! copy is damaged) goes to the replica at once and costs nothing of that share.
//!
//! A replica is another server that holds the same bytes under the same name. The checksums bind
//! bytes to their chunk and place, not to a server: whoever names two servers says that they hold
//! the same.
//!
//! | file | what it knows |
//! |---|---|
//! | `policy` | when to hedge, and how often at most |
//! | `trouble` | which server is avoided for a while |
//!
//! The requests themselves are made in `shared/seat.rs`.

mod policy;
mod trouble;

use crate::error::ErrorKind;
use crate::wire::ErrorReply;

pub(crate) use policy::Policy;
pub use policy::{HedgeAfter, HedgeConfig, ParseHedgeAfterError};
pub(crate) use trouble::{Trouble, blames_server, was_lost};

/// What hedging did; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgeStats {
    /// Reads.
    pub reads: u64,
    /// Reads that the replica was asked for as well, because the server was late.
    pub hedges: u64,
    /// Of those, answered by the replica first.
    pub hedges_won: u64,
    /// Reads that were late and not hedged: the budget was spent, or the replica had no room.
    pub hedges_denied: u64,
    /// Reads that the server could not serve, for which the replica was asked instead.
    pub failovers: u64,
    /// Reads for which the replica was asked at once, because the server is avoided.
    pub avoided: u64,
    /// Late reads that the replica was not asked for because it is avoided.
    pub hedges_avoided: u64,
}

/// One of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HedgeServer {
    /// The server that the client is for.
    First,
    /// Its replica.
    Second,
}

impl HedgeServer {
    pub(crate) const BOTH: [Self; 2] = [Self::First, Self::Second];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

/// Whether another server that holds the same bytes may serve what one could not. What a busy
/// server turns away it does not pass on: that would spread its load.
pub(crate) fn may_be_elsewhere(kind: &ErrorKind) -> bool {
    match kind {
        ErrorKind::Refused(reply) => {
            matches!(reply, ErrorReply::SliceCorrupt { .. } | ErrorReply::Media)
        }
        ErrorKind::PeerGone { .. }
        | ErrorKind::ReplyCorrupt { .. }
        | ErrorKind::BadReply(_)
        | ErrorKind::WrongReply => true,
        _ => false,
    }
}
