//! The queue pair of a link's one-sided operations: how it is made, joined, and made anew; what is
//! posted to it (docs/protocol.md section 11).

use super::Endpoint;
use super::lane::WORD_BYTES;
use crate::conn::{Conn, NO_QP, Phase};
use crate::ids::LinkId;
use crate::lane::{LaneError, LaneQp};
use crate::limits::{LANE_OPS_POSTED, LANE_RC, LANES_MAX, REGIONS_MAX};
use crate::stats::is_error;
use crate::wr_id::WrId;
use towpath_base::Time;
use towpath_base::serial::Psn;
use towpath_memory::{Pool, Region};
use towpath_proto::limits::LANE_OPS_MAX;
use towpath_proto::{
    Carrier, Lane, LaneHalf, LaneStep, LaneWay, Link, OpEnd, OpError, OpKey, OpKind, OpPost,
};
use towpath_verbs::{
    Access, CqNum, Device, PdNum, QpInit, QpNum, QpState, QpType, RcAttr, SendWr, SgList, Sge,
    VerbError, Wc, WcStatus,
};

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Links that may have a lane.
    fn lanes_max(&self) -> usize {
        LANES_MAX.min(self.config.sizes.links_max)
    }

    /// Makes what a lane needs before there is a queue pair: a domain, and words.
    pub(super) fn lane_of(&mut self, link: LinkId) -> Result<(), LaneError> {
        let conn = self.links.find(link).filter(|conn| conn.phase == Phase::Up);
        let conn = conn.ok_or(LaneError::NoSuchLink)?;
        if conn.lane.is_some() {
            return Ok(());
        }
        let lanes = self.links.iter().filter(|conn| conn.lane.is_some()).count();
        let max = self.lanes_max();
        if lanes >= max {
            return Err(LaneError::TooManyLanes { max });
        }
        let words = Pool::with_count(WORD_BYTES as usize, LANE_OPS_MAX)?;
        let domain =
            self.device_has_lanes().then(|| self.lane_domain(words.region())).transpose()?;
        if let Some(conn) = self.links.find_mut(link) {
            conn.lane = Some(Box::new(LaneQp::new(domain, words)));
        }
        Ok(())
    }

    /// A domain, and the key of a region there.
    fn lane_domain(&mut self, words: &Region) -> Result<(PdNum, u32), VerbError> {
        let pd = self.device.alloc_pd()?;
        match self.device.reg_mr(pd, words, Access::LOCAL) {
            Ok(keys) => Ok((pd, keys.lkey)),
            Err(error) => {
                let _ = self.device.dealloc_pd(pd);
                Err(error)
            }
        }
    }

    /// The key of a region in the domain of a lane; 0 where there is none.
    pub(super) fn lane_key(&mut self, link: LinkId, region: &Region) -> Result<u32, LaneError> {
        self.lane_of(link)?;
        let Self { links, device, .. } = self;
        let lane = links.lane_mut(link);
        let lane = lane.ok_or(LaneError::NoSuchLink)?;
        if let Some(&(_, lkey)) = lane.regions.iter().find(|&&(id, _)| id == region.id()) {
            return Ok(lkey);
        }
        let Some(pd) = lane.pd else { return Ok(0) };
        if lane.regions.len() == REGIONS_MAX {
            return Err(LaneError::Op(OpError::Full { max: REGIONS_MAX }));
        }
        let lkey = device.reg_mr(pd, region, Access::LOCAL)?.lkey;
        lane.regions.push((region.id(), lkey));
        Ok(lkey)
    }

    /// Takes a region out of the domains of all lanes.
    pub(super) fn forget_region(&mut self, region: &Region) {
        let Self { links, device, .. } = self;
        for lane in links.iter_mut().filter_map(|conn| conn.lane.as_mut()) {
            if let Some(place) = lane.regions.iter().position(|&(id, _)| id == region.id()) {
                let (_, lkey) = lane.regions.swap_remove(place);
                let _ = device.dereg_mr(lkey);
            }
        }
    }

    /// Does what a lane asks for, and posts what it has.
    #[cold]
    pub(super) fn run_lane(&mut self, index: u16, now: Time) {
        let next = |conn: &mut Conn| conn.link.as_mut()?.lane_mut()?.poll_step(now);
        while let Some(step) = self.links.at(index).and_then(next) {
            let Some(link) = self.links.at(index).map(|conn| conn.id) else { return };
            match step {
                LaneStep::Make => {
                    if self.lane_of(link).is_err() {
                        // The peer is told of nothing: what it asks of this end waits in vain.
                        if let Some(lane) = self.links.up(link).and_then(Link::lane_mut) {
                            lane.make_failed(now);
                        }
                        return;
                    }
                    self.retire_lane(link, now);
                }
                LaneStep::Join { theirs, rd_atomic } => {
                    self.join_lane(now, link, &theirs, rd_atomic);
                }
            }
        }
        self.carry(index, now);
        self.run_talk(index, now);
    }

    /// Makes the next queue pair of a lane, or none where operations go by messages.
    pub(super) fn make_lane(&mut self, link: LinkId) {
        let has_way = self.lane_has_way(link);
        let made = has_way.then(|| self.create_lane_qp(link)).transpose();
        let (now, psn) = (self.device.now(), Psn::new(self.identity.prng.next_u32()));
        let Some(conn) = self.links.find_mut(link) else { return };
        let (Some(state), Some(lane)) = (conn.link.as_mut(), conn.lane.as_mut()) else { return };
        match made {
            Ok(Some(qp_num)) => {
                (lane.qp_num, lane.psn, lane.has_failed) = (qp_num, psn, false);
                let rd_atomic = LANE_RC.max_dest_rd_atomic;
                state.lane_made(LaneWay::QueuePair(LaneHalf { qp_num, psn, rd_atomic }));
            }
            Ok(None) => state.lane_made(LaneWay::Messages),
            Err(error) => {
                tracing::warn!(link = link.index, %error, "no queue pair for one-sided operations");
                if let Some(lane) = state.lane_mut() {
                    lane.make_failed(now);
                }
            }
        }
        self.links.touch(link.index);
    }

    fn create_lane_qp(&mut self, link: LinkId) -> Result<QpNum, LaneError> {
        let cq = match self.lanes.cq {
            Some(cq) => cq,
            None => {
                let depth = (self.lanes_max() * LANE_OPS_POSTED) as u32;
                let cq = self.device.create_cq(depth.min(self.device.queue_limits().cqe_max))?;
                *self.lanes.cq.insert(cq)
            }
        };
        let pd = self.links.find(link).and_then(|conn| conn.lane.as_ref()?.pd);
        let init = QpInit::new(QpType::Rc, cq)
            .pd(pd.ok_or(LaneError::NoSuchLink)?)
            .access(Access::REMOTE_ALL)
            .depth(LANE_OPS_POSTED as u32, 1);
        Ok(self.device.create_qp(&init)?)
    }

    fn join_lane(&mut self, now: Time, link: LinkId, theirs: &LaneHalf, rd_atomic: u8) {
        let Self { links, device, .. } = self;
        let Some(conn) = links.find_mut(link) else { return };
        let way = (conn.lane_path(), Carrier::Rc, RcAttr { max_rd_atomic: rd_atomic, ..LANE_RC });
        let Some(ours) = conn.lane.as_ref().map(|lane| (lane.qp_num, lane.psn)) else { return };
        // Of one address the peer's LANE has come from there; of several it may be another one. The
        // next life takes another path.
        if !conn.agreed.further_addrs.is_empty() && !conn.may_send_to(way.0) {
            conn.fail_qp(now, ours.0);
            return;
        }
        if let Err(error) = conn.connect_qp(device, way, ours, (theirs.qp_num, theirs.psn)) {
            tracing::warn!(link = link.index, %error, "one-sided operations are not joined");
            conn.fail_qp(now, ours.0);
        }
    }

    /// Has operations carried out as far as there is room for them: by the queue pair, or by the
    /// peer as messages.
    fn carry(&mut self, index: u16, now: Time) {
        let Self { links, device, tally, .. } = self;
        let Some(conn) = links.at(index) else { return };
        let (Some(state), Some(lane)) = (conn.link.as_mut(), conn.lane.as_mut()) else { return };
        let by_messages = state.lane().is_some_and(Lane::is_by_messages);
        if by_messages && !lane.talk.is_leaving {
            lane.open_channel(state);
        }
        while lane.can_carry(by_messages)
            && lane.posted < LANE_OPS_POSTED
            && let Some(post) = state.poll_op(now)
        {
            // What cannot be asked of the device ends: to ask again would not help.
            let Some(sge) = lane.prepare(&post, by_messages) else {
                state.handle_op_done(now, post.key, OpEnd::Refused, None);
                continue;
            };
            if by_messages {
                lane.talk.begin(post);
                continue;
            }
            let wr_id = WrId::LaneOp { link: index, op: post.key.index() as u32 }.pack();
            let wr = SendWr::new(wr_id, post.op, SgList::one(sge));
            let wr = if post.fence { wr.fenced() } else { wr };
            let Err(bad) = device.post_send(lane.qp_num, &[wr]) else { continue };
            tally.stats.posts_refused += 1;
            tracing::warn!(link = index, error = %bad.error, "an operation is not posted");
            lane.give_back(post.key.index());
            if let VerbError::BadMemory(_) | VerbError::BadArgument(_) = bad.error {
                state.handle_op_done(now, post.key, OpEnd::Refused, None);
                continue;
            }
            lane.has_failed = true;
            state.handle_op_done(now, post.key, OpEnd::Lost, None);
            state.lane_failed(now);
        }
    }

    /// Takes in what the device has done for lanes.
    pub(super) fn poll_lanes(&mut self, now: Time, cq: CqNum) -> usize {
        self.drain(cq, |endpoint, wcs| {
            match WrId::unpack(wcs[0].wr_id) {
                Some(WrId::LaneOp { link, op }) => endpoint.on_op_done(now, link, op, &wcs[0]),
                _ => endpoint.stray(),
            }
            1
        })
    }

    fn on_op_done(&mut self, now: Time, index: u16, op: u32, wc: &Wc) {
        let Self { links, device, tally, .. } = self;
        let Some(conn) = links.at(index) else { return };
        let Some(lane) = conn.lane.as_mut() else { return };
        tally.stats.send_errors += u64::from(is_error(wc));
        let end = match wc.status {
            WcStatus::Success => OpEnd::Done,
            WcStatus::RemAccessErr | WcStatus::RemInvReqErr | WcStatus::RemOpErr => OpEnd::Refused,
            _ => OpEnd::Lost,
        };
        let has_failed = end != OpEnd::Done && device.qp_state(lane.qp_num) == Ok(QpState::Err);
        lane.has_failed |= has_failed;
        if let Some(key) = lane.give_back(op as usize)
            && let Some(state) = conn.link.as_mut()
        {
            state.handle_op_done(now, key, end, wc.timestamp);
            if has_failed {
                state.lane_failed(now);
            }
        }
        links.touch(index);
    }
}

/// Gives back as lost all operations that the device had.
pub(super) fn take_back_ops(conn: &mut Conn, now: Time) -> bool {
    let Some(lane) = conn.lane.as_mut() else { return false };
    let mut any = false;
    lane.talk.forget();
    for op in 0..lane.landings.len() {
        if let Some(key) = lane.give_back(op) {
            any = true;
            if let Some(state) = conn.link.as_mut() {
                state.handle_op_done(now, key, OpEnd::Lost, None);
            }
        }
    }
    any
}

impl LaneQp {
    /// Whether whatever carries operations takes some.
    fn can_carry(&self, by_messages: bool) -> bool {
        match by_messages {
            true => !self.talk.is_leaving && matches!(self.talk.ours, Some((_, true))),
            false => self.qp_num != NO_QP && !self.has_failed,
        }
    }

    /// Makes the buffer of an operation ready: from here on it is the device's, or it stays here
    /// for the answers of the peer.
    fn prepare(&mut self, post: &OpPost, by_messages: bool) -> Option<Sge> {
        let landing = self.at(post.key.index()).filter(|landing| landing.key == post.key)?;
        let buf = landing.berth.buf_mut()?;
        if post.kind == OpKind::Read {
            buf.set_len(post.length as usize).ok()?;
        }
        if !by_messages && !landing.berth.lend() {
            return None;
        }
        landing.is_posted = true;
        let sge = landing.berth.sge(landing.lkey, post.length as usize);
        self.posted += 1;
        Some(sge)
    }

    /// The device is done with an operation; none if it did not have it.
    pub(super) fn give_back(&mut self, index: usize) -> Option<OpKey> {
        let landing = self.at(index).filter(|landing| landing.is_posted)?;
        landing.is_posted = false;
        landing.berth.reclaim();
        let key = landing.key;
        self.posted -= 1;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EndpointConfig;
    use crate::endpoint::joined::{End, Joined, joined};
    use towpath_memory::SharedMemory;
    use towpath_proto::Rights;

    /// Or a device with a thread of its own would serve between the two.
    #[test]
    fn a_queue_pair_serves_no_more_when_what_it_served_is_kept() {
        let pair = joined(&EndpointConfig::new().links_max(1));
        let Joined { world, mut near, mut far, near_link: link, .. } = pair;
        let memory = SharedMemory::new(64).expect("memory for a test");
        near.grant(link, &memory, memory.whole(), Rights::ALL).expect("room");
        let is_joined = |near: &End| {
            let qp_num = near.lane(link).and_then(|lane| lane.qp_num);
            qp_num.is_some_and(|num| near.device.qp_state(num) == Ok(QpState::Rts))
        };
        while !is_joined(&near) {
            if !(near.turn(|_, _| {}) | far.turn(|_, _| {})) {
                let due = near.next_timeout().min(far.next_timeout());
                world.advance_to(world.next_event_time().map_or(due, |arrives| due.min(arrives)));
            }
        }
        let Endpoint { links, device, .. } = &mut near;
        let lane = links.lane_mut(link).expect("it is joined");
        let qp_num = lane.take_qp(device).expect("it is joined");
        assert_eq!(device.qp_state(qp_num), Ok(QpState::Err));
        assert_eq!((lane.qp_num, lane.take_qp(device)), (NO_QP, None));
        device.destroy_qp(qp_num).expect("it is there until here");
    }
}
