//! The segments of messages being sent, by the link's key of each.

use crate::held::Segment;
use smallvec::SmallVec;
use std::collections::VecDeque;
use towpath_proto::{Event, SendKey};

/// The segments of one message; more than two are kept apart.
pub(crate) type Segments = SmallVec<[Segment; 2]>;

/// No place.
const NONE: u32 = u32::MAX;

/// Segments of the messages of one link, and events of the link that had to be taken early.
///
/// A link may give the index of a key to a new message as soon as it has *queued* the Sent event
/// of the old one. So when a new message meets an occupied index, the link's events are taken
/// first, each with the place of its segments, and wait in `early`.
#[derive(Default)]
pub(crate) struct Sends {
    /// The place of each live message, by [`SendKey::index`].
    places: Vec<u32>,
    segments: Vec<Segments>,
    free: Vec<u32>,
    early: VecDeque<(Event, u32)>,
}

impl Sends {
    pub(crate) fn is_occupied(&self, send: SendKey) -> bool {
        self.places.get(send.index()).is_some_and(|&place| place != NONE)
    }

    /// The place, empty, for the segments of a message whose index is not occupied.
    pub(crate) fn place(&mut self, send: SendKey) -> &mut Segments {
        let index = send.index();
        if self.places.len() <= index {
            self.places.resize(index + 1, NONE);
        }
        debug_assert_eq!(self.places[index], NONE, "the caller made room");
        let place = self.free.pop().unwrap_or_else(|| {
            self.segments.push(Segments::new());
            self.segments.len() as u32 - 1
        });
        self.places[index] = place;
        &mut self.segments[place as usize]
    }

    pub(crate) fn get(&self, send: SendKey) -> &[Segment] {
        let place = self.places.get(send.index()).copied().unwrap_or(NONE);
        self.segments.get(place as usize).map_or(&[], |segments| &segments[..])
    }

    /// An event of the link that is not told yet; a Sent event frees its index here.
    pub(crate) fn put_early(&mut self, event: Event) {
        let place = self.leave(&event);
        self.early.push_back((event, place));
    }

    /// The next event, and the place of its message's segments.
    pub(crate) fn next(&mut self, poll: impl FnOnce() -> Option<Event>) -> Option<(Event, u32)> {
        if let Some(early) = self.early.pop_front() {
            return Some(early);
        }
        let event = poll()?;
        let place = self.leave(&event);
        Some((event, place))
    }

    fn leave(&mut self, event: &Event) -> u32 {
        let Event::Sent { send, .. } = event else { return NONE };
        match self.places.get_mut(send.index()) {
            Some(place) => std::mem::replace(place, NONE),
            None => NONE,
        }
    }

    /// The segments at a place, to be taken out: the place is free from now on.
    pub(crate) fn leave_place(&mut self, place: u32) -> Option<&mut Segments> {
        let segments = self.segments.get_mut(place as usize)?;
        self.free.push(place);
        Some(segments)
    }
}
