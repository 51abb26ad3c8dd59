//! The device: its verbs.

use crate::counters::MemCounters;
use crate::cq::Cqs;
use crate::landing::Origin;
use crate::limits::{CQ_MAX, CQE_MAX, DELAY_NOISE, MESSAGE_BYTES_MAX, QP_MAX, WR_MAX};
use crate::port::{Inbound, Port, Responder};
use crate::qp::{Qp, QpTable, index_of};
use crate::recvs::{PostedRecv, Recvs, post};
use rtrb::Producer;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};
use towpath_base::{Nanos, Time};
use towpath_clock::Clock;
use towpath_memory::{Holder, MrTable, Region, SharedMemory};
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, MrKeys, Mtu, PdNum, QpInit,
    QpNum, QpState, QpType, QueueLimits, RecvWr, SEND_SGE_MAX, SendOp, SendWr, SrqNum, Verb,
    VerbError, VerbSet, Wc, WcOpcode, WcStatus,
};

/// Addresses that no host has (RFC 5737), so that the two ends can name each other.
const ADDRS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const PORT: u16 = 4791;

const CAPS: DeviceCaps = DeviceCaps {
    verbs: VerbSet {
        rc: false,
        uc: true,
        ud: true,
        read: false,
        atomics: false,
        srq: true,
        uc_srq_survives_loss: true,
    },
    mtu_max: Mtu::Mtu4096,
    message_bytes_max: MESSAGE_BYTES_MAX,
    send_sge_max: SEND_SGE_MAX as u32,
    qp_max: QP_MAX,
    timestamps: false,
    source_ports: 1,
    source_port_live: false,
    rx_buffer_bytes: None,
    rx_charge_bytes: 0,
    delay_noise: DELAY_NOISE,
    delivers_intact: true,
    sends_at_once: true,
    arrives_in_progress: false,
    pins_memory: false,
    cuts_each_send: false,
    omits_icrc: false,
};

/// One end of a wire within a process.
///
/// A send is carried out by `post_send` itself and completes at once, so a send queue is never
/// full; what bounds sends is room in their completion queue.
pub struct MemDevice {
    clock: Clock,
    addr: SocketAddr,
    port: Arc<Port>,
    peer: Arc<Port>,
    peer_addr: SocketAddr,
    mrs: MrTable,
    /// The port's table, which has the same registrations: it reaches what receives hold.
    lands: Holder,
    qps: QpTable,
    cqs: Cqs,
    srqs: Vec<Producer<PostedRecv>>,
    messages_sent: u64,
}

impl MemDevice {
    /// Two devices joined to each other; either may go to another thread.
    #[must_use]
    pub fn pair() -> (Self, Self) {
        let clock = Clock::start();
        let (a, b) = (Arc::new(Port::default()), Arc::new(Port::default()));
        let [a_addr, b_addr] = ADDRS.map(|ip| SocketAddr::from((ip, PORT)));
        let end = |port: &Arc<Port>, addr, peer: &Arc<Port>, peer_addr| {
            // So that keys cannot be guessed.
            let seed = RandomState::new().build_hasher().finish();
            let inbound = MrTable::new(seed);
            let lands = inbound.holder();
            port.lock().mrs = inbound;
            Self {
                clock: clock.clone(),
                addr,
                port: Arc::clone(port),
                peer: Arc::clone(peer),
                peer_addr,
                mrs: MrTable::new(seed),
                lands,
                qps: QpTable::default(),
                cqs: Cqs::new(peer_addr),
                srqs: Vec::new(),
                messages_sent: 0,
            }
        };
        (end(&a, a_addr, &b, b_addr), end(&b, b_addr, &a, a_addr))
    }

    /// What it moved and dropped so far.
    #[must_use]
    pub fn counters(&self) -> MemCounters {
        let inbound = self.port.lock();
        MemCounters {
            messages_sent: self.messages_sent,
            cq_overruns: inbound.counters.cq_overruns + self.cqs.overruns,
            events_lost: self.cqs.events_lost,
            ..inbound.counters
        }
    }

    fn check_init(&self, init: &QpInit) -> Result<(), VerbError> {
        let verb = Verb::CreateQp;
        if !matches!(init.qp_type, QpType::Uc | QpType::Ud) {
            return Err(VerbError::Unsupported(verb));
        }
        if !self.mrs.has_pd(init.pd) {
            return Err(VerbError::NoSuchObject(verb));
        }
        let srq_exists = init.srq.is_none_or(|srq| (srq.0 as usize) < self.srqs.len());
        if !(self.cqs.exists(init.send_cq) && self.cqs.exists(init.recv_cq) && srq_exists) {
            return Err(VerbError::NoSuchObject(verb));
        }
        let depth = init.max_send_wr.max(init.max_recv_wr);
        if depth > WR_MAX || init.max_send_sge > CAPS.send_sge_max {
            return Err(VerbError::BadArgument(verb));
        }
        Ok(())
    }

    /// Takes in what failed while the peer delivered, and what that and our own posting has
    /// brought down.
    fn settle(&mut self) {
        if self.port.has_trouble() {
            let mut inbound = self.port.lock();
            self.port.set_trouble(false);
            let failed_qps = std::mem::take(&mut inbound.failed_qps);
            let failed_cqs = std::mem::take(&mut inbound.failed_cqs);
            drop(inbound);
            failed_cqs.into_iter().for_each(|cq| self.cqs.fail(cq));
            failed_qps.into_iter().for_each(|num| self.fail(num, true));
        }
        while let Some(cq) = self.cqs.newly_failed.pop() {
            let uses = |qp: &&Qp| qp.init.send_cq == cq || qp.init.recv_cq == cq;
            let hit: Vec<QpNum> = self.qps.iter().filter(uses).map(|qp| qp.num).collect();
            hit.into_iter().for_each(|num| self.fail(num, true));
        }
    }

    /// To ERR: everything posted completes as flushed.
    fn fail(&mut self, num: QpNum, tell: bool) {
        let Some(qp) = self.qps.find_mut(num) else { return };
        if tell && qp.state != QpState::Err {
            self.cqs.event(AsyncEvent::QpFatal(num));
        }
        qp.state = QpState::Err;
        let recv_cq = qp.init.recv_cq;
        let mut inbound = self.port.lock();
        let Inbound { responders, mrs, .. } = &mut *inbound;
        let found = responders.get_mut(index_of(num)).and_then(Option::as_mut);
        let Some(responder) = found.filter(|found| found.num == num) else { return };
        responder.receives = false;
        self.cqs.settle(recv_cq);
        while let Some(wr) = responder.recvs.pop() {
            mrs.release_all(wr.list);
            let (status, opcode) = (WcStatus::WrFlushErr, WcOpcode::Recv);
            let flushed = Wc { wr_id: wr.wr_id, status, opcode, qp_num: num, ..Wc::default() };
            self.cqs.push(recv_cq, flushed);
        }
    }
}

impl Drop for MemDevice {
    /// The peer may go on sending: it finds nobody here. What is posted is held no longer.
    fn drop(&mut self) {
        let mut inbound = self.port.lock();
        let Inbound { responders, srqs, mrs, .. } = &mut *inbound;
        responders.iter_mut().flatten().for_each(|responder| responder.recvs.clear(mrs));
        srqs.iter_mut().for_each(|recvs| recvs.clear(mrs));
        *inbound = Inbound::default();
    }
}

/// The bytes of a send work request that this queue pair may post.
#[inline]
fn check_send<const N: usize>(
    wr: &SendWr<N>,
    init: &QpInit,
    peer: SocketAddr,
) -> Result<u32, VerbError> {
    let verb = Verb::PostSend;
    let bytes_max = match (&wr.op, init.qp_type) {
        (SendOp::Send | SendOp::SendWithImm { .. }, QpType::Ud) => CAPS.mtu_max.bytes(),
        (
            SendOp::Send
            | SendOp::SendWithImm { .. }
            | SendOp::Write { .. }
            | SendOp::WriteWithImm { .. },
            QpType::Uc,
        ) => MESSAGE_BYTES_MAX,
        _ => return Err(VerbError::Unsupported(verb)),
    };
    let addressed = match init.qp_type {
        QpType::Ud => wr.ud.as_ref().is_some_and(|ud| ud.dest == peer),
        _ => wr.ud.is_none(),
    };
    let byte_len = wr.sg_list.byte_len();
    let too_many = wr.sg_list.len() > init.max_send_sge as usize;
    if !addressed || too_many || byte_len > u64::from(bytes_max) {
        return Err(VerbError::BadArgument(verb));
    }
    Ok(byte_len as u32)
}

impl Device for MemDevice {
    type Memory = Region;

    fn caps(&self) -> &DeviceCaps {
        &CAPS
    }

    fn queue_limits(&self) -> QueueLimits {
        QueueLimits { wr_max: WR_MAX, cqe_max: CQE_MAX }
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        let pd = self.mrs.alloc_pd()?;
        let same = self.port.lock().mrs.alloc_pd();
        debug_assert_eq!(same, Ok(pd), "both tables take the same steps");
        Ok(pd)
    }

    fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError> {
        if self.qps.iter().any(|qp| qp.init.pd == pd) {
            return Err(VerbError::BadArgument(Verb::DeallocPd));
        }
        self.mrs.dealloc_pd(pd)?;
        self.port.lock().mrs.dealloc_pd(pd)
    }

    fn reg_mr(&mut self, pd: PdNum, memory: &Region, access: Access) -> Result<MrKeys, VerbError> {
        let keys = self.mrs.register(pd, memory, access)?;
        self.port.lock().mrs.follow(&self.mrs, keys.lkey);
        Ok(keys)
    }

    fn reg_shared_mr(
        &mut self,
        pd: PdNum,
        memory: &SharedMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        let keys = self.mrs.register_shared(pd, memory, range, access)?;
        self.port.lock().mrs.follow(&self.mrs, keys.lkey);
        Ok(keys)
    }

    fn dereg_mr(&mut self, lkey: u32) -> Result<(), VerbError> {
        self.mrs.deregister(lkey)?;
        self.port.lock().mrs.follow(&self.mrs, lkey);
        Ok(())
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        let (cq, arrivals) = self.cqs.create(depth)?;
        self.port.lock().cqs.push(arrivals);
        Ok(cq)
    }

    fn create_srq(&mut self, depth: u32) -> Result<SrqNum, VerbError> {
        if depth == 0 || depth > WR_MAX {
            return Err(VerbError::BadArgument(Verb::CreateSrq));
        }
        if self.srqs.len() == CQ_MAX {
            return Err(VerbError::OutOfResources(Verb::CreateSrq));
        }
        let (posted, recvs) = Recvs::shared(depth);
        self.srqs.push(posted);
        self.port.lock().srqs.push(recvs);
        Ok(SrqNum(self.srqs.len() as u32 - 1))
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        self.check_init(init)?;
        let num = self.qps.vacant()?;
        let depth = if init.srq.is_some() { 0 } else { init.max_recv_wr };
        let (posted, recvs) = Recvs::new(depth);
        let responder = Responder {
            num,
            qp_type: init.qp_type,
            qkey: init.qkey,
            pd: init.pd,
            access: init.qp_access_flags,
            recv_cq: init.recv_cq,
            srq: init.srq,
            receives: false,
            recvs,
        };
        let mut inbound = self.port.lock();
        let index = index_of(num);
        if inbound.responders.len() <= index {
            inbound.responders.resize_with(index + 1, || None);
        }
        inbound.responders[index] = Some(responder);
        drop(inbound);
        let (state, init, dest_qp) = (QpState::Init, *init, QpNum(0));
        self.qps.insert(Qp { num, state, init, dest_qp, recvs: posted });
        Ok(num)
    }

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        let qp = self.qps.find_mut(qp_num).ok_or(VerbError::NoSuchObject(verb))?;
        if qp.state != QpState::Init {
            return Err(VerbError::WrongState(verb));
        }
        if qp.init.qp_type != QpType::Ud {
            if connect.dest != self.peer_addr || connect.dest_qp_num > QpNum::MAX {
                return Err(VerbError::BadArgument(verb));
            }
            qp.dest_qp = connect.dest_qp_num;
        }
        qp.state = QpState::Rts;
        if let Some(responder) = self.port.lock().responder(qp_num) {
            responder.receives = true;
        }
        Ok(())
    }

    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        // What failed at the peer's hands failed before this.
        self.settle();
        let qp = self.qps.find_mut(qp_num).ok_or(VerbError::NoSuchObject(verb))?;
        match (state, qp.state) {
            (QpState::Reset, _) => {
                qp.state = QpState::Reset;
                let mut inbound = self.port.lock();
                let Inbound { responders, mrs, .. } = &mut *inbound;
                if let Some(responder) =
                    responders.get_mut(index_of(qp_num)).and_then(Option::as_mut)
                {
                    responder.receives = false;
                    responder.recvs.clear(mrs);
                }
            }
            (QpState::Init, QpState::Reset | QpState::Init) => qp.state = QpState::Init,
            (QpState::Init, _) => return Err(VerbError::WrongState(verb)),
            (QpState::Err, _) => self.fail(qp_num, false),
            _ => return Err(VerbError::BadArgument(verb)),
        }
        self.settle();
        Ok(())
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        let qp = self.qps.find(qp_num).ok_or(VerbError::NoSuchObject(Verb::ModifyQp))?;
        Ok(qp.state)
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        self.qps.find(qp_num).ok_or(VerbError::NoSuchObject(Verb::DestroyQp))?;
        self.fail(qp_num, false);
        self.port.lock().responders[index_of(qp_num)] = None;
        self.qps.remove(qp_num);
        self.settle();
        Ok(())
    }

    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr> {
        let verb = Verb::PostSend;
        let refuse = |index, error| Err(BadWr { index, error });
        let Some(qp) = self.qps.find(qp_num) else {
            return refuse(0, VerbError::NoSuchObject(verb));
        };
        if qp.state != QpState::Rts {
            return refuse(0, VerbError::WrongState(verb));
        }
        let (init, send_cq) = (qp.init, qp.init.send_cq);
        let from = Origin { qp_type: qp.init.qp_type, num: qp_num, dest_qp: qp.dest_qp };
        let mut outcome = Ok(());
        let mut inbound = self.peer.lock();
        inbound.srqs.iter_mut().for_each(Recvs::refill);
        for (index, wr) in wrs.iter().enumerate() {
            let landed = check_send(wr, &init, self.peer_addr).and_then(|byte_len| {
                let message = ((&self.mrs, init.pd), byte_len);
                let is_covered = inbound.land(&self.peer, from, wr, message);
                if is_covered { Ok(()) } else { Err(VerbError::BadMemory(verb)) }
            });
            if let Err(error) = landed {
                outcome = refuse(index, error);
                break;
            }
            self.messages_sent += 1;
            if wr.flags.signaled {
                let opcode = if matches!(wr.op, SendOp::Send | SendOp::SendWithImm { .. }) {
                    WcOpcode::Send
                } else {
                    WcOpcode::RdmaWrite
                };
                self.cqs.push(send_cq, Wc { wr_id: wr.wr_id, opcode, qp_num, ..Wc::default() });
            }
        }
        let waiter = inbound.waiter.take();
        drop(inbound);
        if let Some(waiter) = waiter {
            waiter.unpark();
        }
        if !self.cqs.newly_failed.is_empty() {
            self.settle();
        }
        outcome
    }

    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        let verb = Verb::PostRecv;
        let Some(qp) = self.qps.find_mut(qp_num) else {
            return Err(BadWr { index: 0, error: VerbError::NoSuchObject(verb) });
        };
        let open = matches!(qp.state, QpState::Init | QpState::Rts);
        if !open || qp.init.srq.is_some() {
            return Err(BadWr { index: 0, error: VerbError::WrongState(verb) });
        }
        post(verb, (qp.init.pd, &self.mrs, self.lands), &mut qp.recvs, wrs)
    }

    fn post_srq_recv(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        let verb = Verb::PostSrqRecv;
        match self.srqs.get_mut(srq.0 as usize) {
            Some(queue) => post(verb, (PdNum::DEFAULT, &self.mrs, self.lands), queue, wrs),
            None => Err(BadWr { index: 0, error: VerbError::NoSuchObject(verb) }),
        }
    }

    /// Nothing is left to move; what failed at the peer's hands is taken in here.
    fn progress(&mut self, budget: usize) -> usize {
        let _ = budget;
        if self.port.has_trouble() {
            self.settle();
        }
        0
    }

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        self.cqs.poll(cq, out)
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        let start = Instant::now();
        let timeout = Duration::from_nanos(timeout.0);
        loop {
            {
                // Under the lock nothing arrives: a completion is seen here or finds the waiter.
                let mut inbound = self.port.lock();
                let left = timeout.saturating_sub(start.elapsed());
                let woken = std::mem::take(&mut inbound.woken);
                if self.cqs.any() || self.port.has_trouble() || woken || left.is_zero() {
                    inbound.waiter = None;
                    return self.cqs.any() || woken;
                }
                inbound.waiter = Some(thread::current());
            }
            thread::park_timeout(timeout.saturating_sub(start.elapsed()));
        }
    }

    fn waker(&self) -> Option<Waker> {
        Some(Waker::from(Arc::clone(&self.port)))
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.settle();
        self.cqs.poll_event()
    }
}
