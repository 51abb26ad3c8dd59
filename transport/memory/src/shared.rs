//! Buffers that devices read: everyone may look, nobody may change.

use crate::buf::{Buf, Lent};
use crate::region::RegionId;
use std::ops::Deref;
use towpath_verbs::Sge;

/// A buffer that is being sent: devices read its bytes and so may its owner (a checksum of what
/// goes out needs them), but nobody changes them until [`reclaim`](Self::reclaim). Dropping a
/// `Shared` leaks its slot, as with [`Lent`].
#[derive(Debug)]
#[must_use = "dropping a shared buffer leaks it: reclaim it after its completions"]
pub struct Shared {
    lent: Lent,
}

impl Buf {
    /// Lets devices read the bytes until [`Shared::reclaim`].
    pub fn share(self) -> Shared {
        Shared { lent: self.lend() }
    }
}

impl Shared {
    /// The gather entry for `len` bytes from `start` on, under the key that the device gave for
    /// the buffer's region. Only for sends: a receive would write what others may be reading.
    ///
    /// # Panics
    /// When the range leaves the buffer.
    #[must_use]
    pub fn sge(&self, lkey: u32, start: usize, len: usize) -> Sge {
        self.lent.sge(lkey, start, len)
    }

    /// Which region it lies in.
    #[must_use]
    pub fn region_id(&self) -> RegionId {
        self.lent.region_id()
    }

    /// Takes the buffer back, to be changed again. The rule of [`Lent::reclaim`] holds.
    #[must_use]
    pub fn reclaim(self) -> Buf {
        self.lent.reclaim()
    }
}

impl Deref for Shared {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lent.buf()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Pool, Region};

    #[test]
    fn a_shared_buffer_can_be_read_and_comes_back_whole() {
        let pool = Pool::new(Region::new(4096).expect("memory for a test"), 4096);
        let mut buf = pool.take().expect("a fresh pool");
        buf.extend(b"abc").expect("it fits");
        let shared = buf.share();
        assert_eq!(&shared[..], b"abc");
        assert_eq!(shared.sge(7, 1, 2).length, 2);
        assert_eq!(&shared.reclaim()[..], b"abc");
        assert_eq!(pool.free(), 1);
    }
}
