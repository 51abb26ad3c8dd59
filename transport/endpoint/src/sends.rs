//! What is being sent: the buffers of each message, by the link's key of it.

use smallvec::SmallVec;
use std::hint::cold_path;
use towpath_memory::{Segment, Shared};
use towpath_proto::SendKey;
use towpath_proto::limits::SEGMENTS_MAX;
use towpath_verbs::Sge;

/// The segments of one message; more than two are kept apart.
pub(crate) type Segments = SmallVec<[Segment; 2]>;

/// The segments of a message that is being sent, and the key of each one's region.
struct Sending {
    segments: Shared<Segments>,
    lkeys: [u32; SEGMENTS_MAX],
}

/// Segments of the messages of one link. A link gives the index of a key to another message only
/// after the event that took this one's segments out.
///
/// Dropping it reclaims those that the device does not hold, as with [`Held`](crate::held::Held).
#[derive(Default)]
pub(crate) struct Sends {
    places: Vec<Option<Sending>>,
}

impl Sends {
    /// Takes the segments of a message that the link has just taken: the device may have them from
    /// here on.
    pub(crate) fn put(&mut self, send: SendKey, segments: Segments, lkeys: [u32; SEGMENTS_MAX]) {
        let index = send.index();
        if self.places.len() <= index {
            cold_path();
            self.places.resize_with(index + 1, || None);
        }
        let place = &mut self.places[index];
        debug_assert!(place.is_none(), "the message before it has ended");
        *place = Some(Sending { segments: Shared::new(segments), lkeys });
    }

    /// The bytes of a piece of a segment and their gather entry; `None` where there are none.
    pub(crate) fn piece(
        &self,
        send: SendKey,
        segment: u8,
        offset: u32,
        length: u32,
    ) -> Option<(&[u8], Sge)> {
        let sending = self.places.get(send.index())?.as_ref()?;
        let lkey = *sending.lkeys.get(usize::from(segment))?;
        sending.segments.piece(usize::from(segment), offset as usize, length as usize, lkey)
    }

    /// Takes back the segments of a message that has ended.
    pub(crate) fn leave(&mut self, send: SendKey) -> Option<Segments> {
        let sending = self.places.get_mut(send.index())?.take()?;
        let segments = sending.segments.reclaim();
        debug_assert!(segments.is_ok(), "the device is done with a message that has ended");
        segments.ok()
    }
}

impl Drop for Sends {
    fn drop(&mut self) {
        let sending = self.places.drain(..).flatten();
        sending.for_each(|sending| drop(sending.segments.reclaim()));
    }
}
