//! All paths of a link, and what is known of them together.

use super::Path;
use super::ack_way::AckWay;
use super::choice::Turn;
use super::condition::Condition;
use super::ladder::Ladder;
use super::ports::Ports;
use super::state::{PathSignal, PathState};
use crate::carrier::Carrier;
use crate::config::{LinkConfig, PeerParams, Spreading};
use crate::limits::PATH_CHANGE_INTERVAL;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use towpath_base::{Nanos, Prng, Time};

/// A path as a member of a set.
pub(crate) fn bit(index: usize) -> u16 {
    1 << index
}

/// The members of a set.
#[inline]
pub(crate) fn places(mut set: u16) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let index = set.trailing_zeros() as usize;
        (set != 0).then(|| {
            set &= set - 1;
            index
        })
    })
}

/// The paths of a link. Sets of them are bit masks: a turn looks only at paths that matter.
#[derive(Debug)]
pub(crate) struct PathTable {
    pub(super) all: Vec<Path>,
    /// The paths of each rail, where there are several.
    pub(super) rails: Vec<u16>,
    /// Paths to addresses of the peer that nothing has come from yet: nothing is sent there.
    unshown: u16,
    /// The paths in each state.
    states: [u16; PathState::COUNT],
    /// How many paths of a carrier are held back at most, and how many are used while those that
    /// are used work.
    spares_max: usize,
    used_max: u32,
    /// What the link rides on: only paths of that are used.
    pub(crate) ladder: Ladder,
    /// Paths that may have something outstanding.
    pub(crate) busy: u16,
    /// Paths on which something came in that no ack has told of.
    pub(crate) acks_due: u16,
    /// Paths on which the peer asked, saying that nothing is acknowledged: it is answered there.
    pub(crate) answers_due: u16,
    /// Paths on which a probe is to be sent.
    pub(crate) probes_due: u16,
    /// Paths that are asked whether they carry packets of some size.
    pub(crate) mtus_asked: u16,
    /// Paths on which a tail-loss probe may be due.
    pub(crate) tails_due: u16,
    pub(super) ports: Ports,
    pub(super) answers: Answers,
    /// The last retirement.
    pub(super) changed_at: Option<Time>,
    pub(super) acks: AckWay,
    pub(super) turn: Turn,
    pub(super) prng: Prng,
    pub(crate) spreading: Spreading,
    pub(crate) sla_tick: Nanos,
}

/// What the paths of the carrier in use have answered.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// When the newest chunk was sent that was acknowledged on any path.
    newest_sent_at: Time,
    /// When the last answer came, and on which path.
    last_at: Time,
    pub(super) last_on: usize,
    /// The path that the peer's last chunk came on.
    pub(super) heard_on: usize,
    /// No path has answered for a tick.
    is_silent: bool,
    /// Good paths that have answered to what was sent after that which the last one that was
    /// doubted owes: the first to be used until all is well again.
    pub(super) proven: u16,
}

impl Deref for PathTable {
    type Target = [Path];

    #[inline]
    fn deref(&self) -> &[Path] {
        &self.all
    }
}

impl DerefMut for PathTable {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Path] {
        &mut self.all
    }
}

impl PathTable {
    pub(crate) fn new(config: &LinkConfig, peer: &PeerParams, now: Time) -> Self {
        let (ways, side) = (&config.ways, config.side);
        let path = |(index, (&carrier, &pair))| {
            let rail = ways.rails.rail_of(side, index);
            let port = ways.rails.first_port(side, index, ways.source_ports);
            Path::new(config, peer, (carrier, rail, port), pair, now)
        };
        let pairs = peer.carriers.iter().zip(&peer.generations);
        let mut table = Self {
            all: pairs.enumerate().map(path).collect(),
            rails: Vec::new(),
            unshown: 0,
            states: [0; PathState::COUNT],
            spares_max: config.ways.spare_paths,
            used_max: 0,
            ladder: Ladder::new(&peer.carriers, config.ways.fallback, now),
            busy: 0,
            acks_due: 0,
            answers_due: 0,
            probes_due: 0,
            mtus_asked: 0,
            tails_due: 0,
            ports: Ports::new(config),
            answers: Answers { last_at: now, proven: u16::MAX, ..Answers::default() },
            changed_at: None,
            acks: AckWay::default(),
            turn: Turn::new(now),
            prng: Prng::new(config.ways.seed),
            spreading: config.ways.spreading,
            sla_tick: config.times.sla_tick,
        };
        table.states[PathState::Good as usize] = table.set_of(|_| true);
        table.stand_anew(now);
        let first = table.all[0].rail;
        if config.awaits_address() {
            table.unshown = table.set_of(|path| path.carrier != Carrier::Tcp);
        }
        // What a second NIC is worth nobody knows before it has answered; nor what the first is,
        // where something may come from the peer's second one before.
        let is_open = ways.rails.theirs() > 1 && table.unshown != 0;
        let untried = table.good() & table.set_of(|path| is_open || path.rail != first);
        for index in places(untried) {
            table.all[index].condition = Condition::untried(now);
            table.note_state(index);
        }
        for index in 0..table.all.len() {
            let rail = table.all[index].rail;
            let set = table.set_of(|path| path.rail == rail);
            if !table.rails.contains(&set) {
                table.rails.push(set);
            }
        }
        table
    }

    /// Whether nothing may be sent on a path yet.
    #[inline]
    pub(crate) fn is_unshown(&self, index: usize) -> bool {
        self.unshown & bit(index) != 0
    }

    /// The paths on which nothing may be sent yet.
    #[inline]
    pub(crate) fn unshown(&self) -> u16 {
        self.unshown
    }

    /// Something has come on a path: what goes to the same address may be sent.
    pub(crate) fn show(&mut self, index: usize) {
        if !self.is_unshown(index) {
            return;
        }
        let theirs = self.all[index].rail.theirs;
        let shown = self.set_of(|path| path.rail.theirs == theirs);
        self.unshown &= !shown;
        if self.is_unshown(self.acks.path) {
            self.acks.path = index;
        }
    }

    /// Nothing is held against the paths of the carrier in use; the last of them are held back.
    fn stand_anew(&mut self, now: Time) {
        // Those that have failed count: they may be made anew.
        let all = self.ladder.paths().count_ones();
        self.used_max = all.saturating_sub(self.spares_max as u32).max(1);
        for (place, index) in places(self.mask()).enumerate() {
            let is_used = (place as u32) < self.used_max;
            let anew = if is_used { Condition::new(now) } else { Condition::spare(now) };
            self.all[index].condition = anew;
            self.note_state(index);
        }
    }

    /// Keeps the sets of paths in step with the state of one.
    fn note_state(&mut self, index: usize) {
        self.states.iter_mut().for_each(|set| *set &= !bit(index));
        self.states[self.all[index].condition.state() as usize] |= bit(index);
    }

    /// Every path in use that works.
    pub(crate) fn mask(&self) -> u16 {
        self.ladder.paths() & !self.failed()
    }

    /// The paths of any carrier whose queue pair is in error.
    #[inline]
    pub(crate) fn failed(&self) -> u16 {
        self.states[PathState::Failed as usize]
    }

    /// Whether a path belongs to the carrier that the link rides on.
    #[inline]
    pub(crate) fn is_in_use(&self, index: usize) -> bool {
        self.ladder.paths() & bit(index) != 0
    }

    /// Whether a path belongs to a worse carrier than that.
    pub(crate) fn is_below(&self, index: usize) -> bool {
        self.ladder.is_below(self.all[index].carrier)
    }

    /// The peer was heard on a path; true if the link goes to its carrier for that.
    #[inline]
    pub(crate) fn on_heard(&mut self, now: Time, index: usize) -> bool {
        self.answers.heard_on = index;
        self.ladder.on_heard(now, self.all[index].carrier)
    }

    /// The paths of a carrier.
    pub(crate) fn all_of(&self, carrier: Carrier) -> u16 {
        self.set_of(|path| path.carrier == carrier)
    }

    /// Whether there is more than one path in use.
    #[inline]
    pub(crate) fn has_choice(&self) -> bool {
        !self.ladder.paths().is_power_of_two()
    }

    #[inline]
    pub(crate) fn good(&self) -> u16 {
        self.in_state(PathState::Good)
    }

    /// Paths in use that may have something outstanding.
    #[inline]
    pub(crate) fn busy(&self) -> u16 {
        self.busy & self.ladder.paths()
    }

    /// Rides on another carrier from now on.
    pub(crate) fn ride_on(&mut self, now: Time, carrier: Carrier) {
        self.ladder.go(now, carrier);
        let paths = self.ladder.paths();
        self.all.iter_mut().for_each(|path| path.timing.on_progress(now));
        // Doubts are from another time.
        self.stand_anew(now);
        (self.probes_due, self.tails_due, self.answers.proven) = (0, 0, u16::MAX);
        self.end_silence();
        let first = paths.trailing_zeros() as usize;
        (self.answers.last_at, self.answers.last_on) = (now, first);
        (self.turn.current, self.turn.left_bytes) = (first, 0);
        self.acks.path = first;
    }

    /// Whether a message that keeps to a path may go on there.
    pub(crate) fn is_usable(&self, index: usize) -> bool {
        self.good() & bit(index) != 0 && self.all[index].has_number()
    }

    /// Paths in use that are not good: their condition has a timer.
    pub(crate) fn watched(&self) -> u16 {
        self.ladder.paths() & !self.states[PathState::Good as usize]
    }

    /// The paths in use that are in a state.
    #[inline]
    pub(super) fn in_state(&self, state: PathState) -> u16 {
        self.states[state as usize] & self.ladder.paths()
    }

    /// The paths of any carrier of which something is so.
    pub(super) fn set_of(&self, is_so: impl Fn(&Path) -> bool) -> u16 {
        let all = self.all.iter().enumerate().filter(|(_, path)| is_so(path));
        all.fold(0, |set, (index, _)| set | bit(index))
    }

    pub(super) fn spread_bytes(&self) -> u64 {
        match self.spreading {
            Spreading::Bytes(bytes) => u64::from(bytes),
            Spreading::Message => 0,
        }
    }

    /// Something goes out on a path.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time, index: usize, charge: u64) {
        self.busy |= bit(index);
        self.turn.on_sent(now, charge);
        self.all[index].timing.on_sent(now);
        if self.is_in_use(index) {
            self.ladder.on_sent(now);
        }
    }

    /// Numbers of a path were acknowledged or declared lost.
    #[inline]
    pub(crate) fn settle(&mut self, index: usize) {
        if !self.all[index].tx.any_outstanding() {
            self.busy &= !bit(index);
        }
    }

    /// A path has answered: its newest acknowledged number was sent then.
    #[inline]
    pub(crate) fn on_answer(&mut self, now: Time, index: usize, sent_at: Option<Time>) {
        let is_outstanding = self.busy() != 0;
        self.ladder.on_answer(now, is_outstanding);
        self.answers.proven |= bit(index);
        self.end_silence();
        if now > self.answers.last_at + self.sla_tick {
            self.pardon(now);
        }
        (self.answers.last_at, self.answers.last_on) = (now, index);
        if let Some(at) = sent_at {
            self.answers.newest_sent_at = self.answers.newest_sent_at.max(at);
            self.all[index].answered_at = self.all[index].answered_at.max(at);
            self.settle_ack_way(index, at);
        }
    }

    /// The peer was silent altogether until now. What was sent before may be lost without any
    /// path being at fault: each is asked anew. So are those that owe nothing, for what they answer
    /// to a later question is what tells the peer's silence from theirs.
    #[cold]
    fn pardon(&mut self, now: Time) {
        let mut pardoned = false;
        for path in &mut self.all {
            path.timing.end_silence(now);
            let oldest = path.tx.oldest_sent_at();
            if oldest != Time::NEVER && oldest + self.sla_tick < now {
                path.timing.restart_tick(now);
                pardoned = true;
            }
        }
        if pardoned {
            self.probes_due |= self.good();
        }
    }

    /// What is outstanding has had no answer: is that so on all paths?
    pub(crate) fn note_silence(&mut self, now: Time) {
        self.answers.is_silent = now >= self.answers.last_at + self.sla_tick;
    }

    /// Whether no path has answered for a tick.
    pub(crate) fn is_silent(&self) -> bool {
        self.answers.is_silent
    }

    /// Something answered.
    #[inline]
    pub(crate) fn end_silence(&mut self) {
        if core::mem::take(&mut self.answers.is_silent) {
            // That nothing answered was no fault of each path.
            self.all.iter_mut().for_each(|path| path.timing.forget_back_off());
        }
        self.ports.end_silence();
    }

    /// When the newest chunk was sent that was acknowledged on any path.
    pub(crate) fn answered_at(&self) -> Time {
        self.answers.newest_sent_at
    }

    /// Whether the peer has answered on another path to what was sent after the oldest number
    /// outstanding here: then the silence is this path's. Without that it may be the peer's.
    pub(crate) fn others_answer(&self, index: usize) -> bool {
        let path = &self.all[index];
        path.tx.any_outstanding()
            && self.answered_at() >= path.tx.oldest_sent_at().max(path.timing.tick_from())
    }

    /// Moves a path as the table of moves says; from where to where, if it moves.
    pub(crate) fn signal(
        &mut self,
        now: Time,
        index: usize,
        signal: PathSignal,
    ) -> Option<(PathState, PathState)> {
        let from = self.all[index].condition.state();
        let to = from.after(signal)?;
        if to == PathState::Dead && !self.may_retire(now, index, from) {
            return None;
        }
        let path = &mut self.all[index];
        let owes_since = path.tx.oldest_sent_at();
        path.condition.go(now, signal, to, path.tx.next());
        self.note_state(index);
        self.probes_due &= !bit(index);
        if to == PathState::Suspect {
            self.answers.proven = self.set_of(|path| path.answered_at >= owes_since);
        } else if self.in_state(PathState::Suspect) == 0 {
            self.answers.proven = u16::MAX;
        }
        self.choose_ack_way(now);
        Some((from, to))
    }

    /// A path that is held back and is to take the place of another, if fewer than are to be used
    /// are in use or on their way to it.
    pub(crate) fn wanted_spare(&self) -> Option<usize> {
        let spares = self.in_state(PathState::Spare);
        if spares == 0 {
            return None;
        }
        let working = self.mask() & !spares & !self.in_state(PathState::Dead);
        (working.count_ones() < self.used_max).then(|| spares.trailing_zeros() as usize)
    }

    /// Whether as many paths are good as are to be used.
    pub(crate) fn has_enough(&self) -> bool {
        self.good().count_ones() >= self.used_max
    }

    /// When a path may be retired, or given another port, after the last one that was.
    pub(crate) fn next_change_at(&self) -> Time {
        self.changed_at.map_or(Time::ZERO, |at| at + PATH_CHANGE_INTERVAL)
    }

    /// A path was given another port.
    pub(crate) fn on_changed(&mut self, now: Time) {
        self.changed_at = Some(now);
    }

    /// A path is retired only while another is good, and no more than one in an interval. One
    /// that comes from its quarantine was retired before: nothing changes when it goes back.
    fn may_retire(&mut self, now: Time, index: usize, from: PathState) -> bool {
        if from == PathState::Probing {
            return true;
        }
        let next = self.next_change_at();
        if self.good() == 0 || next > now {
            let until = next.max(now + self.sla_tick);
            self.all[index].condition.postpone(until);
            return false;
        }
        self.changed_at = Some(now);
        true
    }
}
