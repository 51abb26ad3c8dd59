//! A failed operation on the medium of a store.

use std::io;

use thiserror::Error;

/// What was being done when a medium failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaOp {
    /// Making a file.
    Create,
    /// Flushing a file or the directory.
    Flush,
    /// Opening a file.
    Open,
    /// Reading.
    Read,
    /// Writing or extending.
    Write,
}

/// A failed operation on a medium: which, on what file, where.
#[derive(Debug, Error)]
#[error("{op:?} of {file} at offset {offset} failed: {source}")]
pub struct MediaError {
    /// What was being done.
    pub op: MediaOp,
    /// Name of the file inside the store's directory; the directory itself is `.`.
    pub file: String,
    /// Byte offset in the file, zero where that means nothing.
    pub offset: u64,
    /// What the medium said.
    #[source]
    pub source: io::Error,
}

impl MediaError {
    /// Whether the medium is full, rather than broken.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    pub(crate) fn new(op: MediaOp, file: &str, offset: u64, source: io::Error) -> Self {
        Self { op, file: file.to_owned(), offset, source }
    }

    /// There is no memory for what is read or written.
    pub(crate) fn memory(op: MediaOp, source: io::Error) -> Self {
        Self::new(op, "memory", 0, source)
    }
}
