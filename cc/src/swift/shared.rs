//! The fabric's window where others share the wire who know nothing of delay targets.

use towpath_base::{Nanos, Time};

use super::delays::Delays;
use super::losses::Losses;
use super::window::Acked;
use crate::limits::{
    SHARED_DECREASE, SHARED_LATE_ROUNDS, SHARED_LOST_PACKETS_MIN, SHARED_OURS_PART, SHARED_PACE,
    SHARED_PACE_DOUBLING, SHARED_PACED_RTT, SHARED_PACKETS_MIN, SHARED_START_BYTES,
    SHARED_STEADY_ROUNDS, SHARED_STEP_SPAN, SHARED_THEIRS_PART, SHARED_TRIAL_LEAVES,
    SHARED_TRIAL_ROUNDS, SHARED_TRIAL_ROUNDS_MAX, SWIFT_SCALING_PACKETS, SWIFT_SMALL_GROWTH,
    SWIFT_TIMEOUTS_TO_RESET,
};

/// Who keeps the queue that the delay tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    /// This sender: the delay governs.
    Us,
    /// Others, who only yield to loss: loss governs.
    Others,
}

/// A trial: the sender lets go of most of its window for a while, and sees whether the queue does.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The delay above the floor before.
    queue: Nanos,
    /// What the window was.
    packets: f64,
}

/// How the window moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Packets per round trip.
    pub(super) increase: f64,
    /// Of the share of the delay that is above the target.
    pub(super) decrease: f64,
    /// The most that one decrease takes.
    pub(super) decrease_max: f64,
}

/// A window in packets, where a queue may be somebody else's and delays are off by what hosts add.
#[derive(Clone, Debug)]
pub(super) struct SharedWindow {
    packets: f64,
    packets_max: f64,
    shape: Shape,
    starting: bool,
    delays: Delays,
    is_late: bool,
    late_rounds: u32,
    /// What the window and the delay were at the first of them.
    late_from: Option<Trial>,
    /// Rounds in a row in which nothing spoke against growth.
    steady_rounds: u32,
    keeper: Keeper,
    trial: Option<Trial>,
    /// Rounds until the next trial may be, and from the last one to it.
    trial_in: u32,
    trial_rounds: u32,
    /// After a trial the window doubles up to this.
    returns_to: f64,
    losses: Losses,
    decreased_at: Option<Time>,
    /// What the window was, and whether it doubled, before the timeouts of which it is not known
    /// whether they were false.
    before_timeouts: (f64, bool),
}

/// What does not change while an ack is taken in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) now: Time,
    pub(super) srtt: Nanos,
    /// The delay that is wanted, without the noise that is measured here.
    pub(super) target: Nanos,
}

impl SharedWindow {
    pub(super) fn new(
        now: Time,
        packet_bytes: f64,
        packets_max: f64,
        noise_max: Nanos,
        shape: Shape,
    ) -> Self {
        Self {
            packets: (SHARED_START_BYTES as f64 / packet_bytes).max(1.0),
            packets_max,
            shape,
            starting: true,
            delays: Delays::new(now, noise_max),
            is_late: false,
            late_rounds: 0,
            late_from: None,
            steady_rounds: 0,
            keeper: Keeper::Us,
            trial: None,
            trial_in: 0,
            trial_rounds: SHARED_TRIAL_ROUNDS,
            returns_to: 0.0,
            losses: Losses::new(now),
            decreased_at: None,
            before_timeouts: (0.0, false),
        }
    }

    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    /// Counts in packets of another length from now on: each old packet is `by` new ones.
    pub(super) fn scale(&mut self, by: f64) {
        self.packets *= by;
        self.packets_max *= by;
        self.returns_to *= by;
        self.before_timeouts.0 *= by;
        for trial in [&mut self.trial, &mut self.late_from].into_iter().flatten() {
            trial.packets *= by;
        }
    }

    /// The least round trip of late, as far as that is known.
    pub(super) fn base(&self) -> Option<Nanos> {
        self.delays.base()
    }

    /// How many windows may leave in a round trip, where it is so long that they would leave in
    /// bursts: what holds a burst is the queue, not the path.
    pub(super) fn windows_in_round_trip(&self) -> Option<f64> {
        let is_long = self.base().is_some_and(|base| base >= SHARED_PACED_RTT);
        let doubles = self.starting || self.packets < self.returns_to;
        let windows = if doubles { SHARED_PACE_DOUBLING } else { SHARED_PACE };
        is_long.then_some(windows)
    }

    /// How far samples of a round trip are above the least of them, as measured.
    pub(super) fn noise(&self) -> Nanos {
        self.delays.noise()
    }

    pub(super) fn on_ack(&mut self, at: Now, rtt: Option<Nanos>, acked: Acked, may_grow: bool) {
        if let Some(rtt) = rtt {
            self.delays.note(at.now, rtt);
        }
        if self.losses.note(at.now, acked.sent, 0.0) {
            self.yield_to_loss(at.now, at.srtt);
        }
        if self.delays.is_over(at.now) {
            self.on_round(at, may_grow);
        }
        if may_grow && self.trial.is_none() {
            self.grow(at.srtt, acked);
        }
    }

    fn on_round(&mut self, at: Now, may_grow: bool) {
        self.delays.end(at.now, at.srtt);
        let (delay, target) = (self.delays.delay(), at.target + self.noise());
        self.is_late = delay > target;
        self.trial_in = self.trial_in.saturating_sub(1);
        if let Some(trial) = self.trial.take() {
            return self.judge(trial);
        }
        self.steady_rounds = if self.is_late { 0 } else { self.steady_rounds + 1 };
        self.count_late();
        let is_due = match self.keeper {
            Keeper::Us => self.late_rounds >= SHARED_LATE_ROUNDS,
            Keeper::Others => true,
        };
        if is_due && self.trial_in == 0 && may_grow {
            return self.begin_trial(at);
        }
        if self.is_late && self.keeper == Keeper::Us {
            let above = (delay - target).0 as f64 / delay.0.max(1) as f64;
            let least = self.packets.min(SHARED_PACKETS_MIN);
            self.reduce(at.now, at.srtt, self.shape.decrease * above, least);
        }
    }

    /// Counts rounds above the target. Where the window has been halved for it and the queue is
    /// not even nearly so, it is somebody else's.
    fn count_late(&mut self) {
        if !self.is_late {
            self.late_rounds = self.late_rounds.saturating_sub(1);
            let is_over = |from: &Trial| {
                self.steady_rounds >= SHARED_LATE_ROUNDS || self.packets > from.packets
            };
            self.late_from.take_if(|from| is_over(from));
            return;
        }
        self.late_rounds += 1;
        if core::mem::take(&mut self.starting) {
            // The window has doubled since what this delay is of was sent.
            return;
        }
        let now = Trial { queue: self.delays.queue(), packets: self.packets };
        let from = *self.late_from.get_or_insert(now);
        let stays = now.queue.0 as f64 > from.queue.0 as f64 * SHARED_THEIRS_PART;
        if self.keeper == Keeper::Us && now.packets <= from.packets / 2.0 && stays {
            self.settle(Keeper::Others, now.packets);
        }
    }

    fn begin_trial(&mut self, at: Now) {
        let queue = self.delays.queue();
        self.trial = Some(Trial { queue, packets: self.packets });
        self.packets = (self.packets * SHARED_TRIAL_LEAVES).max(1.0).min(self.packets);
        // What is in flight now has to leave first.
        self.delays.begin(at.now + at.srtt, at.srtt);
    }

    /// The queue went with us, or it did not.
    fn judge(&mut self, trial: Trial) {
        let left = self.delays.queue();
        let keeper = if (left.0 as f64) < trial.queue.0 as f64 * SHARED_OURS_PART {
            Keeper::Us
        } else {
            Keeper::Others
        };
        self.settle(keeper, trial.packets);
    }

    /// It is known who keeps the queue; the window was `packets` before that was tried.
    fn settle(&mut self, keeper: Keeper, packets: f64) {
        let twice = (self.trial_rounds * 2).min(SHARED_TRIAL_ROUNDS_MAX);
        self.trial_rounds = if keeper == self.keeper { twice } else { SHARED_TRIAL_ROUNDS };
        self.trial_in = self.trial_rounds;
        self.keeper = keeper;
        (self.late_rounds, self.steady_rounds, self.is_late) = (0, 0, false);
        self.returns_to = match (keeper, self.late_from.take()) {
            // What was given up for their queue is taken back.
            (Keeper::Others, Some(from)) => packets.max(from.packets),
            _ => packets,
        };
    }

    fn grow(&mut self, srtt: Nanos, acked: Acked) {
        let round_trips = acked.round_trips.min(self.packets.max(1.0));
        let acked = acked.packets.min(self.packets.max(1.0));
        let by = if self.starting || self.packets < self.returns_to {
            acked
        } else if self.is_late && self.keeper == Keeper::Us {
            0.0
        } else if self.packets < 1.0 {
            let part = SWIFT_SMALL_GROWTH * self.packets.max(SWIFT_SCALING_PACKETS.0);
            self.shape.increase * acked * part.min(1.0)
        } else {
            self.step(srtt) * round_trips * acked / self.packets
        };
        self.packets = (self.packets + by).min(self.packets_max);
    }

    /// What a round trip adds, in packets.
    fn step(&self, srtt: Nanos) -> f64 {
        // Whoever yields to loss grows by time on long paths, and so does this window.
        let by_time = srtt.0 as f64 / SHARED_STEP_SPAN.0 as f64;
        let doublings = self.steady_rounds.saturating_sub(SHARED_STEADY_ROUNDS).min(30);
        let steady = match self.keeper {
            Keeper::Us => f64::from(1u32 << doublings).min(self.packets / 2.0),
            Keeper::Others => 1.0,
        };
        self.shape.increase * by_time.max(steady).max(1.0)
    }

    /// Takes in that chunks of `sent` packets in all are lost. One packet of each counts as lost,
    /// because a single lost packet costs the whole chunk.
    pub(super) fn on_loss(&mut self, now: Time, srtt: Nanos, (sent, lost): (f64, f64)) {
        let is_congestion = self.losses.note(now, sent, lost);
        if is_congestion || self.keeper == Keeper::Others && self.is_late {
            self.yield_to_loss(now, srtt);
        }
    }

    fn yield_to_loss(&mut self, now: Time, srtt: Nanos) {
        if self.decreased_at.is_some_and(|at| now.since(at) < srtt) {
            return;
        }
        self.losses.on_decrease(now, srtt);
        let least = self.packets.min(SHARED_LOST_PACKETS_MIN);
        // It has doubled since what was lost was sent.
        let share = if self.starting { self.shape.decrease_max } else { SHARED_DECREASE };
        self.reduce(now, srtt, share, least);
    }

    /// A timeout, the last of `in_a_row`.
    pub(super) fn on_rto(&mut self, now: Time, srtt: Nanos, in_a_row: u32) {
        let current = (self.packets, self.starting);
        let before = if in_a_row == 1 { current } else { self.before_timeouts };
        if in_a_row >= SWIFT_TIMEOUTS_TO_RESET {
            self.packets = self.packets.min(1.0);
        }
        self.reduce(now, srtt, self.shape.decrease_max, self.packets.min(1.0));
        self.before_timeouts = before;
    }

    /// The timeouts were false: they take nothing.
    pub(super) fn on_false_rto(&mut self) {
        let (packets, starting) = core::mem::take(&mut self.before_timeouts);
        self.packets = self.packets.max(packets);
        self.starting |= starting;
    }

    /// Gives up a share of the window. What the next round trip shows is still of the old one.
    fn reduce(&mut self, now: Time, srtt: Nanos, share: f64, least: f64) {
        let kept = 1.0 - share.clamp(0.0, self.shape.decrease_max);
        self.packets = (self.packets * kept).max(least);
        (self.starting, self.steady_rounds, self.returns_to) = (false, 0, 0.0);
        self.decreased_at = Some(now);
        (self.trial, self.before_timeouts) = (None, (0.0, false));
        self.delays.begin(now + srtt, srtt);
    }
}
