//! Buffers that are at home or in the device's hands, by turns.

use std::ops::{Deref, DerefMut};
use towpath_memory::{Berth, Buf};
use towpath_verbs::Sge;

/// A buffer for receiving, or for a header that is written before each send.
///
/// Dropping one reclaims it, if the device does not hold it: when a link's queues have drained, and
/// when the endpoint ends, whose fields drop after its device. What a device that others have too
/// still holds then is leaked.
#[derive(Debug)]
pub(crate) struct Held(Berth);

impl Held {
    pub(crate) fn new(buf: Buf) -> Self {
        Self(Berth::new(buf))
    }

    /// With the entry of its first `len` bytes, under the key of its region.
    pub(crate) fn with_entry(buf: Buf, lkey: u32, len: usize) -> (Self, Sge) {
        let mut held = Self::new(buf);
        // Lent for as long as it takes to ask for the address.
        held.lend();
        let entry = held.sge(lkey, len);
        held.reclaim();
        (held, entry)
    }
}

impl Deref for Held {
    type Target = Berth;

    fn deref(&self) -> &Berth {
        &self.0
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Berth {
        &mut self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.reclaim();
    }
}
