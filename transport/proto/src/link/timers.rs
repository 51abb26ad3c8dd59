//! The timers of a link: a table of kinds and paths, and what each does.

use super::control::Control;
use super::{Link, LinkState};
use crate::event::DownReason;
use crate::limits::CONTROL_OUTSTANDING_MAX;
use crate::listed;
use crate::path::{PathSignal, PathState, TailProbe, bit, places};
use crate::wire::Kind;
use towpath_base::{Nanos, Time};

/// The first credit probe comes after so many round trips: a grant comes with an ack, and an ack
/// that is late by more than one is lost.
const CREDIT_PROBE_RTTS: u64 = 4;

/// The first credit probe comes no sooner and no later: a reader may take its time for good
/// reasons, and nothing else would tell of a lost grant.
const CREDIT_PROBE_MIN: Nanos = Nanos::from_micros(50);
const CREDIT_PROBE_MAX: Nanos = Nanos::from_millis(2);

/// Its interval doubles up to this.
const CREDIT_PROBE_LONGEST: Nanos = Nanos::from_millis(512);

/// How often timers are looked at, at least, in the time after which a silent peer is gone: who
/// does not come by for twice as long was away.
const LOOKS_IN_SILENCE: u64 = 4;

/// Doublings from the shortest interval to beyond the longest.
const CREDIT_PROBE_DOUBLINGS: u32 = 14;

listed! {
    /// What time demands, in the order in which it is done. [`Link::timer`] says when.
    #[derive(Clone, Copy, Debug)]
    enum Timer {
        /// The carrier in use was silent for too long, or others are to be probed.
        Carriers,
        /// A path: its newest number is overdue (a tail-loss probe, then a retransmission timeout),
        /// or one that was overtaken counts as lost.
        Loss,
        /// A path among others: its oldest number is overdue by an SLA tick.
        Tick,
        /// A path that is not good: the next probe, or the end of its quarantine.
        Condition,
        /// A path that is asked for a packet size: the next pair of probes, or the verdict on one.
        Mtu,
        /// A path whose queue pair failed: [`Link::poll_renew`] tells the driver to make the next
        /// one.
        Remake,
        /// The deadline of a message.
        Deadline,
        /// The deadline of an operation; the next life of the lane; its pace.
        Lane,
        /// Channels starve: a grant may be lost.
        Credit,
        /// The peer has been silent: it is asked for a sign of life, or it is gone.
        Peer,
        /// The pacer lets the next chunk go: [`Link::poll_transmits`] sends it.
        Pacer,
    }
}

impl Link {
    /// The earliest time at which [`handle_timeout`](Self::handle_timeout) or
    /// [`poll_transmit`](Self::poll_transmit) has something to do; [`Time::NEVER`] when down.
    #[must_use]
    pub fn poll_timeout(&self) -> Time {
        if self.is_down() {
            return Time::NEVER;
        }
        // Kind by kind: every turn asks, and a loop over the table tells the kinds apart each time.
        let at = self.earliest(Timer::Carriers).min(self.earliest(Timer::Loss));
        let at = at.min(self.earliest(Timer::Tick)).min(self.earliest(Timer::Condition));
        let at = at.min(self.earliest(Timer::Mtu)).min(self.earliest(Timer::Remake));
        let at = at.min(self.earliest(Timer::Deadline)).min(self.earliest(Timer::Lane));
        let at = at.min(self.earliest(Timer::Credit)).min(self.earliest(Timer::Peer));
        let at = at.min(self.earliest(Timer::Pacer));
        let all = || Timer::ALL.iter().map(|&timer| self.earliest(timer)).min();
        debug_assert_eq!(Some(at), all(), "no kind is left out");
        at
    }

    /// The earliest of all timers of a kind.
    #[inline(always)]
    fn earliest(&self, timer: Timer) -> Time {
        let mut earliest = Time::NEVER;
        // Not by `fold`, which stays a call for each kind.
        for index in places(self.paths_of(timer)) {
            earliest = earliest.min(self.timer(timer, index));
        }
        earliest
    }

    /// The paths that have a timer of a kind. One that belongs to no path is looked at once.
    #[inline(always)]
    fn paths_of(&self, timer: Timer) -> u16 {
        match timer {
            Timer::Loss => self.paths.busy(),
            Timer::Tick if self.paths.has_choice() => self.paths.busy(),
            Timer::Tick => 0,
            Timer::Condition => self.paths.watched(),
            Timer::Mtu => self.paths.mtus_asked,
            Timer::Remake if self.end.state == LinkState::Up => self.paths.failed(),
            Timer::Remake => 0,
            _ => bit(0),
        }
    }

    /// When a timer is due.
    #[inline(always)]
    fn timer(&self, timer: Timer, index: usize) -> Time {
        match timer {
            Timer::Carriers => self.paths.ladder.due(),
            Timer::Loss => self.paths[index].timer(&self.flow),
            Timer::Tick => self.paths[index].tick_due(&self.flow, self.paths.sla_tick),
            Timer::Condition => self.paths[index].condition.due(),
            Timer::Mtu => self.paths[index].mtu.due(),
            Timer::Remake => self.paths[index].remake.due(),
            Timer::Deadline => self.sends.next_deadline(),
            Timer::Lane => self.lane.as_ref().map_or(Time::NEVER, |lane| lane.due()),
            Timer::Credit => self.presence.probe_at,
            Timer::Peer => self.sign_of_life_due(),
            Timer::Pacer => self.flow.paced_until,
        }
    }

    /// Does what time demands. Calling it early or late is harmless.
    pub fn handle_timeout(&mut self, now: Time) {
        self.settle_piggyback();
        if self.is_down() {
            return;
        }
        self.excuse_absence(now);
        for &timer in Timer::ALL {
            for index in places(self.paths_of(timer)) {
                self.look_at(now, timer, index);
                if matches!(timer, Timer::Loss) && self.paths.has_choice() {
                    // Before the next path: what one has lost is a reason to ask all of them.
                    self.look_at(now, Timer::Tick, index);
                }
            }
        }
        self.leave_when_done();
    }

    /// Does what a timer demands, if it is due.
    fn look_at(&mut self, now: Time, timer: Timer, index: usize) {
        if self.timer(timer, index) > now {
            return;
        }
        match timer {
            Timer::Carriers => self.ask_other_carriers(now),
            Timer::Loss => self.on_path_timer(now, index),
            Timer::Tick => self.on_path_silent(now, index),
            Timer::Condition => self.watch_path(now, index),
            Timer::Mtu => self.watch_mtu(now, index),
            Timer::Deadline => self.expire_sends(now),
            Timer::Lane => {
                if let Some(lane) = &mut self.lane {
                    lane.on_timeout(now);
                }
            }
            Timer::Credit => self.probe_for_credit(now),
            Timer::Peer => self.watch_peer(now),
            Timer::Remake | Timer::Pacer => {}
        }
    }

    /// When to ask for a sign of life, or to stop waiting for one.
    fn sign_of_life_due(&self) -> Time {
        if !self.awaits_answer() {
            return self.presence.last_heard + self.config.times.ping_interval();
        }
        let look =
            self.presence.looked_at + Nanos(self.config.times.peer_timeout.0 / LOOKS_IN_SILENCE);
        look.min(self.silent_since() + self.config.times.peer_timeout)
    }

    /// Since when the peer has been silent while we could have heard it.
    fn silent_since(&self) -> Time {
        self.presence.last_heard.max(self.presence.excused_until)
    }

    /// For how long the peer has been silent while an answer was due.
    #[must_use]
    pub fn silence(&self, now: Time) -> Nanos {
        if self.awaits_answer() { now.since(self.silent_since()) } else { Nanos::ZERO }
    }

    /// A host that was away, suspended or without a processor, has heard nothing meanwhile, and
    /// a peer on the same host has said nothing: its silence counts from now.
    fn excuse_absence(&mut self, now: Time) {
        let before = core::mem::replace(&mut self.presence.looked_at, now);
        if now.since(before).0 > self.config.times.peer_timeout.0 / 2 {
            self.presence.excused_until = now;
        }
    }

    fn awaits_answer(&self) -> bool {
        // A probe of a path may stay without an answer while the peer is well.
        self.flow.in_flight_bytes > 0 || !self.sends.lost.is_empty() || self.control.waits()
    }

    fn on_path_timer(&mut self, now: Time, index: usize) {
        if self.paths[index].is_overtaken(now) {
            self.find_losses(now, index);
            if self.paths[index].timer(&self.flow) > now {
                return;
            }
        }
        let path = &mut self.paths[index];
        match path.timing.tail_probe {
            TailProbe::Idle if path.has_number_for_probe() => {
                path.timing.tail_probe = TailProbe::Due;
                self.paths.tails_due |= bit(index);
            }
            // It is late for a probe, and no later: the one that has the last number is waited for.
            TailProbe::Idle => path.timing.tail_probe = TailProbe::Sent,
            TailProbe::Due => {}
            TailProbe::Sent if path.carrier.is_reliable() => {
                let may_ask = path.has_number_for_probe();
                path.timing.on_silence(now, may_ask);
                self.paths.tails_due |= bit(index);
            }
            TailProbe::Sent => {
                self.on_rto(now, index);
                self.suspect_mtu(now, index, true);
            }
        }
    }

    /// The retransmission timeout: everything outstanding on a path is lost. While other paths
    /// answer that is the path's fault and says nothing of congestion.
    fn on_rto(&mut self, now: Time, index: usize) {
        self.stats.rtos += 1;
        let path = &mut self.paths[index];
        let (had_data, is_good) =
            (path.tx.in_flight_bytes() > 0, path.condition.state() == PathState::Good);
        path.timing.on_rto(now);
        let is_alone = self.paths.has_choice() && self.paths.others_answer(index);
        if is_alone && is_good && self.may_doubt(now) {
            return self.signal_path(now, index, PathSignal::Silent);
        }
        if had_data && (is_good || !is_alone) {
            self.tell_of_timeout(now, index);
        }
        self.send_all_again(index);
        if !self.paths.has_choice() {
            self.move_the_only(now, index);
        } else if is_good || self.paths.good() == 0 {
            self.ask_all(now, index);
        }
    }

    /// The only path has timed out again, and nothing was acknowledged for an SLA tick: it tries
    /// another source port, where the device can, at each further timeout.
    fn move_the_only(&mut self, now: Time, index: usize) {
        let sla_tick = self.paths.sla_tick;
        let path = &self.paths[index];
        if path.timing.rto_count() == 1 {
            self.paths.end_silence();
        } else if self.paths.can_move()
            && now >= path.timing.tick_from() + sla_tick
            && self.paths.move_only(now, index)
        {
            self.paths[index].timing.hold_back_off();
        }
    }

    /// Tells the controller, once for all paths that time out together.
    fn tell_of_timeout(&mut self, now: Time, index: usize) {
        if self.paths.has_choice() && now < self.doubts.next_rto_at {
            return;
        }
        self.doubts.next_rto_at = now + self.paths[index].timing.rto(&self.flow);
        self.flow.on_rto(now);
    }

    /// A grant whose ack was lost is not told again by itself: a channel that has waited without
    /// credit asks (docs/protocol.md section 6).
    fn probe_for_credit(&mut self, now: Time) {
        self.presence.probe_at = Time::NEVER;
        let probes_before = self.stats.credit_probes;
        for _ in 0..self.channels.starved.len().min(CONTROL_OUTSTANDING_MAX) {
            let Some(id) = self.channels.starved.pop_front() else { break };
            let Some(channel) = self.channel_mut(id) else { continue };
            channel.tx.is_listed_starved = channel.tx.is_starved();
            if channel.tx.is_listed_starved {
                self.channels.starved.push_back(id);
                self.control.push(Control::of(Kind::CreditProbe, id));
                self.stats.credit_probes += 1;
            }
        }
        self.presence.probes_unanswered += u32::from(self.stats.credit_probes > probes_before);
        self.arm_credit_probe(now);
    }

    /// Starts the timer of the next credit probe when channels starve.
    #[inline]
    pub(super) fn arm_credit_probe(&mut self, now: Time) {
        if !self.channels.starved.is_empty() {
            self.arm_credit_probe_of_starved(now);
        }
    }

    #[inline(never)]
    fn arm_credit_probe_of_starved(&mut self, now: Time) {
        if self.presence.probe_at == Time::NEVER {
            let doublings = self.presence.probes_unanswered.min(CREDIT_PROBE_DOUBLINGS);
            let rtt = self.flow.rtt.smoothed().unwrap_or(CREDIT_PROBE_MAX);
            let first = rtt.saturating_mul(CREDIT_PROBE_RTTS);
            let first = first.clamp(CREDIT_PROBE_MIN, CREDIT_PROBE_MAX);
            let span = first.saturating_mul(1 << doublings).min(CREDIT_PROBE_LONGEST);
            self.presence.probe_at = now + span;
        }
    }

    fn watch_peer(&mut self, now: Time) {
        if self.awaits_answer() {
            let silent = now.since(self.silent_since());
            if silent < self.config.times.peer_timeout {
                return;
            }
            let reason = match self.end.state {
                LinkState::GoodbyeSent => DownReason::Local,
                _ => DownReason::Silent(silent),
            };
            self.go_down(reason);
        } else if now >= self.presence.last_heard + self.config.times.ping_interval() {
            self.control.push(Control::of(Kind::Ping, 0));
        }
    }
}
