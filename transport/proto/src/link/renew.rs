//! Queue pairs that have failed are made anew, while the link goes on on others
//! (docs/protocol.md section 10).

use super::control::Control;
use super::{Link, LinkState};
use crate::carrier::Carrier;
use crate::event::{PathId, Renew};
use crate::limits::CONTROL_PATH;
use crate::path::{Path, PathSignal, PathState, places};
use crate::remake::{QpHalf, Step};
use crate::wire::{ChunkHeader, Kind};
use towpath_base::Time;
use towpath_base::serial::Psn;
use towpath_verbs::QpNum;

/// The number and the first PSN of a queue pair in one word, as RENEW and LANE tell them.
pub(super) fn packed_half(qp_num: QpNum, psn: Psn) -> u64 {
    u64::from(qp_num.0) | u64::from(psn.value()) << 32
}

/// The same, unpacked; each has 24 bits.
pub(super) fn half_of(word: u64) -> Option<(QpNum, Psn)> {
    let (qp_num, psn) = (word as u32, (word >> 32) as u32);
    (qp_num <= QpNum::MAX.0 && psn <= QpNum::MAX.0).then(|| (QpNum(qp_num), Psn::new(psn)))
}

impl Link {
    /// Whether [`poll_renew`](Self::poll_renew) may have something to tell, now or later.
    #[must_use]
    pub fn has_renewals(&self) -> bool {
        self.paths.failed() != 0
    }

    /// The next thing that the driver has to do for a queue pair that is made anew. Ask when
    /// [`poll_timeout`](Self::poll_timeout) has come, and after chunks have come in. A driver that
    /// cannot make one says so by [`renewal_failed`](Self::renewal_failed).
    pub fn poll_renew(&mut self, now: Time) -> Option<Renew> {
        let failed = if self.end.state == LinkState::Up { self.paths.failed() } else { 0 };
        for index in places(failed) {
            let path = PathId(index as u8);
            match self.paths[index].remake.poll(now) {
                None => {}
                Some(Step::Make) => return Some(Renew::Make { path }),
                Some(Step::Join(theirs)) => {
                    self.revive(now, index, theirs.generation);
                    let Path { moves, source_port, .. } = self.paths[index];
                    let source_port = (moves > 0).then_some(source_port);
                    return Some(Renew::Join { path, theirs, source_port });
                }
            }
        }
        None
    }

    /// The driver has made our half of a path's queue pair; nothing of the one before is posted
    /// any more. The peer is told, on what works.
    pub fn renewed(&mut self, path: PathId, ours: QpHalf) {
        let index = usize::from(path.0);
        let Some(found) = self.paths.get_mut(index) else { return };
        let Some(life) = found.remake.on_made() else { return };
        found.generation_in = ours.generation;
        let message = packed_half(ours.qp_num, ours.psn);
        let told = Control::of(Kind::Renew, u32::from(path.0));
        let (index, message_len) = (life, ours.generation);
        self.control.push(Control { message, index, message_len, ..told });
    }

    /// The driver could not make our half: it is asked again, later.
    pub fn renewal_failed(&mut self, now: Time, path: PathId) {
        let index = usize::from(path.0);
        if let Some(found) = self.paths.get_mut(index) {
            found.remake.on_make_failed(now);
        }
    }

    /// RENEW: the peer has made its half of a life.
    pub(super) fn on_renew(&mut self, now: Time, header: &ChunkHeader) {
        if header.channel == CONTROL_PATH && header.index == 0 {
            return self.leave_control();
        }
        let index = header.channel as usize;
        let carrier = self.paths.get(index).map(|path| path.carrier);
        let has_one = carrier.is_some_and(|carrier| carrier != Carrier::Tcp);
        let half = half_of(header.message).filter(|_| has_one && header.index > 0);
        let Some((qp_num, psn)) = half else {
            self.stats.violations += 1;
            return;
        };
        let half = QpHalf { qp_num, psn, generation: header.message_len };
        if self.paths[index].remake.on_told(now, header.index, half) {
            // Ours speaks to one that is no more.
            self.end_queue_pair(now, index);
        }
    }

    /// The queue pair of a path is gone; another one is made in its time. It leaves from another
    /// port where this one may swallow what is sent: RC fails when nothing answers. The queue pair
    /// of acks is not made anew. It serves the first path as long as that is on its port, and goes
    /// to the next port too where it can.
    pub(super) fn end_queue_pair(&mut self, now: Time, index: usize) {
        let path = &self.paths[index];
        let is_well = path.condition.state() == PathState::Good && path.carrier != Carrier::Rc;
        if !is_well {
            self.take_new_port(now, index);
        }
        self.paths[index].remake.fail(now);
        self.fail_path(now, index);
    }

    /// The next queue pair of a path leaves from another port. True if there is one.
    pub(super) fn take_new_port(&mut self, now: Time, index: usize) -> bool {
        let moves = self.paths.renew_elsewhere(now, index);
        if moves {
            self.stats.path_moves += 1;
            self.control.has_left |= index == 0 && !self.paths.can_move();
            self.control.follows |= index == 0 && self.paths.can_move();
        }
        moves
    }

    /// A path has a queue pair again, joined with the peer's. It is probed before it is used.
    fn revive(&mut self, now: Time, index: usize, generation: u32) {
        let path = &mut self.paths[index];
        path.generation_out = generation;
        let carrier = path.carrier;
        path.timing.on_progress(now);
        self.stats.paths_renewed += 1;
        self.paths.ladder.on_renewed(now, carrier);
        self.signal_path(now, index, PathSignal::Renewed);
    }
}
