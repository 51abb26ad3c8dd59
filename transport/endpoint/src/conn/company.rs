//! What is copied of chunks of several frames: short payloads, what is between payloads, and the
//! table of frames (docs/protocol.md section 3). Longer payloads are gathered from where they are.

use crate::held::Held;
use towpath_memory::{MemoryError, Pool};
use towpath_proto::limits::COPIED_BYTES_MAX;
use towpath_verbs::Sge;

/// Buffers for that, each for one chunk.
#[derive(Default)]
pub(crate) struct Company {
    bufs: Vec<(Held, Sge)>,
    free: Vec<u16>,
}

impl Company {
    /// So many buffers, and their pool, to be registered.
    pub(crate) fn new(count: u16) -> Result<(Self, Pool), MemoryError> {
        let pool = Pool::with_count(COPIED_BYTES_MAX, usize::from(count))?;
        let buf = |_| {
            let mut buf = pool.take()?;
            buf.set_len(COPIED_BYTES_MAX).ok()?;
            Some((Held::new(buf), Sge::default()))
        };
        let bufs: Vec<_> = (0..count).map_while(buf).collect();
        let free = (0..bufs.len() as u16).collect();
        Ok((Self { bufs, free }, pool))
    }

    /// The key of the pool. Nothing is posted yet.
    pub(crate) fn set_lkey(&mut self, lkey: u32) {
        for (held, sge) in &mut self.bufs {
            // Lent for as long as it takes to ask for the address.
            held.lend();
            *sge = held.sge(lkey, COPIED_BYTES_MAX);
            held.reclaim();
        }
    }

    /// Whether the device has all of them.
    pub(crate) fn is_out(&self) -> bool {
        self.free.is_empty()
    }

    /// One that is to be filled.
    pub(crate) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// The bytes of one that was taken, and their gather entry.
    pub(crate) fn bytes_mut(&mut self, index: u16) -> (&mut [u8], Sge) {
        let (held, whole) = &mut self.bufs[usize::from(index)];
        (held.buf_mut().map_or(&mut [], |buf| &mut buf[..]), *whole)
    }

    /// It is filled: the device reads it.
    pub(crate) fn lend(&mut self, index: u16) {
        self.bufs[usize::from(index)].0.lend();
    }

    /// The device has returned it, or never got it.
    pub(crate) fn take_home(&mut self, index: u16) {
        if let Some((held, _)) = self.bufs.get_mut(usize::from(index)) {
            held.reclaim();
            debug_assert!(!held.is_lent(), "the device is done with what it has returned");
            self.free.push(index);
        }
    }
}
