//! Buffers to send from: pools of a few sizes.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
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
    /// or when they are dropped. A polled endpoint tells of that if it is asked to
    /// ([`Endpoint::want_buffer`](crate::Endpoint::want_buffer)); handles can wait for it
    /// ([`EndpointHandle::alloc_timeout`](crate::EndpointHandle::alloc_timeout)).
    #[error(
        "all send buffers of {bytes} bytes or more are out: take outcomes and try again, or set \
         more with EndpointConfig::send_pools"
    )]
    AllOut {
        /// What was asked for.
        bytes: usize,
    },
}

/// A thread that waits for a buffer.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
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
        Ok(filled(self.take(bytes.len())?, bytes))
    }

    /// As [`copy`](Self::copy), but waits for a buffer for at most `patience`.
    pub(crate) fn copy_timeout(&self, bytes: &[u8], patience: Duration) -> Result<Buf, AllocError> {
        Ok(filled(self.take_timeout(bytes.len(), patience)?, bytes))
    }

    /// As [`take`](Self::take), but waits for a buffer for at most `patience`.
    pub(crate) fn take_timeout(&self, len: usize, patience: Duration) -> Result<Buf, AllocError> {
        let end = Instant::now().checked_add(patience);
        let mut waker = None;
        loop {
            let found = self.take(len);
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if !matches!(found, Err(AllocError::AllOut { .. })) || left.is_zero() {
                if let Some(waker) = &waker {
                    self.unwant(waker);
                }
                return found;
            }
            let sleeper = || Waker::from(Arc::new(Sleeper(thread::current())));
            if !self.want(len, waker.get_or_insert_with(sleeper)) {
                thread::park_timeout(left);
            }
        }
    }

    /// Has `waker` woken once when a buffer for so many bytes comes back; true when one is free.
    pub(crate) fn want(&self, len: usize, waker: &Waker) -> bool {
        let fitting = self.pools.iter().filter(|pool| pool.buf_bytes() >= len);
        fitting.fold(false, |is_free, pool| pool.want(waker) | is_free)
    }

    /// Wants no buffer any more.
    pub(crate) fn unwant(&self, waker: &Waker) {
        self.pools.iter().for_each(|pool| pool.unwant(waker));
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.pools.iter().map(Pool::region)
    }

    /// Buffers that are not out, and all.
    pub(crate) fn free_and_all(&self) -> (usize, usize) {
        self.pools.iter().fold((0, 0), |(free, all), p| (free + p.free(), all + p.count()))
    }
}

fn filled(mut buf: Buf, bytes: &[u8]) -> Buf {
    let copied = buf.extend(bytes);
    debug_assert!(copied.is_ok(), "a fresh buffer has room for what was asked for");
    buf
}
