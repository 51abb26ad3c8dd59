//! How messages, channels and the link end.

use super::control::Control;
use super::{Link, Receives};
use crate::carrier::Carrier;
use crate::channel::{ChannelState, Closed, SendState};
use crate::event::{ChannelId, CloseReason, DownReason, Event, Outcome, PathId, SendKey};
use crate::limits::CONTROL_PATH;
use crate::path::{PathSignal, bit};
use crate::slots::Key;
use crate::wire::Kind;
use towpath_base::Time;

/// Where the link is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LinkState {
    #[default]
    Up,
    /// We want to leave: GOODBYE goes out when everything sent has had its outcome.
    Leaving,
    /// GOODBYE is on its way.
    GoodbyeSent,
    /// The peer said goodbye; down as soon as that is acknowledged.
    GoodbyeSeen,
    Down(DownReason),
}

/// Whether the link is there, and how it ended.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) state: LinkState,
    /// The application was told that it is down.
    pub(super) down_told: bool,
}

impl Link {
    /// Gives a message its outcome; it is reported when the device holds none of its buffers.
    #[inline]
    pub(super) fn end_send(&mut self, send: SendKey, outcome: Outcome) {
        let Some(message) = self.sends.messages.get_mut(send.0) else { return };
        let (state, channel_id, id) = (message.state, message.channel, message.id);
        if matches!(state, SendState::Ended(_)) {
            return;
        }
        message.state = SendState::Ended(outcome);
        let queued = message.is_in_queue() && state != SendState::Abandoning;
        let (token, grows) = (message.token, message.growing.is_some());
        let posted = message.posted;
        if queued {
            self.leave_queue(channel_id);
        }
        if grows {
            self.leave_growing(send);
        }
        match outcome {
            Outcome::Delivered => self.stats.messages_delivered += 1,
            Outcome::Abandoned => self.stats.messages_abandoned += 1,
            Outcome::Unknown => {}
        }
        if let Some(channel) = self.channel_mut(channel_id) {
            channel.tx.live -= 1;
            let is_closing = channel.state == ChannelState::Closing;
            if state == SendState::Abandoning {
                channel.tx.abandoning.remove(&id);
            }
            if state != SendState::Queued {
                channel.tx.end_id(id);
                // A new id may have come within reach.
                if !channel.tx.queue.is_empty() && !channel.tx.is_ready {
                    self.make_ready(channel_id);
                }
            }
            if is_closing {
                self.close_when_done(channel_id);
            }
        }
        if posted == 0 {
            self.events.push_back(Event::Sent { send, token, outcome });
        }
    }

    /// Sends CLOSE for a channel that wants to close and has nothing left to send.
    pub(super) fn close_when_done(&mut self, id: u32) {
        let Some(channel) = self.channel_mut(id) else { return };
        if channel.state == ChannelState::Closing && channel.tx.live == 0 {
            channel.state = ChannelState::CloseSent;
            self.control.queue.push_back(Control::of(Kind::Close, id));
        }
    }

    /// Ends a channel. Its place stays taken while the application holds buffers of it.
    pub(super) fn end_channel(&mut self, id: u32, reason: CloseReason) {
        let Some(channel) = self.channel_mut(id) else { return };
        if channel.state == ChannelState::Drained {
            return;
        }
        channel.state = ChannelState::Drained;
        self.end_sends_of(Some(id));
        self.drop_incoming_of(Some(id));
        self.events.push_back(Event::Closed { channel: ChannelId(id), reason });
        self.free_channel_when_drained(id);
    }

    /// Frees the place of an ended channel once no buffer of it is out.
    pub(super) fn free_channel_when_drained(&mut self, id: u32) {
        let Some(channel) = self.channel(id) else { return };
        if channel.state != ChannelState::Drained || channel.rx.held() > 0 {
            return;
        }
        if !channel.for_lane {
            self.channels.quota_sum -= channel.rx.quota();
        }
        self.channels.open -= 1;
        self.channels.all[ChannelId(id).place()] = None;
        self.channels.schedule.remove(ChannelId(id));
        self.channels.starved.retain(|&other| other != id);
        self.channels.credit_due.retain(|&other| other != id);
    }

    /// Ends all messages being sent, or those of one channel, without asking the peer.
    fn end_sends_of(&mut self, channel: Option<u32>) {
        let mut keys = core::mem::take(&mut self.sends.ended_scratch);
        keys.extend(self.sends.messages.keys().map(SendKey));
        for send in keys.drain(..) {
            let Some(message) = self.sends.messages.get(send.0) else { continue };
            if channel.is_some_and(|id| message.channel != id) {
                continue;
            }
            let outcome = match message.state {
                SendState::Queued => Outcome::Abandoned,
                _ => Outcome::Unknown,
            };
            self.end_send(send, outcome);
        }
        self.sends.ended_scratch = keys;
    }

    /// Drops all half-received messages, or those of one channel; whole ones stay for the
    /// application.
    fn drop_incoming_of(&mut self, channel: Option<u32>) {
        let mut keys = core::mem::take(&mut self.control.scratch);
        keys.extend(self.receives.messages.keys());
        for key in keys.drain(..) {
            let Some(message) = self.receives.messages.get(key) else { continue };
            let is_meant = channel.is_none_or(|id| message.channel == id);
            if is_meant && !message.delivered {
                self.drop_incoming(key, Closed::Abandoned);
            }
        }
        self.control.scratch = keys;
    }

    /// Drops one message: gives its buffers back, and calls the cleanup of a streaming reader.
    pub(super) fn drop_incoming(&mut self, key: Key, verdict: Closed) {
        let Self { events, receives: Receives { messages: incoming, .. }, .. } = self;
        let Some(message) = incoming.get_mut(key) else { return };
        let (channel_id, id, begun) = (message.channel, message.id, message.stream_begun());
        let mut held = 0;
        for buf in message.drain_partials() {
            events.push_back(Event::Recycled { buf });
            held += 1;
        }
        for chunk in message.chunks.drain(..) {
            events.push_back(Event::Recycled { buf: chunk.buf });
            held += 1;
        }
        self.receives.messages.free(key);
        if begun {
            let incoming = crate::event::IncomingKey(key);
            let channel = ChannelId(channel_id);
            self.events.push_back(Event::StreamAborted { channel, incoming });
        }
        if let Some(channel) = self.channel_mut(channel_id) {
            channel.rx.close(id, verdict);
            channel.rx.forget(id);
            channel.rx.release(held);
            self.tell_credit_when_due(channel_id);
        }
    }

    /// Leaves in order: what is queued is still sent, then GOODBYE. Nothing new is taken.
    /// [`Event::Down`] follows when the peer has acknowledged it.
    pub fn goodbye(&mut self) {
        if self.end.state == LinkState::Up {
            self.end.state = LinkState::Leaving;
            self.leave_when_done();
        }
    }

    pub(super) fn leave_when_done(&mut self) {
        if self.end.state != LinkState::Leaving {
            return;
        }
        let no_work = self.sends.messages.len() == 0 && self.ops_live() == 0;
        let done = no_work && self.control.queue.is_empty();
        if done && self.control.sent.len() == 0 {
            self.end.state = LinkState::GoodbyeSent;
            self.control.queue.push_back(Control::of(Kind::Goodbye, 0));
        }
    }

    /// Ends without a word to the peer. What was sent and not acknowledged is in doubt.
    pub fn cut(&mut self) {
        self.settle_piggyback();
        self.go_down(DownReason::Local);
    }

    /// The set-up connection broke: the peer's process is gone.
    pub fn peer_gone(&mut self) {
        self.settle_piggyback();
        let reason = match self.end.state {
            LinkState::GoodbyeSent => DownReason::Local,
            LinkState::GoodbyeSeen => DownReason::Goodbye,
            _ => DownReason::PeerGone,
        };
        self.go_down(reason);
    }

    /// The queue pair of a path is in error, or the carrier that has none has ended. What was under
    /// way on it goes again on another path, and without one the link is down. A queue pair is
    /// made anew: see [`poll_renew`](Self::poll_renew).
    pub fn path_failed(&mut self, now: Time, path: PathId) {
        self.settle_piggyback();
        let index = usize::from(path.0);
        let works = index < self.paths.len() && self.paths.failed() & bit(index) == 0;
        if !works || self.is_down() {
            return;
        }
        if self.paths[index].carrier == Carrier::Tcp {
            return self.fail_path(now, index);
        }
        self.end_queue_pair(now, index);
    }

    /// Nothing goes on a path any more, until it is renewed.
    pub(super) fn fail_path(&mut self, now: Time, index: usize) {
        if self.paths.failed() & bit(index) != 0 {
            return;
        }
        self.stats.paths_failed += 1;
        self.paths.forget_reroute(index);
        self.paths.answers_due &= !bit(index);
        let failed = self.paths.failed() | bit(index);
        if failed.count_ones() as usize == self.paths.len() {
            return self.go_down(DownReason::PathsFailed);
        }
        self.signal_path(now, index, PathSignal::Failed);
        self.send_all_again(index);
        self.leave_failed_carrier(now, index);
    }

    /// The queue pair of acks is in error. Ours leave on the queue pairs of paths from now on, and
    /// so do the peer's, which is told: RENEW of what is no path.
    pub fn acks_failed(&mut self) {
        if self.is_down() || core::mem::replace(&mut self.control.has_failed, true) {
            return;
        }
        self.leave_control();
        self.control.queue.push_back(Control::of(Kind::Renew, CONTROL_PATH));
    }

    /// Acks leave on the queue pairs of paths; the last ones may be lost.
    pub(super) fn leave_control(&mut self) {
        self.control.has_left = true;
        self.paths.acks_due |= self.paths.received();
    }

    /// The device is of no use any more.
    pub fn device_failed(&mut self) {
        self.settle_piggyback();
        self.go_down(DownReason::PathsFailed);
    }

    /// Ends everything. [`Event::Down`] follows when all work requests are back.
    pub(super) fn go_down(&mut self, reason: DownReason) {
        if self.is_down() {
            return;
        }
        self.end.state = LinkState::Down(reason);
        self.end_sends_of(None);
        if let Some(lane) = &mut self.lane {
            lane.end_all();
        }
        self.drop_incoming_of(None);
        self.control.queue.clear();
        self.control.lost.clear();
        self.channels.schedule.clear();
        self.channels.starved.clear();
        self.channels.credit_due.clear();
        self.sends.lost.clear();
        (self.paths.acks_due, self.paths.answers_due) = (0, 0);
        self.paths.probes_due = 0;
    }
}
