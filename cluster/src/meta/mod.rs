//! The store that keeps a cluster's map: what it can be asked, and what it promises.
//!
//! A [`Meta`] is driven by one thread. It takes [operations](Op), each under a [`Tag`] of the
//! caller's choice, and [reports](Report) what came of them. Nothing waits in
//! [`submit`](Meta::submit).
//!
//! # Promises
//!
//! - **Revisions.** Each transaction that changes something has a revision of its own, higher
//!   than those of all changes before. An entry says at which revision it was
//!   [created](Entry::created) and last [changed](Entry::changed).
//! - **Transactions** are done whole, one after another: all checks hold at one revision, and all
//!   changes have the next. A transaction that is reported as committed is durable.
//! - **Reads** see every transaction that was reported as committed before they were submitted, by
//!   whomever.
//! - **Watches** report each change of each key that begins with their prefix, once or more often,
//!   in the order of revisions, and all changes of one revision together. Whoever takes a report
//!   twice sees a revision that it had seen already. None is left out: a watch that cannot go on
//!   [ends](Outcome::WatchEnded), or fails with [`MetaError::Compacted`], and then the caller
//!   lists the prefix and watches from the revision of the list.
//! - **Leases** end when they were not kept for their time by the store's own clock, and their
//!   entries are deleted then, at one revision. They never end sooner, and end later where the
//!   store is down meanwhile: a store that opens gives each lease its whole time again. A caller
//!   therefore holds what it does under a lease against its own deadline, which begins before it
//!   asks.
//!
//! # When it fails
//!
//! [`MetaError::Unavailable`] says that nothing was done. [`MetaError::Unknown`] says that the
//! operation may have been done, or may still be: the caller reads, and makes sure by what it
//! finds. Checks make a repeated transaction harmless: what it checked has changed where it was
//! done.
//!
//! # The stores
//!
//! - [`redb`]: a file, for one machine.
//! - [`etcd`]: others' consensus, for several.
//! - [`sim`]: in memory and in virtual time, with delays, lost answers and lost leases by a seed.

mod engine;
pub mod etcd;
pub mod redb;
mod rows;
pub mod sim;
mod watches;

use std::fmt;

use towpath_base::{Nanos, Time};

/// Bytes that a key has at most.
pub const KEY_BYTES_MAX: usize = 1 << 10;

/// Bytes that a value has at most.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// Checks, and changes, that a transaction has at most.
pub const PARTS_MAX: usize = 64;

/// Bytes that the keys and values of a transaction have together at most.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;

/// Entries of a page of a list at most.
pub const PAGE_MAX: usize = 1_000;

/// The longest time of a lease.
pub const LEASE_MAX: Nanos = Nanos::from_secs(3_600);

/// A number that the caller gives to an operation, to know its report.
pub type Tag = u64;

/// When something changed: how many changes there were, those of others included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// Since when there is one, without a gap.
    pub created: Revision,
    /// When it was last put.
    pub changed: Revision,
    /// The lease with which it ends.
    pub lease: Option<LeaseId>,
}

/// What a transaction wants of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is no entry.
    Absent,
    /// There is one.
    Present,
    /// There is one, last changed at this revision.
    ChangedAt(Revision),
}

impl Expect {
    /// Whether a key is so that was last changed at this revision, or has no entry.
    pub fn holds(self, changed: Option<Revision>) -> bool {
        match self {
            Self::Absent => changed.is_none(),
            Self::Present => changed.is_some(),
            Self::ChangedAt(revision) => changed == Some(revision),
        }
    }
}

/// A key that a transaction looks at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The key.
    pub key: String,
    /// What it must be like.
    pub expect: Expect,
}

/// What a transaction does to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its value is this from now on.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease with which the entry ends; in place of the one that it had.
        lease: Option<LeaseId>,
    },
    /// There is no entry from now on. Without one it changes nothing, and is reported to nobody.
    Delete {
        /// The key.
        key: String,
    },
}

impl Change {
    /// The key that it changes.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Changes that are done together if all checks hold. No key is changed twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    checks: Vec<Check>,
    changes: Vec<Change>,
}

impl Transaction {
    /// One that checks and changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, where this key is as expected.
    #[must_use]
    pub fn check(mut self, key: impl Into<String>, expect: Expect) -> Self {
        self.checks.push(Check { key: key.into(), expect });
        self
    }

    /// The same, and this key has this value then.
    #[must_use]
    pub fn put(self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.change(Change::Put { key: key.into(), value: value.into(), lease: None })
    }

    /// The same, and the entry ends with a lease.
    #[must_use]
    pub fn put_leased(
        self,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
        lease: LeaseId,
    ) -> Self {
        self.change(Change::Put { key: key.into(), value: value.into(), lease: Some(lease) })
    }

    /// The same, and this key has no entry then.
    #[must_use]
    pub fn delete(self, key: impl Into<String>) -> Self {
        self.change(Change::Delete { key: key.into() })
    }

    /// The same with one more change.
    #[must_use]
    pub fn change(mut self, change: Change) -> Self {
        self.changes.push(change);
        self
    }

    /// What it checks.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// What it changes.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Refuses what no store takes.
    ///
    /// # Errors
    ///
    /// [`MetaError::Invalid`].
    pub fn validate(&self) -> Result<(), MetaError> {
        if self.checks.len() > PARTS_MAX || self.changes.len() > PARTS_MAX {
            return Err(MetaError::Invalid("more than 64 checks or changes in one transaction"));
        }
        let mut bytes = 0;
        for key in self.checks.iter().map(|check| &*check.key) {
            validate_key(key)?;
            bytes += key.len();
        }
        let mut keys: Vec<&str> = self.changes.iter().map(Change::key).collect();
        for change in &self.changes {
            validate_key(change.key())?;
            bytes += change.key().len();
            let Change::Put { value, .. } = change else { continue };
            bytes += value.len();
            if value.len() > VALUE_BYTES_MAX {
                return Err(MetaError::Invalid("a value has at most 64 KiB"));
            }
        }
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(MetaError::Invalid("a transaction changes a key once"));
        }
        match bytes <= TRANSACTION_BYTES_MAX {
            true => Ok(()),
            false => Err(MetaError::Invalid("a transaction has at most 1 MiB")),
        }
    }
}

fn validate_key(key: &str) -> Result<(), MetaError> {
    match key.len() {
        1..=KEY_BYTES_MAX => Ok(()),
        _ => Err(MetaError::Invalid("a key has 1 to 1024 bytes")),
    }
}

/// What a store can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// The entry of a key.
    Get {
        /// The key.
        key: String,
    },
    /// Entries in the order of their keys' bytes.
    List {
        /// With which their keys begin.
        prefix: String,
        /// Only those behind this key.
        after: Option<String>,
        /// At most so many, 1 to [`PAGE_MAX`].
        limit: usize,
    },
    /// Changes, if checks hold.
    Commit(Transaction),
    /// A new lease.
    Grant {
        /// For how long it holds without being kept, up to [`LEASE_MAX`].
        time: Nanos,
    },
    /// A lease has its whole time again.
    Keep(LeaseId),
    /// A lease ends now, and its entries with it.
    Revoke(LeaseId),
    /// Changes from now on, until [`Op::Unwatch`]; each is a [`Report::Changed`] under this tag.
    Watch {
        /// With which their keys begin.
        prefix: String,
        /// Only those behind this revision.
        after: Revision,
    },
    /// The watch under this tag ends, and then this.
    Unwatch(Tag),
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The entry, where there is one.
    Got(Option<Entry>),
    /// A page of a list.
    Listed {
        /// Its entries.
        entries: Vec<Entry>,
        /// Whether there are more behind the last one.
        is_cut: bool,
        /// Of which revision it is: a watch goes on behind it.
        revision: Revision,
    },
    /// The changes are done, or there were none and all checks hold.
    Committed(Revision),
    /// Nothing is changed, since a check does not hold.
    Refused {
        /// The first key that is not as expected.
        key: String,
        /// When it was last changed, where there is an entry.
        found: Option<Revision>,
    },
    /// A new lease.
    Granted(LeaseId),
    /// The lease has its whole time again.
    Kept,
    /// The lease has ended.
    Revoked,
    /// The watch has ended, as was asked.
    WatchEnded,
    /// The watch that was to end has ended, or there is none.
    Unwatched,
}

/// Changes of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The revision.
    pub revision: Revision,
    /// The changes, those of a prefix alone.
    pub changes: Vec<Change>,
}

/// What a store says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// An operation has ended. A watch ends once, after all of its changes.
    Done {
        /// Its tag.
        tag: Tag,
        /// What came of it.
        result: Result<Outcome, MetaError>,
    },
    /// A watch has seen changes.
    Changed {
        /// The watch's tag.
        tag: Tag,
        /// The changes.
        changed: Changed,
    },
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// No store takes it.
    #[error("the request to the map is refused: {0}")]
    Invalid(&'static str),
    /// Nothing was done.
    #[error("the map's store does not answer ({0}): nothing was changed, ask again")]
    Unavailable(String),
    /// It may have been done.
    #[error("the map's store has not answered ({0}): read what it did before you ask again")]
    Unknown(String),
    /// There is no such lease any more.
    #[error("the lease {0} has ended: ask for a new one")]
    NoLease(LeaseId),
    /// The changes that a watch wants are not kept any more.
    #[error("changes up to revision {0} are not kept any more: list, and watch from there on")]
    Compacted(Revision),
    /// What is stored is none of ours, or is damaged.
    #[error("the map's store is damaged ({0}): bring back a copy, or build the map again")]
    Damaged(String),
}

/// A store of a cluster's map, as one thread sees it.
pub trait Meta {
    /// Takes an operation; its report comes later, under this tag. No two operations under way
    /// have one tag. Virtual stores go by `now`, others by their own clocks.
    fn submit(&mut self, tag: Tag, op: Op, now: Time);

    /// The next report, if there is one.
    fn poll(&mut self, now: Time) -> Option<Report>;
}
