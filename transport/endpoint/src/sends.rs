//! What is being sent: the buffers of each message, by the link's key of it.

use crate::growing::Grown;
use crate::payload::{PageCrcs, Payload};
use smallvec::SmallVec;
use std::cell::Cell;
use std::hint::cold_path;
use towpath_base::crc::{Crc32c, PAGE_BYTES, crc32c_then_page};
use towpath_memory::{Segment, Shared};
use towpath_proto::limits::SEGMENTS_MAX;
use towpath_proto::{PayloadRef, SendKey};
use towpath_verbs::Sge;

/// The segments of one message; more than two are kept apart.
pub(crate) type Segments = SmallVec<[Segment; 2]>;

/// The segments of a message that is being sent, and the key of each one's region.
struct Sending {
    segments: Shared<Segments>,
    lkeys: [u32; SEGMENTS_MAX],
    known: KnownCrcs,
    /// A segment behind them whose bytes come later.
    grown: Option<Box<Grown>>,
}

/// What the application knows of the last segment, or of bytes that it supplied later.
pub(crate) struct KnownCrcs {
    segment: u8,
    pages: PageCrcs,
    /// Up to where they were used. A piece is sent first behind those that were sent before, so one
    /// in front of this is sent again. Then its bytes count: if they are no longer those that the
    /// CRC is of, the receiver shall have them and see it, not refuse them for ever.
    used: Cell<u32>,
}

impl KnownCrcs {
    pub(crate) fn new(segment: u8, pages: PageCrcs) -> Self {
        Self { segment, pages, used: Cell::new(0) }
    }

    /// CRC32C of what has `front` and a piece behind it: of which segment, from where on, and its
    /// bytes. `None` where it has to be taken of these.
    pub(crate) fn behind(
        &self,
        front: u32,
        (segment, offset): (u8, u32),
        bytes: &[u8],
    ) -> Option<u32> {
        let first = offset as usize / PAGE_BYTES;
        let (pages, rest) = bytes.as_chunks::<PAGE_BYTES>();
        let known = self.pages.as_slice().get(first..first.checked_add(pages.len())?)?;
        let is_aligned = (offset as usize).is_multiple_of(PAGE_BYTES);
        let is_sent_again = offset < self.used.get();
        if segment != self.segment || known.is_empty() || !is_aligned || is_sent_again {
            return None;
        }
        self.used.set(offset.saturating_add(bytes.len() as u32));
        let mut crc = known.iter().copied().fold(front, crc32c_then_page);
        if !rest.is_empty() {
            let mut with_rest = Crc32c::resume(crc);
            with_rest.update(rest);
            crc = with_rest.value();
        }
        debug_assert_eq!(crc, of_bytes(front, bytes), "CRCs are those of the pages");
        Some(crc)
    }
}

/// The same from the bytes.
fn of_bytes(front: u32, bytes: &[u8]) -> u32 {
    let mut crc = Crc32c::resume(front);
    crc.update(bytes);
    crc.value()
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
        let Payload { segments, page_crcs: pages } = payload;
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
        if known.pages.as_slice().is_empty() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;
    use towpath_base::crc::crc32c;

    #[test]
    fn crcs_of_pages_are_used_for_pages_that_are_sent_for_the_first_time() {
        let seed = 21;
        println!("seed {seed}");
        let mut bytes = vec![0; 6 * PAGE_BYTES + 100];
        Prng::new(seed).fill(&mut bytes);
        let (pages, _) = bytes[..5 * PAGE_BYTES].as_chunks::<PAGE_BYTES>();
        let pages = pages.iter().map(|page| crc32c(page)).collect();
        let crcs = KnownCrcs { segment: 1, pages, used: Cell::new(0) };
        let find = |segment, range: std::ops::Range<usize>| {
            let front = crc32c(b"what is in front");
            let of_all = [&b"what is in front"[..], &bytes[range.clone()]].concat();
            let found = crcs.behind(front, (segment, range.start as u32), &bytes[range]);
            assert!(found.is_none_or(|crc| crc == crc32c(&of_all)), "it is of all the bytes");
            found.is_some()
        };
        assert!(!find(0, 0..4096), "of another segment");
        assert!(!find(1, 0..4095), "no whole page");
        assert!(find(1, 0..4096));
        assert!(!find(1, 0..4096), "sent again");
        assert!(!find(1, 4097..8193), "off the pages");
        assert!(find(1, 4096..12_288 + 100), "the rest has bytes");
        assert!(!find(1, 8192..16_384), "sent again in part");
        assert!(!find(1, 16_384..24_576), "the second is not known");
        assert!(find(1, 16_384..20_480));
        assert!(!find(1, 24_576..24_676), "behind what is known");
    }
}
