//! What is being sent: the buffers of each message, by the link's key of it.

use crate::growing::Grown;
use crate::page_crcs::{KnownCrcs, PageCrcs};
use crate::payload::{Payload, Segments};
use std::hint::cold_path;
use towpath_memory::{Segment, Shared};
use towpath_proto::limits::SEGMENTS_MAX;
use towpath_proto::{PayloadRef, SendKey};
use towpath_verbs::Sge;

/// The segments of a message that is being sent, and the key of each one's region.
struct Sending {
    segments: Shared<Segments>,
    lkeys: [u32; SEGMENTS_MAX],
    known: KnownCrcs,
    /// A segment behind them whose bytes come later.
    grown: Option<Box<Grown>>,
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
    pub(crate) fn put(
        &mut self,
        send: SendKey,
        payload: Payload,
        (lkeys, grows): ([u32; SEGMENTS_MAX], bool),
    ) {
        let index = send.index();
        if self.places.len() <= index {
            cold_path();
            self.places.resize_with(index + 1, || None);
        }
        let place = &mut self.places[index];
        debug_assert!(place.is_none(), "the message before it has ended");
        let Payload { segments, page_crcs: pages, .. } = payload;
        let segment = segments.len().saturating_sub(1) as u8;
        let known = KnownCrcs::new(segment, pages);
        let grown = grows.then(|| Box::new(Grown::new(segments.len() as u8)));
        *place = Some(Sending { segments: Shared::new(segments), lkeys, known, grown });
    }

    fn grown_mut(&mut self, send: SendKey) -> Option<&mut Grown> {
        self.places.get_mut(send.index())?.as_mut()?.grown.as_deref_mut()
    }

    /// Takes bytes of a message that the link has just taken.
    pub(crate) fn supply(
        &mut self,
        send: SendKey,
        offset: u32,
        segment: Segment,
        (lkey, page_crcs): (u32, PageCrcs),
    ) {
        let grown = self.grown_mut(send);
        debug_assert!(grown.is_some(), "the link knows which messages grow");
        if let Some(grown) = grown {
            grown.put(offset, segment, lkey, page_crcs);
        }
    }

    /// Bytes that were supplied are with the peer.
    pub(crate) fn on_piece_sent(&mut self, send: SendKey, offset: u32, length: u32) {
        if let Some(grown) = self.grown_mut(send) {
            grown.on_sent(offset, length);
        }
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
        let (index, start, len) = (usize::from(segment), offset as usize, length as usize);
        let found = sending.segments.piece(index, start, len, lkey);
        found.or_else(|| sending.grown.as_ref()?.piece(segment, offset, length))
    }

    /// CRC32C of what has `front` and a piece behind it, whose bytes these are, where that follows
    /// from what the application knows of it.
    #[inline]
    pub(crate) fn known_crc(&self, front: u32, piece: &PayloadRef, bytes: &[u8]) -> Option<u32> {
        let Sending { known, grown, .. } = self.places.get(piece.send.index())?.as_ref()?;
        if let Some(grown) = grown {
            cold_path();
            return grown.known_crc(front, (piece.segment, piece.offset), bytes);
        }
        if known.is_empty() {
            return None;
        }
        known.behind(front, (piece.segment, piece.offset), bytes)
    }

    /// Takes back the segments of a message that has ended.
    pub(crate) fn leave(&mut self, send: SendKey) -> Option<Segments> {
        let sending = self.places.get_mut(send.index())?.take()?;
        if let Some(grown) = sending.grown {
            grown.end();
        }
        let segments = sending.segments.reclaim();
        debug_assert!(segments.is_ok(), "the device is done with a message that has ended");
        segments.ok()
    }
}

impl Drop for Sends {
    fn drop(&mut self) {
        let sending = self.places.drain(..).flatten();
        sending.for_each(|sending| {
            drop(sending.segments.reclaim());
            if let Some(grown) = sending.grown {
                grown.end();
            }
        });
    }
}
