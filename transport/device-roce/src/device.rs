//! The device: its verbs.

use crate::addr::header_bytes;
use crate::config::RoceConfig;
use crate::counters::RoceCounters;
use crate::engine::Engine;
use crate::limits::{CQ_MAX, CQE_MAX, MESSAGE_BYTES_MAX, PACKET_OVERHEAD_BYTES, WR_MAX};
use crate::qp::{Path, Qp, QpTable};
use crate::recv_queue::RecvQueue;
use crate::send_queue::Terms;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::ops::Range;
use std::task::Waker;
use towpath_base::{Nanos, Time};
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, MrKeys, Mtu, PacketLink,
    PathMtu, PdNum, QpInit, QpNum, QpState, QpType, QueueLimits, RecvWr, SEND_SGE_MAX, SendOp,
    SendWr, Served, SrqNum, Verb, VerbError, VerbSet, Wc,
};

/// What an atomic reads and writes.
const ATOMIC_BYTES: u32 = 8;

/// A RoCEv2 NIC in userspace, over a packet link.
///
/// Packets move only in [`progress`](Device::progress). A send on UC or UD completes once the link
/// took its last packet, on RC once it is acknowledged; the completion's time is that moment.
/// Posting and moving packets allocates nothing: all queues are made at their full depth. The one
/// exception is the first READ that a peer asks for, which makes room for responses.
pub struct RoceDevice<L> {
    link: L,
    engine: Engine,
    caps: DeviceCaps,
    /// Source ports of each NIC.
    ports_of_nic: u16,
    rc_window_packets: u32,
    /// RC queue pairs that were made: without any, no clock is read for them.
    rc_qps: u64,
}

impl<L: PacketLink> RoceDevice<L> {
    /// A device on `link`.
    ///
    /// # Panics
    /// When the link cannot carry packets of the smallest MTU (295 bytes), or has no source port:
    /// such a link is a programming error.
    #[must_use]
    pub fn new(link: L, config: RoceConfig) -> Self {
        let of_link = link.caps();
        let room = of_link.packet_bytes_max.saturating_sub(PACKET_OVERHEAD_BYTES);
        let mtu_max = Mtu::at_most(room).expect("the link carries packets of the smallest MTU");
        assert!(of_link.source_ports > 0, "the link has a source port");
        let caps = DeviceCaps {
            verbs: VerbSet {
                rc: true,
                uc: true,
                ud: true,
                read: true,
                atomics: true,
                srq: true,
                uc_srq_survives_loss: true,
            },
            mtu_max,
            message_bytes_max: MESSAGE_BYTES_MAX,
            send_sge_max: SEND_SGE_MAX as u32,
            qp_max: config.qp_max,
            timestamps: true,
            source_ports: of_link.source_ports,
            source_port_live: true,
            rx_buffer_bytes: of_link.rx_buffer_bytes,
            rx_charge_bytes: of_link.rx_charge_bytes,
            delay_noise: of_link.delay_noise,
            delivers_intact: false,
            sends_at_once: false,
            arrives_in_progress: true,
            pins_memory: false,
            cuts_each_send: true,
            omits_icrc: !of_link.foreign_peers,
        };
        let packet_bytes_max = (mtu_max.bytes() + PACKET_OVERHEAD_BYTES) as usize;
        let nics = (0..).take_while(|&nic| link.nic_addr(nic).is_some()).count().max(1);
        let ports_of_nic = of_link.source_ports / nics as u16;
        let engine = Engine::new(&config, packet_bytes_max, (&of_link, nics));
        let rc_window_packets = config.rc_window_packets;
        Self { link, engine, caps, ports_of_nic, rc_window_packets, rc_qps: 0 }
    }

    /// Packets that an RC queue pair of this MTU keeps under way: what was configured, but no more
    /// than what a peer with a receive buffer like ours holds.
    fn rc_window(&self, mtu: Mtu) -> u32 {
        let packet_bytes = mtu.bytes() + PACKET_OVERHEAD_BYTES + self.caps.rx_charge_bytes;
        let held = self.caps.rx_buffer_bytes.map_or(u64::MAX, |b| b / u64::from(packet_bytes));
        u64::from(self.rc_window_packets).min(held).max(1) as u32
    }

    /// The link.
    #[must_use]
    pub fn link(&self) -> &L {
        &self.link
    }

    /// The link, to change it while it runs (fault injection, sockets).
    pub fn link_mut(&mut self) -> &mut L {
        &mut self.link
    }

    /// What it moved and dropped so far.
    #[must_use]
    pub fn counters(&self) -> RoceCounters {
        RoceCounters {
            cq_overruns: self.engine.cqs.overruns,
            events_lost: self.engine.cqs.events_lost,
            ..self.engine.counters
        }
    }

    fn check_init(&self, init: &QpInit) -> Result<(), VerbError> {
        let verb = Verb::CreateQp;
        if !QpTable::supports(init.qp_type) {
            return Err(VerbError::Unsupported(verb));
        }
        if !self.engine.mrs.has_pd(init.pd) {
            return Err(VerbError::NoSuchObject(verb));
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
        Ok(())
    }
}

#[cfg(test)]
impl<L> RoceDevice<L> {
    /// Its moving parts, to be asked one by one.
    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

/// The terms of a send work request that this queue pair may post, as far as its memory allows.
fn check_send<const N: usize>(wr: &SendWr<N>, qp: &Qp) -> Result<Terms, VerbError> {
    if wr.sg_list.len() > qp.init.max_send_sge as usize {
        return Err(VerbError::BadArgument(Verb::PostSend));
    }
    let byte_len = wr.sg_list.byte_len();
    let is_plain =
        qp.init.qp_type == QpType::Uc && matches!(wr.op, SendOp::Send) && wr.ud.is_none();
    let is_fetched = if is_plain && byte_len <= u64::from(MESSAGE_BYTES_MAX) {
        false
    } else {
        check_terms(wr, qp, byte_len)?
    };
    Ok(Terms { byte_len: byte_len as u32, is_fetched })
}

/// Whether this queue pair may do what a send work request says, memory aside; true when that
/// writes to its memory.
#[inline(never)]
fn check_terms<const N: usize>(wr: &SendWr<N>, qp: &Qp, byte_len: u64) -> Result<bool, VerbError> {
    let (verb, qp_type) = (Verb::PostSend, qp.init.qp_type);
    let path = qp.path.as_ref().ok_or(VerbError::WrongState(verb))?;
    let rd_atomic_max = qp.rc.as_ref().map_or(0, |rc| rc.requester.rd_atomic_max());
    let fetched =
        matches!(wr.op, SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. });
    let bytes_max = match (&wr.op, qp_type) {
        (SendOp::Send | SendOp::SendWithImm { .. }, QpType::Ud) => path.mtu,
        (
            SendOp::Send
            | SendOp::SendWithImm { .. }
            | SendOp::Write { .. }
            | SendOp::WriteWithImm { .. },
            QpType::Uc | QpType::Rc,
        ) => MESSAGE_BYTES_MAX,
        (_, QpType::Rc) if rd_atomic_max == 0 => return Err(VerbError::BadArgument(verb)),
        (SendOp::Read { .. }, QpType::Rc) => MESSAGE_BYTES_MAX,
        (_, QpType::Rc) => ATOMIC_BYTES,
        _ => return Err(VerbError::Unsupported(verb)),
    };
    let same_family = |ud: &towpath_verbs::UdAddress| ud.dest.is_ipv4() == path.dest.is_ipv4();
    let addressed = match qp_type {
        QpType::Ud => wr.ud.as_ref().is_some_and(same_family),
        _ => wr.ud.is_none(),
    };
    let short = bytes_max == ATOMIC_BYTES && byte_len < u64::from(ATOMIC_BYTES);
    if !addressed || short || byte_len > u64::from(bytes_max) {
        return Err(VerbError::BadArgument(verb));
    }
    Ok(fetched)
}

impl<L: PacketLink> Device for RoceDevice<L> {
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

    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        self.link.nic_addr(nic)
    }

    fn path_mtu(&self, dest: Option<SocketAddr>) -> PathMtu {
        let most = self.caps.mtu_max;
        let Some(ip) = self.link.ip_mtu(dest) else { return PathMtu { mtu: most, ip: None } };
        let around = header_bytes(&self.link.local_addr()) + PACKET_OVERHEAD_BYTES;
        let room = ip.bytes.saturating_sub(around);
        // Where not even the smallest fits it is still the next best.
        let mtu = Mtu::at_most(room).unwrap_or(Mtu::Mtu256).min(most);
        PathMtu { mtu, ip: Some(ip) }
    }

    fn packets_too_long(&self) -> u64 {
        self.link.packets_too_long()
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
        self.engine.srqs.push(RecvQueue::shared(depth));
        Ok(SrqNum(self.engine.srqs.len() as u32 - 1))
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        self.check_init(init)?;
        let num = self.engine.qps.create(init)?;
        let index = self.engine.qps.index(num);
        self.engine.reserve_ready(index as usize + 1);
        if init.qp_type == QpType::Rc {
            self.engine.timers.reserve(index);
            self.rc_qps += 1;
        }
        if init.qp_type == QpType::Ud {
            // The routing header of a datagram shows it.
            self.link.look_at_each_tclass();
        }
        Ok(num)
    }

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        let local = self.link.local_addr();
        let mtu_max = self.caps.mtu_max;
        let window = self.rc_window(connect.path_mtu);
        let qp = self.engine.qps.find_mut(qp_num).ok_or(VerbError::NoSuchObject(verb))?;
        if qp.state != QpState::Init {
            return Err(VerbError::WrongState(verb));
        }
        let source_port = connect.source_port % self.caps.source_ports;
        let tclass = connect.tclass;
        let path = if qp.init.qp_type == QpType::Ud {
            let (dest, dest_qp) = (local, QpNum(0));
            Path { dest, dest_qp, source_port, tclass, mtu: mtu_max.bytes() }
        } else {
            let (dest, dest_qp) = (connect.dest, connect.dest_qp_num);
            let reachable = dest.is_ipv4() == local.is_ipv4();
            let sane = qp.init.qp_type != QpType::Rc || connect.rc.in_range();
            if !reachable || connect.path_mtu > mtu_max || dest_qp > QpNum::MAX || !sane {
                return Err(VerbError::BadArgument(verb));
            }
            Path { dest, dest_qp, source_port, tclass, mtu: connect.path_mtu.bytes() }
        };
        qp.nic = source_port / self.ports_of_nic;
        qp.path = Some(path);
        qp.start(connect, window);
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
        let path = qp.path.as_mut().ok_or(VerbError::WrongState(verb))?;
        let source_port = source_port % self.caps.source_ports;
        if source_port / self.ports_of_nic != qp.nic {
            return Err(VerbError::BadArgument(verb));
        }
        path.source_port = source_port;
        qp.requester.forget_source();
        if let Some(rc) = &mut qp.rc {
            rc.forget_source();
        }
        Ok(())
    }

    fn omit_icrc(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        let verb = Verb::ModifyQp;
        let qp = self.engine.qps.find_mut(qp_num).ok_or(VerbError::NoSuchObject(verb))?;
        if !self.caps.omits_icrc {
            return Err(VerbError::Unsupported(verb));
        }
        if qp.init.qp_type != QpType::Uc {
            return Err(VerbError::BadArgument(verb));
        }
        if qp.state != QpState::Init {
            return Err(VerbError::WrongState(verb));
        }
        qp.omits_icrc = true;
        Ok(())
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        let qp = self.engine.qps.find(qp_num).ok_or(VerbError::NoSuchObject(Verb::ModifyQp))?;
        Ok(qp.state)
    }

    fn served(&self, qp_num: QpNum) -> Option<Served> {
        let rc = self.engine.qps.find(qp_num)?.rc.as_ref()?;
        Some(rc.responder.served)
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        let mut qp =
            self.engine.qps.remove(qp_num).ok_or(VerbError::NoSuchObject(Verb::DestroyQp))?;
        qp.fail((&mut self.engine.cqs, &mut self.engine.mrs), false);
        self.engine.settle();
        Ok(())
    }

    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr> {
        let verb = Verb::PostSend;
        let refuse = |index, error| Err(BadWr { index, error });
        let Some(qp) = self.engine.qps.find_mut(qp_num) else {
            return refuse(0, VerbError::NoSuchObject(verb));
        };
        if qp.state != QpState::Rts || qp.path.is_none() {
            return refuse(0, VerbError::WrongState(verb));
        }
        let mut outcome = Ok(());
        for (index, wr) in wrs.iter().enumerate() {
            if qp.send_queue_full() {
                outcome = refuse(index, VerbError::QueueFull(verb));
                break;
            }
            let pushed = check_send(wr, qp).and_then(|terms| {
                let held = qp.push_send(wr, terms, &mut self.engine.mrs);
                if held { Ok(()) } else { Err(VerbError::BadMemory(verb)) }
            });
            if let Err(error) = pushed {
                outcome = refuse(index, error);
                break;
            }
        }
        let index = self.engine.qps.index(qp_num);
        self.engine.list(index);
        outcome
    }

    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        let verb = Verb::PostRecv;
        let Some(qp) = self.engine.qps.find_mut(qp_num) else {
            return Err(BadWr { index: 0, error: VerbError::NoSuchObject(verb) });
        };
        let open = matches!(qp.state, QpState::Init | QpState::Rtr | QpState::Rts);
        if !open || qp.init.srq.is_some() {
            return Err(BadWr { index: 0, error: VerbError::WrongState(verb) });
        }
        qp.recv_queue.post(verb, qp.init.pd, wrs, &self.engine.mrs)
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
        if budget == 0 && self.rc_qps == 0 && !engine.has_work() {
            return 0;
        }
        if self.rc_qps > 0 {
            engine.tick(link.now());
        }
        let mut sent = engine.pump(link);
        let received = link.receive(budget, &mut |packet| engine.on_packet(&packet));
        if engine.has_answers() {
            sent += engine.pump(link);
        }
        engine.settle();
        sent + received
    }

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        self.engine.cqs.poll(cq, out)
    }

    fn next_timeout(&self) -> Time {
        self.engine.timers.next()
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        if self.rc_qps == 0 {
            return self.link.wait(timeout);
        }
        let due = self.engine.timers.next();
        let left = due.since(self.link.now());
        left == Nanos::ZERO || self.link.wait(timeout.min(left)) || due <= self.link.now()
    }

    fn waker(&self) -> Option<Waker> {
        self.link.waker()
    }

    fn watch_file(&mut self, file: c_int) -> bool {
        self.link.watch_file(file)
    }

    fn add_to_epoll(&mut self, epoll: c_int) -> bool {
        self.link.add_to_epoll(epoll)
    }

    fn completions_made(&self) -> Option<u64> {
        Some(self.engine.cqs.made)
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.engine.cqs.poll_event()
    }
}
