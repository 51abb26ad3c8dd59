//! The verbs of the work-request level.

use super::TrainLink;
use super::engine::{Engine, WrCounters};
use super::queues::{CQ_MAX, CQE_MAX, Peer, PostedSend, QP_MAX, RecvQueue, WR_MAX};
use std::net::SocketAddr;
use std::ops::Range;
use towpath_base::Time;
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, MrKeys, Mtu, PdNum, QpInit,
    QpNum, QpState, QpType, QueueLimits, RecvWr, SEND_SGE_MAX, SendOp, SendWr, SrqNum, Verb,
    VerbError, VerbSet, Wc,
};

/// The longest message: what InfiniBand allows.
const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// A device at the work-request level: see the [module](super).
pub struct WrDevice<L> {
    link: L,
    engine: Engine,
    caps: DeviceCaps,
}

impl<L: TrainLink> WrDevice<L> {
    /// A device on `link`; `seed` decides where its queue pair numbers start.
    #[must_use]
    pub fn new(link: L, seed: u64) -> Self {
        let of_link = link.caps();
        let caps = DeviceCaps {
            verbs: VerbSet {
                uc: true,
                srq: true,
                uc_srq_survives_loss: true,
                ..VerbSet::default()
            },
            mtu_max: Mtu::at_most(of_link.packet_bytes_max).unwrap_or(Mtu::Mtu256),
            message_bytes_max: MESSAGE_BYTES_MAX,
            send_sge_max: SEND_SGE_MAX as u32,
            qp_max: QP_MAX,
            timestamps: true,
            source_ports: of_link.source_ports.max(1),
            source_port_live: true,
            rx_buffer_bytes: of_link.rx_buffer_bytes,
            rx_charge_bytes: of_link.rx_charge_bytes,
            delay_noise: of_link.delay_noise,
            delivers_intact: false,
            sends_at_once: false,
            arrives_in_progress: true,
            pins_memory: false,
            cuts_each_send: true,
            omits_icrc: false,
        };
        Self { link, engine: Engine::new(seed), caps }
    }

    /// The link.
    #[must_use]
    pub fn link(&self) -> &L {
        &self.link
    }

    /// What it moved and dropped so far.
    #[must_use]
    pub fn counters(&self) -> WrCounters {
        self.engine.counters
    }
}

impl<L: TrainLink> Device for WrDevice<L> {
    type Memory = Region;

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn queue_limits(&self) -> QueueLimits {
        QueueLimits { wr_max: WR_MAX, cqe_max: CQE_MAX }
    }

    fn local_addr(&self) -> SocketAddr {
        self.link.local_addr()
    }

    fn now(&self) -> Time {
        self.link.now()
    }

    fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        self.engine.mrs.alloc_pd()
    }

    fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError> {
        if self.engine.qps.iter_mut().any(|qp| qp.init.pd == pd) {
            return Err(VerbError::BadArgument(Verb::DeallocPd));
        }
        self.engine.mrs.dealloc_pd(pd)
    }

    fn reg_mr(&mut self, pd: PdNum, memory: &Region, access: Access) -> Result<MrKeys, VerbError> {
        self.engine.mrs.register(pd, memory, access)
    }

    fn reg_shared_mr(
        &mut self,
        pd: PdNum,
        memory: &SharedMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        self.engine.mrs.register_shared(pd, memory, range, access)
    }

    fn dereg_mr(&mut self, lkey: u32) -> Result<(), VerbError> {
        self.engine.mrs.deregister(lkey)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        self.engine.cqs.create(depth)
    }

    fn create_srq(&mut self, depth: u32) -> Result<SrqNum, VerbError> {
        if depth == 0 || depth > WR_MAX {
            return Err(VerbError::BadArgument(Verb::CreateSrq));
        }
        if self.engine.srqs.len() == CQ_MAX {
            return Err(VerbError::OutOfResources(Verb::CreateSrq));
        }
        self.engine.srqs.push(RecvQueue::new(depth));
        Ok(SrqNum(self.engine.srqs.len() as u32 - 1))
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        let verb = Verb::CreateQp;
        if init.qp_type != QpType::Uc {
            return Err(VerbError::Unsupported(verb));
        }
        let srq_exists = init.srq.is_none_or(|srq| (srq.0 as usize) < self.engine.srqs.len());
        let cqs = &self.engine.cqs;
        if !(cqs.exists(init.send_cq) && cqs.exists(init.recv_cq) && srq_exists) {
            return Err(VerbError::NoSuchObject(verb));
        }
        let depth = init.max_send_wr.max(init.max_recv_wr);
        if depth > WR_MAX || init.max_send_sge > self.caps.send_sge_max {
            return Err(VerbError::BadArgument(verb));
        }
        self.engine.qps.create(init)
    }

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        let qp = self.engine.qps.find_mut(qp_num).ok_or(VerbError::NoSuchObject(verb))?;
        if qp.state != QpState::Init {
            return Err(VerbError::WrongState(verb));
        }
        if connect.path_mtu > self.caps.mtu_max || connect.dest_qp_num > QpNum::MAX {
            return Err(VerbError::BadArgument(verb));
        }
        qp.peer = Some(Peer {
            dest: connect.dest,
            dest_qp: connect.dest_qp_num,
            source_port: connect.source_port % self.caps.source_ports,
            tclass: connect.tclass,
            mtu: connect.path_mtu.bytes(),
        });
        qp.state = QpState::Rts;
        Ok(())
    }

    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        let qp = self.engine.qps.find_mut(qp_num).ok_or(VerbError::NoSuchObject(verb))?;
        match (state, qp.state) {
            (QpState::Reset, _) => qp.reset(&mut self.engine.mrs),
            (QpState::Init, QpState::Reset | QpState::Init) => qp.state = QpState::Init,
            (QpState::Init, _) => return Err(VerbError::WrongState(verb)),
            (QpState::Err, _) => qp.fail((&mut self.engine.cqs, &mut self.engine.mrs), false),
            _ => return Err(VerbError::BadArgument(verb)),
        }
        self.engine.settle();
        Ok(())
    }

    fn set_source_port(&mut self, qp_num: QpNum, source_port: u16) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        let qp = self.engine.qps.find_mut(qp_num).ok_or(VerbError::NoSuchObject(verb))?;
        let peer = qp.peer.as_mut().ok_or(VerbError::WrongState(verb))?;
        peer.source_port = source_port % self.caps.source_ports;
        Ok(())
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        let qp = self.engine.qps.find(qp_num).ok_or(VerbError::NoSuchObject(Verb::ModifyQp))?;
        Ok(qp.state)
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        let removed = self.engine.qps.remove(qp_num);
        let mut qp = removed.ok_or(VerbError::NoSuchObject(Verb::DestroyQp))?;
        qp.fail((&mut self.engine.cqs, &mut self.engine.mrs), false);
        self.engine.settle();
        Ok(())
    }

    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr> {
        let verb = Verb::PostSend;
        let engine = &mut self.engine;
        let Some(qp) = engine.qps.find_mut(qp_num) else {
            return Err(BadWr { index: 0, error: VerbError::NoSuchObject(verb) });
        };
        if qp.state != QpState::Rts {
            return Err(BadWr { index: 0, error: VerbError::WrongState(verb) });
        }
        let mut outcome = Ok(());
        for (index, wr) in wrs.iter().enumerate() {
            let byte_len = wr.sg_list.byte_len();
            let error = if qp.sends.len() >= qp.init.max_send_wr as usize {
                VerbError::QueueFull(verb)
            } else if !matches!(wr.op, SendOp::Send | SendOp::SendWithImm { .. }) {
                VerbError::Unsupported(verb)
            } else if wr.ud.is_some()
                || wr.sg_list.len() > qp.init.max_send_sge as usize
                || byte_len > u64::from(MESSAGE_BYTES_MAX)
            {
                VerbError::BadArgument(verb)
            } else if !qp.hold_list(&wr.sg_list, &mut engine.mrs) {
                VerbError::BadMemory(verb)
            } else {
                qp.sends.push_back(PostedSend {
                    wr_id: wr.wr_id,
                    op: wr.op,
                    flags: wr.flags,
                    byte_len: byte_len as u32,
                    sges: wr.sg_list.len(),
                });
                continue;
            };
            outcome = Err(BadWr { index, error });
            break;
        }
        engine.list(qp_num);
        outcome
    }

    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        let verb = Verb::PostRecv;
        let Some(qp) = self.engine.qps.find_mut(qp_num) else {
            return Err(BadWr { index: 0, error: VerbError::NoSuchObject(verb) });
        };
        let is_open = matches!(qp.state, QpState::Init | QpState::Rtr | QpState::Rts);
        if !is_open || qp.init.srq.is_some() {
            return Err(BadWr { index: 0, error: VerbError::WrongState(verb) });
        }
        qp.recvs.post(verb, qp.init.pd, wrs, &self.engine.mrs)
    }

    fn post_srq_recv(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        let verb = Verb::PostSrqRecv;
        match self.engine.srqs.get_mut(srq.0 as usize) {
            Some(queue) => queue.post(verb, PdNum::DEFAULT, wrs, &self.engine.mrs),
            None => Err(BadWr { index: 0, error: VerbError::NoSuchObject(verb) }),
        }
    }

    fn progress(&mut self, budget: usize) -> usize {
        let Self { link, engine, .. } = self;
        let sent = engine.pump(link);
        let received = link.receive_trains(budget, &mut |train| engine.on_train(&train));
        engine.settle();
        sent + received
    }

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        self.engine.cqs.poll(cq, out)
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.engine.cqs.poll_event()
    }
}
