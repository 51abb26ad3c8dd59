//! Promises that were broken.

use crate::failure::Cause;
use towpath_proto::OpOutcome;
use towpath_transport::LaneError;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// An operation has a second outcome, or one that nobody asked for has one.
    #[error("client {client}: operation {op} has an outcome that nobody waits for")]
    Twice {
        /// Whose.
        client: usize,
        /// Its number among those of the client.
        op: u64,
    },
    /// Operations were carried out in another order than they were asked for.
    #[error("client {client}: operation {op} was carried out after operation {before}")]
    Order {
        /// Whose.
        client: usize,
        /// The later.
        before: u64,
        /// The earlier.
        op: u64,
    },
    /// An operation that was carried out has brought nothing, or not as much as it should.
    #[error("client {client}: operation {op} was carried out and brought nothing")]
    Empty {
        /// Whose.
        client: usize,
        /// Its number among those of the client.
        op: u64,
    },
    /// A word to which things are added is not what it should be.
    #[error("{what}: {found} where {sure} were carried out and {unknown} perhaps")]
    Sum {
        /// Which word, and when it was looked at.
        what: String,
        /// What is there.
        found: u64,
        /// Additions that were reported as carried out.
        sure: u64,
        /// Those of which that is not known.
        unknown: u64,
    },
    /// Additions fetched what they cannot have fetched one after the other.
    #[error("{what}: {next:#x} after {before:#x}")]
    Fetched {
        /// Which word.
        what: String,
        /// What was fetched before.
        before: u64,
        /// What was fetched then.
        next: u64,
    },
    /// Swaps do not make one chain from the first value to the last.
    #[error("swaps: {what} of value {value:#x}")]
    Swaps {
        /// What is wrong.
        what: &'static str,
        /// With which value.
        value: u64,
    },
    /// A word is of no write at all.
    #[error("a word of client {writer} is torn: {word:#x} at place {place}")]
    Torn {
        /// Whose.
        writer: usize,
        /// Where in its block.
        place: usize,
        /// What is there.
        word: u64,
    },
    /// A word is of a write that others have taken the place of, or of one that is still to come.
    #[error("a word of client {writer} is of write {found}, where {low} to {high} may be")]
    Age {
        /// Whose.
        writer: usize,
        /// Which write it is of.
        found: u64,
        /// The least that it may be of.
        low: u64,
        /// The latest.
        high: u64,
    },
    /// A write was seen of which its client was told that it was not carried out.
    #[error("write {number} of client {writer} was not carried out and is there")]
    Ghost {
        /// Whose.
        writer: usize,
        /// Which of its writes.
        number: u64,
    },
    /// What a client may not reach any more has changed.
    #[error("the area of client {client} has changed after its grant was revoked")]
    Revoked {
        /// Whose.
        client: usize,
    },
    /// Memory that nobody writes has changed.
    #[error("byte {at} has changed, which nobody writes")]
    Touched {
        /// Where.
        at: usize,
    },
    /// An operation ended as it cannot.
    #[error("client {client}: operation {op} ended as {outcome:?}")]
    Outcome {
        /// Whose.
        client: usize,
        /// Its number among those of the client.
        op: u64,
        /// How.
        outcome: OpOutcome,
    },
    /// An operation, or a grant, was refused.
    #[error("host {host}: {error}")]
    Refused {
        /// Who asked for it; the server is the last.
        host: usize,
        /// Why.
        error: LaneError,
    },
    /// A link ended by itself.
    #[error("a link of host {host} is down")]
    Down {
        /// Whose; the server is the last.
        host: usize,
    },
    /// Buffers of a client are not all home at the end.
    #[error("buffers of client {client} are not all home")]
    Buffers {
        /// Whose.
        client: usize,
    },
    /// A host does not come to rest at one instant.
    #[error("host {host} does not come to rest")]
    Restless {
        /// Which; the server is the last.
        host: usize,
    },
    /// Operations have no outcome after a long time.
    #[error("no end: client {client} waits for {live} outcomes")]
    Endless {
        /// One of those that wait.
        client: usize,
        /// For how many.
        live: usize,
    },
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// The hosts could not be made.
    #[error("{0}")]
    Made(#[from] Cause),
    /// A promise was broken.
    #[error("{0}")]
    Broken(#[from] Broken),
}
