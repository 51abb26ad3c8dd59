//! What was supplied of a message that is sent before all of its bytes are there.

use crate::page_crcs::{KnownCrcs, PageCrcs};
use std::collections::BTreeMap;
use towpath_memory::{Segment, Shared};
use towpath_proto::SupplyError;
use towpath_verbs::Sge;

/// Bytes that were not taken for a message, with their buffer.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SupplyRejected {
    /// The buffer, unchanged.
    pub segment: Segment,
    /// Why.
    #[source]
    pub error: SupplyFault,
}

/// Why bytes were not taken for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SupplyFault {
    /// The link refuses them.
    #[error(transparent)]
    Refused(#[from] SupplyError),
    /// They lie in memory that the device does not know.
    #[error(
        "the bytes lie in a region that this endpoint does not know: register it first \
         (Endpoint::register, Segment::region), or copy the bytes (Endpoint::copy)"
    )]
    NotRegistered,
}

/// Bytes that were supplied at once.
struct Supplied {
    segment: Shared<[Segment; 1]>,
    lkey: u32,
    length: u32,
    /// What of them is not with the peer yet.
    left: u32,
    known: KnownCrcs,
}

impl Supplied {
    fn go_home(self) {
        let segment = self.segment.reclaim();
        debug_assert!(segment.is_ok(), "the device is done with what the link gives back");
    }
}

/// The segment of a message whose bytes come later, as far as they have come and have not gone
/// home, by where they begin in it.
pub(crate) struct Grown {
    segment: u8,
    pieces: BTreeMap<u32, Supplied>,
}

impl Grown {
    /// Of a segment of which nothing has come.
    pub(crate) fn new(segment: u8) -> Self {
        Self { segment, pieces: BTreeMap::new() }
    }

    /// Takes bytes that the link has just taken: the device may have them from here on.
    pub(crate) fn put(&mut self, offset: u32, segment: Segment, lkey: u32, page_crcs: PageCrcs) {
        // The link takes no more than 32 bits of length.
        let length = segment.len() as u32;
        let known = KnownCrcs::new(self.segment, page_crcs);
        let segment = Shared::new([segment]);
        let supplied = Supplied { segment, lkey, length, left: length, known };
        let before = self.pieces.insert(offset, supplied);
        debug_assert!(before.is_none(), "the link takes each byte once");
    }

    /// Where the bytes begin that were supplied together with the one at `offset`, and they.
    fn at(&self, offset: u32) -> Option<(u32, &Supplied)> {
        self.pieces.range(..=offset).next_back().map(|(&start, supplied)| (start, supplied))
    }

    /// As [`Sends::piece`](crate::sends::Sends::piece).
    pub(crate) fn piece(&self, segment: u8, offset: u32, length: u32) -> Option<(&[u8], Sge)> {
        let (start, supplied) = self.at(offset).filter(|_| segment == self.segment)?;
        let (from, length) = ((offset - start) as usize, length as usize);
        supplied.segment.piece(0, from, length, supplied.lkey)
    }

    /// As [`Sends::known_crc`](crate::sends::Sends::known_crc).
    pub(crate) fn known_crc(
        &self,
        front: u32,
        (segment, offset): (u8, u32),
        bytes: &[u8],
    ) -> Option<u32> {
        let (start, supplied) = self.at(offset)?;
        supplied.known.behind(front, (segment, offset - start), bytes)
    }

    /// So many bytes from `offset` on are with the peer: buffers of which all are go home.
    pub(crate) fn on_sent(&mut self, offset: u32, length: u32) {
        let end = offset.saturating_add(length);
        let mut at = offset;
        while at < end {
            let Some((start, all)) = self.at(at).map(|(start, all)| (start, all.length)) else {
                return;
            };
            let until = end.min(start.saturating_add(all));
            let Some(supplied) = self.pieces.get_mut(&start).filter(|_| until > at) else { return };
            supplied.left = supplied.left.saturating_sub(until - at);
            if supplied.left == 0
                && let Some(supplied) = self.pieces.remove(&start)
            {
                supplied.go_home();
            }
            at = until;
        }
    }

    /// The message has ended: all buffers go home.
    pub(crate) fn end(self) {
        self.pieces.into_values().for_each(Supplied::go_home);
    }
}
