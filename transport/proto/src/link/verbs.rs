//! What control chunks ask for: OPEN, CLOSE, ABANDON and their like.

use super::channels::note_credit;
use super::control::{Arrived, Control};
use super::{Channels, Link, LinkState, find_mut};
use crate::channel::{ChannelState, Closed};
use crate::event::{CloseReason, DownReason, Outcome};
use crate::slots::Key;
use crate::wire::{ChunkHeader, Kind};
use towpath_base::Time;

/// Verdicts of ABANDONED on the wire (docs/protocol.md section 3).
const VERDICT_ABANDONED: u32 = 0;
const VERDICT_DELIVERED: u32 = 1;

impl Link {
    /// Takes in a control chunk once; false when it cannot be taken now and must come again.
    pub(super) fn on_control(&mut self, now: Time, header: ChunkHeader) -> bool {
        let sequence = match self.control.arrived(header.offset) {
            Arrived::Known => return true,
            Arrived::New(sequence) => sequence,
            Arrived::Beyond => {
                self.stats.violations += 1;
                return false;
            }
        };
        let taken = self.obey_control(now, &header);
        if taken {
            self.control.on_taken(sequence);
        }
        taken
    }

    fn obey_control(&mut self, now: Time, header: &ChunkHeader) -> bool {
        match header.kind {
            Kind::Data | Kind::Ping | Kind::Probe => {}
            Kind::Open => return self.on_open(header),
            Kind::Opened => self.on_opened(header),
            Kind::Close => self.end_channel(header.channel, CloseReason::Peer),
            Kind::Abandon => return self.on_abandon(header),
            Kind::Abandoned => self.on_abandoned(header),
            Kind::CreditProbe => {
                let Channels { all, credit_due, .. } = &mut self.channels;
                if let Some(channel) = find_mut(all, header.channel) {
                    channel.rx.credit_asked = true;
                    note_credit(channel, credit_due);
                }
            }
            Kind::Renew => self.on_renew(now, header),
            Kind::Lane => self.on_lane(now, header),
            Kind::Grant => self.on_grant(header),
            Kind::Revoke => self.on_revoke(header),
            Kind::Goodbye => {
                self.end.state = match self.end.state {
                    down @ LinkState::Down(_) => down,
                    _ => LinkState::GoodbyeSeen,
                };
            }
        }
        true
    }

    /// Queues an answer that a peer caused; false when a flood of them has filled the queue.
    pub(super) fn answer(&mut self, control: Control) -> bool {
        let has_room = !self.control.is_full();
        if has_room {
            self.control.push(control);
        }
        has_room
    }

    /// ABANDON (docs/protocol.md section 7).
    fn on_abandon(&mut self, header: &ChunkHeader) -> bool {
        if self.control.is_full() {
            return false;
        }
        let (receives, channels, mut report) = self.receiving();
        let Some(channel) = find_mut(channels, header.channel) else { return true };
        let given_up = (header.message, header.index);
        let Ok(verdict) = receives.abandon(channel, given_up, &mut report) else {
            self.stats.violations += 1;
            return false;
        };
        let index = match verdict {
            Closed::Delivered => VERDICT_DELIVERED,
            Closed::Abandoned => VERDICT_ABANDONED,
        };
        let (message, answer) = (header.message, Control::of(Kind::Abandoned, header.channel));
        self.control.push(Control { message, index, ..answer });
        true
    }

    fn on_abandoned(&mut self, header: &ChunkHeader) {
        let channel = self.channel(header.channel);
        let meant = channel.and_then(|found| found.tx.abandoning.get(&header.message).copied());
        let outcome = match header.index {
            VERDICT_DELIVERED => Outcome::Delivered,
            _ => Outcome::Abandoned,
        };
        if let Some(send) = meant {
            self.end_send(send, outcome);
        }
    }

    /// One of our control chunks was acknowledged, for the first time or again.
    pub(super) fn on_control_acked(&mut self, key: Key) {
        let Some(control) = self.control.on_acked(key) else { return };
        match control.kind {
            Kind::Close => {
                let sent = |state| state == ChannelState::CloseSent;
                if self.channel(control.channel).is_some_and(|c| sent(c.state)) {
                    self.end_channel(control.channel, CloseReason::Local);
                }
            }
            Kind::Goodbye => self.go_down(DownReason::Local),
            Kind::Lane => {
                if let Some(lane) = &mut self.lane {
                    lane.on_told_acked(control.channel);
                }
            }
            _ => {}
        }
    }
}
