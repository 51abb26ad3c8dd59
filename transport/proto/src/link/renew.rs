//! Queue pairs that have failed are made anew, while the link goes on on others
//! (docs/protocol.md section 10).

use super::control::Control;
use super::{Link, LinkState};
use crate::carrier::Carrier;
use crate::event::{PathId, Renew};
use crate::limits::CONTROL_PATH;
use crate::path::{Path, PathSignal, PathState, QpHalf, bit};
use crate::wire::{ChunkHeader, Kind};
use towpath_base::Time;
use towpath_base::serial::Psn;
use towpath_verbs::QpNum;

/// Queue pair numbers and packet sequence numbers have 24 bits.
const MASK_24: u64 = (1 << 24) - 1;

impl Link {
    /// Whether [`poll_renew`](Self::poll_renew) may have something to tell, now or later.
    #[must_use]
    pub fn has_renewals(&self) -> bool {
        self.paths.renewals_due != 0
    }

    /// The next thing that the driver has to do for a queue pair that is made anew. Ask when
    /// [`poll_timeout`](Self::poll_timeout) has come, and after chunks have come in. A driver that
    /// cannot make one says so by [`renewal_failed`](Self::renewal_failed).
    pub fn poll_renew(&mut self, now: Time) -> Option<Renew> {
        if self.end.state != LinkState::Up {
            return None;
        }
        let mut left = self.paths.renewals_due;
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            left &= left - 1;
            let (path, renewal) = (PathId(index as u8), &mut self.paths[index].renewal);
            if renewal.due() > now && renewal.due() != Time::NEVER {
                continue;
            }
            if renewal.take_dark() {
                self.paths.renewals_due &= !bit(index);
                self.leave_port(now, index);
                continue;
            }
            if renewal.due() <= now {
                renewal.begin();
                return Some(Renew::Make { path });
            }
            let joined = renewal.join(now);
            self.paths.renewals_due &= !bit(index);
            if let Some(theirs) = joined {
                self.revive(now, index, theirs.generation);
                let Path { moves, source_port, .. } = self.paths[index];
                let source_port = (moves > 0).then_some(source_port);
                return Some(Renew::Join { path, theirs, source_port });
            }
        }
        None
    }

    /// When [`poll_renew`](Self::poll_renew) has something to tell.
    pub(super) fn renewal_due(&self) -> Time {
        let mut left = if self.end.state == LinkState::Up { self.paths.renewals_due } else { 0 };
        let mut at = Time::NEVER;
        while left != 0 {
            at = at.min(self.paths[left.trailing_zeros() as usize].renewal.due());
            left &= left - 1;
        }
        at
    }

    /// What a path sends is swallowed for long: it goes on from another port if its queue pair can.
    /// If not, the peer is asked to begin another life of it, which it does if it can spare the way
    /// that it has there itself.
    fn leave_port(&mut self, now: Time, index: usize) {
        let path = &self.paths[index];
        let is_well = path.standing.state() == PathState::Good && self.paths.is_in_use(index);
        if is_well || path.has_failed {
            return;
        }
        if self.paths.can_move() {
            return self.paths.move_dark(now, index);
        }
        self.paths[index].renewal.ask_for_port();
        self.stats.renewals_asked += 1;
        self.control.queue.push_back(Control::of(Kind::Renew, index as u32));
    }

    /// The driver has made our half of a path's queue pair; nothing of the one before is posted
    /// any more. The peer is told, on what works.
    pub fn renewed(&mut self, path: PathId, ours: QpHalf) {
        let index = usize::from(path.0);
        let Some(found) = self.paths.get_mut(index) else { return };
        let Some(life) = found.renewal.on_made() else { return };
        found.generation_in = ours.generation;
        self.paths.renewals_due |= bit(index);
        let message = u64::from(ours.qp_num.0) | u64::from(ours.psn.value()) << 32;
        let told = Control::of(Kind::Renew, u32::from(path.0));
        let (index, message_len) = (life, ours.generation);
        self.control.queue.push_back(Control { message, index, message_len, ..told });
    }

    /// The driver could not make our half: it is asked again, later.
    pub fn renewal_failed(&mut self, now: Time, path: PathId) {
        let index = usize::from(path.0);
        if let Some(found) = self.paths.get_mut(index) {
            found.renewal.on_failed(now);
            self.paths.renewals_due |= bit(index);
        }
    }

    /// RENEW: the peer has made its half of a life, or asks us to begin one.
    pub(super) fn on_renew(&mut self, now: Time, header: &ChunkHeader) {
        if header.channel == CONTROL_PATH && header.index == 0 {
            return self.leave_control();
        }
        let (qp_num, psn) = (header.message & 0xffff_ffff, header.message >> 32);
        let index = header.channel as usize;
        let carrier = self.paths.get(index).map(|path| path.carrier);
        let is_sound = carrier.is_some_and(|carrier| carrier != Carrier::Tcp);
        if !is_sound || qp_num > MASK_24 || psn > MASK_24 {
            self.stats.violations += 1;
            return;
        }
        if header.index == 0 {
            if self.paths.may_give_up(index) {
                self.end_queue_pair(now, index);
            }
            return;
        }
        let half = QpHalf {
            qp_num: QpNum(qp_num as u32),
            psn: Psn::new(psn as u32),
            generation: header.message_len,
        };
        let is_over = self.paths[index].renewal.on_told(header.index, half);
        self.paths.renewals_due |= bit(index);
        if is_over {
            // Ours speaks to one that is no more.
            self.end_queue_pair(now, index);
        }
    }

    /// What a path rode on is gone; another is made in its time, and leaves from another port if
    /// this one swallows. The queue pair of acks, which is not made anew, serves the first path as
    /// long as that is on its port: it goes there too where it can.
    pub(super) fn end_queue_pair(&mut self, now: Time, index: usize) {
        if self.paths.is_dark(index) && self.paths.renew_elsewhere(now, index) {
            self.stats.path_moves += 1;
            self.control.has_left |= index == 0 && !self.paths.can_move();
            self.control.follows |= index == 0 && self.paths.can_move();
        }
        self.paths[index].renewal.on_failed(now);
        self.paths.renewals_due |= bit(index);
        self.fail_path(now, index);
    }

    /// A path has a queue pair again, joined with the peer's. It is probed before it is used.
    fn revive(&mut self, now: Time, index: usize, generation: u32) {
        let path = &mut self.paths[index];
        path.has_failed = false;
        path.generation_out = generation;
        (path.last_progress, path.tick_from, path.rto_count) = (now, now, 0);
        self.stats.paths_renewed += 1;
        self.paths.ladder.on_renewed(now, index);
        self.signal_path(now, index, PathSignal::Renewed);
    }
}
