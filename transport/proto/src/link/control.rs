//! Control chunks: OPEN, CLOSE, ABANDON and their like, sent reliably beside the data.

use super::presence::greeting;
use super::{Link, LinkState};
use crate::channel::{ChannelState, Closed, Place};
use crate::config::LinkConfig;
use crate::event::{CloseReason, DownReason, Outcome};
use crate::limits::CONTROL_QUEUE_MAX;
use crate::limits::{CONTROL_OUTSTANDING_MAX, CONTROL_WINDOW};
use crate::slots::Key;
use crate::slots::Slots;
use crate::wire::{ChunkHeader, Kind};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use towpath_base::Time;
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

/// Control chunks that wait, are under way, or have come.
#[derive(Debug)]
pub(super) struct Controls {
    /// Those that wait; see [`CONTROL_QUEUE_MAX`].
    pub(super) queue: VecDeque<Control>,
    pub(super) sent: Slots<Control>,
    pub(super) lost: VecDeque<(Key, u8)>,
    pub(super) next: u64,
    /// Sequences of ours that were acknowledged, and of the peer's that were taken.
    pub(super) acked: WindowBitmap,
    pub(super) seen: WindowBitmap,
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
}

/// Verdicts of ABANDONED on the wire (docs/protocol.md section 3).
const VERDICT_ABANDONED: u32 = 0;
const VERDICT_DELIVERED: u32 = 1;

impl Link {
    /// Takes in a control chunk once; false when it cannot be taken now and must come again. The
    /// sequence number tells a copy: one that comes late must not open a closed channel again.
    pub(super) fn on_control(&mut self, now: Time, header: ChunkHeader) -> bool {
        let sequence = expand_u32(header.offset, self.control.seen.base());
        if self.control.seen.contains(sequence) {
            return true;
        }
        if !self.control.seen.reaches(sequence) {
            self.stats.violations += 1;
            return false;
        }
        let taken = self.obey_control(now, &header);
        if taken {
            self.control.seen.insert(sequence);
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
                if let Some(channel) = self.channel_mut(header.channel) {
                    channel.rx.credit_asked = true;
                }
                self.tell_credit_when_due(header.channel);
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
        let room = self.control.queue.len() < CONTROL_QUEUE_MAX;
        if room {
            self.control.queue.push_back(control);
        }
        room
    }

    /// ABANDON (docs/protocol.md section 7).
    fn on_abandon(&mut self, header: &ChunkHeader) -> bool {
        let id = header.message;
        let Some(channel) = self.channel_mut(header.channel) else { return true };
        let Ok(place) = channel.rx.place(id) else {
            self.stats.violations += 1;
            return false;
        };
        let verdict = match place {
            Place::Closed(Closed::Delivered) => VERDICT_DELIVERED,
            _ => VERDICT_ABANDONED,
        };
        let answer =
            Control { message: id, index: verdict, ..Control::of(Kind::Abandoned, header.channel) };
        if !self.answer(answer) {
            return false;
        }
        // Pieces that were cut and never came used credit all the same.
        let received = match place {
            Place::Closed(_) => header.index,
            Place::Open(key) => self.receives.messages.get(key.0).map_or(0, |m| m.pieces_begun()),
            Place::New => 0,
        };
        let channel = self.channel_mut(header.channel).expect("found above");
        channel.rx.forgo(header.index.saturating_sub(received));
        match place {
            Place::Closed(_) => {}
            Place::Open(incoming) => self.drop_incoming(incoming.0, Closed::Abandoned),
            Place::New => channel.rx.close(id, Closed::Abandoned),
        }
        self.tell_credit_when_due(header.channel);
        self.take_turns(header.channel);
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
        let Some(&control) = self.control.sent.get(key) else { return };
        self.control.sent.free(key);
        self.control.acked.insert(control.sequence);
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
                    lane.life.on_told_acked(control.channel);
                }
            }
            _ => {}
        }
    }
}
