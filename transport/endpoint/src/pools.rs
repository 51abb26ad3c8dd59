//! Buffers to send from: pools of a few sizes.

use towpath_memory::{Buf, MemoryError, Pool, Region};

/// Why there is no send buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// No buffer is so long, so that trying again is in vain.
    #[error(
        "no send buffer holds {bytes} bytes, the longest holds {max}: use several segments or \
         messages, or set EndpointConfig::send_pools"
    )]
    TooLong {
        /// What was asked for.
        bytes: usize,
        /// Bytes of the longest buffer.
        max: usize,
    },
    /// All buffers that are long enough are out now: they come back with the outcomes of messages,
    /// or when they are dropped.
    #[error(
        "all send buffers of {bytes} bytes or more are out: take outcomes and try again, or set \
         more with EndpointConfig::send_pools"
    )]
    AllOut {
        /// What was asked for.
        bytes: usize,
    },
}

/// Pools of send buffers, smallest first. Cheap to clone; taking and returning locks nothing.
#[derive(Clone, Debug)]
pub(crate) struct SendPools {
    pools: Vec<Pool>,
}

impl SendPools {
    pub(crate) fn new(sizes: &[(usize, usize)]) -> Result<Self, MemoryError> {
        let make = |&(bytes, count): &(usize, usize)| Pool::with_count(bytes, count);
        Ok(Self { pools: sizes.iter().map(make).collect::<Result<_, _>>()? })
    }

    /// An empty buffer for at least `len` bytes, from the smallest pool that has one.
    pub(crate) fn take(&self, len: usize) -> Result<Buf, AllocError> {
        let found = self.pools.iter().filter(|pool| pool.buf_bytes() >= len).find_map(Pool::take);
        found.ok_or_else(|| self.why_not(len))
    }

    #[cold]
    fn why_not(&self, bytes: usize) -> AllocError {
        let max = self.pools.iter().map(Pool::buf_bytes).max().unwrap_or(0);
        if bytes > max { AllocError::TooLong { bytes, max } } else { AllocError::AllOut { bytes } }
    }

    /// A buffer with a copy of `bytes`.
    pub(crate) fn copy(&self, bytes: &[u8]) -> Result<Buf, AllocError> {
        let mut buf = self.take(bytes.len())?;
        let copied = buf.extend(bytes);
        debug_assert!(copied.is_ok(), "a fresh buffer has room for what was asked for");
        Ok(buf)
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.pools.iter().map(Pool::region)
    }

    /// Buffers that are not out, and all.
    pub(crate) fn free_and_all(&self) -> (usize, usize) {
        self.pools.iter().fold((0, 0), |(free, all), p| (free + p.free(), all + p.count()))
    }
}
