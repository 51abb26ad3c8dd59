//! A message being received.

use super::runs::{Misfit, Runs};
use super::spans::Spans;
use crate::event::{BufToken, ChunkRef};
use crate::limits::CHUNK_WINDOW;
use crate::wire::Frame;
use alloc::vec::Vec;
use core::hint::cold_path;

/// How the application gets a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// All of it at once.
    #[default]
    Whole,
    /// Piece by piece, in order.
    InOrder,
    /// Piece by piece in any order, unless all of it has come when the application looks.
    AsItComes,
}

/// Where a message being received is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits for more of it, or for its turn.
    #[default]
    Open,
    /// The same, and pieces wait to be handed to a reader that takes them as they come.
    Listed,
    /// Two of its pieces contradict each other: it is to be dropped.
    Broken,
    /// Handed to the application whole; waits to be taken.
    Delivered,
}

/// A message being received. Lives in a slot that keeps its memory for the next one.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    pub(crate) channel: u32,
    pub(crate) id: u64,
    pub(crate) message_len: u32,
    pub(crate) reading: Reading,
    pub(crate) stage: Stage,
    /// Pieces that are held, in order of arrival.
    pub(crate) chunks: Vec<ChunkRef>,
    /// Pieces of which parts are held.
    partials: Vec<Partial>,
    /// Which pieces came whole, and how many bytes they have.
    came: Runs,
    bytes_received: u32,
    /// How many pieces a streaming reader was given.
    handed_out: u32,
}

/// A piece that comes in parts, which are put together in a buffer of its own.
#[derive(Debug)]
pub(crate) struct Partial {
    index: u32,
    /// Where the piece begins in the message.
    offset: u32,
    pub(crate) piece_len: u32,
    pub(crate) parts: Spans,
    pub(crate) buf: BufToken,
}

impl Incoming {
    /// Begins a new life of the slot.
    pub(crate) fn start(&mut self, channel: u32, id: u64, message_len: u32, reading: Reading) {
        // Field by field: a whole new value would be built aside and then copied.
        (self.channel, self.id, self.message_len) = (channel, id, message_len);
        (self.reading, self.stage) = (reading, Stage::Open);
        self.chunks.clear();
        self.partials.clear();
        self.came.clear();
        (self.bytes_received, self.handed_out) = (0, 0);
    }

    /// Whether all of the piece came before. One that is too far ahead is a misfit.
    #[inline(always)]
    pub(crate) fn has(&self, index: u32) -> Result<bool, Misfit> {
        let end = u64::from(self.came.first_missing()) + CHUNK_WINDOW;
        if u64::from(index) < end { Ok(self.came.has(index)) } else { Err(Misfit) }
    }

    /// Takes in a piece that [`has`](Self::has) said is new. One for which there is no room is a
    /// misfit and changes nothing; one that contradicts others breaks the message.
    #[inline(always)]
    pub(crate) fn accept(&mut self, chunk: ChunkRef) -> Result<(), Misfit> {
        self.check_room(chunk.index, chunk.length)?;
        if self.came.insert(chunk.index, chunk.offset, chunk.length).is_err() {
            cold_path();
            self.stage = Stage::Broken;
        }
        self.bytes_received += chunk.length;
        self.chunks.push(chunk);
        Ok(())
    }

    /// Whether a piece has room beside all others of which anything came: so nothing is held in
    /// parts of a message that is complete.
    #[inline(always)]
    fn check_room(&self, index: u32, length: u32) -> Result<(), Misfit> {
        let others = if self.partials.is_empty() { 0 } else { self.partial_bytes_beside(index) };
        let bytes = u64::from(self.bytes_received) + others + u64::from(length);
        if bytes > u64::from(self.message_len) {
            cold_path();
            return Err(Misfit);
        }
        Ok(())
    }

    /// Bytes of the pieces that are held in parts, but for the one with this index.
    #[inline(never)]
    fn partial_bytes_beside(&self, index: u32) -> u64 {
        let others = self.partials.iter().filter(|partial| partial.index != index);
        others.map(|partial| u64::from(partial.piece_len)).sum()
    }

    /// The piece of which a frame carries a part, as far as it is held; `None` when nothing of it
    /// is. A frame that says something else of the piece is a misfit.
    #[inline]
    pub(crate) fn partial(&mut self, frame: &Frame) -> Result<Option<&mut Partial>, Misfit> {
        if self.partials.is_empty() {
            return Ok(None);
        }
        self.partial_among(frame)
    }

    #[inline(never)]
    fn partial_among(&mut self, frame: &Frame) -> Result<Option<&mut Partial>, Misfit> {
        let mut partials = self.partials.iter_mut();
        let Some(partial) = partials.find(|partial| partial.index == frame.index) else {
            return Ok(None);
        };
        let says = (frame.piece_offset(), frame.piece_len);
        let is_same = says == (partial.offset, partial.piece_len);
        if is_same { Ok(Some(partial)) } else { Err(Misfit) }
    }

    /// Whether parts of a piece are held, and not all of it.
    #[inline]
    pub(crate) fn is_partial(&self, index: u32) -> bool {
        !self.partials.is_empty() && self.partials.iter().any(|partial| partial.index == index)
    }

    /// Whether a frame carries a part of a piece that is held.
    #[inline]
    pub(crate) fn has_part(&mut self, frame: &Frame) -> Result<bool, Misfit> {
        let partial = self.partial(frame)?;
        Ok(partial.is_some_and(|partial| partial.parts.has(frame.part())))
    }

    /// Begins to put a piece together in `buf`, of which a frame carries the first part to come.
    pub(crate) fn begin_partial(&mut self, frame: &Frame, buf: BufToken) -> Result<(), Misfit> {
        self.check_room(frame.index, frame.piece_len)?;
        self.partials.push(Partial {
            index: frame.index,
            offset: frame.piece_offset(),
            piece_len: frame.piece_len,
            parts: Spans::default(),
            buf,
        });
        Ok(())
    }

    /// Ends putting a piece together: its buffer, if parts of it were held.
    #[inline]
    pub(crate) fn end_partial(&mut self, index: u32) -> Option<BufToken> {
        if self.partials.is_empty() {
            return None;
        }
        let at = self.partials.iter().position(|partial| partial.index == index)?;
        Some(self.partials.swap_remove(at).buf)
    }

    /// Ends putting pieces together: their buffers.
    pub(crate) fn drain_partials(&mut self) -> impl Iterator<Item = BufToken> {
        self.partials.drain(..).map(|partial| partial.buf)
    }

    /// How many pieces of it came, whole or in part, each of which used a credit.
    pub(crate) fn pieces_begun(&self) -> u32 {
        self.handed_out + (self.chunks.len() + self.partials.len()) as u32
    }

    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.bytes_received == self.message_len
    }

    /// Puts the pieces of a complete message in order.
    #[inline]
    pub(crate) fn arrange(&mut self) {
        if !self.chunks.is_sorted_by_key(|chunk| chunk.index) {
            cold_path();
            self.chunks.sort_unstable_by_key(|chunk| chunk.index);
        }
    }

    /// The next piece for a streaming reader, if it is there; true beside it when it is the last.
    pub(crate) fn next_in_stream(&mut self) -> Option<(ChunkRef, bool)> {
        let at = self.chunks.iter().position(|chunk| chunk.index == self.handed_out)?;
        let chunk = self.chunks.swap_remove(at);
        self.handed_out += 1;
        Some((chunk, chunk.offset + chunk.length == self.message_len))
    }

    /// The pieces that are held, for a reader that takes them as they come.
    pub(crate) fn hand_out(&mut self) -> impl ExactSizeIterator<Item = ChunkRef> {
        self.handed_out += self.chunks.len() as u32;
        self.chunks.drain(..)
    }

    /// Whether a streaming reader was given some of it.
    pub(crate) fn stream_begun(&self) -> bool {
        self.handed_out > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(index: u32, offset: u32, length: u32) -> ChunkRef {
        ChunkRef { buf: BufToken(index), start: 0, index, offset, length }
    }

    fn message(len: u32, reading: Reading) -> Incoming {
        let mut message = Incoming::default();
        message.start(0, 0, len, reading);
        message
    }

    #[test]
    fn chunks_in_any_order_make_the_message_and_duplicates_are_known() {
        let mut message = message(30, Reading::Whole);
        for (index, offset) in [(2, 20), (0, 0), (1, 10)] {
            assert_eq!(message.has(index), Ok(false));
            message.accept(chunk(index, offset, 10)).unwrap();
            assert_eq!(message.has(index), Ok(true));
        }
        assert!(message.is_complete());
        message.arrange();
        assert!(message.chunks.iter().map(|c| c.index).eq(0..3));
    }

    #[test]
    fn what_came_in_order_is_known_after_one_that_did_not_in_every_life_of_the_slot() {
        let mut message = Incoming::default();
        for len in [50, 60] {
            message.start(0, 0, len, Reading::Whole);
            let window = CHUNK_WINDOW as u32;
            for index in 0..2 {
                assert_eq!(message.has(index + window - 1), Ok(false));
                assert_eq!(message.has(index + window), Err(Misfit));
                message.accept(chunk(index, index * 10, 10)).unwrap();
            }
            assert_eq!(
                (message.has(0), message.has(1), message.has(2)),
                (Ok(true), Ok(true), Ok(false))
            );
            message.accept(chunk(3, 30, 10)).unwrap();
            let known = [0, 1, 2, 3, 4].map(|index| message.has(index));
            assert_eq!(known, [Ok(true), Ok(true), Ok(false), Ok(true), Ok(false)]);
            assert_eq!(message.has(window + 2), Err(Misfit));
            message.accept(chunk(2, 20, 10)).unwrap();
            message.accept(chunk(4, 40, len - 40)).unwrap();
            message.arrange();
            assert!(message.chunks.iter().map(|c| c.index).eq(0..5));
        }
    }

    #[test]
    fn chunks_that_overlap_or_leave_a_hole_never_make_a_message() {
        let mut overlapping = message(30, Reading::Whole);
        for (index, offset) in [(0, 0), (1, 5), (2, 20)] {
            overlapping.accept(chunk(index, offset, 10)).unwrap();
        }
        assert!(overlapping.is_complete());
        assert_eq!(overlapping.stage, Stage::Broken);
        let mut too_many = message(15, Reading::Whole);
        too_many.accept(chunk(0, 0, 10)).unwrap();
        assert_eq!(too_many.accept(chunk(1, 10, 10)), Err(Misfit));
    }

    #[test]
    fn a_stream_is_read_in_order_as_far_as_it_came() {
        let mut message = message(30, Reading::InOrder);
        message.accept(chunk(1, 10, 10)).unwrap();
        assert_eq!(message.next_in_stream(), None);
        message.accept(chunk(0, 0, 10)).unwrap();
        assert_eq!(message.next_in_stream(), Some((chunk(0, 0, 10), false)));
        assert_eq!(message.next_in_stream(), Some((chunk(1, 10, 10), false)));
        assert_eq!(message.next_in_stream(), None);
        message.accept(chunk(2, 20, 10)).unwrap();
        assert_eq!(message.next_in_stream(), Some((chunk(2, 20, 10), true)));
    }

    #[test]
    fn a_whole_stream_that_skips_an_index_is_a_misfit_and_waits_for_nothing() {
        let mut message = message(30, Reading::InOrder);
        message.accept(chunk(0, 0, 10)).unwrap();
        message.accept(chunk(2, 10, 20)).unwrap();
        assert_eq!(message.stage, Stage::Broken);
    }

    #[test]
    fn pieces_that_are_taken_as_they_come_must_make_the_message() {
        let mut good = message(30, Reading::AsItComes);
        for (index, offset) in [(2, 20), (0, 0), (1, 10)] {
            assert!(!good.stream_begun() || index < 2);
            good.accept(chunk(index, offset, 10)).unwrap();
            assert_eq!(good.hand_out().collect::<Vec<_>>(), [chunk(index, offset, 10)]);
        }
        assert!(good.is_complete() && good.stream_begun() && good.stage == Stage::Open);
        let mut overlapping = message(30, Reading::AsItComes);
        for (index, offset) in [(2, 20), (1, 5)] {
            overlapping.accept(chunk(index, offset, 10)).unwrap();
        }
        assert_eq!(overlapping.stage, Stage::Broken);
    }

    #[test]
    fn the_last_index_of_the_window_is_taken_and_the_next_is_a_misfit() {
        let last = CHUNK_WINDOW as u32 - 1;
        let mut message = message(1 << 20, Reading::Whole);
        assert_eq!((message.has(last), message.has(last + 1)), (Ok(false), Err(Misfit)));
        message.accept(chunk(last, 500_000, 10)).unwrap();
        assert_eq!((message.has(last - 1), message.has(last + 1)), (Ok(false), Err(Misfit)));
    }
}
