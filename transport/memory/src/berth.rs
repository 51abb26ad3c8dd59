//! A buffer that changes hands again and again, in place.

use crate::buf::Buf;
use crate::slots::Lending;
use towpath_verbs::Sge;

/// A place for one buffer, which is lent to a device and taken back without being moved, as a
/// [`Lent`](crate::Lent) is, for buffers that are posted millions of times. It is lent for one
/// round: when the device is done with all work requests that name it, no other may name it before
/// it was taken back and lent again.
///
/// While it is lent nobody reaches its bytes here; dropping it then leaks the slot.
#[derive(Debug, Default)]
pub struct Berth {
    buf: Option<Buf>,
    lent: bool,
}

impl Berth {
    /// With this buffer in it.
    #[must_use]
    pub fn new(buf: Buf) -> Self {
        Self { buf: Some(buf), lent: false }
    }

    /// Gives the bytes to a device. False when no buffer is here, it is lent already, or a device
    /// still reads parts of it that were [frozen](crate::Frozen::part_of).
    #[inline]
    pub fn lend(&mut self) -> bool {
        let Some(buf) = self.buf.as_ref().filter(|_| !self.lent) else { return false };
        self.lent = buf.state().lend(Lending::Once);
        self.lent
    }

    /// Takes the bytes back; false when they were not lent, or a device still holds them: then they
    /// stay lent.
    #[inline]
    pub fn reclaim(&mut self) -> bool {
        let is_back = self.lent && self.buf.as_ref().is_some_and(|buf| buf.state().take_back());
        self.lent &= !is_back;
        is_back
    }

    /// Whether a device has the bytes.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// The entry for the first `len` bytes, while a device has them; an empty one otherwise.
    ///
    /// # Panics
    /// When the buffer is shorter.
    #[must_use]
    pub fn sge(&self, lkey: u32, len: usize) -> Sge {
        match &self.buf {
            Some(buf) if self.lent => buf.sge(lkey, 0, len),
            _ => Sge::default(),
        }
    }

    /// The buffer, while it is here and not lent.
    #[must_use]
    pub fn buf(&self) -> Option<&Buf> {
        self.buf.as_ref().filter(|_| !self.lent)
    }

    /// The buffer, to be changed, while it is here and not lent.
    pub fn buf_mut(&mut self) -> Option<&mut Buf> {
        if self.lent { None } else { self.buf.as_mut() }
    }

    /// Takes the buffer out, while it is here and not lent.
    pub fn take(&mut self) -> Option<Buf> {
        if self.lent { None } else { self.buf.take() }
    }

    /// Puts a buffer in.
    ///
    /// # Errors
    /// The buffer, when one is there already.
    pub fn put(&mut self, buf: Buf) -> Result<(), Buf> {
        if self.buf.is_some() {
            return Err(buf);
        }
        self.buf = Some(buf);
        Ok(())
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        if self.lent {
            // The slot stays taken, and the mapping must outlive the device's use of it.
            std::mem::forget(self.buf.take());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Pool, Region};

    #[test]
    fn a_lent_buffer_is_out_of_reach_until_it_is_reclaimed() {
        let pool = Pool::new(Region::new(8192).expect("memory for a test"), 4096);
        let mut berth = Berth::new(pool.take().expect("a fresh pool"));
        assert_eq!(berth.sge(1, 8), Sge::default());
        assert!(berth.lend() && !berth.lend());
        assert_eq!(berth.sge(1, 8).length, 8);
        assert!(berth.buf().is_none() && berth.buf_mut().is_none() && berth.take().is_none());
        assert!(berth.reclaim() && !berth.reclaim());
        let buf = berth.take().expect("it is here");
        assert!(!berth.lend(), "nothing to lend");
        assert!(berth.put(buf).is_ok());
        let other = pool.take().expect("one more");
        assert!(berth.put(other).is_err());
        berth.lend();
        drop(berth);
        assert_eq!(pool.free(), 1, "what was lent is leaked");
    }
}
