//! The receiving half of a flow: what is expected, and what it answers.

use super::frame::FrameKind;
use super::{NicConfig, Repair};
use std::collections::BTreeSet;
use towpath_base::Time;

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(super) struct Receiver {
    config: NicConfig,
    /// The first packet that is missing.
    expected: u64,
    /// Packets behind it that have come, where they are kept.
    kept: BTreeSet<u64>,
    /// The sender was told of what is missing now.
    has_complained: bool,
    /// It sends no notification of congestion before this.
    silent_until: Time,
}

impl Receiver {
    pub(super) fn new(config: NicConfig) -> Self {
        Self {
            config,
            expected: 0,
            kept: BTreeSet::new(),
            has_complained: false,
            silent_until: Time::ZERO,
        }
    }

    /// Whether a packet that a switch has marked is answered by a notification.
    pub(super) fn notifies(&mut self, now: Time) -> bool {
        let Some(dcqcn) = self.config.dcqcn else { return false };
        let notifies = now >= self.silent_until;
        if notifies {
            self.silent_until = now + dcqcn.notify_every;
        }
        notifies
    }

    /// A packet of data has come; returns the answer, if there is one.
    pub(super) fn on_data(&mut self, number: u64, wants_ack: bool) -> Option<FrameKind> {
        if number > self.expected {
            return self.on_early(number);
        }
        let is_repeated = number < self.expected;
        if !is_repeated {
            self.expected += 1;
            while self.kept.remove(&self.expected) {
                self.expected += 1;
            }
            self.has_complained = false;
        }
        // What fills a gap is acknowledged at once: the sender waits for it.
        let fills = !is_repeated && self.expected > number + 1;
        (wants_ack || is_repeated || fills).then_some(FrameKind::Ack { expected: self.expected })
    }

    fn on_early(&mut self, number: u64) -> Option<FrameKind> {
        let gap = FrameKind::Gap { expected: self.expected, came: number };
        match self.config.repair {
            Repair::Packet => {
                self.kept.insert(number);
                Some(gap)
            }
            Repair::Window | Repair::Message => {
                (!std::mem::replace(&mut self.has_complained, true)).then_some(gap)
            }
        }
    }
}
