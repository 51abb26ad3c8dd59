//! The segments of messages being sent, by the link's key of each.

use crate::held::Segment;
use smallvec::SmallVec;
use towpath_proto::SendKey;

/// The segments of one message; more than two are kept apart.
pub(crate) type Segments = SmallVec<[Segment; 2]>;

/// Segments of the messages of one link. A link gives the index of a key to another message only
/// after the event that took this one's segments out.
#[derive(Default)]
pub(crate) struct Sends {
    places: Vec<Segments>,
}

impl Sends {
    /// The place for the segments of a message that the link has just taken.
    pub(crate) fn place(&mut self, send: SendKey) -> &mut Segments {
        let index = send.index();
        if self.places.len() <= index {
            self.places.resize_with(index + 1, Segments::new);
        }
        let place = &mut self.places[index];
        debug_assert!(place.is_empty(), "the message before it has ended");
        place
    }

    pub(crate) fn get(&self, send: SendKey) -> &[Segment] {
        self.places.get(send.index()).map_or(&[], |segments| &segments[..])
    }

    /// The segments of a message that has ended, to be taken out.
    pub(crate) fn leave(&mut self, send: SendKey) -> Option<&mut Segments> {
        self.places.get_mut(send.index())
    }
}
