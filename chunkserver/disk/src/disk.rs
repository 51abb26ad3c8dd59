//! The trait that all disks have, and what they answer.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::op::{Op, PageNumber, What};

/// A disk of [`page_count`](Self::page_count) pages of 4,096 bytes. The crate's documentation says
/// what is durable when.
pub trait Disk {
    /// What it takes, and how much of that is under way.
    fn limits(&self) -> Limits;

    /// Its length, pages.
    fn page_count(&self) -> u64 {
        self.limits().page_count
    }

    /// How many operations may be under way.
    fn depth(&self) -> usize {
        self.limits().depth
    }

    /// How many are: submitted, and not yet given out as done.
    fn in_flight(&self) -> usize {
        self.limits().in_flight
    }

    /// Whether it gives pages back.
    fn can_discard(&self) -> bool {
        self.limits().can_discard
    }

    /// Takes an operation. It begins at the next [`poll`](Self::poll), [`wait`](Self::wait) or
    /// [`arm`](Self::arm) at the latest, with all others that were submitted before that, and its
    /// outcome is given out with `tag`.
    ///
    /// # Errors
    /// The operation, with the reason why it was not taken.
    fn submit(&mut self, tag: u64, op: Op) -> Result<(), Refused>;

    /// Begins what was submitted and appends what is done to `done`; returns how many. Never
    /// waits.
    ///
    /// # Errors
    /// The system does not speak of this disk any more. Nothing is known of what is under way, and
    /// its memory does not come back.
    fn poll(&mut self, done: &mut Vec<Done>) -> io::Result<usize>;

    /// As [`poll`](Self::poll), but where nothing is done yet it waits until something is, for
    /// `timeout` at most. Returns at once when nothing is under way.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    fn wait(&mut self, timeout: Duration, done: &mut Vec<Done>) -> io::Result<usize>;

    /// Begins what was submitted, and prepares a wait for the [descriptor](Self::descriptor): it
    /// becomes readable when something is done after this, and may once in vain, for what was taken
    /// before. True when something is done already: then poll, and do not wait.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    fn arm(&mut self) -> io::Result<bool>;

    /// A file that becomes readable when something is done after [`arm`](Self::arm), for a loop
    /// that waits for other files too. None in virtual time.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Bytes that the file system can still give to files; zero for a disk that is no file, which
    /// has all that it ever will.
    ///
    /// # Errors
    /// What the file system reports.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// What a disk takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Its length, pages.
    pub page_count: u64,
    /// How many operations may be under way.
    pub depth: usize,
    /// How many are: submitted, and not yet given out as done.
    pub in_flight: usize,
    /// Whether it gives pages back.
    pub can_discard: bool,
    /// Whether it takes durable writes, and what such a write makes last.
    pub durable_writes: DurableWrites,
}

/// What a durable write makes last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurableWrites {
    /// The disk takes none. In memory, and through a page cache, a flush makes last what can.
    #[default]
    None,
    /// Its own bytes.
    Own,
    /// Its own bytes, and all that was taken as done before it was submitted: the system flushes
    /// the whole cache of the device behind it.
    AndAllBefore,
}

/// An operation that is done.
#[derive(Debug)]
pub struct Done {
    /// As it was given to [`Disk::submit`].
    pub tag: u64,
    /// The operation, with its memory.
    pub op: Op,
    /// Whether all of it was carried out.
    pub outcome: Result<(), DiskError>,
}

/// A failed operation.
#[derive(Debug, thiserror::Error)]
#[error("{what:?} at {at} failed: {source}")]
pub struct DiskError {
    /// What was to be done.
    pub what: What,
    /// The first page of the operation, not necessarily the bad one.
    pub at: PageNumber,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    /// Whether the disk takes no change any more: a flush failed, or what makes a durable write
    /// last.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.what == What::Flush || is_flush_lost(&self.source)
    }

    /// Whether there was no room for it, rather than something broken.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

/// The error of a durable write whose bytes the disk took, and did not make last.
#[derive(Debug, thiserror::Error)]
#[error("what was written does not last: {0}")]
struct FlushLost(io::Error);

/// Makes an error of a durable write say that its bytes were taken, and do not last.
pub(crate) fn flush_lost(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), FlushLost(error))
}

pub(crate) fn is_flush_lost(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<FlushLost>())
}

/// An operation that was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{:?} at {} was not taken: {why}", op.what(), op.at())]
pub struct Refused {
    /// The operation, with its memory.
    pub op: Op,
    /// Why.
    pub why: Refusal,
}

/// Why an operation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// As many as [`Disk::depth`] are under way: take some that are done.
    #[error("the queue is full")]
    QueueFull,
    /// It ends behind the last page.
    #[error("it ends behind the disk")]
    BeyondEnd,
    /// It concerns no page.
    #[error("it has no page")]
    Empty,
    /// It has more than [`OP_PAGES_MAX`](crate::OP_PAGES_MAX) pages or
    /// [`OP_BUFFERS_MAX`](crate::OP_BUFFERS_MAX) buffers.
    #[error("it has too many pages or buffers")]
    TooLong,
    /// This disk gives no pages back.
    #[error("this disk gives no pages back")]
    CannotDiscard,
    /// This disk has no durable writes.
    #[error("this disk has no durable writes")]
    CannotWriteDurably,
    /// A flush has failed: the disk is read only.
    #[error("a flush failed before")]
    FlushFailed,
}
