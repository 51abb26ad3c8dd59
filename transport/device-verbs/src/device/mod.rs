//! The device: what it is made of, and its verbs.
//!
//! | file | what it does |
//! |---|---|
//! | `connect` | states of queue pairs, and the way to a peer |
//! | `posting` | hands work requests to the driver |
//! | `polling` | takes completions and events from it |

mod connect;
mod polling;
mod posting;
#[cfg(test)]
mod tests;

use crate::caps::{self, Port};
use crate::clock::Clock;
use crate::cqs::Cqs;
use crate::error::OpenError;
use crate::gid;
use crate::limits::{INLINE_BYTES_MAX, POLL_BATCH};
use crate::qps::{self, Qp, Qps};
use crate::queue::{Fifo, Pool};
use crate::regions::Regions;
use crate::sys::{self, ibv_recv_wr, ibv_send_wr};
use crate::target::Target;
use posting::Handles;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use towpath_base::{Nanos, Time};
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, MrKeys, PdNum, QpInit, QpNum,
    QpState, QueueLimits, RecvWr, SGE_DEFAULT, SendWr, SrqNum, Verb, VerbError, Wc,
};

/// A shared receive queue, and what is posted to it.
struct Shared {
    raw: Arc<sys::Srq>,
    posted: Pool,
}

/// An RDMA device, through libibverbs.
///
/// The queue pairs are the first field, so that a device that is dropped has let go of all memory
/// before its regions are given back.
pub struct VerbsDevice {
    qps: Qps,
    srqs: Vec<Shared>,
    handles: Handles,
    cqs: Cqs,
    regions: Regions,
    pd: Arc<sys::Pd>,
    port: Port,
    caps: DeviceCaps,
    /// How the source port of a queue pair that runs is changed, where the device can do so.
    port_change: Option<sys::PortChange>,
    limits: QueueLimits,
    srq_wr_max: u32,
    recv_sge_max: u32,
    sends: sys::Chain<ibv_send_wr>,
    recvs: sys::Chain<ibv_recv_wr>,
    /// A batch of completions on its way from the driver; empty in between.
    taken: Vec<sys::RawWc>,
    events: VecDeque<AsyncEvent>,
    events_due: Time,
    clock: Option<Clock>,
    clock_due: Time,
    host_clock: towpath_clock::Clock,
}

impl VerbsDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(target: &Target) -> Result<Self, OpenError> {
        let context = Arc::new(sys::Context::open(target.device.as_deref())?);
        let port = caps::find_port(&context, target)?;
        let failed = |errno| caps::query(&context, target.port, errno);
        let info = context.device_info().map_err(failed)?;
        let port_info = context.port_info(target.port).map_err(failed)?;
        let setup = |source| OpenError::Setup { name: context.name().to_owned(), source };
        let pd = Arc::new(sys::Pd::new(&context).map_err(setup)?);
        let channel = Arc::new(sys::Channel::new(&context).map_err(setup)?);
        let probe = Arc::new(sys::Cq::new(&channel, 1, 0, false).map_err(setup)?);
        let host_clock = towpath_clock::Clock::start();
        let clock = find_clock(&context, &channel, &host_clock);
        let mut caps =
            caps::find(&pd, &probe, &info, &port_info, clock.is_some()).map_err(setup)?;
        let port_change = sys::PortChange::find(&context)
            .filter(|&call| connect::changes_ports((&pd, &probe, &port), &caps, call).is_ok());
        caps.source_port_live = port_change.is_some();
        Ok(Self {
            qps: Qps::default(),
            srqs: Vec::new(),
            handles: Handles::default(),
            cqs: Cqs::new(channel, clock.is_some()).map_err(setup)?,
            regions: Regions::new(&pd),
            pd,
            port,
            caps,
            port_change,
            limits: QueueLimits { wr_max: info.limits.max_qp_wr, cqe_max: info.limits.max_cqe },
            srq_wr_max: info.limits.max_srq_wr,
            recv_sge_max: info.limits.max_sge.min(SGE_DEFAULT as u32),
            sends: sys::Chain::new(),
            recvs: sys::Chain::new(),
            taken: Vec::with_capacity(POLL_BATCH),
            events: VecDeque::new(),
            events_due: Time::ZERO,
            clock,
            clock_due: Time::ZERO,
            host_clock,
        })
    }

    /// What the driver calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.pd.context().name()
    }

    fn parts(&self, init: &QpInit) -> Option<sys::QpParts> {
        let cq = |cq| self.cqs.find(cq).map(|cq| Arc::clone(&cq.raw));
        let srq = match init.srq {
            Some(srq) => Some(Arc::clone(&self.srqs.get(srq.0 as usize)?.raw)),
            None => None,
        };
        let (send_cq, recv_cq) = (cq(init.send_cq)?, cq(init.recv_cq)?);
        let pd = Arc::clone(self.regions.domain(init.pd)?);
        Some(sys::QpParts { pd, send_cq, recv_cq, srq })
    }
}

impl Drop for VerbsDevice {
    /// What is posted is held no longer, once the driver has let go of it: its owners get it back.
    fn drop(&mut self) {
        let (mut holds, mut lists) = (Vec::new(), Vec::new());
        for mut qp in std::mem::take(&mut self.qps).into_all() {
            holds.extend(qp.send_holds.drain(..));
            lists.extend(qp.recvs.drain().map(|recv| recv.list));
        }
        for Shared { raw, posted } in self.srqs.drain(..) {
            drop(raw);
            lists.extend(posted.into_all().map(|recv| recv.list));
        }
        self.regions.release(holds.into_iter());
        lists.into_iter().for_each(|list| self.regions.release_all(list));
    }
}

/// The device's clock, if its completions can carry it and it can be read.
fn find_clock(
    context: &sys::Context,
    channel: &Arc<sys::Channel>,
    host_clock: &towpath_clock::Clock,
) -> Option<Clock> {
    let raw = sys::clock(context)?;
    sys::Cq::new(channel, 1, 0, true).ok()?;
    let ticks = sys::ticks(context)?;
    Clock::new(raw.mask, raw.khz, ticks, host_clock.now())
}

impl Device for VerbsDevice {
    type Memory = Region;

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn queue_limits(&self) -> QueueLimits {
        self.limits
    }

    fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.port.ip, gid::UDP_PORT)
    }

    fn now(&self) -> Time {
        self.host_clock.now()
    }

    fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        self.regions.alloc_pd(self.pd.context())
    }

    fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError> {
        if self.qps.iter().any(|qp| qp.init.pd == pd) {
            return Err(VerbError::BadArgument(Verb::DeallocPd));
        }
        self.regions.dealloc_pd(pd)
    }

    fn reg_mr(&mut self, pd: PdNum, memory: &Region, access: Access) -> Result<MrKeys, VerbError> {
        self.regions.register(pd, memory, access)
    }

    fn reg_shared_mr(
        &mut self,
        pd: PdNum,
        memory: &SharedMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        self.regions.register_shared(pd, memory, range, access)
    }

    fn dereg_mr(&mut self, lkey: u32) -> Result<(), VerbError> {
        self.regions.deregister(lkey)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        if depth > self.limits.cqe_max {
            return Err(VerbError::BadArgument(Verb::CreateCq));
        }
        self.cqs.create(depth)
    }

    fn create_srq(&mut self, depth: u32) -> Result<SrqNum, VerbError> {
        if !self.caps.verbs.srq {
            return Err(VerbError::Unsupported(Verb::CreateSrq));
        }
        if depth == 0 || depth > self.srq_wr_max {
            return Err(VerbError::BadArgument(Verb::CreateSrq));
        }
        let raw = Arc::new(sys::Srq::new(&self.pd, depth, self.recv_sge_max)?);
        self.srqs.push(Shared { raw, posted: Pool::new(depth) });
        Ok(SrqNum(self.srqs.len() as u32 - 1))
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        let verb = Verb::CreateQp;
        let parts = self.parts(init).ok_or(VerbError::NoSuchObject(verb))?;
        let too_deep = init.max_send_wr.max(init.max_recv_wr) > self.limits.wr_max;
        if too_deep || init.max_send_sge > self.caps.send_sge_max {
            return Err(VerbError::BadArgument(verb));
        }
        let max_recv_wr = if init.srq.is_some() { 0 } else { init.max_recv_wr };
        // Some drivers refuse queues of no entries.
        let depth = (init.max_send_wr.max(1), max_recv_wr.max(u32::from(init.srq.is_none())));
        let qp_type = qps::raw_type(init.qp_type);
        let sge_max = (init.max_send_sge, self.recv_sge_max);
        let raw = sys::Qp::new(parts, qp_type, depth, sge_max, INLINE_BYTES_MAX)?;
        let num = QpNum(raw.num());
        let mut qp = Qp {
            raw,
            num,
            init: *init,
            state: QpState::Reset,
            route: qps::Route::default(),
            sends: Fifo::new(init.max_send_wr),
            send_holds: VecDeque::new(),
            recvs: Fifo::new(max_recv_wr),
        };
        connect::to_init(&mut qp, &self.port)?;
        self.qps.insert(self.qps.vacant(), qp);
        Ok(num)
    }

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        self.connect(qp_num, connect)
    }

    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError> {
        self.modify(qp_num, state)
    }

    fn set_source_port(&mut self, qp_num: QpNum, source_port: u16) -> Result<(), VerbError> {
        self.set_port(qp_num, source_port)
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        let qp = self.qps.find(qp_num).ok_or(VerbError::NoSuchObject(Verb::ModifyQp))?;
        Ok(qps::to_state(qp.raw.state()?))
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        self.destroy(qp_num)
    }

    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr> {
        self.post_sends(qp_num, wrs)
    }

    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.post_receives(qp_num, wrs)
    }

    fn post_srq_recv(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.post_shared(srq, wrs)
    }

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        self.poll(cq, out)
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        self.block(timeout)
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.cqs.waker())
    }

    fn watch_file(&mut self, file: c_int) -> bool {
        self.cqs.watch_file(file);
        true
    }

    fn add_to_epoll(&mut self, epoll: c_int) -> bool {
        self.cqs.add_to_epoll(epoll)
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.event()
    }
}
