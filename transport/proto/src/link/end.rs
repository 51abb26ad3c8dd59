//! How messages, channels and the link end.

use super::Link;
use super::control::Control;
use crate::carrier::Carrier;
use crate::channel::ChannelState;
use crate::event::{ChannelId, CloseReason, DownReason, Event, PathId};
use crate::limits::CONTROL_PATH;
use crate::path::{PathSignal, bit};
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
    /// Sends CLOSE for a channel that wants to close and has nothing left to send.
    pub(super) fn close_when_done(&mut self, id: u32) {
        let Some(channel) = self.channel_mut(id) else { return };
        if channel.state == ChannelState::Closing && channel.tx.live == 0 {
            channel.state = ChannelState::CloseSent;
            self.control.push(Control::of(Kind::Close, id));
        }
    }

    /// Ends a channel. Its place stays taken while the application holds buffers of it.
    pub(super) fn end_channel(&mut self, id: u32, reason: CloseReason) {
        let Some(channel) = self.channel_mut(id) else { return };
        if channel.state == ChannelState::Drained {
            return;
        }
        channel.state = ChannelState::Drained;
        self.end_messages(Some(id));
        self.events.push_back(Event::Closed { channel: ChannelId(id), reason });
        self.free_channel_when_drained(id);
    }

    /// Ends all messages, or those of a channel, without asking the peer. Whole ones that were
    /// received stay for the application.
    fn end_messages(&mut self, of: Option<u32>) {
        let Self { sends, channels, events, stats, .. } = self;
        sends.end_all(channels, of, (events, stats));
        let (receives, channels, mut report) = self.receiving();
        receives.drop_all(of, channels, &mut report);
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
        self.channels.schedule.remove(id);
        self.channels.starved.retain(|&other| other != id);
        self.channels.credit_due.retain(|&other| other != id);
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
        let no_work = self.sends.len() == 0 && self.ops_live() == 0;
        if no_work && self.control.len() == 0 {
            self.end.state = LinkState::GoodbyeSent;
            self.control.push(Control::of(Kind::Goodbye, 0));
        }
    }

    /// Ends without a word to the peer. What was sent and not acknowledged is in doubt.
    pub fn cut(&mut self) {
        self.settle_piggyback();
        self.go_down(DownReason::Local);
    }

    /// The driver ends the link at once, and says why.
    pub fn give_up(&mut self, reason: DownReason) {
        self.settle_piggyback();
        self.go_down(reason);
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
        self.part_with(now, index);
    }

    /// The queue pair of a path is not used any more.
    pub(super) fn part_with(&mut self, now: Time, index: usize) {
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
        self.control.push(Control::of(Kind::Renew, CONTROL_PATH));
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
        self.end_messages(None);
        if let Some(lane) = &mut self.lane {
            lane.end_all();
        }
        self.control.clear();
        self.channels.schedule.clear();
        self.channels.starved.clear();
        self.channels.credit_due.clear();
        self.sends.lost.clear();
        (self.paths.acks_due, self.paths.answers_due) = (0, 0);
        self.paths.probes_due = 0;
    }
}
