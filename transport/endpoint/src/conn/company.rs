//! What is copied of chunks of several frames: short payloads, what is between payloads, and the
//! table of frames (docs/protocol.md section 3). Longer payloads are gathered from where they are;
//! on sealed links bodies are copied whole, because they are sealed in place.

use crate::held::Held;
use std::iter;
use towpath_memory::Pool;
use towpath_verbs::Sge;

/// Buffers for that, each for one chunk.
#[derive(Default)]
pub(crate) struct Company {
    bufs: Vec<(Held, Sge)>,
    free: Vec<u16>,
}

impl Company {
    /// Of all buffers of a pool, of so many bytes each, which is registered under this key.
    pub(crate) fn new(pool: &Pool, bytes: usize, lkey: u32) -> Self {
        let buf = || {
            let mut buf = pool.take()?;
            buf.set_len(bytes).ok()?;
            Some(Held::with_entry(buf, lkey, bytes))
        };
        let bufs: Vec<_> = iter::from_fn(buf).collect();
        let free = (0..bufs.len() as u16).collect();
        Self { bufs, free }
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
