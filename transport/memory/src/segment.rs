//! What a message is made of: buffers of its own, or bytes that several messages have in common.

use crate::buf::Buf;
use crate::region::{Region, RegionId};
use crate::slots::Lending;
use std::hint::cold_path;
use std::ops::Deref;
use std::sync::Arc;

/// Who lends parts of a buffer, and gets each of them back: an endpoint, its receive buffers.
///
/// While any part is out, `buf` gives the same buffer: the parts are of that. Nobody changes the
/// buffer then, and no device writes to it.
pub trait Lender: Send + Sync {
    /// The buffer.
    fn buf(&self) -> Option<&Buf>;

    /// The part that was lent with this tag is not out any more. Called once for each part.
    fn take_back(self: Arc<Self>, tag: u32);
}

/// What a [`Frozen`] keeps.
enum Kept {
    Whole(Buf),
    Part(Part),
}

/// A part of a lent buffer; it goes back when it is dropped.
struct Part {
    lender: Option<Arc<dyn Lender>>,
    region: Region,
    /// Which slot of the region the buffer is, whatever the lender says of it later.
    slot: u32,
    start: u32,
    len: u32,
    tag: u32,
}

impl Part {
    fn bytes(&self) -> &[u8] {
        let bytes: &[u8] = self.lender.as_ref().and_then(|lender| lender.buf()).map_or(&[], |b| b);
        let start = self.start as usize;
        bytes.get(start..start + self.len as usize).unwrap_or(&[])
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Some(lender) = self.lender.take() else { return };
        if !self.region.mapping.slots.at(self.slot).end_part() {
            cold_path();
            // A device reads the buffer still: nobody gets it any more.
            std::mem::forget(lender);
            return;
        }
        lender.take_back(self.tag);
    }
}

/// A buffer that nobody changes any more, so that any number of messages may carry it at once: to
/// several receivers, or again and again. Clones are the same bytes. With the last of them the
/// buffer returns to its pool, or, if it is a part of a receive buffer, to its endpoint.
///
/// Made by [`Buf::freeze`], or of what was received, at the cost of one small allocation; clones
/// take none.
#[derive(Clone)]
pub struct Frozen {
    kept: Arc<Kept>,
}

impl Frozen {
    /// The bytes `start..start + len` of a buffer of which parts are lent. The lender is told with
    /// `tag` when the last clone is gone.
    ///
    /// # Panics
    /// When the lender has no buffer, or a device has it.
    #[must_use]
    pub fn part_of(lender: Arc<dyn Lender>, start: u32, len: u32, tag: u32) -> Self {
        let buf = lender.buf().expect("a lender has its buffer");
        assert!(buf.state().begin_part(), "no device has the buffer");
        let (region, slot) = (buf.region(), buf.slot());
        let part = Part { lender: Some(lender), region, slot, start, len, tag };
        Self { kept: Arc::new(Kept::Part(part)) }
    }

    /// Which region it lies in.
    #[must_use]
    pub fn region_id(&self) -> RegionId {
        match &*self.kept {
            Kept::Whole(buf) => buf.region_id(),
            Kept::Part(part) => part.region.id(),
        }
    }

    /// The region it lies in, to register it.
    #[must_use]
    pub fn region(&self) -> Region {
        match &*self.kept {
            Kept::Whole(buf) => buf.region(),
            Kept::Part(part) => part.region.clone(),
        }
    }

    /// The buffer, to be changed again.
    ///
    /// # Errors
    /// The handle itself, while there are others (one is with each message that is under way), or a
    /// device reads it. Also when it is a part of a receive buffer, which nobody may change.
    pub fn thaw(self) -> Result<Buf, Self> {
        match Arc::try_unwrap(self.kept) {
            Ok(Kept::Whole(buf)) if buf.state().take_back() => Ok(buf),
            Ok(kept) => Err(Self { kept: Arc::new(kept) }),
            Err(kept) => Err(Self { kept }),
        }
    }

    fn bytes(&self) -> &[u8] {
        match &*self.kept {
            Kept::Whole(buf) => buf,
            Kept::Part(part) => part.bytes(),
        }
    }
}

impl std::fmt::Debug for Frozen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frozen({} bytes)", self.len())
    }
}

impl Deref for Frozen {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes()
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
        let is_lent = self.state().lend(Lending::Reading);
        debug_assert!(is_lent, "nobody else has a buffer that somebody owns");
        Frozen { kept: Arc::new(Kept::Whole(self)) }
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
    /// A frozen one, while others hold it, or when it is a part of a receive buffer.
    pub fn into_buf(self) -> Result<Buf, Frozen> {
        match self {
            Self::Own(buf) => Ok(buf),
            Self::Frozen(frozen) => frozen.thaw(),
        }
    }

    /// Bytes in it.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Own(buf) => buf.len(),
            Self::Frozen(frozen) => frozen.len(),
        }
    }

    /// Whether it holds none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which region it lies in.
    #[must_use]
    #[inline]
    pub fn region_id(&self) -> RegionId {
        match self {
            Self::Own(buf) => buf.region_id(),
            Self::Frozen(frozen) => frozen.region_id(),
        }
    }

    /// The region it lies in, to register it.
    #[must_use]
    pub fn region(&self) -> Region {
        match self {
            Self::Own(buf) => buf.region(),
            Self::Frozen(frozen) => frozen.region(),
        }
    }
}

impl Deref for Segment {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(buf) => buf,
            Self::Frozen(frozen) => frozen.bytes(),
        }
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

#[cfg(all(test, not(loom)))]
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
        let [segment] = sent.reclaim().expect("no device has it");
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

    /// Lends one buffer, and notes what came back.
    struct OneBuffer(Buf, std::sync::Mutex<Vec<u32>>);

    impl Lender for OneBuffer {
        fn buf(&self) -> Option<&Buf> {
            Some(&self.0)
        }

        fn take_back(self: Arc<Self>, tag: u32) {
            self.1.lock().expect("one thread").push(tag);
        }
    }

    #[test]
    fn each_part_of_a_lent_buffer_goes_back_once_with_its_last_holder() {
        let pool = Pool::with_count(4096, 1).expect("memory for a test");
        let lender = Arc::new(OneBuffer(filled(&pool), std::sync::Mutex::default()));
        let back = || lender.1.lock().expect("one thread").clone();
        let part = |start, tag| Frozen::part_of(Arc::clone(&lender) as _, start, 1, tag);
        let (first, last) = (part(0, 7), part(2, 8));
        assert_eq!((&first[..], &last[..]), (&b"a"[..], &b"c"[..]));
        assert_eq!(first.region_id(), pool.region().id());
        let sent = Shared::new([Segment::from(first.clone())]);
        let first = first.thaw().expect_err("nobody may change a receive buffer");
        drop((first, last));
        assert_eq!(back(), [8], "a device may still read the other");
        let [segment] = sent.reclaim().expect("no device has it");
        drop(segment.into_buf().expect_err("nor may who is its last holder"));
        assert_eq!(back(), [8, 7]);
        assert!(part(3, 9).is_empty(), "outside of the buffer are no bytes");
    }

    #[test]
    fn a_segment_is_as_large_as_a_buffer() {
        assert_eq!(size_of::<Segment>(), size_of::<Buf>());
    }
}
