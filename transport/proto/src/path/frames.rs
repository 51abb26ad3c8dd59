//! The frames of the chunks that are under way on a path, in the order in which they were sent.

use crate::limits::{FRAMES_MAX, FRAMES_OUTSTANDING_MAX};
use crate::piece::SendFrame;
use alloc::vec::Vec;

/// Frames that a fresh ring holds.
const RING_FIRST: usize = 64;

/// Where the frames of a chunk lie: a position that counts up for ever, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    first: u64,
    count: u16,
}

impl Span {
    /// Of no frames.
    pub(crate) const EMPTY: Self = Self { first: 0, count: 0 };
}

/// A ring of frames. The frames of one chunk lie side by side. It grows with what is under way.
#[derive(Debug, Default)]
pub(crate) struct FrameRing {
    ring: Vec<Option<SendFrame>>,
    /// Behind the newest.
    head: u64,
    /// Everything below may be written over.
    tail: u64,
}

impl FrameRing {
    /// Those of a chunk without frames that is sent next.
    pub(crate) fn none(&self) -> Span {
        Span { first: self.head, count: 0 }
    }

    /// Frames of chunks that were sent before the one with these are not needed any more.
    pub(crate) fn release(&mut self, frames: Span) {
        self.tail = frames.first.max(self.tail);
    }

    /// Whether the frames of any chunk find room, in a ring as long as it may get.
    pub(crate) fn has_room(&self) -> bool {
        self.fits(FRAMES_MAX, FRAMES_OUTSTANDING_MAX)
    }

    /// Whether so many frames find room at present.
    pub(crate) fn has_room_now(&self, count: usize) -> bool {
        self.fits(count, self.ring.len())
    }

    fn fits(&self, count: usize, len: usize) -> bool {
        // Before frames that would be split by the end of the ring what is left there is skipped.
        let used = self.head - self.tail;
        used + 2 * count as u64 <= len as u64
    }

    /// Adds the frames of a chunk. It may get longer than it should where the caller has not asked
    /// whether there [is room](Self::has_room).
    #[inline]
    pub(crate) fn push(&mut self, frames: &[SendFrame]) -> Span {
        let count = frames.len();
        while !self.has_room_now(count) {
            self.grow();
        }
        let len = self.ring.len() as u64;
        let at = self.head % len;
        let first = if at + count as u64 > len { self.head + len - at } else { self.head };
        let from = (first % len) as usize;
        for (place, frame) in self.ring[from..from + count].iter_mut().zip(frames) {
            *place = Some(*frame);
        }
        self.head = first + count as u64;
        Span { first, count: count as u16 }
    }

    /// Makes it twice as long: a span that its old length does not split is not split by the new.
    #[cold]
    fn grow(&mut self) {
        let old = self.ring.len();
        let len = (2 * old).max(RING_FIRST);
        let mut ring = alloc::vec![None; len];
        for position in self.tail..self.head {
            if old > 0 {
                ring[(position % len as u64) as usize] =
                    self.ring[(position % old as u64) as usize];
            }
        }
        self.ring = ring;
    }

    /// The frames of a chunk; none once they are written over.
    #[inline(always)]
    pub(crate) fn get(&self, span: Span) -> impl Iterator<Item = &SendFrame> + use<'_> {
        let len = self.ring.len() as u64;
        let is_there = span.count > 0 && self.head - span.first <= len;
        let from = if is_there { (span.first % len) as usize } else { 0 };
        let count = if is_there { usize::from(span.count) } else { 0 };
        self.ring[from..from + count].iter().flatten()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::piece::{PayloadRef, SendKey};
    use crate::slots::Slots;
    use crate::wire::Frame;
    use alloc::collections::VecDeque;
    use towpath_base::Prng;

    pub(crate) fn frame(number: u32) -> SendFrame {
        let send = SendKey(Slots::<u8>::new(1).take().expect("a fresh slot").0);
        let source = PayloadRef { send, segment: 0, offset: 0, length: 1 };
        let frame = Frame {
            channel: number,
            message: 0,
            message_len: 1,
            index: 0,
            offset: 0,
            length: 1,
            part_start: 0,
            piece_len: 1,
            at_page: false,
        };
        SendFrame { source, frame }
    }

    #[test]
    fn what_is_not_released_stays_while_others_come_and_go_and_the_ring_stays_short() {
        for seed in 0..40 {
            let mut prng = Prng::new(seed);
            let (mut ring, mut kept, mut number) = (FrameRing::default(), VecDeque::new(), 0);
            for _ in 0..2_000 {
                let count = prng.between(1, FRAMES_MAX as u64) as u32;
                let frames: Vec<_> = (number..number + count).map(frame).collect();
                let span = ring.push(&frames);
                kept.push_back((span, number));
                number += count;
                while kept.len() as u64 > prng.between(1, 8) {
                    kept.pop_front();
                }
                ring.release(kept.front().map_or(ring.none(), |&(span, _)| span));
                for &(span, first) in &kept {
                    let found: Vec<u32> = ring.get(span).map(|sent| sent.frame.channel).collect();
                    let expected = first..first + u32::from(span.count);
                    assert!(found.into_iter().eq(expected), "seed {seed}");
                }
            }
            assert!(ring.has_room() && ring.ring.len() <= 32 * FRAMES_MAX, "{}", ring.ring.len());
        }
    }

    #[test]
    fn what_was_written_over_is_not_taken_for_something_else() {
        let mut ring = FrameRing::default();
        let old = ring.push(&[frame(1)]);
        ring.release(ring.none());
        for number in 0..RING_FIRST as u32 {
            assert_eq!(ring.get(old).count(), 1);
            ring.push(&[frame(number)]);
            ring.release(ring.none());
        }
        assert_eq!(ring.get(old).count(), 0);
        assert_eq!(ring.get(Span::EMPTY).count(), 0);
    }
}
