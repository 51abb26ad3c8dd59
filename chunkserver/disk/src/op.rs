//! What a disk is asked to do.

use std::fmt;

use smallvec::SmallVec;
use towpath_memory::PAGE_BYTES;

use crate::pages::{ReadPages, WritePages};

/// Most pages of one read or write, 16 MiB: some milliseconds of a disk, and what is left of an
/// operation that a system call did in part fits any of its counters.
pub const OP_PAGES_MAX: u64 = 4096;

/// Most buffers of one read or write: a quarter of what a system call takes.
pub const OP_BUFFERS_MAX: usize = 256;

/// A page of a disk, counted from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNumber(pub u64);

impl PageNumber {
    /// Where it begins, bytes from the start of the disk.
    #[must_use]
    pub fn byte_offset(self) -> u64 {
        self.0.saturating_mul(PAGE_BYTES as u64)
    }
}

impl fmt::Display for PageNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}", self.0)
    }
}

/// The buffers of one operation, in the order of the disk's pages. Up to two take no allocation.
pub type Buffers<P> = SmallVec<[P; 2]>;

/// One operation, with the memory that it needs.
#[derive(Debug)]
pub enum Op {
    /// Fills `into` with the pages from `at` on.
    Read {
        /// The first page.
        at: PageNumber,
        /// What is filled. When the read fails its bytes have no meaning.
        into: Buffers<ReadPages>,
    },
    /// Replaces the pages from `at` on by `from`.
    Write {
        /// The first page.
        at: PageNumber,
        /// What is written.
        from: Buffers<WritePages>,
        /// It is durable when it is done, without a flush: see
        /// [`DurableWrites`](crate::DurableWrites).
        is_durable: bool,
    },
    /// Makes durable what was taken as done before this was submitted.
    Flush,
    /// Gives pages back: they hold zeros from then on. In a file their room is gone with them, and
    /// a later write to them may find none. As durable as a write.
    Discard {
        /// The first page.
        at: PageNumber,
        /// How many.
        count: u64,
    },
}

/// Which kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// Pages given back.
    Discard,
}

impl Op {
    /// A read into one buffer.
    #[must_use]
    pub fn read(at: PageNumber, into: ReadPages) -> Self {
        Self::Read { at, into: Buffers::from_iter([into]) }
    }

    /// A write from one buffer.
    #[must_use]
    pub fn write(at: PageNumber, from: WritePages) -> Self {
        Self::write_all(at, Buffers::from_iter([from]))
    }

    /// A write from several buffers.
    #[must_use]
    pub fn write_all(at: PageNumber, from: Buffers<WritePages>) -> Self {
        Self::Write { at, from, is_durable: false }
    }

    /// A write that is durable when it is done.
    #[must_use]
    pub fn write_durably(at: PageNumber, from: Buffers<WritePages>) -> Self {
        Self::Write { at, from, is_durable: true }
    }

    /// Which kind it is.
    #[must_use]
    pub fn what(&self) -> What {
        match self {
            Self::Read { .. } => What::Read,
            Self::Write { .. } => What::Write,
            Self::Flush => What::Flush,
            Self::Discard { .. } => What::Discard,
        }
    }

    /// Where it begins; a flush at the start of the disk.
    #[must_use]
    pub fn at(&self) -> PageNumber {
        match self {
            Self::Read { at, .. } | Self::Write { at, .. } | Self::Discard { at, .. } => *at,
            Self::Flush => PageNumber(0),
        }
    }

    /// How many pages it concerns; a flush none.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        match self {
            Self::Read { into, .. } => into.iter().map(ReadPages::count).sum(),
            Self::Write { from, .. } => from.iter().map(WritePages::count).sum(),
            Self::Discard { count, .. } => *count,
            Self::Flush => 0,
        }
    }

    /// Whether it is a write that is durable when it is done.
    #[must_use]
    pub fn is_durable_write(&self) -> bool {
        matches!(self, Self::Write { is_durable: true, .. })
    }

    pub(crate) fn buffer_count(&self) -> usize {
        match self {
            Self::Read { into, .. } => into.len(),
            Self::Write { from, .. } => from.len(),
            Self::Flush | Self::Discard { .. } => 0,
        }
    }
}
