//! Round robin: a piece of each channel in turn.

use super::Scheduler;
use crate::event::ChannelId;
use alloc::collections::VecDeque;

/// The channels in the order of their turns.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    line: VecDeque<ChannelId>,
}

impl Scheduler for RoundRobin {
    fn enter(&mut self, channel: ChannelId, _weight: u16) {
        self.line.push_back(channel);
    }

    fn turn(&self) -> Option<ChannelId> {
        self.line.front().copied()
    }

    fn waiting(&self) -> usize {
        self.line.len()
    }

    fn served(&mut self, _bytes: u32, more: Option<u16>) {
        if more.is_none() {
            self.line.pop_front();
        } else if self.line.len() > 1 {
            self.line.rotate_left(1);
        }
    }

    fn pass(&mut self) {
        self.line.pop_front();
    }

    fn remove(&mut self, channel: ChannelId) {
        self.line.retain(|&other| other != channel);
    }

    fn clear(&mut self) {
        self.line.clear();
    }
}
