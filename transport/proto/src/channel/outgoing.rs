//! A message being sent: how it is cut, what of it is acknowledged, and how it ended.

use super::growing::{Growing, Next, PieceSizes, SupplyError};
use super::request::SendRequest;
use super::runs::Runs;
use super::spans::Spans;
use crate::event::{Outcome, PayloadRef, SendFrame, SendKey};
use crate::limits::{CHUNK_WINDOW, FRAME_ALIGN_BYTES, PAGE_BYTES, SEGMENTS_MAX};
use crate::wire::Frame;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use towpath_base::Time;

/// Where a message is in its life (docs/protocol.md section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SendState {
    /// Nothing of it was sent, and it has no id yet.
    #[default]
    Queued,
    /// It is being sent.
    Sending,
    /// ABANDON is on its way.
    Abandoning,
    /// It has its outcome; it ends when the device has returned its last work request.
    Ended(Outcome),
}

/// A message being sent. Lives in a slot that keeps its memory for the next one.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) state: SendState,
    /// It is in the queue of its channel: it has bytes at hand that are in no piece.
    pub(crate) in_line: bool,
    pub(crate) channel: u32,
    pub(crate) token: u64,
    pub(crate) deadline: Time,
    pub(crate) id: u64,
    pub(crate) message_len: u32,
    /// Its payloads of a page and more are to begin at pages.
    at_pages: bool,
    segments: [u32; SEGMENTS_MAX],
    /// The next byte to cut.
    segment: u8,
    segment_offset: u32,
    offset: u32,
    pieces_cut: u32,
    /// Which pieces are acknowledged.
    acked: Runs,
    /// Which parts are, of pieces that travel in several frames, by index.
    parts: Vec<(u32, Spans)>,
    /// Work requests that the device has not returned.
    pub(crate) posted: u32,
    /// The path that it keeps to, where messages do.
    pub(crate) path: Option<u8>,
    /// Of one whose last segment is supplied later.
    pub(crate) growing: Option<Box<Growing>>,
}

impl Outgoing {
    /// Begins a new life of the slot.
    pub(crate) fn start(&mut self, request: &SendRequest<'_>) {
        let lens = request.segments;
        // Field by field: a whole new value would be built aside and then copied.
        (self.state, self.in_line) = (SendState::Queued, true);
        self.channel = request.channel.0;
        self.token = request.token;
        self.deadline = request.deadline;
        self.id = 0;
        self.message_len = lens.iter().sum();
        self.at_pages = request.at_pages;
        // One by one: a copy of so few is slower for its call.
        for (place, &len) in lens.iter().enumerate() {
            self.segments[place] = len;
        }
        (self.segment, self.segment_offset, self.offset) = (0, 0, 0);
        (self.pieces_cut, self.posted) = (0, 0);
        self.acked.clear();
        self.parts.clear();
        self.path = None;
        self.growing = None;
    }

    /// Its last segment is supplied later. The receiver may have to hold it whole, or not.
    pub(crate) fn grow(&mut self, segments: &[u32], sizes: PieceSizes, held_whole: bool) {
        let Some((&len, before)) = segments.split_last() else { return };
        let place = (before.len() as u8, self.message_len - len, len);
        self.growing = Some(Box::new(Growing::new(place, sizes, held_whole)));
    }

    /// Whether its next piece is one of a segment that is supplied later.
    #[inline(always)]
    pub(crate) fn grows(&self) -> bool {
        self.growing.as_ref().is_some_and(|growing| self.segment >= growing.segment)
    }

    /// Whether a payload of it with so many bytes is to begin at a page.
    #[inline(always)]
    pub(crate) fn is_at_page(&self, length: usize) -> bool {
        self.at_pages && length >= PAGE_BYTES
    }

    /// What is left of so many bytes for a piece that does not end its segment.
    #[inline(always)]
    pub(crate) fn whole_units(&self, bytes: usize) -> usize {
        bytes & !(unit_of(self.at_pages, bytes) - 1)
    }

    /// How many pieces of it were cut, each of which used a credit.
    pub(crate) fn pieces_cut(&self) -> u32 {
        self.pieces_cut
    }

    /// Whether it is in its channel's queue as long as pieces of it are to be cut.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state, SendState::Queued | SendState::Sending)
    }

    /// What of it is there and in no piece yet.
    #[inline]
    pub(crate) fn bytes_at_hand(&self) -> u32 {
        let Some(growing) = &self.growing else { return self.uncut_bytes() };
        growing.first.saturating_sub(self.offset) + growing.ready_bytes()
    }

    /// What of it is in no piece yet.
    pub(crate) fn uncut_bytes(&self) -> u32 {
        self.message_len - self.offset
    }

    pub(crate) fn is_fully_cut(&self) -> bool {
        self.offset == self.message_len
    }

    /// Whether another piece may be cut: its bytes are there, and the receiver's bitmap reaches it.
    /// All messages of the channel that are not wholly supplied hold `all_held` of the `most`
    /// credit that they may hold together.
    #[inline]
    pub(crate) fn may_cut(&self, all_held: u32, most: u32) -> bool {
        match &self.growing {
            None => !self.is_fully_cut() && self.may_use(self.pieces_cut),
            Some(growing) => self.may_cut_of(growing, all_held - growing.held, most),
        }
    }

    /// Whether the receiver's bitmap reaches a piece.
    fn may_use(&self, index: u32) -> bool {
        u64::from(index) < u64::from(self.acked.first_missing()) + CHUNK_WINDOW
    }

    /// Bytes of the segment that grows behind all pieces that have an index or get one with what
    /// is there.
    pub(crate) fn rest_of_growing(&self, next: &Next) -> u32 {
        self.growing.as_ref().map_or(0, |growing| growing.len() - next.start)
    }

    /// The next piece of the segment that grows, if bytes of it are there.
    pub(crate) fn next_grown(&self) -> Option<Next> {
        self.growing.as_ref()?.next(self.pieces_cut)
    }

    #[cold]
    fn may_cut_of(&self, growing: &Growing, others: u32, most: u32) -> bool {
        let next = if self.grows() { self.next_grown() } else { None };
        if next.is_none() && self.grows() {
            return false;
        }
        let index = next.map_or(self.pieces_cut, |next| next.index);
        let is_there = next.is_none_or(|next| growing.is_there(next.start, next.end));
        let with = growing.may_hold_with(index, is_there, self.pieces_cut);
        let has_credit =
            growing.is_supplied() || with <= growing.held || others.saturating_add(with) <= most;
        has_credit && self.may_use(index)
    }

    /// Credit that it may hold at the receiver until more of it is supplied.
    pub(crate) fn may_hold(&self) -> u32 {
        let Some(growing) = &self.growing else { return 0 };
        let is_over = !self.is_queued() || growing.is_supplied() && self.is_fully_cut();
        if is_over { 0 } else { growing.may_hold(self.pieces_cut) }
    }

    /// Bytes of the segment that is being cut that are in no piece yet.
    #[inline(always)]
    pub(crate) fn rest_of_segment(&self) -> u32 {
        self.segments[usize::from(self.segment)] - self.segment_offset
    }

    /// Cuts the next piece, no longer than the rest of its segment: a frame that carries all of it.
    #[inline]
    pub(crate) fn cut(&mut self, send: SendKey, length: u32) -> SendFrame {
        let source =
            PayloadRef { send, segment: self.segment, offset: self.segment_offset, length };
        let frame = Frame {
            channel: self.channel,
            message: self.id,
            message_len: self.message_len,
            index: self.pieces_cut,
            offset: self.offset,
            length,
            part_start: 0,
            piece_len: length,
            at_page: self.is_at_page(length as usize),
        };
        self.offset += length;
        self.segment_offset += length;
        self.pieces_cut += 1;
        if self.segment_offset == self.segments[usize::from(self.segment)] {
            (self.segment, self.segment_offset) = (self.segment + 1, 0);
        }
        SendFrame { source, frame }
    }

    /// Cuts the next piece of the segment that grows, of `piece_len` bytes: frames of what of it is
    /// there, in order.
    pub(crate) fn cut_grown(&mut self, send: SendKey, piece_len: u32) -> Vec<SendFrame> {
        let mut frames = Vec::new();
        let Some(next) = self.next_grown() else { return frames };
        let piece = next.start..next.start + piece_len;
        let Some(mut growing) = self.growing.take() else { return frames };
        let place = (growing.segment, growing.first);
        growing.cut(next, piece.end, self.pieces_cut, |there| {
            frames.push(self.grown_frame(send, place, (&piece, next.index), there));
        });
        self.growing = Some(growing);
        self.offset += piece_len;
        self.pieces_cut += 1;
        frames
    }

    /// Takes bytes of the segment that grows. Frames of pieces that are cut already go to `late`.
    pub(crate) fn supply(
        &mut self,
        send: SendKey,
        bytes: (u32, u32),
        mut late: impl FnMut(SendFrame),
    ) -> Result<(), SupplyError> {
        let mut growing = self.growing.take().ok_or(SupplyError::NotGrowing)?;
        let place = (growing.segment, growing.first);
        let taken = growing.supply(bytes, |piece, index, there| {
            late(self.grown_frame(send, place, (&piece, index), there));
        });
        self.growing = Some(growing);
        taken
    }

    /// A frame of a piece of the segment that grows.
    fn grown_frame(
        &self,
        send: SendKey,
        (segment, first): (u8, u32),
        (piece, index): (&Range<u32>, u32),
        there: Range<u32>,
    ) -> SendFrame {
        let (offset, length) = (there.start, there.end - there.start);
        let source = PayloadRef { send, segment, offset, length };
        let frame = Frame {
            channel: self.channel,
            message: self.id,
            message_len: self.message_len,
            index,
            offset: first + offset,
            length,
            part_start: offset - piece.start,
            piece_len: piece.end - piece.start,
            at_page: there == *piece && self.is_at_page(length as usize),
        };
        SendFrame { source, frame }
    }

    /// Bytes of a frame are with the device.
    #[inline]
    pub(crate) fn on_posted(&mut self, frame: &Frame) {
        self.posted += 1;
        if let Some(growing) = &mut self.growing {
            growing.on_posted(frame.index);
        }
    }

    /// The device holds the bytes of a frame no more.
    #[inline]
    pub(crate) fn on_returned(&mut self, frame: &Frame) {
        self.posted = self.posted.saturating_sub(1);
        if let Some(growing) = &mut self.growing {
            growing.on_returned(frame.index);
        }
    }

    /// What the supplier has back with a frame that is acknowledged or returned: where it begins in
    /// the segment that grows, and how many bytes it has.
    pub(crate) fn take_home(&mut self, frame: &Frame) -> Option<(u32, u32)> {
        if self.state != SendState::Sending || !self.acked.has(frame.index) {
            return None;
        }
        self.growing.as_mut()?.take_home(frame.index)
    }

    /// Whether all that a frame carries is acknowledged.
    pub(crate) fn is_acked(&self, frame: &Frame) -> bool {
        self.acked.has(frame.index)
            || self
                .parts
                .iter()
                .any(|(index, parts)| *index == frame.index && parts.has(frame.part()))
    }

    /// Pieces of which parts are acknowledged, and not all.
    #[inline]
    pub(crate) fn pieces_begun(&self) -> usize {
        self.parts.len()
    }

    /// Whether parts of the piece of a frame are acknowledged, and not all of it.
    pub(crate) fn is_begun(&self, frame: &Frame) -> bool {
        self.parts.iter().any(|(index, _)| *index == frame.index)
    }

    /// Takes in that a frame is acknowledged; true when now all of the message is.
    #[inline]
    pub(crate) fn on_acked(&mut self, frame: &Frame) -> bool {
        if (frame.is_part() || !self.parts.is_empty()) && !self.completes_piece(frame) {
            return false;
        }
        if !self.acked.has(frame.index) {
            let fits = self.acked.insert(frame.index, frame.piece_offset(), frame.piece_len);
            debug_assert!(fits.is_ok(), "pieces are cut one behind the other");
        }
        self.acked.are_whole(self.message_len)
    }

    /// Whether with this frame all of a piece is acknowledged that travels in several.
    #[inline(never)]
    fn completes_piece(&mut self, frame: &Frame) -> bool {
        let at = self.parts.iter().position(|(index, _)| *index == frame.index);
        if !frame.is_part() || self.acked.has(frame.index) {
            at.map(|at| self.parts.swap_remove(at));
            return true;
        }
        let at = at.unwrap_or_else(|| {
            self.parts.push((frame.index, Spans::default()));
            self.parts.len() - 1
        });
        let (_, parts) = &mut self.parts[at];
        parts.insert(frame.part());
        let is_complete = parts.bytes() == frame.piece_len;
        if is_complete {
            self.parts.swap_remove(at);
        }
        is_complete
    }
}

/// Pieces that do not end their segment are multiples of this, where no piece is longer than `max`.
#[inline(always)]
pub(super) fn unit_of(at_pages: bool, max: usize) -> usize {
    if at_pages && max >= PAGE_BYTES { PAGE_BYTES } else { FRAME_ALIGN_BYTES }
}

#[cfg(test)]
mod tests;
