//! Packet sizes of paths: what is asked, and what follows from the answers (docs/protocol.md
//! section 9, "Packet sizes"). What a path knows of its own size is in [`MtuSearch`].
//!
//! [`MtuSearch`]: crate::path::MtuSearch

use super::Link;
use crate::event::{Event, PathId};
use crate::limits::PATH_CHANGE_INTERVAL;
use crate::path::{MtuSearch, PathState, bit, places};
use towpath_base::Time;
use towpath_verbs::Mtu;

impl Link {
    /// Asks a path whether it carries packets of the size in question, and goes by the answers.
    pub(super) fn watch_mtu(&mut self, now: Time, index: usize) {
        if !self.may_ask(index) {
            self.paths[index].mtu.forget_question();
            return self.note_question(index);
        }
        let answer = self.paths[index].timing.probe_interval(&self.flow);
        let path = &mut self.paths[index];
        if path.mtu.on_due(now, answer, |number| path.tx.is_acked(number)) {
            self.paths.probes_due |= bit(index);
        }
        self.settle_mtu(now, index);
    }

    /// What is silent altogether has other questions to answer.
    fn may_ask(&self, index: usize) -> bool {
        let path = &self.paths[index];
        let is_used = matches!(path.condition.state(), PathState::Good | PathState::Suspect);
        self.paths.is_in_use(index) && is_used
    }

    /// More than a packet's worth left on a path that may carry longer ones.
    #[cold]
    pub(super) fn search_mtu(&mut self, now: Time, index: usize) {
        self.paths[index].mtu.search(now);
        self.settle_mtu(now, index);
    }

    /// Sends were lost on a path; nothing was answered there for a timeout if `has_timed_out`.
    pub(super) fn suspect_mtu(&mut self, now: Time, index: usize, has_timed_out: bool) {
        self.paths[index].mtu.suspect(now, has_timed_out);
        self.note_question(index);
    }

    /// The host has learnt that packets longer than those of `mtu` do not get to the peer. That
    /// alone changes nothing, for whoever said so may lie: paths in longer packets are asked, and
    /// few probes decide.
    pub fn hint_mtu(&mut self, now: Time, mtu: Mtu) {
        for index in 0..self.paths.len() {
            if self.may_ask(index) {
                self.paths[index].mtu.on_hint(now, mtu);
                self.note_question(index);
            }
        }
    }

    /// A probe of `size` was answered on a path.
    #[cold]
    pub(super) fn on_long_answered(&mut self, now: Time, index: usize, size: Mtu) {
        self.paths[index].mtu.on_long_answered(now, size);
        self.settle_mtu(now, index);
    }

    /// Keeps the set of paths that are asked.
    fn note_question(&mut self, index: usize) {
        let asked = u16::from(self.paths[index].mtu.is_asked()) << index;
        self.paths.mtus_asked = self.paths.mtus_asked & !bit(index) | asked;
    }

    /// Tells what was found, if anything was, and begins to go by it.
    fn settle_mtu(&mut self, now: Time, index: usize) {
        self.note_question(index);
        if let Some(change) = self.paths[index].mtu.poll_change() {
            let path = PathId(index as u8);
            let (from, to, why) = (change.from, change.to, change.why);
            self.events.push_back(Event::PathMtuChanged { path, from, to, why });
            if to < from {
                self.on_mtu_lowered(now, to, change.took_data);
            } else {
                self.stats.mtu_raised += 1;
            }
        }
        self.reckon_packets();
    }

    /// Chunks are reckoned in packets of the paths in use.
    pub(super) fn reckon_packets(&mut self) {
        let mtu = self.sizes_in_use().map(MtuSearch::reckoned).min().unwrap_or(self.peer.mtu);
        let longest = self.sizes_in_use().map(MtuSearch::send_bytes_max).min();
        self.flow.set_packets(mtu, longest.unwrap_or(u32::MAX));
    }

    /// What was lost because it was too long says nothing of congestion, and nothing against the
    /// carrier. Other paths may go the same way.
    fn on_mtu_lowered(&mut self, now: Time, to: Mtu, took_data: bool) {
        self.stats.mtu_lowered += 1;
        let was_before =
            self.doubts.mtu_lowered_at.is_some_and(|at| now < at + PATH_CHANGE_INTERVAL);
        self.hint_mtu(now, to);
        if !was_before {
            self.doubts.mtu_lowered_at = Some(now);
            self.paths.ladder.loss.begin(now);
        }
        // Where another path carries longer packets, the window is its own, too. Where none does,
        // nearly all that was sent of late was swallowed.
        if took_data && self.sizes_in_use().all(|mtu| mtu.reckoned() <= to) {
            self.flow.restart_controller(now, &self.config, to);
        }
    }

    /// The packet sizes of the paths in use.
    fn sizes_in_use(&self) -> impl Iterator<Item = &MtuSearch> {
        places(self.paths.ladder.paths()).map(|index| &self.paths[index].mtu)
    }
}
