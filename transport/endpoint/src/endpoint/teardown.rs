//! Ending links, and taking back what their queue pairs held.

use super::Endpoint;
use crate::control::NO_QP;
use crate::event::{Event, LinkId};
use crate::links::{Conn, Phase};
use crate::wr_id::WrId;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::{Link, PathId};
use towpath_verbs::{AsyncEvent, Device};

/// The poll in which draining began may be past its completions; the next one is not.
pub(super) const DRAIN_POLLS: u8 = 2;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Destroys the queue pairs of a link that is down, or was never up. What was posted comes
    /// back as flushed completions, and the link reports its last messages.
    pub(super) fn begin_draining(&mut self, index: u16) {
        let Some(conn) = self.links.at(index).filter(|c| c.phase != Phase::Draining) else {
            return;
        };
        if conn.phase == Phase::Up {
            self.order.left(conn);
        }
        conn.phase = Phase::Draining;
        conn.timer = Time::NEVER;
        conn.tcp = None;
        conn.seat = None;
        let (id, class) = (conn.id, conn.class.class);
        let made = |num: &towpath_verbs::QpNum| *num != NO_QP;
        let control_qp = Some(conn.control.qp_num).filter(made);
        let path_qps = conn.paths.iter().map(|path| path.qp_num);
        for qp_num in control_qp.into_iter().chain(path_qps) {
            // It is there until here; and if it is not, nothing is posted to it either.
            let _ = self.device.destroy_qp(qp_num);
        }
        let control: Vec<_> = conn.control_repost.drain(..).collect();
        for wr in control {
            if let Some(WrId::ControlRecv { slot, .. }) = WrId::unpack(wr.wr_id) {
                conn.control.received(slot, 0);
            }
        }
        let unposted: Vec<_> =
            conn.paths.iter_mut().flat_map(|path| path.repost.drain(..)).collect();
        self.unpost(unposted.into_iter());
        let target = self.shared_target(class);
        if let Some(shared) = self.shared.as_mut().and_then(|shared| shared.of_mut(class)) {
            shared.target = target;
        }
        if !self.order.is_needed() {
            self.order.drain().for_each(|waiting| self.links.touch(waiting));
        }
        self.draining.push(index);
        self.links.touch(index);
        self.share_window();
        self.close_setup(id);
    }

    /// The link has told that it is down: its place is free once the device has let go.
    pub(super) fn end_link(&mut self, id: LinkId) {
        if let Some(link) = self.links.find_mut(id).and_then(|conn| conn.link.take()) {
            self.ended += link.stats();
        }
        self.begin_draining(id.index);
    }

    /// Ends a link without a word to the peer: its messages have their outcomes in the next turns,
    /// as soon as the device has let go of them.
    pub(crate) fn cut(&mut self, link: LinkId) {
        if let Some(found) = self.links.up(link) {
            found.cut();
            self.links.touch(link.index);
        }
    }

    /// The set-up connection of a link broke: the peer's process is gone.
    pub(crate) fn peer_gone(&mut self, link: LinkId) {
        if let Some(found) = self.links.up(link) {
            found.peer_gone();
            self.links.touch(link.index);
        }
    }

    /// Frees the places of links that are drained, and looks at what the device itself tells.
    pub(super) fn finish_draining(&mut self) {
        while let Some(event) = self.device.poll_async_event() {
            self.on_device_event(event);
        }
        let mut place = 0;
        while let Some(&index) = self.draining.get(place) {
            if let Some(conn) = self.links.at(index) {
                take_back_untold(conn);
            }
            let done = |conn: &mut Conn| conn.link.is_none() && conn.is_drained();
            if self.links.at(index).is_some_and(|conn| !done(conn)) {
                place += 1;
                continue;
            }
            self.draining.swap_remove(place);
            let Some(conn) = self.links.remove(index) else { continue };
            for &lkey in &conn.lkeys {
                // The key was given by this device; a refusal leaves a spare entry in its table.
                let _ = self.device.dereg_mr(lkey);
            }
        }
    }

    fn on_device_event(&mut self, event: AsyncEvent) {
        tracing::warn!(?event, "the device reports");
        let mut broken = smallvec::SmallVec::<[u16; 4]>::new();
        let now = self.device.now();
        for conn in self.links.iter_mut() {
            match event {
                AsyncEvent::QpFatal(qp_num) => conn.fail_qp(now, qp_num),
                AsyncEvent::CqError(_) | AsyncEvent::DeviceFatal => {
                    if let Some(link) = conn.link.as_mut() {
                        link.device_failed();
                    }
                }
                _ => {}
            }
            if conn.link.as_ref().is_some_and(Link::is_down) {
                broken.push(conn.id.index);
            }
        }
        broken.into_iter().for_each(|index| self.links.touch(index));
        self.tell(Event::Device { event });
    }
}

/// Takes back the sends of destroyed queue pairs that no completion will tell of: they left
/// unsignaled, and the signaled one behind them was refused. A whole poll has taken in what the
/// queue pairs flushed by then.
fn take_back_untold(conn: &mut Conn) {
    conn.drain_polls = conn.drain_polls.saturating_add(1);
    if conn.drain_polls < DRAIN_POLLS {
        return;
    }
    for id in 0..conn.paths.len() as u8 {
        take_back_sends(conn, id);
    }
}

/// Takes back all sends of a path.
pub(super) fn take_back_sends(conn: &mut Conn, path: u8) {
    let Conn { paths, tx_slots, link, .. } = conn;
    let Some(sending) = paths.get_mut(usize::from(path)) else { return };
    while let Some(number) = sending.tx.pop_any(tx_slots) {
        if let Some(link) = link.as_mut() {
            link.handle_sent(PathId(path), number, None);
        }
    }
}
