//! Buffers that are at home or in the device's hands, by turns.

use towpath_memory::{Buf, Lent, Shared};
use towpath_verbs::Sge;

/// A buffer for receiving, or for a header that is written before each send.
///
/// Dropping one reclaims it. That is sound at the two places where it happens: when a link's
/// queues have drained, and when the endpoint ends, whose fields drop after its device.
#[derive(Debug)]
pub(crate) struct Held(Place);

#[derive(Debug, Default)]
enum Place {
    /// Here.
    Home(Buf),
    /// With the device.
    Posted(Lent),
    /// With the application.
    #[default]
    Out,
}

impl Held {
    pub(crate) fn new(buf: Buf) -> Self {
        Self(Place::Home(buf))
    }

    /// To the device. False when the buffer is not here.
    pub(crate) fn lend(&mut self) -> bool {
        match std::mem::take(&mut self.0) {
            Place::Home(buf) => {
                self.0 = Place::Posted(buf.lend());
                true
            }
            other => {
                self.0 = other;
                false
            }
        }
    }

    /// Back from the device: only on a completion. False when the device did not have it.
    pub(crate) fn reclaim(&mut self) -> bool {
        match std::mem::take(&mut self.0) {
            Place::Posted(lent) => {
                self.0 = Place::Home(lent.reclaim());
                true
            }
            other => {
                self.0 = other;
                false
            }
        }
    }

    /// To the application, when it is here.
    pub(crate) fn take(&mut self) -> Option<Buf> {
        match std::mem::take(&mut self.0) {
            Place::Home(buf) => Some(buf),
            other => {
                self.0 = other;
                None
            }
        }
    }

    pub(crate) fn buf(&self) -> Option<&Buf> {
        match &self.0 {
            Place::Home(buf) => Some(buf),
            _ => None,
        }
    }

    pub(crate) fn buf_mut(&mut self) -> Option<&mut Buf> {
        match &mut self.0 {
            Place::Home(buf) => Some(buf),
            _ => None,
        }
    }

    pub(crate) fn is_posted(&self) -> bool {
        matches!(self.0, Place::Posted(_))
    }

    /// The entry for its first `len` bytes, while the device has it.
    pub(crate) fn sge(&self, lkey: u32, len: usize) -> Sge {
        match &self.0 {
            Place::Posted(lent) => lent.sge(lkey, 0, len),
            _ => Sge::default(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.reclaim();
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
