//! Which channel of a link sends the next piece: weighted fair queueing.
//!
//! Bytes are shared in the proportion of weights, whatever the lengths of messages. A message is
//! cut into pieces as it is sent, so a channel has the link for one piece at a time.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): a piece's start tag is the later
//! of the virtual time and its channel's last finish tag, its finish tag lies `bytes / weight`
//! behind; the smallest start tag is served, and the virtual time is that tag. No link rate has to
//! be known, and a channel that was idle is owed nothing for it.

#[cfg(test)]
mod tests;

use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The weight of a channel unless it is told otherwise; larger gets more.
pub const WEIGHT_DEFAULT: u16 = 16;

/// Virtual time that a byte takes at weight 1: a fraction of it is exact enough at weight 65,535.
const TICKS_PER_BYTE: u64 = 1 << 16;

/// In line, least first: start tag, order of entering among equals, member, weight.
type Entry = Reverse<(u128, u64, u32, u16)>;

/// The members that may have something to send, and what each was served: the channels of a link by
/// their ids, or classes by their index. A member is in line at most once.
#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    line: BinaryHeap<Entry>,
    /// Finish tags of members that have left the line, by `place`, and whose they are.
    finished: Vec<(Option<u32>, u128)>,
    virtual_time: u128,
    entered: u64,
}

impl FairQueue {
    /// A member that is not in line has something to send.
    pub(crate) fn enter(&mut self, member: u32, weight: u16) {
        let before = self.finished.get(place(member));
        let finish = before.filter(|(of, _)| *of == Some(member)).map_or(0, |&(_, finish)| finish);
        let start = finish.max(self.virtual_time);
        self.line.push(Reverse((start, self.entered, member, weight)));
        self.entered += 1;
    }

    /// Whose turn it is. It stays so until one of the calls below, or until another enters.
    #[inline]
    pub(crate) fn turn(&self) -> Option<u32> {
        self.line.peek().map(|Reverse((_, _, member, _))| *member)
    }

    /// How many are in line.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// The member whose turn it is has sent a piece that counts as `bytes`; with `more` it stays in
    /// line, at that weight.
    #[inline]
    pub(crate) fn served(&mut self, bytes: u32, more: Option<u16>) {
        let Some(mut first) = self.line.peek_mut() else { return };
        let Reverse((start, _, member, weight)) = *first;
        self.virtual_time = self.virtual_time.max(start);
        let weight = more.unwrap_or(weight).max(1);
        let finish = start + u128::from(u64::from(bytes) * TICKS_PER_BYTE / u64::from(weight));
        if more.is_some() {
            *first = Reverse((finish, self.entered, member, weight));
            self.entered += 1;
        } else {
            PeekMut::pop(first);
            self.note_finish(member, finish);
        }
    }

    /// The member whose turn it is cannot send: it leaves without having been served.
    pub(crate) fn pass(&mut self) {
        if let Some(Reverse((start, _, member, _))) = self.line.pop() {
            self.note_finish(member, start);
        }
    }

    /// A member is over; it may or may not be in line.
    pub(crate) fn remove(&mut self, member: u32) {
        self.line.retain(|Reverse((_, _, other, _))| *other != member);
    }

    /// All leave.
    pub(crate) fn clear(&mut self) {
        self.line.clear();
    }

    fn note_finish(&mut self, member: u32, finish: u128) {
        let place = place(member);
        if self.finished.len() <= place {
            self.finished.resize(place + 1, (None, 0));
        }
        self.finished[place] = (Some(member), finish);
    }
}

/// The small dense index in the lower half of an id.
fn place(member: u32) -> usize {
    usize::from(member as u16)
}
