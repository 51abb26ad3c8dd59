//! The window of control chunks: each has a sequence number and is taken in once.

use super::presence::greeting;
use crate::config::LinkConfig;
use crate::limits::{CONTROL_OUTSTANDING_MAX, CONTROL_QUEUE_MAX, CONTROL_WINDOW};
use crate::path::bit;
use crate::slots::{Key, Slots};
use crate::wire::Kind;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use towpath_base::WindowBitmap;
use towpath_base::serial::expand_u32;

/// A control chunk. Its credit is filled in when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Control {
    pub(super) kind: Kind,
    pub(super) channel: u32,
    pub(super) message: u64,
    pub(super) index: u32,
    pub(super) message_len: u32,
    /// Assigned when it is first sent.
    pub(super) sequence: u64,
}

impl Default for Control {
    fn default() -> Self {
        Self::of(Kind::Ping, 0)
    }
}

impl Control {
    pub(super) fn of(kind: Kind, channel: u32) -> Self {
        Self { kind, channel, message: 0, index: 0, message_len: 0, sequence: 0 }
    }
}

/// What is known of a control chunk that came.
pub(super) enum Arrived {
    /// It was taken in before.
    Known,
    /// It has this sequence number and was not taken in.
    New(u64),
    /// No correct peer is so far ahead.
    Beyond,
}

/// Control chunks that wait, are under way, or have come.
#[derive(Debug)]
pub(super) struct Controls {
    /// Those that wait to be sent for the first time.
    queue: VecDeque<Control>,
    sent: Slots<Control>,
    /// Those that were lost, and on which path.
    lost: VecDeque<(Key, u8)>,
    /// The next sequence number.
    next: u64,
    /// Sequences of ours that were acknowledged, and of the peer's that were taken.
    acked: WindowBitmap,
    seen: WindowBitmap,
    /// The control queue pair is in error, or on a port that the first path has left: acks leave on
    /// those of paths.
    pub(super) has_left: bool,
    /// It is in error here, and the peer was told.
    pub(super) has_failed: bool,
    /// The first path has another port since it was made anew, and the control queue pair has not.
    pub(super) follows: bool,
    /// Kept between calls for its memory.
    pub(super) scratch: Vec<Key>,
}

impl Controls {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Self {
            queue: greeting(config),
            sent: Slots::new(CONTROL_OUTSTANDING_MAX),
            lost: VecDeque::new(),
            next: 0,
            acked: WindowBitmap::new(0, CONTROL_WINDOW as usize),
            seen: WindowBitmap::new(0, CONTROL_WINDOW as usize),
            has_left: false,
            has_failed: false,
            follows: false,
            scratch: Vec::new(),
        }
    }

    /// Queues a control chunk.
    pub(super) fn push(&mut self, control: Control) {
        self.queue.push_back(control);
    }

    /// Whether a flood has filled the queue: answers that a peer causes must wait.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= CONTROL_QUEUE_MAX
    }

    /// Whether one waits to be sent, for the first time or again.
    pub(super) fn waits(&self) -> bool {
        !self.queue.is_empty() || !self.lost.is_empty()
    }

    /// Those that wait, and those that are not acknowledged.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.sent.len()
    }

    /// Whether one may leave now, and the paths that it had better not take.
    pub(super) fn next(&mut self) -> Option<u16> {
        while let Some(&(key, lost_on)) = self.lost.front() {
            if self.sent.get(key).is_some() {
                return Some(bit(usize::from(lost_on)));
            }
            self.lost.pop_front();
        }
        let has_room = self.sent.len() < CONTROL_OUTSTANDING_MAX && self.acked.reaches(self.next);
        (has_room && !self.queue.is_empty()).then_some(0)
    }

    /// The one that [`next`](Self::next) told of leaves.
    pub(super) fn take(&mut self) -> Option<(Key, Control)> {
        if let Some((key, _)) = self.lost.pop_front() {
            return self.get(key).map(|control| (key, control));
        }
        let mut control = self.queue.pop_front()?;
        let (key, sent) = self.sent.take()?;
        control.sequence = self.next;
        self.next += 1;
        *sent = control;
        Some((key, control))
    }

    /// One that is under way.
    pub(super) fn get(&self, key: Key) -> Option<Control> {
        self.sent.get(key).copied()
    }

    /// One was lost on a path.
    pub(super) fn on_lost(&mut self, key: Key, path: u8) {
        self.lost.push_back((key, path));
    }

    /// One was acknowledged; none when it was before.
    pub(super) fn on_acked(&mut self, key: Key) -> Option<Control> {
        let control = self.get(key)?;
        self.sent.free(key);
        self.acked.insert(control.sequence);
        Some(control)
    }

    /// What is known of one that came with these low bits of its sequence number. The number tells
    /// a copy: one that comes late must not open a closed channel again.
    pub(super) fn arrived(&self, low: u32) -> Arrived {
        let sequence = expand_u32(low, self.seen.base());
        match () {
            () if self.seen.contains(sequence) => Arrived::Known,
            () if self.seen.reaches(sequence) => Arrived::New(sequence),
            () => Arrived::Beyond,
        }
    }

    /// One of the peer's was taken in.
    pub(super) fn on_taken(&mut self, sequence: u64) {
        self.seen.insert(sequence);
    }

    /// Nothing is sent any more.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.lost.clear();
    }
}
