//! Building a chunk: frames of messages that are ready together (docs/protocol.md section 3).
//!
//! Payloads lie back to back, but for those that are to begin at pages: these go first, so that
//! padding stays rare. A message that is alone makes a chunk of one frame, which has no table.

use crate::channel::{Outgoing, PieceSizes};
use crate::event::SendFrame;
use crate::limits::{
    COPIED_BYTES_MAX, COPIED_PAYLOAD_MAX, FRAME_ALIGN_BYTES, FRAME_UNIT_BYTES, FRAME_UNITS_MAX,
    FRAMES_FULL, PADDING_SHARE, PAGE_BYTES, PART_BYTES_MIN, PIECE_BYTES_MIN,
};
use crate::wire::{body_bytes, place};
use alloc::vec::Vec;

/// Units that a frame takes at most.
const UNITS_OF_FRAME: usize = 2;

/// Bytes of them.
const TABLE_ENTRY_BYTES: u32 = (UNITS_OF_FRAME * FRAME_UNIT_BYTES) as u32;

/// What a chunk may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes behind the header, of a chunk that its path bears.
    pub(super) body_max: usize,
    /// Bytes behind the header, of the longest chunk that the peer takes: no piece is longer.
    pub(super) piece_max: usize,
    /// Pieces of memory that the device gathers a body from, at most.
    pub(super) gather_max: usize,
}

/// What of a message goes into a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Take {
    /// Bytes of the piece that is cut.
    pub(super) piece: u32,
    /// Bytes of it that the chunk carries.
    pub(super) part: u32,
}

impl Take {
    /// A piece that goes whole.
    #[inline(always)]
    fn whole(piece: usize) -> Self {
        Self { piece: piece as u32, part: piece as u32 }
    }
}

/// A chunk that is being built.
#[derive(Debug)]
pub(super) struct Builder {
    bounds: Bounds,
    /// Those that begin at pages in front.
    frames: Vec<SendFrame>,
    /// How many of them do, and where the last of these ends.
    paged: usize,
    paged_end: usize,
    /// Bytes of the others, each rounded up.
    packed_bytes: usize,
    /// Units of the table, were none of them the first.
    units: usize,
    padding: usize,
    /// Pieces of memory to be gathered, but for the table.
    gathered: usize,
    /// Bytes that are copied: short payloads, and what is between payloads.
    copied: usize,
    /// The last of all is copied.
    ends_copied: bool,
}

impl Builder {
    /// An empty chunk; the memory of `frames` is used.
    #[inline]
    pub(super) fn new(bounds: Bounds, mut frames: Vec<SendFrame>) -> Self {
        frames.clear();
        Self {
            bounds,
            frames,
            paged: 0,
            paged_end: 0,
            packed_bytes: 0,
            units: 0,
            padding: 0,
            gathered: 0,
            copied: 0,
            ends_copied: false,
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The frames, in the order in which they lie in the chunk.
    pub(super) fn into_frames(self) -> Vec<SendFrame> {
        self.frames
    }

    /// Units of the table.
    #[inline]
    pub(super) fn table_units(&self) -> usize {
        let Some(first) = self.frames.first() else { return 0 };
        self.units - first.frame.units() + first.frame.units_as_first()
    }

    /// Bytes behind the header.
    #[inline]
    pub(super) fn body(&self) -> u32 {
        let places = self.frames.iter().map(|frame| &frame.frame);
        let end = places.fold(0, |end, frame| place(end, frame) + frame.length as usize);
        body_bytes(end, self.table_units()) as u32
    }

    /// Bytes behind the header with another frame of so many bytes, about.
    #[inline]
    pub(super) fn body_with(&self, length: u32) -> u32 {
        let table = (self.table_units() * FRAME_UNIT_BYTES) as u32 + TABLE_ENTRY_BYTES;
        (self.paged_end + self.packed_bytes) as u32 + length + table
    }

    /// Bytes of payload.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.frames.iter().map(|frame| u64::from(frame.frame.length)).sum()
    }

    /// Room for one more payload beside a table with its entry.
    #[inline]
    fn room(&self, at_page: bool, units: usize) -> usize {
        let table = (self.units + units) * FRAME_UNIT_BYTES;
        let align = if at_page { PAGE_BYTES } else { FRAME_ALIGN_BYTES };
        let (before, behind) = (self.paged_end.next_multiple_of(align), self.packed_bytes + table);
        (self.bounds.body_max & !(FRAME_ALIGN_BYTES - 1)).saturating_sub(before + behind)
    }

    /// How many pieces of memory a payload adds, and bytes to be copied, at most.
    #[inline]
    fn cost_of(&self, length: usize, at_page: bool) -> (usize, usize) {
        if length <= COPIED_PAYLOAD_MAX {
            let is_apart = !self.ends_copied;
            return (usize::from(is_apart), length.next_multiple_of(FRAME_ALIGN_BYTES));
        }
        if !at_page {
            return (1, FRAME_ALIGN_BYTES);
        }
        let padding = length.next_multiple_of(PAGE_BYTES) - length;
        // The short one that makes room for it may have been copied with the next.
        let parts = self.frames.get(self.paged).is_some_and(is_copied);
        (1 + usize::from(padding > 0) + usize::from(parts), padding)
    }

    /// Whether the padding before another payload that begins at a page is in proportion.
    fn may_pad(&self, length: usize) -> bool {
        let start = self.paged_end.next_multiple_of(PAGE_BYTES);
        let padding = self.padding + start - self.paged_end;
        padding <= (start + length) / PADDING_SHARE
    }

    /// Whether a frame of this length and so many units finds room.
    fn fits(&self, length: usize, at_page: bool, units: usize) -> bool {
        // And one piece for the table.
        let (pieces, copied) = self.cost_of(length, at_page);
        let table = (self.units + units) * FRAME_UNIT_BYTES;
        if self.frames.len() >= FRAMES_FULL {
            return false;
        }
        if self.units + units > FRAME_UNITS_MAX
            || self.gathered + pieces >= self.bounds.gather_max
            || self.copied + copied + table > COPIED_BYTES_MAX
        {
            return false;
        }
        length.next_multiple_of(FRAME_ALIGN_BYTES) <= self.room(at_page, units)
            && (!at_page || self.may_pad(length))
    }

    /// How many bytes of a frame find room, if any do: all, or a part.
    pub(super) fn room_for(&self, SendFrame { frame, .. }: &SendFrame) -> Option<u32> {
        let length = frame.length as usize;
        let takes_all = match self.is_empty() {
            true => body_bytes(length, frame.units_as_first()) <= self.bounds.body_max,
            false => self.fits(length, frame.at_page, frame.units()),
        };
        if takes_all { Some(frame.length) } else { self.part_of(frame.length) }
    }

    /// The length of a part for which there is room, of a frame with more.
    fn part_of(&self, length: u32) -> Option<u32> {
        let units = if self.is_empty() { 1 } else { UNITS_OF_FRAME };
        let most = (self.bounds.body_max & !(FRAME_ALIGN_BYTES - 1)) - units * FRAME_UNIT_BYTES;
        let room = if self.is_empty() { most } else { self.room(false, units) };
        let part = room.min(length as usize);
        let fits = self.is_empty() || part >= PART_BYTES_MIN && self.fits(part, false, units);
        (fits && part < length as usize).then_some(part as u32)
    }

    /// What of a message goes into the chunk, if anything does.
    #[inline]
    pub(super) fn take_of(&self, message: &Outgoing) -> Option<Take> {
        if message.grows() {
            return self.take_of_growing(message);
        }
        let rest = message.rest_of_segment() as usize;
        let Bounds { body_max, piece_max, .. } = self.bounds;
        if self.is_empty() && rest <= body_max {
            return Some(Take::whole(rest));
        }
        if body_max >= PIECE_BYTES_MIN.min(piece_max) {
            return self.whole_piece_of(message, rest);
        }
        // A path that bears little: the piece is as long as the peer takes, and goes in parts.
        let piece = rest.min(message.whole_units(piece_max));
        let is_short =
            if self.is_empty() { piece <= body_max } else { self.fits_of(message, piece) };
        if is_short {
            return Some(Take::whole(piece));
        }
        let part = self.part_of(piece as u32)?;
        Some(Take { piece: piece as u32, part })
    }

    /// The same of a segment that is supplied while it is sent, as far as it is there.
    #[cold]
    fn take_of_growing(&self, message: &Outgoing) -> Option<Take> {
        let sizes = message.growing.as_ref()?.sizes;
        let next = message.next_grown()?;
        let there = next.until - next.from;
        let Some(end) = next.end else {
            let rest = message.rest_of_growing(&next);
            return self.take_at_frontier(message, (rest, there), sizes);
        };
        let piece = end - next.start;
        if there == piece { self.whole_or_part(message, piece) } else { self.part_in(piece, there) }
    }

    /// The next piece of a segment that grows when all bytes before it are supplied: so many bytes
    /// are there of the `rest` of the segment.
    fn take_at_frontier(
        &self,
        message: &Outgoing,
        (rest, there): (u32, u32),
        sizes: PieceSizes,
    ) -> Option<Take> {
        let whole_units = |bytes: u32| bytes & !(sizes.unit - 1);
        let ends_it = there == rest;
        let Bounds { body_max, piece_max, .. } = self.bounds;
        if whole_units(there) < sizes.shortest && !ends_it {
            // Few bytes: what follows belongs to the same piece.
            let piece = sizes.shortest.min(rest);
            return self.part_in(piece, there);
        }
        if ends_it && there as usize <= if self.is_empty() { body_max } else { piece_max } {
            return self.whole_or_part(message, there);
        }
        let (most, body_max) = (whole_units(there).min(sizes.longest), body_max as u32);
        let most = if body_max >= sizes.shortest { most.min(whole_units(body_max)) } else { most };
        // What is left is to be a piece as well.
        let left = there - most;
        let leaves_little = left > 0 && left < sizes.shortest && !ends_it;
        let less = whole_units(there - sizes.shortest.min(there));
        let piece = if leaves_little && less >= sizes.shortest { most.min(less) } else { most };
        self.whole_or_part(message, piece)
    }

    /// A piece of a growing segment that is there: whole, or what of it finds room.
    fn whole_or_part(&self, message: &Outgoing, piece: u32) -> Option<Take> {
        let fits = match self.is_empty() {
            true => piece as usize <= self.bounds.body_max,
            false => self.fits_of(message, piece as usize),
        };
        if fits {
            return Some(Take::whole(piece as usize));
        }
        let Bounds { body_max, piece_max, .. } = self.bounds;
        if !self.is_empty() && body_max >= PIECE_BYTES_MIN.min(piece_max) {
            // The next chunk has room for all of it.
            return None;
        }
        self.part_of(piece).map(|part| Take { piece, part })
    }

    /// What finds room of a piece of which so many bytes are there.
    fn part_in(&self, piece: u32, there: u32) -> Option<Take> {
        let fits = match self.is_empty() {
            true => body_bytes(there as usize, 1) <= self.bounds.body_max,
            false => self.fits(there as usize, false, UNITS_OF_FRAME),
        };
        let part = if fits { Some(there) } else { self.part_of(there) };
        part.map(|part| Take { piece, part })
    }

    /// A piece that goes whole into a chunk that is long enough.
    #[inline]
    fn whole_piece_of(&self, message: &Outgoing, rest: usize) -> Option<Take> {
        if self.is_empty() {
            let first = message.whole_units(self.bounds.body_max).min(rest);
            return Some(Take::whole(first));
        }
        if self.fits_of(message, rest) {
            return Some(Take::whole(rest));
        }
        // What fills the chunk.
        let room = self.room(message.is_at_page(rest), UNITS_OF_FRAME);
        let piece = message.whole_units(room);
        let is_worth_it = piece >= PIECE_BYTES_MIN && piece < rest;
        let fits = is_worth_it && self.fits_of(message, piece);
        fits.then_some(Take::whole(piece))
    }

    /// Whether a whole piece of a message finds room.
    #[inline]
    fn fits_of(&self, message: &Outgoing, length: usize) -> bool {
        let units = if length == message.message_len as usize { 1 } else { UNITS_OF_FRAME };
        self.fits(length, message.is_at_page(length), units)
    }

    /// Adds the first bytes of a frame, for which there is room. What is left of it.
    #[inline]
    pub(super) fn add_part(&mut self, mut frame: SendFrame, length: u32) -> Option<SendFrame> {
        let rest = if length < frame.frame.length { Some(frame.split_off(length)) } else { None };
        self.add(frame);
        rest
    }

    /// Adds a frame for which there is room.
    #[inline]
    fn add(&mut self, frame: SendFrame) {
        let (length, at_page) = (frame.frame.length as usize, frame.frame.at_page);
        let (pieces, copied) = self.cost_of(length, at_page);
        self.units += frame.frame.units();
        self.gathered += pieces;
        self.copied += copied;
        self.frames.push(frame);
        if at_page {
            let start = self.paged_end.next_multiple_of(PAGE_BYTES);
            self.padding += start - self.paged_end;
            self.paged_end = start + length;
            // In front of the others, whose order means nothing.
            let last = self.frames.len() - 1;
            self.frames.swap(self.paged, last);
            self.paged += 1;
        } else {
            self.packed_bytes += length.next_multiple_of(FRAME_ALIGN_BYTES);
        }
        self.ends_copied = self.frames.last().is_some_and(is_copied);
    }
}

fn is_copied(frame: &SendFrame) -> bool {
    frame.frame.length as usize <= COPIED_PAYLOAD_MAX
}

#[cfg(test)]
mod tests;
