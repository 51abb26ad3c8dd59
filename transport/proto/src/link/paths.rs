//! Paths: doubt, probes, quarantine and return (docs/protocol.md section 9).

use super::alarm::AckAlarm;
use super::{Link, LinkState};
use crate::carrier::Carrier;
use crate::event::{Event, PathId, PathSnapshot, Reroute, Transmit};
use crate::limits::{DUPLICATES_MAX, PATH_CHANGE_INTERVAL, PROBES_TO_RETURN, UNANSWERED_MIN};
use crate::path::{PROBE_INTERVAL_MIN, PathSignal, PathState, What, bit};
use crate::wire::Kind;
use alloc::vec::Vec;
use towpath_base::Time;
use towpath_verbs::Mtu;

/// `index` of PROBE: no path is acknowledged.
pub(super) const PROBE_SILENCE: u32 = 1;

/// What makes a link doubt its paths, and what it has done about it of late.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Signs in a row that acks do not get back to the peer, and when the first of them was a chunk
    /// that came twice.
    pub(super) duplicates: u32,
    pub(super) duplicate_at: Time,
    /// The path on which the peer asked last saying that none of its paths is acknowledged.
    pub(super) heard_in_vain: Option<usize>,
    /// The last loss by a gap, on any path: while there are some a path may be silent by chance.
    pub(super) gap_at: Option<Time>,
    /// The last doubt of a path among such losses.
    pub(super) doubted_at: Option<Time>,
    pub(super) acks_rerouted_at: Time,
    /// The last ack that came on the queue pair of a path: on which, and when.
    pub(super) ack_heard: Option<(usize, Time)>,
    pub(super) ack_alarm: AckAlarm,
    /// When the peer last asked what is acknowledged.
    pub(super) asked_at: Time,
    /// Until then the controller has heard of the timeouts that there are.
    pub(super) next_rto_at: Time,
    /// The last time that a path was found to carry only shorter packets than before.
    pub(super) mtu_lowered_at: Option<Time>,
}

impl Link {
    /// How each path stands.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = PathSnapshot> {
        let ack_way = self.paths.ack_way();
        self.paths.iter().enumerate().map(move |(index, path)| PathSnapshot {
            path: PathId(index as u8),
            carrier: path.carrier,
            state: path.condition.state(),
            since: path.condition.since(),
            srtt: path.timing.srtt(),
            sent: path.tx.next(),
            lost: path.lost_chunks,
            in_flight_bytes: path.tx.in_flight_bytes(),
            doubts: path.condition.doubts_ever,
            quarantines: path.condition.quarantines_ever,
            source_port: path.source_port,
            moves: path.moves,
            renewals: path.remake.life(),
            carries_acks: index == ack_way,
            mtu: path.mtu.size(),
            mtu_phase: path.mtu.phase(),
            mtu_reason: path.mtu.why(),
        })
    }

    /// Moves a path as the table of moves says, and tells of it.
    pub(super) fn signal_path(&mut self, now: Time, index: usize, signal: PathSignal) {
        let Some((from, to)) = self.paths.signal(now, index, signal) else { return };
        match (from, to) {
            (_, PathState::Suspect) => self.stats.path_doubts += 1,
            (_, PathState::Dead | PathState::Failed) => {
                self.stats.path_retirements += u64::from(from != PathState::Dead);
                self.doubts.ack_alarm.found_dead(index);
            }
            (PathState::Suspect, PathState::Good) => {
                // With the path, its acks had left it.
                let of_acks = self.doubts.ack_alarm.found_good(now, index);
                let was_late = of_acks || signal == PathSignal::Late;
                self.stats.reroutes_in_vain += u64::from(was_late) + u64::from(of_acks);
            }
            (PathState::Probing, PathState::Good) => self.stats.path_returns += 1,
            _ => {}
        }
        let path = PathId(index as u8);
        self.events.push_back(Event::PathChanged { path, from, to, signal });
        if to == PathState::Suspect {
            self.send_all_again(index);
            self.probe_the_quiet();
        }
        if matches!(to, PathState::Suspect | PathState::Probing) {
            self.paths.probes_due |= bit(index);
        }
        if matches!(to, PathState::Dead | PathState::Failed) {
            let is_retired = (from, to) == (PathState::Suspect, PathState::Dead);
            if is_retired && self.paths.move_retired(now, index) {
                self.signal_path(now, index, PathSignal::Moved);
            } else if is_retired
                && self.paths[index].condition.is_first_quarantine()
                && self.replace_queue_pair(now, index)
            {
                // With its queue pair it has failed, and a spare was called if one is wanted.
            } else if let Some(spare) = self.paths.wanted_spare() {
                self.signal_path(now, spare, PathSignal::Called);
            }
        }
    }

    /// Whether a path, or control, is to leave by another source port:
    /// [`poll_reroute`](Self::poll_reroute) says which.
    #[must_use]
    #[inline]
    pub fn has_reroutes(&self) -> bool {
        self.control.follows || self.paths.has_reroutes()
    }

    /// The next path whose queue pair is to go on from another source port. Ask before
    /// [`poll_transmit`](Self::poll_transmit): what comes next is meant for the new way. A driver
    /// that cannot do it says so by [`pin_ports`](Self::pin_ports).
    pub fn poll_reroute(&mut self) -> Option<Reroute> {
        if self.control.follows && self.paths.failed() & bit(0) == 0 {
            self.control.follows = false;
            let source_port = self.paths[0].source_port;
            return Some(Reroute { path: PathId(0), source_port, moves_control: true });
        }
        let (index, source_port) = self.paths.take_reroute()?;
        self.stats.path_moves += 1;
        // The control queue pair takes the first path's way.
        Some(Reroute { path: PathId(index as u8), source_port, moves_control: index == 0 })
    }

    /// The device does not change the source ports of queue pairs that run: that is not asked for
    /// any more.
    pub fn pin_ports(&mut self) {
        // Where the queue pair of acks was to follow the first path it has stayed behind.
        self.control.has_left |= self.paths[0].remake.life() > 0 && self.paths[0].moves > 0;
        self.paths.pin_ports();
    }

    /// A path that has been silent for long takes another port, unless a path was changed just now.
    /// True if it waits for another queue pair.
    pub(super) fn change_port(&mut self, now: Time, index: usize) -> bool {
        if now < self.paths.next_change_at() {
            return false;
        }
        let is_replaced = self.replace_queue_pair(now, index);
        if is_replaced || self.paths.move_to_fresh(now, index) {
            self.paths.on_changed(now);
        }
        is_replaced
    }

    /// Whether the peer was heard on this path since it was doubted, within a second, and on no
    /// other: then it is the way of the peer, and only ours is bad.
    fn is_only_way_back(&self, now: Time, index: usize) -> bool {
        let doubted_at = self.paths[index].condition.suspected_at();
        let is_late = |at: Time| at >= doubted_at && now < at + PATH_CHANGE_INTERVAL;
        let is_heard = |index: usize| {
            let chunk = self.paths[index].rx.largest().is_some_and(|(_, at)| is_late(at));
            chunk || self.doubts.ack_heard.is_some_and(|(on, at)| on == index && is_late(at))
        };
        let mut others = (0..self.paths.len()).filter(|&other| other != index);
        is_heard(index) && !others.any(is_heard)
    }

    /// Where a queue pair that runs keeps its port, a path that swallows what is sent gets another
    /// queue pair, which leaves from another port; the old queue pair and its port are free. That
    /// is told to the peer on another path, and the peer tells of its half on another one, so both
    /// need one. True if so.
    fn replace_queue_pair(&mut self, now: Time, index: usize) -> bool {
        let has_other = self.paths.good() & !bit(index) != 0;
        let may_leave = self.end.state == LinkState::Up && has_other;
        let may_leave = may_leave && self.paths.moves_by_renewal(index);
        if !may_leave || self.is_only_way_back(now, index) || !self.take_new_port(now, index) {
            return false;
        }
        self.paths[index].remake.renew(now);
        self.part_with(now, index);
        true
    }

    /// Asks all good paths at once that have nothing under way: the way that works may be any of
    /// them.
    fn probe_the_quiet(&mut self) {
        self.paths.probes_due |= self.paths.good() & !self.paths.busy;
    }

    /// Asks all good paths, and the one that is silent again. When none at all answers for longer
    /// than a tick, every other way is tried too, in rounds that become rare: the peer may be gone.
    pub(super) fn ask_all(&mut self, now: Time, index: usize) {
        self.paths[index].timing.restart_tick(now);
        self.paths.note_silence(now);
        if !self.paths.is_silent() || self.paths.is_early() {
            self.probe_the_quiet();
            self.paths.probes_due |= bit(index);
        }
        if !self.paths.is_silent() {
            return;
        }
        let (asked, again) = self.paths.on_silent_round(now, index);
        self.paths.probes_due |= asked;
        for index in (0..self.paths.len()).filter(|&index| asked & bit(index) != 0) {
            // What was sent there has had its time; and to a probe behind which nothing is missing
            // an answer rides on whatever the peer sends.
            if again & bit(index) != 0 {
                self.send_all_again(index);
            }
            self.paths[index].tx.tell_floor();
            // No reason leaves the only way untried that may work.
            self.wake_path(now, index);
        }
    }

    /// A path that was put away is probed, whatever was held against it.
    fn wake_path(&mut self, now: Time, index: usize) {
        match self.paths[index].condition.state() {
            PathState::Dead => self.signal_path(now, index, PathSignal::Rested),
            PathState::Spare => self.signal_path(now, index, PathSignal::Called),
            _ => {}
        }
    }

    /// What was sent on a path has been silent for an SLA tick. When other paths answer, the path
    /// is at fault. When none does it may be the peer, which is no reason to leave a path; then
    /// all of them are asked.
    pub(super) fn on_path_silent(&mut self, now: Time, index: usize) {
        let others_answer = self.paths.others_answer(index);
        self.paths[index].timing.restart_tick(now);
        let is_good = self.paths[index].condition.state() == PathState::Good;
        if is_good && others_answer {
            let unanswered = self.paths[index].tx.sent_since_acked();
            if unanswered >= UNANSWERED_MIN || self.may_doubt(now) {
                self.signal_path(now, index, PathSignal::Silent);
            }
        } else if is_good || self.paths.good() == 0 {
            self.ask_all(now, index);
        } else if self.paths[index].tx.in_flight_bytes() > 0 {
            // It was sent there while no path was good. Nothing else may be under way, for the
            // window may be full of it: so it is not waited for what others answer.
            self.send_all_again(index);
        }
    }

    /// Whether silence is held against a path: always where nothing is lost but there. Where losses
    /// show on paths that answer, a full buffer swallows a few chunks in a row as well as a black
    /// hole does: then one path a second is left, and others send again what they lost.
    pub(super) fn may_doubt(&mut self, now: Time) -> bool {
        let spread = |at: Option<Time>, span| at.is_some_and(|at| now < at + span);
        if !spread(self.doubts.gap_at, PATH_CHANGE_INTERVAL) {
            return true;
        }
        let is_free = !spread(self.doubts.doubted_at, PATH_CHANGE_INTERVAL);
        if is_free {
            self.doubts.doubted_at = Some(now);
        }
        is_free
    }

    /// Does what time demands of a path that is not good.
    pub(super) fn watch_path(&mut self, now: Time, index: usize) {
        if self.paths.is_unshown(index) {
            return self.postpone_probe(now, index);
        }
        if self.paths.probes_due & bit(index) != 0 {
            return;
        }
        let answered_at = self.paths.answered_at();
        let Some(signal) = self.paths[index].condition.on_due(answered_at) else {
            self.paths.probes_due |= bit(index);
            return;
        };
        if signal == PathSignal::Rested && self.change_port(now, index) {
            return;
        }
        self.signal_path(now, index, signal);
    }

    /// Numbers of a path that is not good were acknowledged. When nothing had answered before,
    /// that one answer is more than those have that count as good.
    pub(super) fn on_doubtful_answer(
        &mut self,
        now: Time,
        index: usize,
        numbers: (u64, u64),
        was_silent: bool,
    ) {
        let is_last_hope = was_silent || self.paths.good() == 0;
        if is_last_hope {
            // It may have been tried although it was put away.
            self.wake_path(now, index);
        }
        let to_return = if is_last_hope { 1 } else { PROBES_TO_RETURN };
        let condition = &mut self.paths[index].condition;
        let is_probing = condition.state() == PathState::Probing;
        if let Some(signal) = condition.on_acked(numbers, to_return) {
            let is_needed = is_last_hope || !is_probing || !self.paths.has_enough();
            let signal = match signal {
                _ if !is_needed => PathSignal::Unneeded,
                // One that comes and goes is better than none.
                PathSignal::Relapsed if self.paths.good() == 0 => PathSignal::Answered,
                signal => signal,
            };
            self.signal_path(now, index, signal);
        }
    }

    /// The next probe of a path, whatever the window says.
    pub(super) fn next_probe(&mut self, now: Time) -> Option<Transmit> {
        while self.paths.probes_due != 0 {
            let index = self.paths.probes_due.trailing_zeros() as usize;
            self.paths.probes_due &= !bit(index);
            if (self.paths.failed() | self.paths.unshown()) & bit(index) != 0 {
                continue;
            }
            if self.paths[index].has_number_for_probe() {
                let size = self.paths[index].mtu.long_probe_due();
                return Some(self.transmit_probe(now, index, size));
            }
            self.postpone_probe(now, index);
        }
        None
    }

    fn postpone_probe(&mut self, now: Time, index: usize) {
        let again = now + self.paths[index].timing.probe_interval(&self.flow);
        self.paths[index].condition.postpone(again);
    }

    /// A probe counts nothing against windows: it must go when they are full. Filler makes it a
    /// packet of `size`, where the path is asked whether it carries such.
    pub(super) fn transmit_probe(
        &mut self,
        now: Time,
        index: usize,
        size: Option<Mtu>,
    ) -> Transmit {
        let interval = self.paths[index].timing.probe_interval(&self.flow);
        let path = &mut self.paths[index];
        let (number, floor) = path.tx.send(size.map_or(What::Probe, What::LongProbe), 0, now);
        let another_follows = if size.is_none() {
            path.condition.on_probe_sent(now, interval);
            path.mtu.on_short_probe(number)
        } else {
            path.mtu.on_long_probe(now, interval, number);
            // A short one, whose answer shows a gap where the long one is lost: else the path would
            // count as silent.
            true
        };
        self.paths.probes_due |= u16::from(another_follows) << index;
        self.paths.on_sent(now, index, 0);
        self.stats.path_probes += 1;
        let mut header = self.header(Kind::Probe, 0, index, number, floor);
        if size.is_none() {
            header.index = if self.paths.is_silent() { PROBE_SILENCE } else { 0 };
            self.ride_along(now, index, &mut header);
        }
        let around_bytes = self.flow.chunk_size.around_bytes();
        let filler_bytes = size.map_or(0, |size| size.bytes() - around_bytes);
        let path = PathId(index as u8);
        Transmit { path, header, frames: Vec::new(), filler_bytes, cut_at: None }
    }

    /// A chunk came in on a path that had been taken before. That says nothing by itself: we may
    /// have been away, and find what was sent again meanwhile. When another one follows, and
    /// nothing new, although the peer ought to have our answer, acks do not get back. Where paths
    /// disorder chunks it says nothing at all.
    pub(super) fn on_known_chunk(&mut self, now: Time, heard_on: usize) {
        let is_disordered = self.paths.iter().any(|path| path.rx.is_disordered(now));
        if is_disordered || !self.doubts.ack_alarm.is_heeded(now) {
            return;
        }
        let span = self.paths[heard_on].timing.probe_interval(&self.flow);
        if self.doubts.duplicates == 0 {
            self.doubts.duplicate_at = now;
        } else if now < self.doubts.duplicate_at + span {
            return;
        }
        let _ = self.on_duplicate(now, heard_on);
    }

    /// A sign that acks do not get back to the peer: a probe that says that no path is
    /// acknowledged, or a chunk that comes again and again. At the second in a row they take
    /// another way from now on, and that way is asked. True if so.
    fn on_duplicate(&mut self, now: Time, heard_on: usize) -> bool {
        let can_turn = self.paths.has_choice() || self.paths.can_move();
        if !can_turn || now < self.doubts.acks_rerouted_at + PROBE_INTERVAL_MIN {
            return false;
        }
        self.doubts.duplicates += 1;
        if self.doubts.duplicates < DUPLICATES_MAX {
            return false;
        }
        self.doubts.duplicates = 0;
        if !self.paths.has_choice() {
            let moves = self.paths.move_acks(now);
            self.stats.ack_reroutes += u64::from(moves);
            return moves;
        }
        self.doubts.acks_rerouted_at = now;
        self.paths.acks_due |= self.paths.received();
        // Each tells the peer of what it asked for, and the first that is answered is the way that
        // works. The answers say, too, whether the silence on the way before is the peer's.
        self.doubts.heard_in_vain = Some(heard_on);
        let before = self.paths.ack_way();
        if self.paths.good() == bit(before) {
            // Any other is known to be no better: whether this one is bad its own probe will tell.
            self.paths.probes_due |= self.paths.mask();
            return true;
        }
        self.stats.ack_reroutes += 1;
        self.doubts.ack_alarm.raise(before);
        self.signal_path(now, before, PathSignal::Duplicates);
        self.paths.turn_acks(now, before, heard_on);
        self.paths.probes_due |= self.paths.good() | bit(self.paths.ack_way());
        true
    }

    /// The peer asks, and says that nothing that it sends is acknowledged. At each second time all
    /// paths tell it at once, on probes of their own, that this question came in, and acks take
    /// another way; after a false alarm they do so at the second of two that are apart.
    pub(super) fn on_silence_of_peer(&mut self, now: Time, heard_on: usize) {
        self.doubts.heard_in_vain = Some(heard_on);
        self.paths.answers_due |= bit(heard_on);
        // What the peer held back is held back no longer: it may be our only way, too.
        self.signal_path(now, heard_on, PathSignal::Called);
        // Who was away finds many questions at once, and nothing is wrong with the way of its acks.
        let is_one_of_many = now < self.doubts.asked_at + PROBE_INTERVAL_MIN;
        if is_one_of_many && !self.doubts.ack_alarm.is_heeded(now) {
            self.paths.acks_due |= self.paths.received();
            self.paths.probes_due |= self.paths.mask();
            return;
        }
        self.doubts.asked_at = now;
        if self.on_duplicate(now, heard_on) {
            self.paths.probes_due |= self.paths.mask();
        }
    }

    /// Which queue pair sends acks of the path at `of` now, and the generation that the peer
    /// expects there. A peer that has fallen back further than we have hears us where it speaks.
    pub(super) fn ack_route(&mut self, now: Time, of: usize) -> (Option<PathId>, u32) {
        if self.paths.is_below(of) && self.paths.failed() & bit(of) == 0 {
            return (Some(PathId(of as u8)), self.paths[of].generation_out);
        }
        if self.paths.ack_way() != 0 && self.paths.has_choice() {
            self.paths.choose_ack_way(now);
        }
        match self.paths.ack_way() {
            0 if self.paths[0].carrier != Carrier::Tcp && !self.control.has_left => {
                (None, self.peer.control_generations.1)
            }
            index => (Some(PathId(index as u8)), self.paths[index].generation_out),
        }
    }
}
