//! Sending what the links want sent, and posting what they can receive into.

use super::Endpoint;
use crate::conn::Phase;
use crate::limits::SOON_BYTES;
use crate::rx::post_acks;
use crate::tx::{Sent, send_acks};
use smallvec::SmallVec;
use std::task::Waker;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::Link;
use towpath_verbs::Device;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Sends what is to be sent: chunks first, then acks, so that acks ride on replies where
    /// there are any. The end of a turn.
    pub fn flush(&mut self) {
        let receives_can_wait = self.rx.can_wait();
        if !receives_can_wait {
            self.rx.take_released(&mut self.links);
            self.post_receives();
        }
        if !self.links.any_ready() && !self.rx.take_released(&mut self.links) {
            // Most turns of an idle poller end here: no clock read. The device may still have
            // packets that did not fit the last time.
            self.device.progress(0);
            return;
        }
        let (now, room) = (self.device.now(), self.tx.room());
        let in_order = self.tx.order.is_needed();
        if in_order {
            self.send_in_order(now);
        }
        let mut down = SmallVec::<[u16; 8]>::new();
        loop {
            let Some(index) = self.links.pop_ready() else {
                if self.rx.take_released(&mut self.links) { continue } else { break }
            };
            let Some(conn) = self.links.at(index) else { continue };
            if conn.phase != Phase::Up {
                if receives_can_wait {
                    self.post_receives_of(index);
                }
                continue;
            }
            if !in_order {
                self.run_queue_pairs(index, now);
            }
            let is_last = !self.links.any_ready();
            let Some(conn) = self.links.at(index) else { continue };
            if !in_order {
                let sent = self.tx.send(&mut self.device, conn, room, now);
                self.tally.stats.posts_refused += sent.refused;
                // What is short and alone leaves before all that can wait: buffers that come home,
                // acks that rode on what came or found no chunk to ride on, and timers.
                if is_last && (1..=SOON_BYTES).contains(&sent.bytes) {
                    self.device.progress(0);
                }
            }
            if receives_can_wait {
                self.post_receives_of(index);
            }
            self.rx.take_released(&mut self.links);
            let Some(conn) = self.links.at(index) else { continue };
            if !in_order && conn.link.as_mut().is_some_and(Link::settle_piggyback) {
                let sent = self.tx.send(&mut self.device, conn, room, now);
                self.tally.stats.posts_refused += sent.refused;
            }
            self.tally.stats.posts_refused += send_acks(&mut self.device, conn, now);
            if conn.link.as_ref().is_some_and(Link::is_down) {
                down.push(index);
            }
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
            self.tx.order.recount(conn);
            self.tx.order.line_up(conn);
            // What it has to say of that, and the port that a path goes to, belong to this flush.
            self.run_queue_pairs(index, now);
        }
        let room = self.tx.room_of_turn();
        while let Some((class, index)) = self.tx.order.turn() {
            let mut sent = Sent::default();
            if let Some(conn) = self.links.at(index).filter(|conn| conn.phase == Phase::Up) {
                sent = self.tx.send(&mut self.device, conn, room, now);
                self.tally.stats.posts_refused += sent.refused;
                self.tx.order.recount(conn);
                conn.turn.is_in_line = sent.has_more;
            }
            self.tx.order.served(class, index, sent.bytes, sent.has_more);
            // Its timer is another now.
            self.links.touch(index);
        }
    }

    /// Does what a link asks for its queue pairs that are made anew, and for its operations.
    #[inline]
    fn run_queue_pairs(&mut self, index: u16, now: Time) {
        let link = self.links.at(index).and_then(|conn| conn.link.as_ref());
        let Some((is_due, has_lane)) =
            link.map(|link| (link.has_renewals(), link.lane().is_some()))
        else {
            return;
        };
        if is_due {
            self.renew_paths(index, now);
        }
        if has_lane {
            self.run_lane(index, now);
        }
    }

    /// Posts the receives that came home.
    pub(super) fn post_receives(&mut self) {
        let Self { rx, device, links, tally, .. } = self;
        rx.post(device, links, &mut tally.stats);
    }

    fn post_receives_of(&mut self, index: u16) {
        let Self { device, links, tally, .. } = self;
        post_acks(device, links, index, &mut tally.stats);
    }

    /// When [`poll`](Self::poll) has something to do at the latest, unless packets come in before:
    /// what a driver in virtual time advances to. [`Time::NEVER`] when nothing is due.
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        let due = self.links.next_timer().min(self.setup.next_due());
        let now = self.device.now();
        let due = due.min(self.device.next_timeout()).min(self.shrink_due(now));
        let has_work = self.links.any_ready() || self.rx.has_released() || self.buffers.is_back();
        if has_work { due.min(now) } else { due }
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
        self.links.file_anew();
        let due = self.next_timeout().since(self.device.now());
        let span = timeout.min(due);
        self.sleep.begin();
        let is_told = self.rx.slots().has_returned() || self.buffers.is_back();
        let woken = is_told || span > Nanos::ZERO && self.device.wait(span);
        self.sleep.end();
        if woken {
            self.setup.news.wake();
        }
        woken
    }
}
