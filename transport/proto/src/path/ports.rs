//! Source ports: which way a path goes, and which ways were bad of late.

use super::state::PathState;
use super::table::{PathTable, bit, places};
use crate::carrier::Carrier;
use crate::config::LinkConfig;
use crate::flow::estimator;
use crate::limits::{
    PATH_CHANGE_INTERVAL, PORT_REST, PORTS_RESTING_MAX, PORTS_SCAN_MAX, SILENT_MOVES_PROMPT,
    SILENT_ROUNDS_PROMPT, SILENT_ROUNDS_SPARING,
};
use alloc::vec::Vec;
use towpath_base::{Prng, Time};
use towpath_cc::RttEstimator;

/// The source ports that a path can be moved to.
#[derive(Debug)]
pub(crate) struct Ports {
    /// How many the NIC of a path has; below two a path stays where it is.
    count: u16,
    /// A queue pair that runs stays where it is; the next one of its path need not.
    are_kept: bool,
    /// Ports that swallowed what was sent, and until when they are left alone.
    resting: Vec<(u16, Time)>,
    /// Times in a row that paths moved or asked while nothing answered at all.
    silent_rounds: u32,
    /// When silence may cost the next move.
    next_round: Time,
    /// Paths that go on from another port, which the driver does not know yet.
    reroutes_due: u16,
    /// What a path begins with on a way of which nothing is known.
    fresh_rtt: RttEstimator,
}

impl Ports {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let count = config.ways.rails.ports_of_nic(config.ways.source_ports);
        Self {
            count,
            are_kept: config.ways.keeps_ports,
            resting: Vec::with_capacity(if count > 1 { PORTS_RESTING_MAX } else { 0 }),
            silent_rounds: 0,
            next_round: Time::ZERO,
            reroutes_due: 0,
            fresh_rtt: estimator(config),
        }
    }

    /// Something answered.
    #[inline]
    pub(super) fn end_silence(&mut self) {
        (self.silent_rounds, self.next_round) = (0, Time::ZERO);
    }

    /// Leaves a port alone for a while. When too many rest the one whose time is over first is
    /// forgotten.
    fn rest(&mut self, now: Time, port: u16) {
        self.resting.retain(|&(other, until)| other != port && until > now);
        if self.resting.len() == PORTS_RESTING_MAX {
            self.resting.remove(0);
        }
        self.resting.push((port, now + PORT_REST));
    }

    fn rests(&self, now: Time, port: u16) -> bool {
        self.resting.iter().any(|&(other, until)| other == port && until > now)
    }

    /// The first port of the same NIC as `own` that `suits`, from one at random on.
    fn draw(&self, prng: &mut Prng, own: u16, suits: impl Fn(u16) -> bool) -> Option<u16> {
        let count = u32::from(self.count);
        let of_nic = own / self.count * self.count;
        let first = prng.below(u64::from(count)) as u32;
        let places = 0..count.min(PORTS_SCAN_MAX);
        let mut ports = places.map(|step| of_nic + ((first + step) % count) as u16);
        ports.find(|&port| suits(port))
    }
}

impl PathTable {
    /// Whether the source port of a path can be changed.
    pub(crate) fn can_move(&self) -> bool {
        self.ports.count > 1 && !self.ports.are_kept
    }

    /// Whether that of this path can be: a stream has none.
    fn is_movable(&self, index: usize) -> bool {
        let has_port = self[index].carrier != Carrier::Tcp;
        self.can_move() && has_port && self.failed() & bit(index) == 0
    }

    /// The driver cannot change the source port of a queue pair that runs after all.
    pub(crate) fn pin_ports(&mut self) {
        self.ports.are_kept = true;
        self.ports.reroutes_due = 0;
    }

    /// The next queue pair of a path leaves from another port, if there is one. True if so.
    pub(crate) fn renew_elsewhere(&mut self, now: Time, index: usize) -> bool {
        if self.ports.count < 2 {
            return false;
        }
        self.ports.rest(now, self[index].source_port);
        let port = self.draw_port(now, index);
        if let Some(port) = port {
            self.take_port(index, port);
        }
        port.is_some()
    }

    /// A path that was just retired goes on from another port, which is another way through the
    /// network, if there is one that nobody takes. A path that was retired before rests all the
    /// same: it may be what all its ways have in common.
    pub(crate) fn move_retired(&mut self, now: Time, index: usize) -> bool {
        self[index].condition.is_first_quarantine() && self.move_to_fresh(now, index)
    }

    /// Whether the port of a path is changed by a new queue pair, because one that runs keeps it.
    pub(crate) fn moves_by_renewal(&self, index: usize) -> bool {
        let has_port = self[index].carrier != Carrier::Tcp;
        let has_others = self.ports.count > 1 && self.ports.are_kept;
        has_others && has_port && self.failed() & bit(index) == 0
    }

    /// A path goes on from a port that no path takes and that does not rest. True if there is one.
    pub(crate) fn move_to_fresh(&mut self, now: Time, index: usize) -> bool {
        if !self.is_movable(index) {
            return false;
        }
        self.ports.rest(now, self[index].source_port);
        self.move_somewhere(now, index)
    }

    /// A port at random: one that neither rests nor is taken by a path. The longer nothing answers,
    /// the less is asked of it: two paths on one port are no worse than one on a dead one, and a
    /// port may rest although it was something else that swallowed.
    fn draw_port(&mut self, now: Time, index: usize) -> Option<u16> {
        let Self { ports, all, prng, .. } = self;
        let own = all[index].source_port;
        let is_spared = ports.silent_rounds <= SILENT_ROUNDS_SPARING;
        let is_rested = |port| !is_spared || !ports.rests(now, port);
        let is_free = |port| all.iter().all(|path| path.source_port != port) && is_rested(port);
        ports.draw(prng, own, is_free).or_else(|| match ports.silent_rounds {
            0 => None,
            _ => ports.draw(prng, own, |port| port != own && is_rested(port)),
        })
    }

    /// A path goes on from a port at random while its queue pair runs. True if there is one.
    fn move_somewhere(&mut self, now: Time, index: usize) -> bool {
        let port = self.draw_port(now, index);
        if let Some(port) = port {
            self.take_port(index, port);
            self.ports.reroutes_due |= bit(index);
        }
        port.is_some()
    }

    fn take_port(&mut self, index: usize, port: u16) {
        let rtt = self.ports.fresh_rtt.clone();
        let path = &mut self[index];
        path.source_port = port;
        path.moves += 1;
        path.timing.forget_round_trips(rtt);
        path.answered_at = Time::ZERO;
    }

    /// Nothing has answered for a tick, on the path at `index` among others. Returns the paths to
    /// be asked now and those on which all goes again; between rounds that path waits for the next.
    /// First all are asked where they are, for the peer may have been busy. Then each time all but
    /// the one that was heard last take other ports: every draw is another chance.
    pub(crate) fn on_silent_round(&mut self, now: Time, index: usize) -> (u16, u16) {
        if now < self.ports.next_round {
            let span = self.ports.next_round.since(now);
            let sla_tick = self.sla_tick;
            self[index].timing.restart_tick(now + (span - sla_tick));
            return (0, 0);
        }
        self.ports.silent_rounds += 1;
        let late = self.ports.silent_rounds.saturating_sub(SILENT_ROUNDS_PROMPT);
        self.ports.next_round = now + self.sla_tick.saturating_mul(1 << late.min(5));
        let asked = self.mask();
        if self.ports.silent_rounds == 1 {
            return (asked & !self.in_state(PathState::Spare), 0);
        }
        for index in 0..self.len() {
            let is_kept = index == self.answers.last_on && self.has_choice();
            if is_kept || !self.is_in_use(index) || !self.is_movable(index) {
                continue;
            }
            self.move_somewhere(now, index);
        }
        (asked, asked)
    }

    /// Whether the silence is so young that all is asked whenever something is missed.
    pub(crate) fn is_early(&self) -> bool {
        self.ports.silent_rounds <= SILENT_ROUNDS_PROMPT
    }

    /// The only path is silent, or what goes on it gets no further: it takes another port. True
    /// while the next try should come soon.
    pub(crate) fn move_only(&mut self, now: Time, index: usize) -> bool {
        self.ports.silent_rounds = self.ports.silent_rounds.saturating_add(1);
        if self.is_movable(index) {
            self.move_somewhere(now, index);
        }
        self.ports.silent_rounds < SILENT_MOVES_PROMPT
    }

    /// The way of our acks swallows them and there is one path only: it takes another port. Each
    /// move is waited for longer than the one before.
    pub(crate) fn move_acks(&mut self, now: Time) -> bool {
        let only = self.turn.current;
        if now < self.acks.return_at || !self.is_movable(only) {
            return false;
        }
        self.acks.back_off(now, (self.sla_tick, PATH_CHANGE_INTERVAL));
        self.move_somewhere(now, only)
    }

    /// A queue pair that is gone goes nowhere.
    pub(crate) fn forget_reroute(&mut self, index: usize) {
        self.ports.reroutes_due &= !bit(index);
    }

    /// Whether paths are to go on from other ports.
    #[inline]
    pub(crate) fn has_reroutes(&self) -> bool {
        self.ports.reroutes_due != 0
    }

    /// The next path that goes on from another port.
    pub(crate) fn take_reroute(&mut self) -> Option<(usize, u16)> {
        let index = places(self.ports.reroutes_due).next()?;
        self.ports.reroutes_due &= !bit(index);
        Some((index, self[index].source_port))
    }
}
