//! Makes queue pairs of failed paths and of lanes anew (docs/protocol.md section 10).

use super::Endpoint;
use super::lane_qp::take_back_ops;
use super::teardown::DRAIN_POLLS;
use crate::carrier::{Fallback, qp_type};
use crate::conn::{Conn, NO_QP, Phase, Renewing};
use crate::ids::LinkId;
use crate::lane::LaneQp;
use crate::rx::Rx;
use crate::tx::take_back_sends;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::{PathId, QpHalf, Renew};
use towpath_verbs::Device;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Does what a link asks for its failed paths.
    #[cold]
    pub(super) fn renew_paths(&mut self, index: u16, now: Time) {
        let next = |conn: &mut Conn| Some((conn.id, conn.link.as_mut()?.poll_renew(now)?));
        while let Some((link, renew)) = self.links.at(index).and_then(next) {
            // This flush sends what the link has to say now.
            self.links.touch(index);
            match renew {
                Renew::Make { path } => self.retire_qp(link, path.0),
                Renew::Join { path, theirs, source_port } => {
                    self.rejoin(now, (link, path.0), &theirs, source_port);
                }
            }
        }
    }

    /// Destroys the queue pair of a path. The next one is made when nothing of the old one is
    /// posted any more, so that no completion is taken for one of the next.
    fn retire_qp(&mut self, link: LinkId, path: u8) {
        let conn = self.links.find_mut(link);
        let Some(way) = conn.and_then(|conn| conn.paths.get_mut(usize::from(path))) else { return };
        way.has_failed = true;
        let qp_num = std::mem::replace(&mut way.qp_num, NO_QP);
        self.rx.close(way.queue);
        // There is no queue pair if the last one could not be made.
        let _ = self.device.destroy_qp(qp_num);
        self.links.remove_qp(qp_num);
        self.links.renewing.push(Renewing { link, path: Some(path), polls: 0 });
    }

    /// Destroys the queue pair of a lane, if any. With nothing posted the next is made at once.
    pub(super) fn retire_lane(&mut self, link: LinkId, now: Time) {
        let Self { links, rx, device, .. } = self;
        let Some(conn) = links.find_mut(link) else { return };
        let Some(lane) = conn.lane.as_mut() else { return };
        lane.has_failed = true;
        if let Some(qp_num) = lane.take_qp(device) {
            // It is there until here.
            let _ = device.destroy_qp(qp_num);
        }
        if is_let_go((conn, rx), None, 0, now) {
            self.make_lane(link);
        } else {
            links.renewing.push(Renewing { link, path: None, polls: 0 });
        }
        self.links.touch(link.index);
    }

    /// Makes the queue pairs whose predecessors have nothing posted any more.
    #[inline]
    pub(super) fn finish_renewals(&mut self) {
        if !self.links.renewing.is_empty() {
            self.renew_drained();
        }
    }

    #[cold]
    fn renew_drained(&mut self) {
        let (mut place, now) = (0, self.device.now());
        while let Some(renewing) = self.links.renewing.get_mut(place) {
            renewing.polls = renewing.polls.saturating_add(1);
            let Renewing { link, path, polls } = *renewing;
            let conn = self.links.find_mut(link).filter(|conn| conn.phase == Phase::Up);
            let is_let_go = conn.map(|conn| is_let_go((conn, &self.rx), path, polls, now));
            if is_let_go == Some(false) {
                place += 1;
                continue;
            }
            self.links.renewing.swap_remove(place);
            match path {
                _ if is_let_go.is_none() => {}
                Some(path) => self.make_anew(link, path),
                None => self.make_lane(link),
            }
        }
    }

    fn make_anew(&mut self, link: LinkId, path: u8) {
        let index = usize::from(path);
        let Some(conn) = self.links.find(link) else { return };
        let (class, carrier) = (conn.class.class, conn.paths[index].carrier);
        let Some(qp_type) = qp_type(carrier) else { return };
        let paths = conn.qp_paths();
        let Self { rx, device, driver, .. } = self;
        let made = rx
            .receives_of(device, class, paths)
            .and_then(|receives| driver.queues.path_qp(device, qp_type, receives));
        let now = self.device.now();
        let ours = made.map(|qp_num| self.identity.describe(qp_num, carrier));
        let Some(conn) = self.links.find_mut(link) else { return };
        let (Some(found), way) = (conn.link.as_mut(), &mut conn.paths[index]) else { return };
        match ours {
            Err(error) => {
                tracing::warn!(link = link.index, path, %error, "no other queue pair");
                found.renewal_failed(now, PathId(path));
            }
            Ok(ours) => {
                (way.qp_num, way.psn, way.has_failed) = (ours.qp_num, ours.psn, false);
                let (qp_num, psn, generation) = (ours.qp_num, ours.psn, ours.generation);
                found.renewed(PathId(path), QpHalf { qp_num, psn, generation });
                self.links.add_qp(qp_num, link.index, path);
                self.rx.refill(&mut self.links, (link, path));
            }
        }
        self.links.touch(link.index);
        self.post_receives();
    }

    /// Joins our queue pair with the peer's, from another source port if the link says so.
    fn rejoin(
        &mut self,
        now: Time,
        (link, path): (LinkId, u8),
        theirs: &QpHalf,
        source_port: Option<u16>,
    ) {
        let Self { links, device, config, .. } = self;
        let Some(conn) = links.find_mut(link) else { return };
        let rc = config.rc_of(conn.agreed.hello.as_ref().map_or(Fallback::None, Fallback::of));
        let way = &mut conn.paths[usize::from(path)];
        way.source_port = source_port.unwrap_or(way.source_port);
        let (how, ours) = ((path.into(), way.carrier, rc), (way.qp_num, way.psn));
        if let Err(error) = conn.connect_qp(device, how, ours, (theirs.qp_num, theirs.psn)) {
            tracing::warn!(link = link.index, path, %error, "a queue pair made anew is not joined");
            conn.fail_qp(now, ours.0);
        }
    }
}

/// Whether nothing of a destroyed queue pair is posted any more, so many polls later. After
/// [`DRAIN_POLLS`], work requests that get no completion are taken back.
fn is_let_go((conn, rx): (&mut Conn, &Rx), path: Option<u8>, polls: u8, now: Time) -> bool {
    if let Some(path) = path {
        if polls >= DRAIN_POLLS {
            take_back_sends(conn, path);
        }
        let way = &conn.paths[usize::from(path)];
        return rx.is_drained(way.queue) && way.tx.outstanding() == 0;
    }
    // The peer answers operations that went as messages, or the link ends.
    let waits = |lane: &LaneQp| lane.posted > 0 && (lane.talk.is_busy() || polls < DRAIN_POLLS);
    if conn.lane.as_deref().is_some_and(waits) {
        return false;
    }
    take_back_ops(conn, now);
    true
}
