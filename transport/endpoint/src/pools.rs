//! Buffers to send from: pools of a few sizes.

use towpath_memory::{Buf, MemoryError, Pool, Region};

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
    pub(crate) fn take(&self, len: usize) -> Option<Buf> {
        self.pools.iter().filter(|pool| pool.buf_bytes() >= len).find_map(Pool::take)
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.pools.iter().map(Pool::region)
    }

    /// Buffers that are not out, and all.
    pub(crate) fn free_and_all(&self) -> (usize, usize) {
        self.pools.iter().fold((0, 0), |(free, all), p| (free + p.free(), all + p.count()))
    }
}
