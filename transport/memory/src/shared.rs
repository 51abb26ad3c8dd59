//! Buffers that devices read: everyone may look, nobody may change.

use crate::buf::Buf;
use crate::segment::Segment;
use crate::slots::Lending;
use std::hint::cold_path;
use std::mem::ManuallyDrop;
use towpath_verbs::Sge;

/// Buffers that are being sent, as one message: devices read their bytes and so may their owner
/// (a checksum of what goes out needs them), but nobody changes them until
/// [`reclaim`](Self::reclaim). Dropping a `Shared` leaks its slots, as with [`Lent`](crate::Lent).
#[derive(Debug)]
#[must_use = "dropping shared buffers leaks them: reclaim them after their completions"]
pub struct Shared<B> {
    bufs: ManuallyDrop<B>,
}

impl<B: AsRef<[Segment]>> Shared<B> {
    /// Lets devices read the bytes of `bufs` until [`reclaim`](Self::reclaim).
    pub fn new(bufs: B) -> Self {
        for buf in owned(&bufs) {
            let is_lent = buf.state().lend(Lending::Reading);
            debug_assert!(is_lent, "nobody else has a buffer that somebody owns");
        }
        Self { bufs: ManuallyDrop::new(bufs) }
    }

    /// `len` bytes from `start` on of one of the buffers, and their gather entry under the key that
    /// the device gave for its region; `None` outside of it. Only for sends: a receive would write
    /// what others may be reading.
    #[must_use]
    pub fn piece(&self, index: usize, start: usize, len: usize, lkey: u32) -> Option<(&[u8], Sge)> {
        let segment = B::as_ref(&self.bufs).get(index)?;
        let bytes = segment.get(start..start.checked_add(len)?)?;
        Some((bytes, Sge { addr: bytes.as_ptr() as u64, length: len as u32, lkey }))
    }

    /// Takes the buffers back, to be changed again, when every work request that names one of them
    /// is done.
    ///
    /// # Errors
    /// The shared buffers, while a device holds any of them.
    pub fn reclaim(self) -> Result<B, Self> {
        let refused = owned(&*self.bufs).position(|buf| !buf.state().take_back());
        if let Some(refused) = refused {
            cold_path();
            for buf in owned(&*self.bufs).take(refused) {
                buf.state().lend(Lending::Reading);
            }
            return Err(self);
        }
        Ok(ManuallyDrop::into_inner(self.bufs))
    }
}

/// Those that are of this message alone; frozen ones are lent for reading anyway.
fn owned<B: AsRef<[Segment]>>(bufs: &B) -> impl Iterator<Item = &Buf> {
    bufs.as_ref().iter().filter_map(|segment| match segment {
        Segment::Own(buf) => Some(buf),
        Segment::Frozen(_) => None,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Pool, Region};

    #[test]
    fn shared_buffers_can_be_read_and_come_back_whole() {
        let pool = Pool::new(Region::new(8192).expect("memory for a test"), 4096);
        let mut buf = pool.take().expect("a fresh pool");
        buf.extend(b"abc").expect("it fits");
        let shared = Shared::new([pool.take().expect("another"), buf].map(Segment::from));
        let (bytes, sge) = shared.piece(1, 1, 2, 7).expect("within the second");
        assert_eq!((bytes, sge.length, sge.lkey), (&b"bc"[..], 2, 7));
        assert_eq!(sge.addr, bytes.as_ptr() as u64);
        for (index, start, len) in [(1, 1, 3), (1, usize::MAX, 2), (0, 0, 1), (2, 0, 0)] {
            assert_eq!(shared.piece(index, start, len, 7), None, "{index} {start} {len}");
        }
        assert_eq!(&shared.reclaim().expect("no device has it")[1][..], b"abc");
        assert_eq!(pool.free(), 2);
        drop(Shared::new([Segment::from(pool.take().expect("it came back"))]));
        assert_eq!(pool.free(), 1, "what was shared is leaked");
    }
}
