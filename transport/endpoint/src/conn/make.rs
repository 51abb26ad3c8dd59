//! Making and destroying the queue pairs of a link, and the memory that is its alone.

use super::{Company, Conn, NO_QP, Path, TxQueue, TxSlots};
use crate::carrier::qp_type;
use crate::error::LinkError;
use crate::limits::{COMPANY, CONTROL_RECVS, CONTROL_SENDS};
use crate::wr_id::NO_QUEUE;
use towpath_base::serial::Psn;
use towpath_memory::{Pool, Region};
use towpath_proto::limits::HEADER_BYTES;
use towpath_proto::{Carrier, Lane, Link, PathId, Rails};
use towpath_verbs::{
    Access, Connect, CqNum, Device, PdNum, QpInit, QpNum, QpType, RcAttr, SrqNum, Verb, VerbError,
    tclass_of,
};

/// Where the queue pairs of links tell of completions, and how deep they are.
#[derive(Clone, Copy)]
pub(crate) struct Queues {
    /// Of paths.
    pub(crate) cq: CqNum,
    /// Of acks.
    pub(crate) control_cq: CqNum,
    /// Chunks that a path may have posted.
    pub(crate) send_queue_depth: u32,
}

/// What the receives of a path are posted to: a shared queue, or one of its own that is so deep.
pub(crate) type Receives = (Option<SrqNum>, usize);

impl Queues {
    /// Makes the queue pair of a path.
    pub(crate) fn path_qp<D: Device>(
        &self,
        device: &mut D,
        qp_type: QpType,
        (srq, receives): Receives,
    ) -> Result<QpNum, VerbError> {
        // Acks may leave there, too.
        let sends = self.send_queue_depth + CONTROL_SENDS as u32;
        let mut init = QpInit::new(qp_type, self.cq)
            .max_send_sge(device.caps().send_sge_max)
            .depth(sends, receives as u32);
        init.srq = srq;
        device.create_qp(&init)
    }
}

impl Conn {
    /// Makes what a link over these carriers needs, the first of which carries its acks, with room
    /// for what is copied of so many chunks at a time. After an
    /// error [`destroy_qps`](Self::destroy_qps) destroys what there is.
    pub(crate) fn make_qps<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        queues: &Queues,
        (carriers, control_pool): (&[Carrier], &Pool),
        (receives, copied_bytes): (Receives, usize),
    ) -> Result<(), LinkError> {
        let with_qps = || carriers.iter().filter_map(|&carrier| Some((carrier, qp_type(carrier)?)));
        let Some((_, control_type)) = with_qps().next() else { return Ok(()) };
        let init = QpInit::new(control_type, queues.control_cq)
            .depth(CONTROL_SENDS as u32, CONTROL_RECVS as u32);
        self.control.set_lkey(self.lkeys.register(device, control_pool)?);
        self.control.qp_num = device.create_qp(&init)?;
        self.control.fill(self.id.index);
        let depth = queues.send_queue_depth;
        let company = Pool::with_count(copied_bytes, COMPANY)?;
        let lkey = self.lkeys.register(device, &company)?;
        let company = Company::new(&company, copied_bytes, lkey);
        let headers = Pool::with_count(HEADER_BYTES, with_qps().count() * depth as usize)?;
        let lkey = self.lkeys.register(device, &headers)?;
        self.tx_slots = TxSlots::new(&headers, lkey, company);
        for (carrier, qp_type) in with_qps() {
            let qp_num = queues.path_qp(device, qp_type, receives)?;
            self.paths.push(Path {
                carrier,
                qp_num,
                source_port: 0,
                tx: TxQueue::new(depth),
                queue: NO_QUEUE,
                batch: None,
                has_failed: false,
                psn: Psn::new(0),
            });
        }
        Ok(())
    }

    /// Joins a queue pair of a carrier with the peer's, on the way of a path: each has its number
    /// and first packet sequence number. The rest is as set-up has agreed.
    pub(crate) fn connect_qp<D: Device>(
        &self,
        device: &mut D,
        (path, carrier, rc): (usize, Carrier, RcAttr),
        (qp_num, sq_psn): (QpNum, Psn),
        (dest_qp_num, rq_psn): (QpNum, Psn),
    ) -> Result<(), VerbError> {
        let (Some(dest), Some(path_mtu)) = (self.agreed.dest(path), self.agreed.mtu) else {
            return Err(VerbError::WrongState(Verb::ModifyQp));
        };
        let tclass = tclass_of(self.class.dscp);
        let source_port = self.paths.get(path).map_or(0, |path| path.source_port);
        if self.agreed.omits_icrc && carrier == Carrier::Uc {
            device.omit_icrc(qp_num)?;
        }
        let connect =
            Connect { dest, dest_qp_num, rq_psn, sq_psn, path_mtu, source_port, tclass, rc };
        device.connect_qp(qp_num, &connect)
    }

    /// The path whose way the lane takes in its present life: where there are several NICs the next
    /// life takes the next path's, so none dies with one of them.
    pub(crate) fn lane_path(&self) -> usize {
        let has_choice = self.agreed.rails.is_some_and(|(rails, _)| rails != Rails::ONE);
        let life = self.link.as_ref().and_then(Link::lane).map_or(1, Lane::life);
        if has_choice { life.saturating_sub(1) as usize % self.paths.len().max(1) } else { 0 }
    }

    /// Whether something may be sent to the address that a path leads to.
    pub(crate) fn may_send_to(&self, path: usize) -> bool {
        self.link.as_ref().is_some_and(|link| link.may_send_to(PathId(path as u8)))
    }

    /// Destroys the queue pairs that there are. What was posted comes home with its completions.
    pub(crate) fn destroy_qps<D: Device>(&mut self, device: &mut D) {
        let lane_qp = self.lane.as_mut().and_then(|lane| lane.take_qp(device));
        let path_qps = self.paths.iter().map(|path| path.qp_num);
        let all = path_qps.chain([self.control.qp_num]).filter(|&num| num != NO_QP);
        for qp_num in all.chain(lane_qp) {
            // It is there until here; and if it is not, nothing is posted to it either.
            let _ = device.destroy_qp(qp_num);
        }
        self.control.unpost(0);
    }
}

/// Keys of memory that is one link's alone.
#[derive(Default)]
pub(crate) struct Lkeys(Vec<u32>);

impl Lkeys {
    fn register<D: Device<Memory = Region>>(
        &mut self,
        device: &mut D,
        pool: &Pool,
    ) -> Result<u32, VerbError> {
        let lkey = device.reg_mr(PdNum::DEFAULT, pool.region(), Access::LOCAL)?.lkey;
        self.0.push(lkey);
        Ok(lkey)
    }

    /// Gives them back.
    pub(crate) fn deregister<D: Device>(&self, device: &mut D) {
        for &lkey in &self.0 {
            // The key was given by this device; a refusal leaves a spare entry in its table.
            let _ = device.dereg_mr(lkey);
        }
    }
}
