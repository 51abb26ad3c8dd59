//! Making queue pairs anew for paths whose own have failed (docs/protocol.md section 10).

use super::Endpoint;
use super::teardown::DRAIN_POLLS;
use crate::carrier::{Fallback, qp_type};
use crate::conn::{Conn, NO_QP, Phase, Renewing};
use crate::ids::LinkId;
use crate::tx::take_back_sends;
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::{Carrier, PathId, QpHalf, Renew};
use towpath_verbs::{Connect, Device};

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Does what a link asks for its failed paths.
    #[cold]
    pub(super) fn renew_paths(&mut self, index: u16, now: Time) {
        let next = |conn: &mut Conn| Some((conn.id, conn.link.as_mut()?.poll_renew(now)?));
        while let Some((link, renew)) = self.links.at(index).and_then(next) {
            // What it has to say now is sent in this flush.
            self.links.touch(index);
            match renew {
                Renew::Make { path } => self.retire_qp(link, path.0),
                Renew::Join { path, theirs, source_port } => {
                    self.rejoin(now, (link, path.0), &theirs, source_port);
                }
            }
        }
    }

    /// Destroys what a path has. The next queue pair is made when nothing of it is posted any more,
    /// so that no completion can be taken for one of the next.
    fn retire_qp(&mut self, link: LinkId, path: u8) {
        let conn = self.links.find_mut(link);
        let Some(way) = conn.and_then(|conn| conn.paths.get_mut(usize::from(path))) else { return };
        way.has_failed = true;
        let qp_num = std::mem::replace(&mut way.qp_num, NO_QP);
        let unposted = way.recvs.take_waiting();
        // It is there until here, unless the last one could not be made; then there is none.
        let _ = self.device.destroy_qp(qp_num);
        self.links.remove_qp(qp_num);
        self.rx.unpost(unposted);
        self.links.renewing.push(Renewing { link, path, polls: 0 });
    }

    /// Makes the queue pairs for which nothing is in the way any more.
    #[inline]
    pub(super) fn finish_renewals(&mut self) {
        if !self.links.renewing.is_empty() {
            self.renew_drained();
        }
    }

    #[cold]
    fn renew_drained(&mut self) {
        let mut place = 0;
        while let Some(renewing) = self.links.renewing.get_mut(place) {
            renewing.polls = renewing.polls.saturating_add(1);
            let Renewing { link, path, polls } = *renewing;
            let conn = self.links.find_mut(link).filter(|conn| conn.phase == Phase::Up);
            if let Some(conn) = conn {
                if polls >= DRAIN_POLLS {
                    take_back_sends(conn, path);
                }
                let way = &conn.paths[usize::from(path)];
                if way.recvs.posted() > 0 || way.tx.outstanding() > 0 {
                    place += 1;
                    continue;
                }
                self.make_anew(link, path);
            }
            self.links.renewing.swap_remove(place);
        }
    }

    fn make_anew(&mut self, link: LinkId, path: u8) {
        let index = usize::from(path);
        let Some(conn) = self.links.find(link) else { return };
        let (class, carrier) = (conn.class.class, conn.paths[index].carrier);
        let Some(qp_type) = qp_type(carrier) else { return };
        let paths = conn.qp_paths();
        let made = self
            .receives_of(class, paths)
            .and_then(|receives| self.driver.queues.path_qp(&mut self.device, qp_type, receives));
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
                let Self { rx, device, links, .. } = self;
                rx.refill(device, links, (link, path));
            }
        }
        self.links.touch(link.index);
        self.post_receives();
    }

    /// Joins our half with the peer's; it leaves from another port than the one before if the link
    /// says so.
    fn rejoin(
        &mut self,
        now: Time,
        (link, path): (LinkId, u8),
        theirs: &QpHalf,
        source_port: Option<u16>,
    ) {
        let Some(conn) = self.links.find_mut(link) else { return };
        let rc = self.config.rc_of(conn.agreed.hello.as_ref().map_or(Fallback::None, Fallback::of));
        let tclass = self.config.class.tclass(conn.class.class);
        let way = &mut conn.paths[usize::from(path)];
        let (Some(peer), Some(path_mtu)) = (conn.agreed.peer, conn.agreed.mtu) else { return };
        way.source_port = source_port.unwrap_or(way.source_port);
        let connect = Connect {
            dest: peer.device_addr,
            dest_qp_num: theirs.qp_num,
            rq_psn: theirs.psn,
            sq_psn: way.psn,
            path_mtu,
            source_port: way.source_port,
            tclass,
            rc,
        };
        let qp_num = way.qp_num;
        let omits_icrc = conn.agreed.omits_icrc && way.carrier == Carrier::Uc;
        let ready = if omits_icrc { self.device.omit_icrc(qp_num) } else { Ok(()) };
        let joined = ready.and_then(|()| self.device.connect_qp(qp_num, &connect));
        if let Err(error) = joined {
            tracing::warn!(link = link.index, path, %error, "a queue pair made anew is not joined");
            conn.fail_qp(now, qp_num);
        }
    }
}
