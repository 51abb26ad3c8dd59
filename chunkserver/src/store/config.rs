//! How a store is set up.

use thiserror::Error;

use super::limits::{
    CHUNKS_MAX_DEFAULT, LOG_BYTES_DEFAULT, LOG_BYTES_MAX, LOG_BYTES_MIN, SEGMENT_PAGES_DEFAULT,
    SEGMENT_PAGES_MAX, SEGMENT_PAGES_MIN,
};
use super::slice::SLICE_BYTES;

/// Set-up of a store. The defaults fit a server with some gigabytes to some terabytes of data.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    pub(crate) capacity_bytes: u64,
    pub(crate) chunks_max: u64,
    pub(crate) log_bytes: u64,
    pub(crate) preallocate_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) store_id: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            capacity_bytes: u64::MAX,
            chunks_max: CHUNKS_MAX_DEFAULT,
            log_bytes: LOG_BYTES_DEFAULT,
            preallocate_bytes: 0,
            segment_bytes: u64::from(SEGMENT_PAGES_DEFAULT) * SLICE_BYTES as u64,
            store_id: 0,
        }
    }
}

/// A setting that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The capacity holds not even one slice.
    #[error("capacity_bytes is {0}: at least one slice of 4096 is needed")]
    Capacity(u64),
    /// The log is too small or too large.
    #[error("log_bytes is {0}: from {LOG_BYTES_MIN} to {LOG_BYTES_MAX} is needed")]
    Log(u64),
    /// The segment size is out of range or no whole number of pages.
    #[error("segment_bytes is {0}: a multiple of 4096 from 32 KiB to 1 GiB is needed")]
    Segment(u64),
}

impl StoreConfig {
    /// The most bytes of slices that the store keeps, headers and log apart. May change between
    /// two openings; lowering it frees nothing that is in use. Default: no limit but the file
    /// system's.
    #[must_use]
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// The most chunks; each holds about 200 bytes of memory. Default: 4 Mi.
    #[must_use]
    pub fn chunks_max(mut self, chunks: u64) -> Self {
        self.chunks_max = chunks;
        self
    }

    /// Size of each of the two copies of the log. Their file is filled with zeros when made, so
    /// that a full disk never stops a delete. A larger one makes checkpoints rarer and a restart
    /// longer. Default: 32 MiB. A change takes effect with the next checkpoint.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = bytes;
        self
    }

    /// Segments up to this size together are made when the store is opened and filled with
    /// zeros: the opening takes longer (about the time to write them), the first write to each
    /// page is several times faster. A full medium ends it early. Default: none.
    #[must_use]
    pub fn preallocate_bytes(mut self, bytes: u64) -> Self {
        self.preallocate_bytes = bytes;
        self
    }

    /// Size of a segment file, fixed when the store is first made. Default: 256 MiB.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Number that all files of a new store carry, so that files of two stores are not mixed;
    /// an existing store keeps its own. Default: zero.
    #[must_use]
    pub fn store_id(mut self, id: u64) -> Self {
        self.store_id = id;
        self
    }

    /// Whether the settings can be.
    ///
    /// # Errors
    /// [`ConfigError`] with the first that cannot.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.segment_pages()?;
        self.capacity_pages()?;
        self.checked_log_bytes()?;
        Ok(())
    }

    pub(crate) fn segment_pages(&self) -> Result<u32, ConfigError> {
        let pages = self.segment_bytes / SLICE_BYTES as u64;
        let whole = self.segment_bytes.is_multiple_of(SLICE_BYTES as u64);
        match u32::try_from(pages) {
            Ok(pages @ SEGMENT_PAGES_MIN..=SEGMENT_PAGES_MAX) if whole => Ok(pages),
            _ => Err(ConfigError::Segment(self.segment_bytes)),
        }
    }

    pub(crate) fn capacity_pages(&self) -> Result<u64, ConfigError> {
        match self.capacity_bytes / SLICE_BYTES as u64 {
            0 => Err(ConfigError::Capacity(self.capacity_bytes)),
            pages => Ok(pages),
        }
    }

    pub(crate) fn checked_log_bytes(&self) -> Result<u64, ConfigError> {
        if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&self.log_bytes) {
            return Err(ConfigError::Log(self.log_bytes));
        }
        Ok(self.log_bytes)
    }
}
