//! Sending what the links want sent, and posting what they can receive into.

use super::Endpoint;
use super::transmit::{Room, Sent, send_chunks};
use crate::control::Control;
use crate::limits::{SOON_BYTES, TURN_BYTES};
use crate::links::{Conn, Path, Phase};
use crate::shared::Shared;
use crate::tcp::Tcp;
use crate::wr_id::WrId;
use smallvec::SmallVec;
use std::task::Waker;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::{Class, Link};
use towpath_verbs::Device;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Sends what is to be sent: chunks first, then acks, so that acks ride on replies where
    /// there are any. The end of a turn.
    pub fn flush(&mut self) {
        let receives_can_wait = self.receives_can_wait();
        if !receives_can_wait {
            self.take_released();
            self.post_receives();
        }
        if !self.links.any_ready() && !self.take_released() {
            // Most turns of an idle poller end here: no clock read. The device may still have
            // packets that did not fit the last time.
            self.device.progress(0);
            return;
        }
        let (now, ahead_bytes) = (self.device.now(), self.plan.ahead_bytes);
        let in_order = self.order.is_needed();
        if in_order {
            self.send_in_order(now);
        }
        let room = Room { ahead_bytes, turn_bytes: u64::MAX };
        let mut down = SmallVec::<[u16; 8]>::new();
        loop {
            let Some(index) = self.links.pop_ready() else {
                if self.take_released() { continue } else { break }
            };
            let Some(conn) = self.links.at(index) else { continue };
            if conn.phase != Phase::Up {
                if receives_can_wait {
                    self.post_receives_of(index);
                }
                continue;
            }
            let has_lane = conn.link.as_ref().is_some_and(Link::has_lane);
            if !in_order && conn.link.as_ref().is_some_and(Link::has_renewals) {
                self.renew_paths(index, now);
            }
            if has_lane && !in_order {
                self.run_lane(index, now);
            }
            let is_last = !self.links.any_ready();
            let Some(conn) = self.links.at(index) else { continue };
            if !in_order {
                let at = (&mut self.device, &mut self.batches, &self.filler);
                let sent = send_chunks(at, conn, room, now);
                self.stats.posts_refused += sent.refused;
                // What is short and alone leaves before all that can wait: buffers that come home,
                // acks that rode on what came or found no chunk to ride on, and timers.
                if is_last && (1..=SOON_BYTES).contains(&sent.bytes) {
                    self.device.progress(0);
                }
            }
            if receives_can_wait {
                self.post_receives_of(index);
            }
            self.take_released();
            let Some(conn) = self.links.at(index) else { continue };
            if !in_order && conn.link.as_mut().is_some_and(Link::settle_piggyback) {
                let at = (&mut self.device, &mut self.batches, &self.filler);
                self.stats.posts_refused += send_chunks(at, conn, room, now).refused;
            }
            self.stats.posts_refused += send_acks(&mut self.device, conn, now);
            let timer = conn.timer;
            if let Some(tcp) = &conn.tcp {
                self.streams.hurry(tcp.due);
            }
            if conn.link.as_ref().is_some_and(Link::is_down) {
                down.push(index);
            }
            self.next_timer = self.next_timer.min(timer);
            self.links.file_timer(index);
            self.links.mark_eventful(index);
        }
        // Sends only: what comes in now would be in the way of the next poll's reserve.
        self.device.progress(0);
        // Only now, so that the ack of a goodbye is on the wire.
        for index in down {
            self.begin_draining(index);
        }
    }

    /// Sends the chunks of links of several classes, in the order that was chosen between classes.
    /// Who gets no turn now stays in line, and has acks sent all the same.
    fn send_in_order(&mut self, now: Time) {
        let mut place = 0;
        while let Some(index) = self.links.ready_at(place) {
            place += 1;
            let Some(conn) = self.links.at(index).filter(|conn| conn.phase == Phase::Up) else {
                continue;
            };
            if let Some(link) = &mut conn.link {
                link.settle_piggyback();
            }
            self.order.recount(conn);
            self.order.line_up(conn);
            // What it has to say of that, and the port that a path goes to, belong to this flush.
            let has_lane = conn.link.as_ref().is_some_and(Link::has_lane);
            if conn.link.as_ref().is_some_and(Link::has_renewals) {
                self.renew_paths(index, now);
            }
            if has_lane {
                self.run_lane(index, now);
            }
        }
        let room = Room { ahead_bytes: self.plan.ahead_bytes, turn_bytes: TURN_BYTES };
        while let Some((class, index)) = self.order.turn() {
            let mut sent = Sent::default();
            if let Some(conn) = self.links.at(index).filter(|conn| conn.phase == Phase::Up) {
                sent = send_chunks(
                    (&mut self.device, &mut self.batches, &self.filler),
                    conn,
                    room,
                    now,
                );
                self.stats.posts_refused += sent.refused;
                self.order.recount(conn);
                conn.is_in_line = sent.has_more;
            }
            self.order.served(class, index, sent.bytes, sent.has_more);
            // Its timer is another now.
            self.links.touch(index);
        }
    }

    /// Posts the receives that came home. Every one of them is posted again before the device may
    /// take in packets: see [`crate::config::EndpointConfig::receive_reserve`].
    pub(super) fn post_receives(&mut self) {
        if self.links.any_ready() {
            self.post_receives_of_links();
        }
        self.post_shared_receives();
    }

    /// Whether receives may be posted behind what is sent, and those of a shared queue as late as
    /// in the next poll: where nothing arrives before.
    pub(super) fn receives_can_wait(&self) -> bool {
        self.shared.is_some() && self.device.caps().arrives_in_progress
    }

    /// Those of the links that have work, to the queues of their own.
    fn post_receives_of_links(&mut self) {
        let mut place = 0;
        while let Some(index) = self.links.ready_at(place) {
            place += 1;
            self.post_receives_of(index);
        }
    }

    #[inline]
    fn post_receives_of(&mut self, index: u16) {
        if self.links.at(index).is_some_and(|conn| !conn.control_repost.is_empty()) {
            self.post_control_receives(index);
        }
        if self.shared.is_none() {
            self.post_receives_of_paths(index);
        }
    }

    #[inline(never)]
    fn post_control_receives(&mut self, index: u16) {
        let Some(conn) = self.links.at(index) else { return };
        let posted = self.device.post_recv(conn.control.qp_num, &conn.control_repost);
        self.stats.posts_refused += u64::from(posted.is_err());
        let refused = posted.err().map_or(conn.control_repost.len(), |bad| bad.index);
        for wr in &conn.control_repost[refused..] {
            if let Some(WrId::ControlRecv { slot, .. }) = WrId::unpack(wr.wr_id) {
                conn.control.received(slot, 0);
            }
        }
        conn.control_repost.clear();
    }

    fn post_shared_receives(&mut self) {
        self.replace_held();
        for class in Class::ALL {
            self.post_shared(class);
        }
        self.check_receives();
    }

    fn post_shared(&mut self, class: Class) {
        let queue = self.shared.as_mut().and_then(|shared| shared.of_mut(class));
        let Some(shared) = queue.filter(|shared| !shared.repost.is_empty()) else { return };
        let posted = self.device.post_srq_recv(shared.srq, &shared.repost);
        let taken = posted.err().map_or(shared.repost.len(), |bad| bad.index);
        shared.posted += taken;
        let mut repost = std::mem::take(&mut shared.repost);
        self.stats.posts_refused += (repost.len() - taken) as u64;
        self.unpost(repost.drain(taken..));
        repost.clear();
        if let Some(shared) = self.shared.as_mut().and_then(|shared| shared.of_mut(class)) {
            shared.repost = repost;
        }
    }

    #[inline(never)]
    fn post_receives_of_paths(&mut self, index: u16) {
        let Some(conn) = self.links.at(index) else { return };
        let mut refused: Vec<towpath_verbs::RecvWr> = Vec::new();
        for path in &mut conn.paths {
            if path.repost.is_empty() {
                continue;
            }
            let posted = self.device.post_recv(path.qp_num, &path.repost);
            let taken = posted.err().map_or(path.repost.len(), |bad| bad.index);
            path.posted += taken;
            refused.extend(path.repost.drain(taken..));
            path.repost.clear();
        }
        self.stats.posts_refused += refused.len() as u64;
        self.unpost(refused.into_iter());
    }

    /// Takes receives back that the device refused; a link that lacks them is slower and may lose
    /// chunks, which are sent again.
    pub(super) fn unpost(&mut self, refused: impl Iterator<Item = towpath_verbs::RecvWr>) {
        for wr in refused {
            if let Some(WrId::DataRecv { slot }) = WrId::unpack(wr.wr_id)
                && self.recv.reclaim(slot).is_some()
            {
                self.recv.put_free(slot);
            }
        }
    }

    /// The inequality of [`crate::config::EndpointConfig::receive_reserve`]: whatever is not held
    /// is posted.
    fn check_receives(&self) {
        if !cfg!(debug_assertions) || self.stats.posts_refused > 0 {
            return;
        }
        if let Some(shared) = &self.shared {
            for class in Class::ALL {
                let held: usize = self.links.of_class(class).map(|conn| conn.held).sum();
                let Some(Shared { posted, target, .. }) = shared.of(class) else { continue };
                debug_assert!(
                    posted + held >= *target,
                    "{posted} posted and {held} held of {target}, {class}"
                );
            }
            return;
        }
        for conn in self.links.iter().filter(|conn| conn.phase == Phase::Up) {
            let per_path = self.config.sizes.receives_per_path(conn.qp_paths());
            for path in conn.paths.iter().filter(|path| !path.has_failed) {
                let held = if conn.qp_paths() == 1 { conn.held } else { 0 };
                debug_assert!(
                    path.posted + held >= per_path,
                    "{} posted and {} held of {per_path}",
                    path.posted,
                    conn.held
                );
            }
        }
    }

    /// When [`poll`](Self::poll) has something to do at the latest, unless packets come in before:
    /// what a driver in virtual time advances to. [`Time::NEVER`] when nothing is due.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        let due = self.next_timer.min(self.setup.next_due()).min(self.streams.due());
        let now = self.device.now();
        let due = due.min(self.device.next_timeout()).min(self.shrink_due(now));
        let has_work = self.links.any_ready() || !self.released.is_empty() || self.wanted.is_back();
        if has_work { due.min(now) } else { due }
    }

    /// Before a sleep, which is to end no sooner than a timer comes.
    pub(super) fn file_timers_anew(&mut self) {
        self.links.file_anew();
        self.next_timer = self.links.next_timer();
    }

    /// Ends a [`wait`](Self::wait) from any thread, one that is under way or else the next; `None`
    /// where the device has no such means.
    #[must_use]
    pub fn waker(&self) -> Option<Waker> {
        self.device.waker()
    }

    /// Blocks until packets or peers may have come, another thread has dropped a received message
    /// or a send buffer that was asked for in vain, something is due, or `timeout` is over; true in
    /// the first two cases. Call it only after a poll that returned zero, and a flush. A device
    /// that cannot block returns at once.
    pub fn wait(&mut self, timeout: Nanos) -> bool {
        self.file_timers_anew();
        let due = self.next_timeout().since(self.device.now());
        let span = timeout.min(due);
        if let Some(away) = &mut self.away {
            away.rest();
        }
        self.bell.sleeps();
        let is_told = self.recv.has_returned() || self.wanted.is_back();
        let woken = is_told || span > Nanos::ZERO && self.device.wait(span);
        self.bell.wakes();
        if woken {
            self.setup.wake();
        }
        woken
    }
}

/// Sends the acks of one link, and what its stream has room for; returns how many work requests the
/// device refused.
fn send_acks<D: Device<Memory = Region>>(device: &mut D, conn: &mut Conn, now: Time) -> u64 {
    let Conn { id, link: Some(link), paths, tcp, control, timer, .. } = conn else {
        return 0;
    };
    let index = id.index;
    let refused = post_acks(device, control, (paths, tcp), (link, index), now);
    if let Some(tcp) = tcp {
        tcp.write_out(now);
    }
    *timer = link.poll_timeout();
    refused
}

fn post_acks<D: Device<Memory = Region>>(
    device: &mut D,
    control: &mut Control,
    (paths, tcp): (&[Path], &mut Option<Tcp>),
    (link, index): (&mut Link, u16),
    now: Time,
) -> u64 {
    let mut refused = 0;
    while control.has_send_slot() {
        let (mut way, mut len, mut cut_at) = (None, 0, None);
        let write = |bytes: &mut _| {
            let ack = link.poll_ack(now, bytes)?;
            (way, len, cut_at) = (ack.path, ack.len, ack.cut_at);
            Some(ack.len)
        };
        let Some(mut wr) = control.send(index, write) else { break };
        if let Some(tcp) = tcp.as_mut().filter(|tcp| Some(tcp.path) == way) {
            if let Some(WrId::ControlSend { slot, .. }) = WrId::unpack(wr.wr_id)
                && let Some(ack) = control.take_back(slot, len)
            {
                // Acks tell all there is: what finds no room is made good by the next.
                tcp.frames.push(ack);
            }
            continue;
        }
        wr.flags.cut_at = cut_at;
        let path = way.and_then(|path| paths.get(usize::from(path.0)));
        let qp_num = path.map_or(control.qp_num, |path| path.qp_num);
        if device.post_send(qp_num, &[wr]).is_err() {
            refused += 1;
            if let Some(WrId::ControlSend { slot, .. }) = WrId::unpack(wr.wr_id) {
                control.sent(slot);
            }
        }
    }
    refused
}
