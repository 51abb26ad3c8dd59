//! Buffers that are at home or in the device's hands, by turns.

use std::ops::{Deref, DerefMut};
use towpath_memory::{Berth, Buf};

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
