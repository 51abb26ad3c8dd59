//! A message being sent: how it is cut, what of it is acknowledged, and how it ended.

use crate::event::{Cut, Outcome, SendKey};
use crate::limits::{CHUNK_ALIGN_BYTES, CHUNK_WINDOW, SEGMENTS_MAX};
use crate::link::SendRequest;
use crate::path::DataChunk;
use towpath_base::{Time, WindowBitmap};

/// Where a message is in its life (docs/protocol.md section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SendState {
    /// Nothing of it was sent, and it has no id yet.
    #[default]
    Queued,
    /// Its chunks are being sent.
    Sending,
    /// ABANDON is on its way.
    Abandoning,
    /// It has its outcome; it ends when the device has returned its last work request.
    Ended(Outcome),
}

/// A message being sent. Lives in a slot that keeps its bitmap for the next one.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) state: SendState,
    pub(crate) channel: u32,
    pub(crate) token: u64,
    pub(crate) deadline: Time,
    pub(crate) id: u64,
    pub(crate) message_len: u32,
    cut: Cut,
    segments: [u32; SEGMENTS_MAX],
    /// The next byte to cut.
    segment: u8,
    segment_offset: u32,
    offset: u32,
    chunks_cut: u32,
    chunks_acked: u32,
    /// Each so far was acknowledged after the one before.
    acked_in_order: bool,
    /// Which chunks are acknowledged, once one was out of turn.
    acked: Option<WindowBitmap>,
    /// Work requests that the device has not returned.
    pub(crate) posted: u32,
    /// The path that it keeps to, where messages do.
    pub(crate) path: Option<u8>,
}

impl Outgoing {
    /// Begins a new life of the slot.
    pub(crate) fn start(&mut self, request: &SendRequest<'_>) {
        let lens = request.segments;
        // Field by field: a whole new value would be built aside and then copied.
        self.state = SendState::Queued;
        self.channel = request.channel.0;
        self.token = request.token;
        self.deadline = request.deadline;
        self.id = 0;
        self.message_len = lens.iter().sum();
        self.cut = request.cut;
        // One by one: a copy of so few is slower for its call.
        for (place, len) in self.segments.iter_mut().zip(lens) {
            *place = *len;
        }
        (self.segment, self.segment_offset, self.offset) = (0, 0, 0);
        (self.chunks_cut, self.chunks_acked, self.posted) = (0, 0, 0);
        self.acked_in_order = true;
    }

    /// Where it is cut.
    pub(crate) fn cut_at(&self) -> Cut {
        self.cut
    }

    /// How many chunks of it were cut, each of which used a credit.
    pub(crate) fn chunks_cut(&self) -> u32 {
        self.chunks_cut
    }

    /// Whether it is in its channel's queue as long as chunks of it are to be cut.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state, SendState::Queued | SendState::Sending)
    }

    /// Whether its receiver may have refused what came of it last.
    pub(crate) fn is_given_up(&self) -> bool {
        use SendState::{Abandoning, Ended};
        matches!(self.state, Abandoning | Ended(Outcome::Abandoned | Outcome::Unknown))
    }

    /// What of it is in no chunk yet.
    pub(crate) fn uncut_bytes(&self) -> u32 {
        self.message_len - self.offset
    }

    pub(crate) fn is_fully_cut(&self) -> bool {
        self.offset == self.message_len
    }

    /// Whether another chunk may be cut: not all are, and the receiver's bitmap reaches it.
    pub(crate) fn may_cut(&self) -> bool {
        let oldest = match &self.acked {
            Some(acked) if !self.acked_in_order => acked.base(),
            _ => u64::from(self.chunks_acked),
        };
        !self.is_fully_cut() && u64::from(self.chunks_cut) < oldest + CHUNK_WINDOW
    }

    /// The length of the next chunk at `bytes_max`.
    pub(crate) fn next_length(&self, bytes_max: u32) -> u32 {
        let rest = self.segments[usize::from(self.segment)] - self.segment_offset;
        match self.cut {
            _ if rest <= bytes_max => rest,
            Cut::FullPackets => bytes_max,
            Cut::Slices => even_length(rest, bytes_max),
        }
    }

    /// Cuts the next chunk, of a length that [`next_length`](Self::next_length) has told.
    pub(crate) fn cut(&mut self, send: SendKey, length: u32) -> DataChunk {
        let chunk = DataChunk {
            send,
            segment: self.segment,
            segment_offset: self.segment_offset,
            offset: self.offset,
            length,
            index: self.chunks_cut,
            last: self.offset + length == self.message_len,
        };
        self.offset += length;
        self.segment_offset += length;
        self.chunks_cut += 1;
        if self.segment_offset == self.segments[usize::from(self.segment)] {
            (self.segment, self.segment_offset) = (self.segment + 1, 0);
        }
        chunk
    }

    pub(crate) fn is_acked(&self, index: u32) -> bool {
        match &self.acked {
            Some(acked) if !self.acked_in_order => acked.contains(u64::from(index)),
            _ => index < self.chunks_acked,
        }
    }

    /// Takes in that a chunk is acknowledged; true when now all of the message is.
    #[inline]
    pub(crate) fn on_acked(&mut self, index: u32) -> bool {
        let new = if self.acked_in_order && index <= self.chunks_acked {
            index == self.chunks_acked
        } else {
            self.note_out_of_order(index)
        };
        self.chunks_acked += u32::from(new);
        self.is_fully_cut() && self.chunks_acked == self.chunks_cut
    }

    /// A bitmap takes over where the count alone does not tell what is acknowledged. True when
    /// this was not before.
    #[inline(never)]
    fn note_out_of_order(&mut self, index: u32) -> bool {
        let count = u64::from(self.chunks_acked);
        let empty = || WindowBitmap::new(count, CHUNK_WINDOW as usize);
        let acked = self.acked.get_or_insert_with(empty);
        if core::mem::take(&mut self.acked_in_order) {
            acked.reset(count);
        }
        acked.insert(u64::from(index))
    }
}

/// The length of the next of several chunks that end at slices. Cut evenly: each ends in a short
/// packet anyhow, and equal ones come earlier.
#[inline(never)]
fn even_length(rest: u32, bytes_max: u32) -> u32 {
    let even = rest.div_ceil(rest.div_ceil(bytes_max));
    let align = if bytes_max >= CHUNK_ALIGN_BYTES { CHUNK_ALIGN_BYTES } else { 1 };
    even.next_multiple_of(align).min(bytes_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ChannelId;
    use crate::slots::Slots;
    use alloc::vec::Vec;

    fn cut_all(lens: &[u32], bytes_max: u32) -> (Outgoing, Vec<DataChunk>) {
        let send = SendKey(Slots::<u8>::new(1).take().unwrap().0);
        let mut message = Outgoing::default();
        message.start(&SendRequest {
            channel: ChannelId(0),
            token: 0,
            segments: lens,
            deadline: Time::NEVER,
            cut: Cut::Slices,
        });
        let mut chunks = Vec::new();
        while message.may_cut() {
            chunks.push(message.cut(send, message.next_length(bytes_max)));
        }
        (message, chunks)
    }

    #[test]
    fn chunks_cover_the_message_once_and_never_span_segments() {
        let lens = [100, 4096, 130_000, 7];
        let (message, chunks) = cut_all(&lens, 57_344);
        assert!(message.is_fully_cut());
        let mut end = 0;
        for (chunk, index) in chunks.iter().zip(0..) {
            assert_eq!((chunk.offset, chunk.index), (end, index));
            let segment = usize::from(chunk.segment);
            assert!(chunk.segment_offset + chunk.length <= lens[segment]);
            assert_eq!(chunk.offset, lens[..segment].iter().sum::<u32>() + chunk.segment_offset);
            assert_eq!(chunk.segment_offset % 4096, 0, "slices stay whole");
            end += chunk.length;
        }
        assert_eq!(end, lens.iter().sum());
        assert!(chunks.last().unwrap().last && chunks.iter().filter(|c| c.last).count() == 1);
    }

    #[test]
    fn a_long_segment_is_cut_evenly() {
        let (_, chunks) = cut_all(&[65_536], 57_344);
        assert_eq!(chunks.iter().map(|c| c.length).collect::<Vec<_>>(), [32_768, 32_768]);
    }

    #[test]
    fn the_message_is_done_when_each_chunk_is_acknowledged_in_any_order() {
        let (mut message, chunks) = cut_all(&[10_000], 4096);
        assert_eq!(chunks.len(), 3);
        assert!(!message.on_acked(2) && !message.on_acked(0) && !message.on_acked(2));
        assert!(message.on_acked(1));
    }

    #[test]
    fn what_was_acknowledged_in_order_is_known_after_one_that_was_not() {
        let (mut message, chunks) = cut_all(&[20_000], 4096);
        assert_eq!(chunks.len(), 5);
        for index in [0, 1, 1, 0, 3, 3, 1] {
            assert!(!message.on_acked(index));
        }
        assert_eq!(
            [0, 1, 2, 3, 4].map(|index| message.is_acked(index)),
            [true, true, false, true, false]
        );
        assert!(!message.on_acked(2) && message.on_acked(4));
    }

    #[test]
    fn cutting_stops_at_the_window_and_goes_on_after_the_oldest_is_acknowledged() {
        let (mut message, chunks) = cut_all(&[5_000_000], 64);
        assert_eq!(chunks.len() as u64, CHUNK_WINDOW);
        message.on_acked(1);
        assert!(!message.may_cut());
        message.on_acked(0);
        assert!(message.may_cut());
    }
}
