//! All paths of a link, and what is known of them together.

use super::choice::Spreading;
use super::ladder::Ladder;
use super::ports::Ports;
use super::state::{PathSignal, PathState};
use super::{Path, Standing, TailProbe};
use crate::carrier::Carrier;
use crate::config::{LinkConfig, PeerParams};
use crate::flow::estimator;
use crate::limits::{FORGIVE_AFTER, PATH_CHANGE_INTERVAL, QUARANTINE_FIRST, QUARANTINE_LONGEST};
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use towpath_base::{Nanos, Prng, Time};
use towpath_cc::RttEstimator;

/// A path as a member of a set.
pub(crate) fn bit(index: usize) -> u16 {
    1 << index
}

/// The paths of a link. Sets of them are bit masks: a turn looks only at paths that matter.
#[derive(Debug)]
pub(crate) struct PathTable {
    pub(super) all: Vec<Path>,
    good: u16,
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
    /// Paths whose queue pair may have to be made anew, or joined.
    pub(crate) renewals_due: u16,
    /// Paths that go on from another source port, which the driver does not know yet.
    pub(super) reroutes_due: u16,
    pub(super) ports: Ports,
    /// When the next port may be left in the dark, and after how many quarantines a path does.
    pub(super) leave_at: Time,
    pub(super) dark_quarantines: u32,
    /// What a path begins with on a way of which nothing is known.
    pub(super) fresh_rtt: RttEstimator,
    /// Good paths that have answered to what was sent after that which the last one that was
    /// doubted owes: the first to be used until all is well again.
    pub(super) proven: u16,
    /// When the newest chunk was sent that was acknowledged on any path.
    pub(crate) answered_at: Time,
    /// When the last answer came.
    last_answer: Time,
    /// On which path.
    pub(super) last_heard: usize,
    /// No path has answered for a tick.
    pub(crate) is_silent: bool,
    /// The last retirement.
    pub(super) changed_at: Option<Time>,
    /// The path whose way acks take; those of the first go by the control queue pair.
    ack_way: usize,
    /// When they left a way, while it is not known that the next one works.
    ack_turned_at: Option<Time>,
    /// From when on they may take the first again.
    pub(super) ack_return_at: Time,
    pub(super) ack_turns: u32,
    pub(super) current: usize,
    /// What may still go on the current path, and until when.
    pub(super) left_bytes: u64,
    pub(super) kept_until: Time,
    /// When the turn was that sent last, and how much.
    pub(super) turn_at: Time,
    pub(super) turn_bytes: u64,
    pub(super) prng: Prng,
    pub(crate) spreading: Spreading,
    pub(crate) sla_tick: Nanos,
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
        let pairs = peer.carriers.iter().zip(&peer.generations);
        let ports =
            (0..peer.carriers.len() as u16).map(|path| path % config.ways.source_ports.max(1));
        let paths = pairs
            .zip(ports)
            .map(|((&carrier, &pair), port)| Path::new(config, peer, (carrier, port), pair, now));
        let mut table = Self {
            all: paths.collect(),
            good: 0,
            spares_max: config.ways.spare_paths,
            used_max: 0,
            ladder: Ladder::new(
                &peer.carriers,
                config.ways.fallback,
                config.ways.hopeless_loss,
                now,
            ),
            busy: 0,
            acks_due: 0,
            answers_due: 0,
            probes_due: 0,
            mtus_asked: 0,
            tails_due: 0,
            renewals_due: 0,
            reroutes_due: 0,
            ports: Ports::new(config.ways.source_ports, config.ways.keeps_ports),
            leave_at: now,
            dark_quarantines: config.ways.dark_quarantines,
            fresh_rtt: estimator(config),
            proven: u16::MAX,
            answered_at: Time::ZERO,
            last_answer: now,
            last_heard: 0,
            is_silent: false,
            changed_at: None,
            ack_way: 0,
            ack_turned_at: None,
            ack_return_at: Time::ZERO,
            ack_turns: 0,
            current: 0,
            left_bytes: 0,
            kept_until: now,
            turn_at: now,
            turn_bytes: 0,
            prng: Prng::new(config.seed),
            spreading: config.ways.spreading,
            sla_tick: config.times.sla_tick,
        };
        table.stand_anew(now);
        table
    }

    /// Nothing is held against the paths of the carrier in use; the last of them are held back.
    fn stand_anew(&mut self, now: Time) {
        let mut paths = self.mask();
        // Those that have failed count: they may be made anew.
        let all = self.ladder.paths().count_ones();
        self.used_max = all.saturating_sub(self.spares_max as u32).max(1);
        for place in 0..paths.count_ones() {
            let index = paths.trailing_zeros() as usize;
            paths &= paths - 1;
            let is_used = place < self.used_max;
            self.all[index].standing =
                if is_used { Standing::new(now) } else { Standing::spare(now) };
            self.good = if is_used { self.good | bit(index) } else { self.good & !bit(index) };
        }
    }

    /// Every path in use that works.
    pub(crate) fn mask(&self) -> u16 {
        let works = |&(_, path): &(usize, &Path)| !path.has_failed;
        let all = self.all.iter().enumerate().filter(works);
        all.fold(0, |set, (index, _)| set | bit(index)) & self.ladder.paths()
    }

    /// Whether a path belongs to the carrier that the link rides on.
    #[inline]
    pub(crate) fn is_in_use(&self, index: usize) -> bool {
        self.ladder.paths() & bit(index) != 0
    }

    /// Whether there is more than one path in use.
    #[inline]
    pub(crate) fn has_choice(&self) -> bool {
        !self.ladder.paths().is_power_of_two()
    }

    pub(crate) fn good(&self) -> u16 {
        self.good & self.ladder.paths()
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
        for path in &mut self.all {
            (path.last_progress, path.tick_from) = (now, now);
            (path.tail_probe, path.rto_count) = (TailProbe::Idle, 0);
        }
        // Doubts are from another time.
        self.stand_anew(now);
        (self.probes_due, self.tails_due, self.proven) = (0, 0, u16::MAX);
        self.end_silence();
        self.last_answer = now;
        self.current = paths.trailing_zeros() as usize;
        self.last_heard = self.current;
        self.left_bytes = 0;
        self.ack_way = self.current;
    }

    /// Whether a message that keeps to a path may go on there.
    pub(crate) fn is_usable(&self, index: usize) -> bool {
        self.good() & bit(index) != 0 && self.all[index].has_number()
    }

    /// Paths whose standing has a timer.
    pub(crate) fn watched(&self) -> u16 {
        self.ladder.paths() & !self.good
    }

    pub(super) fn in_state(&self, state: PathState) -> u16 {
        let paths = self.set_of(|path| path.standing.state() == state && !path.has_failed);
        paths & self.ladder.paths()
    }

    /// The paths of any carrier of which something is so.
    fn set_of(&self, is_so: impl Fn(&Path) -> bool) -> u16 {
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
        self.left_bytes = self.left_bytes.saturating_sub(charge);
        self.turn_bytes = charge + if now > self.turn_at { 0 } else { self.turn_bytes };
        self.turn_at = now;
        self.all[index].last_progress = now;
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
        self.proven |= bit(index);
        self.end_silence();
        if now > self.last_answer + self.sla_tick {
            self.pardon(now);
        }
        (self.last_answer, self.last_heard) = (now, index);
        if let Some(at) = sent_at {
            self.answered_at = self.answered_at.max(at);
            self.all[index].answered_at = self.all[index].answered_at.max(at);
            if self.ack_turned_at.is_some_and(|turned_at| at >= turned_at) {
                self.settle_ack_way(index);
            }
        }
    }

    /// Acks left a way, all others were asked, and this is the first that answers: it is theirs.
    #[cold]
    fn settle_ack_way(&mut self, index: usize) {
        if self.good() & bit(index) != 0 {
            self.ack_turned_at = None;
            self.ack_way = index;
            self.acks_due |= self.received();
        }
    }

    /// The peer was silent altogether until now. What was sent before may be lost without any
    /// path being at fault: each is asked anew. So are those that owe nothing, for what they answer
    /// to a later question is what tells the peer's silence from theirs.
    #[cold]
    fn pardon(&mut self, now: Time) {
        let mut pardoned = false;
        for path in &mut self.all {
            path.tick_from = path.tick_from.min(now);
            let oldest = path.tx.oldest_sent_at();
            if oldest != Time::NEVER && oldest + self.sla_tick < now {
                path.tick_from = now;
                pardoned = true;
            }
        }
        if pardoned {
            self.probes_due |= self.good();
        }
    }

    /// What is outstanding has had no answer: is that so on all paths?
    pub(crate) fn note_silence(&mut self, now: Time) {
        self.is_silent = now >= self.last_answer + self.sla_tick;
    }

    /// Whether the peer has answered on another path to what was sent after the oldest number
    /// outstanding here: then the silence is this path's. Without that it may be the peer's.
    pub(crate) fn others_answer(&self, index: usize) -> bool {
        let path = &self.all[index];
        path.tx.any_outstanding()
            && self.answered_at >= path.tx.oldest_sent_at().max(path.tick_from)
    }

    /// Moves a path as the table of moves says; from where to where, if it moves.
    pub(crate) fn signal(
        &mut self,
        now: Time,
        index: usize,
        signal: PathSignal,
    ) -> Option<(PathState, PathState)> {
        let from = self.all[index].standing.state();
        let to = from.after(signal)?;
        let is_choice = signal != PathSignal::Failed;
        if to == PathState::Dead && is_choice && !self.may_retire(now, index, from) {
            return None;
        }
        let path = &mut self.all[index];
        let owes_since = path.tx.oldest_sent_at();
        path.standing.go(now, signal, to, path.tx.next());
        match to {
            PathState::Good => self.good |= bit(index),
            _ => self.good &= !bit(index),
        }
        self.probes_due &= !bit(index);
        if to == PathState::Suspect {
            self.proven = self.answered_since(owes_since);
        } else if self.in_state(PathState::Suspect) == 0 {
            self.proven = u16::MAX;
        }
        self.choose_ack_way(now);
        Some((from, to))
    }

    /// Paths that have answered to what was sent then or later.
    fn answered_since(&self, sent_at: Time) -> u16 {
        self.set_of(|path| path.answered_at >= sent_at)
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

    /// Whether a path may be given up for another queue pair: as long as another one is good.
    pub(crate) fn may_give_up(&self, index: usize) -> bool {
        let is_needed = self.is_in_use(index) && self.good() & !bit(index) == 0;
        !self.all[index].has_failed && !is_needed
    }

    /// Whether as many paths are good as are to be used.
    pub(crate) fn has_enough(&self) -> bool {
        self.good().count_ones() >= self.used_max
    }

    /// A path is retired only while another is good, and no more than one in an interval. One
    /// that comes from its quarantine was retired before: nothing changes when it goes back.
    fn may_retire(&mut self, now: Time, index: usize, from: PathState) -> bool {
        if from == PathState::Probing {
            return true;
        }
        let next = self.changed_at.map_or(now, |at| at + PATH_CHANGE_INTERVAL);
        if self.good() == 0 || next > now {
            let until = next.max(now + self.sla_tick);
            self.all[index].standing.postpone(until);
            return false;
        }
        self.changed_at = Some(now);
        true
    }

    /// The path whose way acks take: the first as long as it is good.
    pub(crate) fn ack_way(&self) -> usize {
        self.ack_way
    }

    /// Lets acks take the first way again when it is good and its time has come.
    pub(crate) fn choose_ack_way(&mut self, now: Time) {
        let before = self.ack_way;
        if self.good() & bit(0) != 0 && now >= self.ack_return_at {
            self.ack_way = 0;
        } else if !self.leads_back(before) && self.has_better_than(before) {
            // An ack needs no number, so a good way whose numbers are used up is one.
            self.ack_way = match self.good() {
                0 => self.pick(bit(before)).unwrap_or(0),
                good => self.draw(good),
            };
        }
        if self.ack_way != before && !self.leads_back(before) {
            // What took that way may have been swallowed.
            self.acks_due |= self.received();
        }
    }

    /// Whether another way than this one is known to be better for acks. While none is good they
    /// stay, but for what [`turn_acks`](Self::turn_acks) tries.
    fn has_better_than(&self, way: usize) -> bool {
        self.good() != 0 || self.mask() & bit(way) == 0
    }

    /// Whether acks may go this way: it is good, or was held back until the peer was heard there.
    fn leads_back(&self, index: usize) -> bool {
        let state = || self.all[index].standing.state();
        self.good() & bit(index) != 0 || (self.is_in_use(index) && state() == PathState::Probing)
    }

    /// Acks go another way than `before`: that on which the peer gets through if it is good, and
    /// was not just tried. The way back is taken later each time.
    pub(crate) fn turn_acks(&mut self, now: Time, before: usize, heard_on: usize) {
        if now > self.ack_return_at + FORGIVE_AFTER {
            self.ack_turns = 0;
        }
        let span = QUARANTINE_FIRST.saturating_mul(1 << self.ack_turns.min(16));
        self.ack_return_at = now + span.min(QUARANTINE_LONGEST);
        self.ack_turns += 1;
        self.ack_turned_at = Some(now);
        let may_try = self.leads_back(heard_on) || !self.has_better_than(heard_on);
        if heard_on != before && may_try {
            self.ack_way = heard_on;
        } else if self.ack_way == before {
            self.ack_way = self.pick(bit(before)).unwrap_or(before);
        }
    }

    /// The paths whose acks may tell news that nothing has asked for: where the peer has been
    /// heard, if that is on a carrier worse than ours. None where nothing was accepted there yet,
    /// for then there is nothing to acknowledge either.
    pub(crate) fn news_way(&self) -> u16 {
        let heard_on = self.ladder.heard_on;
        let way = if self.ladder.is_below(heard_on) { bit(heard_on) } else { u16::MAX };
        way & self.received()
    }

    /// Paths on which something came in.
    pub(crate) fn received(&self) -> u16 {
        let came = |&(_, path): &(usize, &Path)| path.rx.largest().is_some();
        self.all.iter().enumerate().filter(came).fold(0, |set, (index, _)| set | bit(index))
    }
}
