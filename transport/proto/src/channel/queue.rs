//! The messages of a channel that have bytes at hand for pieces still to cut, in order.

use crate::event::SendKey;
use alloc::collections::VecDeque;

/// Messages with bytes at hand for pieces still to cut. The first one is being cut, or the first
/// that may be where some are supplied while they are sent.
///
/// One that is given up leaves when it gets to the front, or together with as many others as there
/// are left: so giving up all of a long queue costs no more than its length.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    keys: VecDeque<SendKey>,
    /// Those of them that were given up.
    gone: usize,
    /// Keys that were looked at to take out others.
    #[cfg(test)]
    pub(crate) steps: u64,
}

impl SendQueue {
    pub(crate) fn push_back(&mut self, send: SendKey) {
        self.keys.push_back(send);
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len() - self.gone
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.len() == self.gone
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = SendKey> {
        self.keys.iter().copied()
    }

    /// The first message, of those that `is_queued`.
    #[inline(always)]
    pub(crate) fn front(&mut self, is_queued: impl Fn(SendKey) -> bool) -> Option<SendKey> {
        if self.gone > 0 {
            self.trim(is_queued);
        }
        self.keys.front().copied()
    }

    #[cold]
    fn trim(&mut self, is_queued: impl Fn(SendKey) -> bool) {
        while self.gone > 0
            && let Some(&send) = self.keys.front()
            && !is_queued(send)
        {
            self.keys.pop_front();
            self.gone -= 1;
            #[cfg(test)]
            {
                self.steps += 1;
            }
        }
    }

    /// The message at a place leaves.
    #[inline]
    pub(crate) fn remove(&mut self, place: usize) {
        if place == 0 {
            self.keys.pop_front();
        } else {
            self.keys.remove(place);
        }
    }

    /// A message was given up, and is none of those that `is_queued` any more.
    pub(crate) fn note_gone(&mut self, is_queued: impl Fn(SendKey) -> bool) {
        self.gone += 1;
        if 2 * self.gone > self.keys.len() {
            #[cfg(test)]
            {
                self.steps += self.keys.len() as u64;
            }
            self.keys.retain(|&send| is_queued(send));
            self.gone = 0;
        }
    }
}
