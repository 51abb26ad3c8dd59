//! What a message is made of: buffers of its own, or bytes that several messages have in common.

use crate::buf::Buf;
use crate::region::{Region, RegionId};
use std::ops::Deref;
use std::sync::Arc;

/// A buffer that nobody changes any more, so that any number of messages may carry it at once: to
/// several receivers, or again and again. Clones are the same bytes; with the last of them the
/// buffer returns to its pool.
///
/// Made by [`Buf::freeze`], at the cost of one small allocation; clones take none.
#[derive(Clone, Debug)]
pub struct Frozen {
    buf: Arc<Buf>,
}

impl Frozen {
    /// Which region it lies in.
    #[must_use]
    pub fn region_id(&self) -> RegionId {
        self.buf.region_id()
    }

    /// The region it lies in, to register it.
    #[must_use]
    pub fn region(&self) -> Region {
        self.buf.region()
    }

    /// The buffer, to be changed again.
    ///
    /// # Errors
    /// The handle itself, while there are others: one is with each message that is under way.
    pub fn thaw(self) -> Result<Buf, Self> {
        Arc::try_unwrap(self.buf).map_err(|buf| Self { buf })
    }
}

impl Deref for Frozen {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf
    }
}

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Buf {
    /// Gives up changing it, so that several messages may carry it at once.
    #[must_use]
    pub fn freeze(self) -> Frozen {
        Frozen { buf: Arc::new(self) }
    }
}

/// One piece of a message to send. As large as a [`Buf`] alone.
#[derive(Debug)]
pub enum Segment {
    /// A buffer of this message alone.
    Own(Buf),
    /// A buffer that others may be carrying too.
    Frozen(Frozen),
}

impl Segment {
    /// The buffer, to be changed again.
    ///
    /// # Errors
    /// A frozen one, while others hold it.
    pub fn into_buf(self) -> Result<Buf, Frozen> {
        match self {
            Self::Own(buf) => Ok(buf),
            Self::Frozen(frozen) => frozen.thaw(),
        }
    }

    #[inline]
    fn buf(&self) -> &Buf {
        match self {
            Self::Own(buf) => buf,
            Self::Frozen(frozen) => &frozen.buf,
        }
    }

    /// Bytes in it.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.buf().len()
    }

    /// Whether it holds none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.buf().is_empty()
    }

    /// Which region it lies in.
    #[must_use]
    #[inline]
    pub fn region_id(&self) -> RegionId {
        self.buf().region_id()
    }
}

impl Deref for Segment {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.buf()
    }
}

impl From<Buf> for Segment {
    fn from(buf: Buf) -> Self {
        Self::Own(buf)
    }
}

impl From<Frozen> for Segment {
    fn from(frozen: Frozen) -> Self {
        Self::Frozen(frozen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, Shared};

    fn filled(pool: &Pool) -> Buf {
        let mut buf = pool.take().expect("a fresh pool");
        buf.extend(b"abc").expect("it fits");
        buf
    }

    #[test]
    fn a_frozen_buffer_returns_to_its_pool_with_its_last_holder() {
        let pool = Pool::with_count(4096, 1).expect("memory for a test");
        let first = filled(&pool).freeze();
        let second = first.clone();
        assert_eq!((&first[..], first.as_ptr()), (&b"abc"[..], second.as_ptr()));
        drop(first);
        assert_eq!((&second[..], pool.free()), (&b"abc"[..], 0));
        drop(second);
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn nobody_can_change_bytes_while_a_device_reads_them_for_another_message() {
        let pool = Pool::with_count(4096, 1).expect("memory for a test");
        let ours = filled(&pool).freeze();
        let sent = Shared::new([Segment::from(ours.clone())]);
        let ours = ours.thaw().expect_err("a message holds it too");
        let [segment] = sent.reclaim();
        let other = segment.into_buf().expect_err("we hold it too");
        drop(ours);
        let mut buf = other.thaw().expect("the last holder");
        buf[0] = b'x';
        assert_eq!(&buf[..], b"xbc");
    }

    #[test]
    fn what_is_leaked_while_a_device_reads_it_stays_frozen() {
        let pool = Pool::with_count(4096, 1).expect("memory for a test");
        let ours = filled(&pool).freeze();
        drop(Shared::new([Segment::from(ours.clone())]));
        drop(ours.thaw().expect_err("a device may still read it"));
        assert_eq!(pool.free(), 0);
    }

    #[test]
    fn a_segment_is_as_large_as_a_buffer() {
        assert_eq!(size_of::<Segment>(), size_of::<Buf>());
    }
}
