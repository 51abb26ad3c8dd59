//! A userspace NIC that records the verbs that change its queue pairs, and that treats source ports
//! as it is told to.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::Range;
use towpath_base::Time;
use towpath_device_roce::RoceDevice;
use towpath_memory::{Region, SharedMemory};
use towpath_sim::{FaultLink, VirtualLink};
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, MrKeys, PathMtu, PdNum, QpInit,
    QpNum, QpState, QueueLimits, RecvWr, SendWr, SrqNum, Verb, VerbError, Wc,
};

/// What a device can do about the source port of a queue pair that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It changes it.
    Live,
    /// It does not, and says so.
    Kept,
    /// It says that it can, and refuses.
    Refuses,
}

/// A verb that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Create(QpNum),
    /// From this source port.
    Connect(QpNum, u16),
    SetPort(QpNum, u16),
    Destroy(QpNum),
}

pub(crate) struct Recorded {
    device: RoceDevice<FaultLink<VirtualLink>>,
    manner: Manner,
    caps: DeviceCaps,
    calls: RefCell<Vec<Call>>,
    queue_pairs: usize,
}

impl Recorded {
    pub(crate) fn new(device: RoceDevice<FaultLink<VirtualLink>>, manner: Manner) -> Self {
        let mut caps = *device.caps();
        caps.source_port_live = manner != Manner::Kept;
        Self { device, manner, caps, calls: RefCell::default(), queue_pairs: 0 }
    }

    pub(crate) fn inner(&self) -> &RoceDevice<FaultLink<VirtualLink>> {
        &self.device
    }

    /// The calls since the last look.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        self.calls.take()
    }

    /// How many queue pairs there are.
    pub(crate) fn queue_pairs(&self) -> usize {
        self.queue_pairs
    }

    fn note(&self, call: Call) {
        self.calls.borrow_mut().push(call);
    }
}

impl Device for Recorded {
    type Memory = Region;

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn queue_limits(&self) -> QueueLimits {
        self.device.queue_limits()
    }

    fn local_addr(&self) -> SocketAddr {
        self.device.local_addr()
    }

    fn path_mtu(&self, dest: Option<SocketAddr>) -> PathMtu {
        self.device.path_mtu(dest)
    }

    fn now(&self) -> Time {
        self.device.now()
    }

    fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        self.device.alloc_pd()
    }

    fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError> {
        self.device.dealloc_pd(pd)
    }

    fn reg_mr(&mut self, pd: PdNum, memory: &Region, access: Access) -> Result<MrKeys, VerbError> {
        self.device.reg_mr(pd, memory, access)
    }

    fn reg_shared_mr(
        &mut self,
        pd: PdNum,
        memory: &SharedMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        self.device.reg_shared_mr(pd, memory, range, access)
    }

    fn dereg_mr(&mut self, lkey: u32) -> Result<(), VerbError> {
        self.device.dereg_mr(lkey)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        self.device.create_cq(depth)
    }

    fn create_srq(&mut self, depth: u32) -> Result<SrqNum, VerbError> {
        self.device.create_srq(depth)
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        let made = self.device.create_qp(init)?;
        self.queue_pairs += 1;
        self.note(Call::Create(made));
        Ok(made)
    }

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        self.note(Call::Connect(qp_num, connect.source_port));
        self.device.connect_qp(qp_num, connect)
    }

    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError> {
        self.device.modify_qp(qp_num, state)
    }

    fn set_source_port(&mut self, qp_num: QpNum, source_port: u16) -> Result<(), VerbError> {
        self.note(Call::SetPort(qp_num, source_port));
        match self.manner {
            Manner::Live => self.device.set_source_port(qp_num, source_port),
            Manner::Kept | Manner::Refuses => Err(VerbError::Unsupported(Verb::ModifyQp)),
        }
    }

    fn omit_icrc(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        self.device.omit_icrc(qp_num)
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        self.device.qp_state(qp_num)
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        self.device.destroy_qp(qp_num)?;
        self.queue_pairs -= 1;
        self.note(Call::Destroy(qp_num));
        Ok(())
    }

    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr> {
        self.device.post_send(qp_num, wrs)
    }

    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.device.post_recv(qp_num, wrs)
    }

    fn post_srq_recv(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.device.post_srq_recv(srq, wrs)
    }

    fn progress(&mut self, budget: usize) -> usize {
        self.device.progress(budget)
    }

    fn next_timeout(&self) -> Time {
        self.device.next_timeout()
    }

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        self.device.poll_cq(cq, out)
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.device.poll_async_event()
    }
}
