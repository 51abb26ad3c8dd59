//! A message whose last segment is supplied while it is being sent, in any order.
//!
//! The receiver knows pieces by their indices, which count up with their offsets. So what is cut in
//! front of bytes that are not there reserves indices for these: the gap is divided into pieces
//! that are cut once bytes of them are supplied. A piece of which some bytes are there goes in
//! parts; one whose bytes were supplied at once goes whole.

use super::outgoing::unit_of;
use super::spans::Spans;
use crate::limits::PIECE_BYTES_MIN;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Supplied ranges of a message may be as many as there are spans of so many bytes in it, and
/// [`SUPPLIES_FEW`] more: each is a frame at least, and short frames cost both ends.
const SUPPLY_BYTES_MEAN: u32 = 512;

/// See [`SUPPLY_BYTES_MEAN`].
const SUPPLIES_FEW: u32 = 16;

/// Why bytes of a growing message were not taken. Nothing of the message changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SupplyError {
    /// The message has its outcome, or was given up.
    #[error("the message has ended, or was given up")]
    Ended,
    /// It was sent with all of its bytes.
    #[error("the message was sent with all of its bytes")]
    NotGrowing,
    /// Empty, or not within what is still to come.
    #[error("the bytes are none of the {len} that were to come later")]
    OutOfRange {
        /// Bytes that come later, in all.
        len: u32,
    },
    /// Some of the bytes were supplied before.
    #[error("some of the bytes were supplied before")]
    Overlap,
    /// It does not begin at a multiple of 8 bytes, or does not end at one or with the message.
    #[error("pieces begin at multiples of 8 bytes, and end there or with the message")]
    Misaligned,
    /// The message is supplied in too many short pieces.
    #[error("the message was supplied in {max} pieces; supply longer ones")]
    TooMany {
        /// How many it may be.
        max: u32,
    },
}

/// How long pieces are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceSizes {
    /// Of one that does not end the segment, at least.
    pub(crate) shortest: u32,
    /// Of one in a gap, at most.
    pub(crate) longest: u32,
    /// They begin at multiples of this in their segment.
    pub(crate) unit: u32,
}

impl PieceSizes {
    /// Where the longest piece that both ends take has `piece_max` bytes. Those that are to begin
    /// `at_pages` are made of whole ones.
    pub(crate) fn new(piece_max: u32, at_pages: bool) -> Self {
        let unit = unit_of(at_pages, piece_max as usize) as u32;
        let longest = piece_max & !(unit - 1);
        Self { shortest: (PIECE_BYTES_MIN as u32).min(longest), longest, unit }
    }
}

/// The next piece that may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    pub(crate) index: u32,
    /// Where the piece begins, and where it ends if that is settled.
    pub(crate) start: u32,
    pub(crate) end: Option<u32>,
    /// The first of its bytes that are there, which were supplied together.
    pub(crate) from: u32,
    pub(crate) until: u32,
}

/// A piece that has an index and has not come home.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u32,
    end: u32,
    index: u32,
    is_cut: bool,
    /// Bytes of it that are in no frame.
    missing: u32,
    /// Work requests with bytes of it that the device has not returned.
    posted: u32,
}

impl Piece {
    fn new(start: u32, end: u32, index: u32) -> Self {
        Self { start, end, index, is_cut: false, missing: end - start, posted: 0 }
    }
}

/// What is known of the segment that grows. Offsets are within it.
#[derive(Debug)]
pub(crate) struct Growing {
    /// Which segment, where it begins in the message, and its bytes.
    pub(crate) segment: u8,
    pub(crate) first: u32,
    len: u32,
    pub(crate) sizes: PieceSizes,
    /// What was supplied.
    have: Spans,
    supplies: u32,
    /// What was supplied and is in no cut piece, as it was supplied.
    ready: BTreeMap<u32, u32>,
    ready_bytes: u32,
    /// In the order of offsets, which is that of indices.
    pieces: Vec<Piece>,
    /// Up to where pieces have indices, and the next index.
    frontier: u32,
    next_index: u32,
    /// Credit that it may hold at the receiver until more is supplied, as the channel counts it.
    pub(crate) held: u32,
    /// The receiver may hold the message until it is whole.
    held_whole: bool,
}

impl Growing {
    pub(crate) fn new(
        (segment, first, len): (u8, u32, u32),
        sizes: PieceSizes,
        held_whole: bool,
    ) -> Self {
        Self {
            segment,
            first,
            len,
            sizes,
            have: Spans::default(),
            supplies: 0,
            ready: BTreeMap::new(),
            ready_bytes: 0,
            pieces: Vec::new(),
            frontier: 0,
            next_index: 0,
            held: 0,
            held_whole,
        }
    }

    /// Whether all of it was supplied.
    pub(crate) fn is_supplied(&self) -> bool {
        self.have.bytes() == self.len
    }

    /// Bytes that are at hand and in no piece.
    pub(crate) fn ready_bytes(&self) -> u32 {
        self.ready_bytes
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Takes bytes in. What of them belongs to pieces that are cut already goes to `late`: piece,
    /// index, and which bytes.
    pub(crate) fn supply(
        &mut self,
        (offset, length): (u32, u32),
        mut late: impl FnMut(Range<u32>, u32, Range<u32>),
    ) -> Result<(), SupplyError> {
        let end = self.check(offset, length)?;
        self.supplies += 1;
        self.have.insert(offset..end);
        // Those that are cut and have bytes of it.
        let mut at = offset;
        let first = self.pieces.partition_point(|piece| piece.end <= offset);
        let mut others = Vec::new();
        for piece in &mut self.pieces[first..] {
            if piece.start >= end {
                break;
            }
            if piece.is_cut {
                let (from, until) = (at.max(piece.start), end.min(piece.end));
                piece.missing -= until - from;
                late(piece.start..piece.end, piece.index, from..until);
                others.push((at, from));
                at = until;
            }
        }
        for (from, until) in others {
            self.add_ready(from, until);
        }
        self.add_ready(at, end);
        Ok(())
    }

    fn check(&self, offset: u32, length: u32) -> Result<u32, SupplyError> {
        let end = offset.checked_add(length).filter(|&end| length > 0 && end <= self.len);
        let end = end.ok_or(SupplyError::OutOfRange { len: self.len })?;
        let is_aligned = |at: u32| at.is_multiple_of(crate::limits::FRAME_ALIGN_BYTES as u32);
        if !is_aligned(offset) || !(is_aligned(end) || end == self.len) {
            return Err(SupplyError::Misaligned);
        }
        if self.have.has_any(offset..end) {
            return Err(SupplyError::Overlap);
        }
        let max = SUPPLIES_FEW + self.len / SUPPLY_BYTES_MEAN;
        if self.supplies == max {
            return Err(SupplyError::TooMany { max });
        }
        Ok(end)
    }

    fn add_ready(&mut self, from: u32, until: u32) {
        if from < until {
            self.ready.insert(from, until);
            self.ready_bytes += until - from;
        }
    }

    /// Where the gap before `until` ends in whole pieces, and how many these are.
    fn gap(&self, until: u32) -> (u32, u32) {
        let sizes = self.sizes;
        let end = until.next_multiple_of(sizes.unit).min(self.len);
        let (gap, longest) = (end - self.frontier, sizes.longest);
        let (count, rest) = (gap.div_ceil(longest), gap % longest);
        let short = if rest == 0 { 0 } else { sizes.shortest.saturating_sub(rest) };
        ((end + short).min(self.len), count)
    }

    /// The next piece that may be cut; of the message so many pieces are.
    pub(crate) fn next(&self, pieces_cut: u32) -> Option<Next> {
        let (&from, &until) = self.ready.first_key_value()?;
        if from < self.frontier {
            let place = self.pieces.partition_point(|piece| piece.start <= from);
            let &Piece { start, end, index, .. } = self.pieces.get(place.checked_sub(1)?)?;
            return Some(Next { index, start, end: Some(end), from, until: until.min(end) });
        }
        let next_index = self.next_index(pieces_cut);
        if from == self.frontier {
            return Some(Next { index: next_index, start: from, end: None, from, until });
        }
        let (end, count) = self.gap(from);
        if from == end {
            return Some(Next { index: next_index + count, start: from, end: None, from, until });
        }
        let start = self.frontier + (count - 1) * self.sizes.longest;
        let (index, until) = (next_index + count - 1, until.min(end));
        Some(Next { index, start, end: Some(end), from, until })
    }

    /// The index of a piece at the frontier. Those before the segment were cut one by one.
    fn next_index(&self, pieces_cut: u32) -> u32 {
        if self.frontier == 0 { pieces_cut } else { self.next_index }
    }

    /// The lowest index of which bytes are missing, or that is not cut.
    fn lowest(&self, pieces_cut: u32) -> u32 {
        let missing = self.pieces.iter().find(|piece| piece.missing > 0);
        missing.map_or_else(|| self.next_index(pieces_cut), |piece| piece.index)
    }

    /// Whether all bytes of the piece are there that begins at `start`, and ends as it does.
    pub(crate) fn is_there(&self, start: u32, end: Option<u32>) -> bool {
        let end = end.unwrap_or_else(|| self.len.min(start + self.sizes.shortest));
        self.have.has(start..end)
    }

    /// Credit that the receiver may have to keep until more is supplied: of what it hands out in
    /// order, for all behind the first piece that is missing.
    pub(crate) fn may_hold(&self, pieces_cut: u32) -> u32 {
        if self.held_whole { pieces_cut } else { pieces_cut - self.lowest(pieces_cut) }
    }

    /// The same once the piece with this index is cut as well, all or not all of which is there.
    pub(crate) fn may_hold_with(&self, index: u32, is_there: bool, pieces_cut: u32) -> u32 {
        let fills = is_there && index == self.lowest(pieces_cut);
        // What follows the first gap may follow it without another.
        self.may_hold(pieces_cut) + u32::from(self.held_whole || !fills)
    }

    /// Cuts the `next` piece, which ends at `end`. The bytes of it that are there go to `there`.
    pub(crate) fn cut(
        &mut self,
        next: Next,
        end: u32,
        pieces_cut: u32,
        mut there: impl FnMut(Range<u32>),
    ) {
        self.next_index = self.next_index(pieces_cut);
        if next.from > self.frontier {
            self.reserve(next.from);
        }
        if next.start == self.frontier {
            self.pieces.push(Piece::new(next.start, end, next.index));
            (self.frontier, self.next_index) = (end, next.index + 1);
        }
        let mut missing = end - next.start;
        while let Some((&from, &until)) = self.ready.range(next.start..end).next() {
            self.ready.remove(&from);
            if until > end {
                self.ready.insert(end, until);
            }
            let until = until.min(end);
            (self.ready_bytes, missing) =
                (self.ready_bytes - (until - from), missing - (until - from));
            there(from..until);
        }
        if let Some(piece) = self.piece_mut(next.index) {
            (piece.is_cut, piece.missing) = (true, missing);
        }
    }

    /// Gives indices to the pieces of the gap before `until`.
    fn reserve(&mut self, until: u32) {
        let (end, _) = self.gap(until);
        while self.frontier < end {
            let piece_end = (self.frontier + self.sizes.longest).min(end);
            self.pieces.push(Piece::new(self.frontier, piece_end, self.next_index));
            (self.frontier, self.next_index) = (piece_end, self.next_index + 1);
        }
    }

    fn place_of(&self, index: u32) -> Option<usize> {
        self.pieces.binary_search_by_key(&index, |piece| piece.index).ok()
    }

    fn piece_mut(&mut self, index: u32) -> Option<&mut Piece> {
        let place = self.place_of(index)?;
        self.pieces.get_mut(place)
    }

    /// A work request with bytes of a piece is at the device.
    pub(crate) fn on_posted(&mut self, index: u32) {
        if let Some(piece) = self.piece_mut(index) {
            piece.posted += 1;
        }
    }

    pub(crate) fn on_returned(&mut self, index: u32) {
        if let Some(piece) = self.piece_mut(index) {
            piece.posted = piece.posted.saturating_sub(1);
        }
    }

    /// A piece that is acknowledged and that the device does not hold: where it begins, and its
    /// length. Once.
    pub(crate) fn take_home(&mut self, index: u32) -> Option<(u32, u32)> {
        let place = self.place_of(index)?;
        self.pieces.get(place).filter(|piece| piece.posted == 0)?;
        let Piece { start, end, .. } = self.pieces.remove(place);
        Some((start, end - start))
    }
}

#[cfg(test)]
mod tests;
