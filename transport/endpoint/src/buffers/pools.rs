//! Buffers to send from: pools of a few sizes.

use crate::ids::LinkId;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use towpath_memory::{Buf, MemoryError, NotTaken, Pool, Region};

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
    /// (`EndpointHandle::alloc_timeout`).
    #[error(
        "all send buffers of {bytes} bytes or more are out: take outcomes and try again, or set \
         more with EndpointConfig::send_pools"
    )]
    AllOut {
        /// What was asked for.
        bytes: usize,
    },
    /// The link for which it was asked holds its share of the buffers of this size
    /// ([`Endpoint::buffers_of`](crate::Endpoint::buffers_of)): some of what was sent over it has
    /// to end first, as [`Event::Sent`](crate::Event::Sent) tells.
    #[error(
        "the link holds its share of the send buffers of {bytes} bytes: wait until some of what it \
         sends has ended, or set more with EndpointConfig::send_pools"
    )]
    OverShare {
        /// What was asked for.
        bytes: usize,
    },
}

/// Where send buffers are taken from: an [`Endpoint`](crate::Endpoint), for nobody in particular,
/// or what it has [for a link](crate::Endpoint::buffers_of).
pub trait SendBuffers {
    /// An empty buffer for at least `len` bytes, from the smallest pool that has one.
    ///
    /// # Errors
    /// [`AllocError`].
    fn alloc(&self, len: usize) -> Result<Buf, AllocError>;

    /// A buffer with a copy of `bytes`.
    ///
    /// # Errors
    /// [`AllocError`].
    fn copy(&self, bytes: &[u8]) -> Result<Buf, AllocError> {
        Ok(filled(self.alloc(bytes.len())?, bytes))
    }
}

/// The send buffers of an endpoint as one link may have them.
#[derive(Clone, Copy, Debug)]
pub struct LinkBuffers<'a> {
    pub(crate) pools: &'a SendPools,
    pub(crate) link: LinkId,
}

impl SendBuffers for LinkBuffers<'_> {
    fn alloc(&self, len: usize) -> Result<Buf, AllocError> {
        self.pools.take_for(len, self.link.index())
    }
}

/// Pools of send buffers, smallest first. Cheap to clone; taking and returning locks nothing.
#[derive(Clone, Debug)]
pub struct SendPools {
    pools: Vec<Pool>,
}

impl SendPools {
    /// Of these sizes and numbers, for so many links.
    pub(crate) fn new(sizes: &[(usize, usize)], links_max: usize) -> Result<Self, MemoryError> {
        let make = |&(bytes, count): &(usize, usize)| Pool::with_accounts(bytes, count, links_max);
        Ok(Self { pools: sizes.iter().map(make).collect::<Result<_, _>>()? })
    }

    /// An empty buffer for at least `len` bytes, from the smallest pool that has one.
    pub fn take(&self, len: usize) -> Result<Buf, AllocError> {
        let found = self.pools.iter().filter(|pool| pool.buf_bytes() >= len).find_map(Pool::take);
        found.ok_or_else(|| self.why_not(len))
    }

    /// The same for a link, which gets none where it holds its share of the smallest pool that has
    /// one.
    fn take_for(&self, len: usize, link: usize) -> Result<Buf, AllocError> {
        for pool in self.pools.iter().filter(|pool| pool.buf_bytes() >= len) {
            match pool.take_for(link) {
                Ok(buf) => return Ok(buf),
                Err(NotTaken::AllOut) => {}
                Err(NotTaken::OverShare) => return Err(AllocError::OverShare { bytes: len }),
            }
        }
        Err(self.why_not(len))
    }

    #[cold]
    fn why_not(&self, bytes: usize) -> AllocError {
        let max = self.pools.iter().map(Pool::buf_bytes).max().unwrap_or(0);
        if bytes > max { AllocError::TooLong { bytes, max } } else { AllocError::AllOut { bytes } }
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy(&self, bytes: &[u8]) -> Result<Buf, AllocError> {
        Ok(filled(self.take(bytes.len())?, bytes))
    }

    /// As [`take`](Self::take), but waits for a buffer.
    pub fn taking(&self, len: usize) -> Taking<'_> {
        Taking { pools: self, len, wish: None }
    }

    /// As [`copy`](Self::copy), but waits for a buffer.
    pub async fn copying(&self, bytes: &[u8]) -> Result<Buf, AllocError> {
        Ok(filled(self.taking(bytes.len()).await?, bytes))
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter()
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.pools.iter().map(Pool::region)
    }

    /// Buffers that are not out, and all.
    pub(crate) fn free_and_all(&self) -> (usize, usize) {
        self.pools.iter().fold((0, 0), |(free, all), p| (free + p.free(), all + p.count()))
    }
}

/// The waker of one future, unlike all others: a task may have several that wait for buffers, of
/// which one is dropped.
struct Wish(Mutex<Waker>);

impl Wake for Wish {
    fn wake(self: Arc<Self>) {
        // Not under the lock: it may be anybody's code.
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        waker.wake();
    }
}

/// One that waits for a buffer. All that wait are woken when one comes back, for they may want
/// different sizes.
pub struct Taking<'a> {
    pools: &'a SendPools,
    len: usize,
    wish: Option<(Arc<Wish>, Waker)>,
}

impl Future for Taking<'_> {
    type Output = Result<Buf, AllocError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let found = self.pools.take(self.len);
        if !matches!(found, Err(AllocError::AllOut { .. })) {
            return Poll::Ready(found);
        }
        let (pools, len) = (self.pools, self.len);
        let (wish, waker) = self.wish.get_or_insert_with(|| {
            let wish = Arc::new(Wish(Mutex::new(cx.waker().clone())));
            (Arc::clone(&wish), Waker::from(wish))
        });
        let now = cx.waker().clone();
        let _before = {
            let mut waker = wish.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *waker, now)
        };
        if pools.want(len, waker) {
            // One came back meanwhile.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if let Some((_, waker)) = &self.wish {
            self.pools.unwant(waker);
        }
    }
}

fn filled(mut buf: Buf, bytes: &[u8]) -> Buf {
    let copied = buf.extend(bytes);
    debug_assert!(copied.is_ok(), "a fresh buffer has room for what was asked for");
    buf
}
