//! Taking in what the device received and completed.

use super::Endpoint;
use crate::conn::Phase;
use crate::event::Event;
use crate::limits::{BATCH, TIMERS_PUT_OFF_MAX};
use crate::stats::is_error;
use crate::wr_id::WrId;
use std::hint::cold_path;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::{Carrier, PathId};
use towpath_verbs::{CqNum, Device, QpState, Wc, WcStatus};

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Takes in what has arrived, been completed, or become due. Returns how much that was: zero
    /// means that nothing happened. Afterwards take all [events](Self::next_event), act, and
    /// [`flush`](Self::flush).
    pub fn poll(&mut self) -> usize {
        // Of between two turns: what came before that came home in the flush.
        self.rx.take_released(&mut self.links);
        self.post_receives();
        let moved = self.device.progress(self.config.sizes.progress_budget);
        let now = self.device.now();
        if self.sleep.is_waited_for() {
            // What ended the wait may have been news of set-up.
            self.setup.news.wake();
        }
        if let Some(absence) = self.sleep.on_poll(now) {
            self.set_away(absence);
        }
        let mut completions = self.poll_data(now);
        let acks = self.poll_control(now);
        if let Some(cq) = self.lanes.cq {
            completions += self.poll_lanes(now, cq);
        }
        let count = moved + acks + completions + self.rx.take_returns(&mut self.links);
        if now >= self.links.next_timer() {
            // Of those whose timers have moved on none is due.
            self.links.file_anew();
        }
        // What came is answered first where nothing is due: the set-up and what the device has to
        // tell of itself can wait, for one turn.
        let was_put_off = self.driver.has_put_off;
        self.driver.has_put_off = count > 0 && !was_put_off && !self.is_anything_due(now);
        if self.driver.has_put_off {
            self.setup.news.packets_came();
            return count;
        }
        count + self.look_around(now, count == 0)
    }

    /// Whether timers that are due wait: an ack that ends them may lie behind what this turn took
    /// in. Where a device gives all that has come there is nothing behind.
    #[inline]
    fn puts_off_timers(&mut self, idle: bool) -> bool {
        let put_off = &mut self.driver.timers_put_off;
        let is_late = idle || *put_off == TIMERS_PUT_OFF_MAX;
        let puts_off = !is_late && self.device.caps().arrives_in_progress;
        *put_off = if puts_off { *put_off + 1 } else { 0 };
        puts_off
    }

    #[inline]
    fn is_anything_due(&self, now: Time) -> bool {
        let links = &self.links;
        let is_quiet = links.draining.is_empty() && links.renewing.is_empty();
        !is_quiet || now >= links.next_timer()
    }

    /// Looks at all but packets and completions.
    #[inline(never)]
    fn look_around(&mut self, now: Time, idle: bool) -> usize {
        let has_news = self.take_news(now, idle);
        let mut frames = 0;
        if now >= self.links.next_timer() {
            let puts_off = self.puts_off_timers(idle);
            frames = self.look_at_those_due(now, puts_off);
        } else {
            self.driver.timers_put_off = 0;
        }
        self.finish_draining();
        self.finish_renewals();
        self.poll_setup(now, has_news);
        self.look_for_mtu_hints(now);
        self.look_for_buffers();
        self.shrink(now);
        frames
    }

    /// Tells of a send buffer that came back after one was asked for in vain.
    #[inline]
    fn look_for_buffers(&mut self) {
        if let Some(bytes) = self.buffers.take_wanted() {
            self.told.push_back(Event::BufferFree { bytes });
        }
    }

    /// Gives memory back to the system that has not been needed for a while.
    #[inline]
    fn shrink(&mut self, now: Time) {
        if now >= self.shrink_due(now) {
            self.rx.shrink(now);
        }
    }

    /// When that is due: never on a device that pins memory.
    pub(super) fn shrink_due(&self, now: Time) -> Time {
        if self.device.caps().pins_memory { Time::NEVER } else { self.rx.slots().shrink_due(now) }
    }

    /// Where completions carry no time, delays are as long as nobody looked.
    #[cold]
    fn set_away(&mut self, away: Nanos) {
        for conn in self.links.iter_mut() {
            if let Some(link) = conn.link.as_mut() {
                link.set_away(away);
            }
        }
    }

    /// Acks, behind completions of sends: those say when what is acknowledged has left.
    fn poll_control(&mut self, now: Time) -> usize {
        self.drain(self.driver.queues.control_cq, |endpoint, wcs| {
            let wc = &wcs[0];
            match WrId::unpack(wc.wr_id) {
                Some(WrId::ControlRecv { link, slot }) => {
                    endpoint.on_control_recv(now, link, slot, wc);
                }
                Some(WrId::ControlSend { link, slot }) => endpoint.on_ack_sent(link, slot, wc),
                _ => endpoint.stray(),
            }
            1
        })
    }

    #[cold]
    pub(super) fn stray(&mut self) {
        self.tally.stats.strays += 1;
    }

    #[inline(never)]
    fn on_ack_sent(&mut self, link: u16, slot: u32, wc: &Wc) {
        if let Some(conn) = self.links.at(link) {
            let handed_at = conn.control.sent(slot);
            if let (Some(handed_at), Some(left_at)) = (handed_at, wc.timestamp)
                && conn.is_uc(wc.qp_num)
                && let Some(link) = conn.link.as_mut()
            {
                link.handle_ack_sent(handed_at, left_at);
            }
            // An ack may have waited for the slot.
            self.links.touch(link);
        }
        self.tally.stats.note_send(wc);
    }

    /// Hands the completions of a queue to `on_wcs`, as many as there are, which says how many of
    /// them it took, at least one; returns how many there were.
    pub(super) fn drain(
        &mut self,
        cq: CqNum,
        mut on_wcs: impl FnMut(&mut Self, &[Wc]) -> usize,
    ) -> usize {
        let mut wcs = std::mem::take(&mut self.driver.wcs);
        let mut total = 0;
        loop {
            let count = self.device.poll_cq(cq, &mut wcs);
            let mut left = &wcs[..count];
            while !left.is_empty() {
                left = &left[on_wcs(self, left)..];
            }
            total += count;
            if count < BATCH {
                break;
            }
        }
        self.driver.wcs = wcs;
        total
    }

    #[inline(never)]
    fn on_control_recv(&mut self, now: Time, index: u16, slot: u32, wc: &Wc) {
        let ok = wc.status == WcStatus::Success;
        self.tally.stats.note_recv(wc);
        let Some(conn) = self.links.at(index) else { return };
        let bytes = conn.control.received(slot, if ok { wc.byte_len } else { 0 });
        if conn.phase == Phase::Draining {
            return;
        }
        if let (true, Some(mut bytes), Some(link)) = (ok, bytes, conn.link.as_mut()) {
            if let Some(seal) = &mut conn.seal {
                bytes = seal.open_ack(now, bytes);
            }
            // What a seal refused is empty, and no ack.
            if !bytes.is_empty() || conn.seal.is_none() {
                conn.class.note(wc.tclass);
                link.handle_ack(now, bytes, wc.timestamp.unwrap_or(now));
            }
        }
        conn.control.lend_recv(index, slot);
        self.links.touch(index);
    }

    fn poll_data(&mut self, now: Time) -> usize {
        self.drain(self.driver.queues.cq, |endpoint, wcs| {
            match WrId::unpack(wcs[0].wr_id) {
                Some(WrId::DataRecv { .. }) => {
                    let Self { rx, device, links, tally, .. } = endpoint;
                    return rx.take_in((device, links), &mut tally.stats, now, wcs);
                }
                Some(WrId::DataSend { link, path, position }) => {
                    endpoint.on_sent(link, path, position, &wcs[0]);
                }
                // It left on the queue pair of a path.
                Some(WrId::ControlSend { link, slot }) => {
                    endpoint.on_ack_sent(link, slot, &wcs[0]);
                }
                _ => endpoint.stray(),
            }
            1
        })
    }

    #[inline(never)]
    fn on_sent(&mut self, index: u16, path: u8, position: u32, wc: &Wc) {
        self.tally.stats.note_send(wc);
        let Some(conn) = self.links.at(index) else { return };
        let Some(sending) = conn.paths.get_mut(usize::from(path)) else { return };
        let qp_num = sending.qp_num;
        // RC completes a send when its acknowledgement is there: that is not when it left.
        let timestamp = wc.timestamp.filter(|_| sending.carrier == Carrier::Uc);
        if let Some((done, number)) = sending.tx.pop_upto(&mut conn.tx_slots, position)
            && let Some(link) = conn.link.as_mut()
        {
            let timestamp = timestamp.filter(|_| done == position);
            link.handle_sent_upto(PathId(path), number, timestamp);
        }
        if is_error(wc) && self.device.qp_state(qp_num) == Ok(QpState::Err) {
            cold_path();
            conn.fail_qp(self.device.now(), qp_num);
        }
        if self.tx.order.is_needed() {
            self.tx.order.recount(conn);
        }
        self.links.touch(index);
    }

    /// Links whose timers are due have their turn, and send what waited for its time; what follows
    /// from silence may be put off. Returns how many frames came on their streams.
    #[inline(never)]
    fn look_at_those_due(&mut self, now: Time, puts_off: bool) -> usize {
        let mut due = smallvec::SmallVec::<[u16; 32]>::new();
        while let Some(index) = self.links.pop_due(now) {
            due.push(index);
        }
        // In the order of links, whenever exactly they were due.
        due.sort_unstable();
        let mut frames = 0;
        for index in due {
            frames += self.look_at_stream(index, now);
            let conn = self.links.at(index).filter(|_| !puts_off);
            if let Some(link) = conn.and_then(|conn| conn.link.as_mut()) {
                link.handle_timeout(now);
            }
            self.links.touch(index);
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SendOptions;
    use crate::config::EndpointConfig;
    use crate::endpoint::joined::{End, Joined, joined};
    use crate::ids::LinkId;
    use towpath_proto::ChannelId;

    /// Longer than any timer of a link that has nothing to tell.
    const LONG: Nanos = Nanos::from_millis(50);

    #[test]
    fn what_a_poll_puts_off_is_not_put_off_again() {
        let pair = joined(&EndpointConfig::new().links_max(1));
        let Joined { world, mut near, mut far, far_link: link, .. } = pair;
        let mut put_off = Vec::new();
        for _ in 0..8 {
            far.open_channel(link, false).expect("room");
            far.flush();
            world.advance_to(world.now() + Nanos::from_micros(100));
            assert!(near.poll() > 0, "what was sent has come");
            put_off.push(near.driver.has_put_off);
        }
        assert_eq!(put_off, [true, false].repeat(4));
    }

    fn send(end: &mut End, link: LinkId, channel: ChannelId) {
        let buf = end.copy(b"a message").expect("memory");
        end.send(link, channel, buf, SendOptions::new()).expect("room");
        end.flush();
    }

    /// Takes in what has come, and gives it back.
    fn turn(end: &mut End) -> usize {
        let count = end.poll();
        while let Some(event) = end.next_event() {
            if let Event::Message(message) = event {
                end.release(message);
            }
        }
        end.flush();
        count
    }

    /// A pair with a channel, which takes in one packet at a time.
    fn slow_pair() -> (Joined, ChannelId) {
        let mut pair = joined(&EndpointConfig::new().links_max(1).progress_budget(1));
        let channel = pair.near.open_channel(pair.near_link, false).expect("room");
        for _ in 0..100 {
            turn(&mut pair.near);
            turn(&mut pair.far);
            pair.world.advance_to(pair.world.now() + Nanos::from_micros(100));
        }
        (pair, channel)
    }

    #[test]
    fn an_ack_that_has_come_is_taken_in_before_a_timer_that_it_ends() {
        let (Joined { world, mut near, mut far, near_link, far_link }, channel) = slow_pair();
        send(&mut near, near_link, channel);
        for _ in 0..2 {
            send(&mut far, far_link, channel);
            world.advance_to(world.now() + Nanos::from_micros(10));
        }
        while turn(&mut far) > 0 {}
        world.advance_to(world.now() + LONG);
        while turn(&mut near) > 0 {}
        let stats = near.stats(near_link).expect("a link");
        assert_eq!((stats.messages_delivered, stats.messages_received), (1, 2));
        assert_eq!((stats.tail_probes, stats.rtos), (0, 0));
    }

    #[test]
    fn timers_come_although_packets_do_not_end() {
        let (Joined { world, mut near, mut far, near_link, far_link }, channel) = slow_pair();
        send(&mut far, far_link, channel);
        // It is not answered, and asks again.
        for _ in 0..1_000 {
            turn(&mut far);
            world.advance_to(world.now() + Nanos::from_millis(5));
        }
        send(&mut near, near_link, channel);
        world.advance_to(world.now() + LONG);
        let mut probes = Vec::new();
        while turn(&mut near) > 0 {
            probes.push(near.stats(near_link).expect("a link").tail_probes);
        }
        let first = probes.iter().position(|&probes| probes > 0);
        assert_eq!(first, Some(usize::from(TIMERS_PUT_OFF_MAX)), "{probes:?}");
    }
}
