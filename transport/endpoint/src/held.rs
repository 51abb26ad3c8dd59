//! Buffers that are at home or in the device's hands, by turns.

use std::ops::{Deref, DerefMut};
use towpath_memory::{Berth, Buf, Shared};
use towpath_verbs::Sge;

/// A buffer for receiving, or for a header that is written before each send.
///
/// Dropping one reclaims it. That is sound at the two places where it happens: when a link's
/// queues have drained, and when the endpoint ends, whose fields drop after its device.
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

/// A segment of a message that is being sent, and the key of its region. Dropping one reclaims
/// it, as with [`Held`].
#[derive(Debug)]
pub(crate) struct Segment {
    shared: Option<Shared>,
    lkey: u32,
}

impl Segment {
    pub(crate) fn new(buf: Buf, lkey: u32) -> Self {
        Self { shared: Some(buf.share()), lkey }
    }

    /// The bytes and their gather entry; `None` outside the segment.
    pub(crate) fn piece(&self, offset: u32, length: u32) -> Option<(&[u8], Sge)> {
        let shared = self.shared.as_ref()?;
        let (start, len) = (offset as usize, length as usize);
        let bytes = shared.get(start..start.checked_add(len)?)?;
        Some((bytes, shared.sge(self.lkey, start, len)))
    }

    /// Back to the application: the device holds it no more.
    pub(crate) fn reclaim(mut self) -> Option<Buf> {
        self.shared.take().map(Shared::reclaim)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        drop(self.shared.take().map(Shared::reclaim));
    }
}
