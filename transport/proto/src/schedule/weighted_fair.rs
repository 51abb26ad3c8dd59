//! Weighted fair queueing: bytes in the proportion of weights.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): a piece's start tag is the later
//! of the virtual time and its channel's last finish tag, its finish tag lies `bytes / weight`
//! behind; the smallest start tag is served, and the virtual time is that tag. No link rate has to
//! be known, and a channel that was idle is owed nothing for it.

use super::{Member, Scheduler};
use crate::event::ChannelId;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Virtual time that a byte takes at weight 1: a fraction of it is exact enough at weight 65,535.
const TICKS_PER_BYTE: u128 = 1 << 16;

/// In line, least first: start tag, order of entering among equals, channel, weight.
type Entry<M> = Reverse<(u128, u64, M, u16)>;

/// The line, and what each channel was served.
#[derive(Debug)]
pub(crate) struct WeightedFair<M = ChannelId> {
    line: BinaryHeap<Entry<M>>,
    /// Finish tags by the channel's place, and whose they are.
    finished: Vec<(Option<M>, u128)>,
    virtual_time: u128,
    entered: u64,
}

impl<M: Member> Default for WeightedFair<M> {
    fn default() -> Self {
        let (line, finished) = (BinaryHeap::new(), Vec::new());
        Self { line, finished, virtual_time: 0, entered: 0 }
    }
}

impl<M: Member> WeightedFair<M> {
    fn line_up(&mut self, start: u128, channel: M, weight: u16) {
        self.line.push(Reverse((start, self.entered, channel, weight)));
        self.entered += 1;
    }

    fn note_finish(&mut self, channel: M, finish: u128) {
        let place = channel.place();
        if self.finished.len() <= place {
            self.finished.resize(place + 1, (None, 0));
        }
        self.finished[place] = (Some(channel), finish);
    }
}

impl<M: Member> Scheduler<M> for WeightedFair<M> {
    fn enter(&mut self, channel: M, weight: u16) {
        let before = self.finished.get(channel.place());
        let finish = before.filter(|(of, _)| *of == Some(channel)).map_or(0, |&(_, finish)| finish);
        self.line_up(finish.max(self.virtual_time), channel, weight);
    }

    fn turn(&self) -> Option<M> {
        self.line.peek().map(|Reverse((_, _, channel, _))| *channel)
    }

    fn waiting(&self) -> usize {
        self.line.len()
    }

    fn served(&mut self, bytes: u32, more: Option<u16>) {
        let Some(Reverse((start, _, channel, weight))) = self.line.pop() else { return };
        let weight = more.unwrap_or(weight);
        self.virtual_time = self.virtual_time.max(start);
        let finish = start + u128::from(bytes) * TICKS_PER_BYTE / u128::from(weight.max(1));
        self.note_finish(channel, finish);
        if more.is_some() {
            self.line_up(finish, channel, weight);
        }
    }

    fn pass(&mut self) {
        self.line.pop();
    }

    fn remove(&mut self, channel: M) {
        self.line.retain(|Reverse((_, _, other, _))| *other != channel);
    }

    fn clear(&mut self) {
        self.line.clear();
    }
}
