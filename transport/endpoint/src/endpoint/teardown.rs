//! Ending links, and taking back what their queue pairs held.

use super::Endpoint;
use crate::conn::{Conn, Phase};
use crate::event::Event;
use crate::ids::LinkId;
use crate::tx::take_back_sends;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_verbs::{AsyncEvent, Device};

/// The poll in which draining began may be past its completions; the next one is not.
pub(super) const DRAIN_POLLS: u8 = 2;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Destroys the queue pairs of a link that is down, or was never up. What was posted comes
    /// back as flushed completions, and the link reports its last messages.
    pub(super) fn begin_draining(&mut self, index: u16) {
        let Self { links, device, .. } = self;
        let Some(conn) = links.at(index).filter(|c| c.phase != Phase::Draining) else {
            return;
        };
        if conn.phase == Phase::Up {
            self.tx.order.left(conn);
        }
        conn.phase = Phase::Draining;
        conn.timer = Time::NEVER;
        conn.tcp = None;
        conn.seat = None;
        let class = conn.class.class;
        conn.destroy_qps(device);
        conn.paths.iter().for_each(|path| self.rx.close(path.queue));
        self.links.forget_qps_of(index);
        self.rx.retarget(&self.links, class);
        if !self.tx.order.is_needed() {
            self.tx.order.drain().for_each(|waiting| self.links.touch(waiting));
        }
        self.links.draining.push(index);
        self.links.touch(index);
        self.share_window();
    }

    /// The link has told that it is down: its place is free once the device has let go.
    pub(super) fn end_link(&mut self, id: LinkId) {
        if let Some(link) = self.links.find_mut(id).and_then(|conn| conn.link.take()) {
            self.tally.ended += link.stats();
            let seal = self.links.find_mut(id).and_then(|conn| conn.seal.take());
            if let Some(seal) = seal {
                self.tally.refused.add(seal.refusals());
            }
        }
        self.begin_draining(id.index);
    }

    /// Ends a link without a word to the peer: its messages have their outcomes in the next turns,
    /// as soon as the device has let go of them.
    #[doc(hidden)]
    pub fn cut(&mut self, link: LinkId) {
        if let Some(found) = self.links.up(link) {
            found.cut();
            self.links.touch(link.index);
        }
    }

    /// Frees the places of links that are drained, and looks at what the device itself tells.
    #[inline]
    pub(super) fn finish_draining(&mut self) {
        while let Some(event) = self.device.poll_async_event() {
            self.on_device_event(event);
        }
        if !self.links.draining.is_empty() {
            self.remove_drained();
        }
    }

    #[inline(never)]
    fn remove_drained(&mut self) {
        let (mut place, now) = (0, self.device.now());
        while let Some(&index) = self.links.draining.get(place) {
            if self.links.at(index).is_some_and(|conn| take_back_untold(conn, now)) {
                // Its link has outcomes to tell.
                self.links.touch(index);
            }
            let has_let_go = |conn: &Conn| {
                conn.is_drained() && conn.paths.iter().all(|path| self.rx.is_drained(path.queue))
            };
            let done = |conn: &mut Conn| conn.link.is_none() && has_let_go(conn);
            if self.links.at(index).is_some_and(|conn| !done(conn)) {
                place += 1;
                continue;
            }
            self.links.draining.swap_remove(place);
            let Some(conn) = self.links.remove(index) else { continue };
            conn.paths.iter().for_each(|path| self.rx.forget(path.queue));
            conn.lkeys.deregister(&mut self.device);
            if let Some(lane) = &conn.lane {
                for lkey in lane.keys() {
                    let _ = self.device.dereg_mr(lkey);
                }
                if let Some(pd) = lane.pd {
                    let _ = self.device.dealloc_pd(pd);
                }
            }
        }
    }

    #[cold]
    fn on_device_event(&mut self, event: AsyncEvent) {
        tracing::warn!(?event, "the device reports");
        let mut met = smallvec::SmallVec::<[u16; 4]>::new();
        let now = self.device.now();
        for conn in self.links.iter_mut() {
            let is_met = match event {
                AsyncEvent::QpFatal(qp_num) => conn.fail_qp(now, qp_num),
                AsyncEvent::CqError(_) | AsyncEvent::DeviceFatal => {
                    if let Some(link) = conn.link.as_mut() {
                        link.device_failed();
                    }
                    true
                }
                _ => false,
            };
            if is_met {
                met.push(conn.id.index);
            }
        }
        // What was under way goes again now, and a queue pair that is made anew has a timer.
        met.into_iter().for_each(|index| self.links.touch(index));
        self.told.push_back(Event::Device { event });
    }
}

/// A device that others hold too goes on without the endpoint, and a thread of its own may be in
/// the middle of sending: the queue pairs go first, so that it reads and writes no buffer any more
/// when the buffers are given back.
impl<D: Device<Memory = Region>> Drop for Endpoint<D> {
    fn drop(&mut self) {
        let Self { links, device, .. } = self;
        for conn in links.iter_mut().filter(|conn| conn.phase != Phase::Draining) {
            conn.destroy_qps(device);
        }
    }
}

/// Takes back the sends of destroyed queue pairs that no completion will tell of: they left
/// unsignaled, and the signaled one behind them was refused. A whole poll has taken in what the
/// queue pairs flushed by then. False when there were none.
fn take_back_untold(conn: &mut Conn, now: Time) -> bool {
    conn.drain_polls = conn.drain_polls.saturating_add(1);
    if conn.drain_polls < DRAIN_POLLS {
        return false;
    }
    let mut any = super::lane_qp::take_back_ops(conn, now);
    for id in 0..conn.paths.len() as u8 {
        any |= take_back_sends(conn, id);
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EndpointConfig;
    use crate::endpoint::join;
    use towpath_base::Nanos;
    use towpath_device_roce::{RoceConfig, RoceDevice};
    use towpath_sim::{LinkConfig, World};

    #[test]
    fn a_number_that_the_device_gives_again_is_the_new_links_while_the_old_one_drains() {
        let (near, far) = World::new(1).link(&LinkConfig::default());
        let end = |link, seed| {
            let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
            let config = EndpointConfig::new().links_max(2).seed(seed);
            Endpoint::new(device, config).expect("an endpoint")
        };
        let (mut near, mut far) = (end(near, 1), end(far, 2));
        let (old, _) = join(&mut near, &mut far).expect("they fit");
        let qp_num = near.links.find(old).expect("it is up").paths[0].qp_num;
        assert_eq!(near.links.of_qp(qp_num), Some((old.index, 0)));
        near.begin_draining(old.index);
        assert!(near.links.find(old).is_some(), "it drains");
        let (new, _) = join(&mut near, &mut far).expect("they fit");
        near.links.add_qp(qp_num, new.index, 0);
        assert_eq!(near.links.of_qp(qp_num), Some((new.index, 0)));
        near.end_link(old);
        while near.links.find(old).is_some() {
            near.poll();
        }
        assert_eq!(near.links.of_qp(qp_num), Some((new.index, 0)));
    }

    #[test]
    fn a_queue_pair_that_the_device_reports_is_made_anew_in_its_time() {
        let (near, far) = World::new(1).link(&LinkConfig::default());
        let end = |link, seed| {
            let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
            let config = EndpointConfig::new().paths(2).links_max(1).seed(seed);
            Endpoint::new(device, config).expect("an endpoint")
        };
        let (mut near, mut far) = (end(near, 1), end(far, 2));
        let (link, _) = join(&mut near, &mut far).expect("they fit");
        near.turn(|_, _| {});
        let due = |near: &Endpoint<_>| near.next_timeout().since(near.now());
        assert!(due(&near) > Nanos::from_secs(1), "an idle link");
        let qp_num = near.links.find(link).expect("it is up").paths[1].qp_num;
        near.on_device_event(AsyncEvent::QpFatal(qp_num));
        near.flush();
        assert!(due(&near) <= Nanos::from_millis(100), "{}", due(&near));
    }
}
