//! The in-process device with a clock that its user advances.

use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use towpath_base::Time;
use towpath_device_mem::MemDevice;
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, MrKeys, PathMtu, PdNum, QpInit,
    QpNum, QpState, QueueLimits, RecvWr, SendWr, SrqNum, VerbError, Wc,
};

/// One end of a wire within a process.
pub(crate) struct Steady {
    device: MemDevice,
    now_ns: Rc<Cell<u64>>,
}

impl Steady {
    /// Two joined devices; `now_ns` is the clock of both.
    pub(crate) fn pair(now_ns: &Rc<Cell<u64>>) -> (Self, Self) {
        let (near, far) = MemDevice::pair();
        let end = |device| Self { device, now_ns: Rc::clone(now_ns) };
        (end(near), end(far))
    }
}

impl Device for Steady {
    type Memory = Region;

    fn now(&self) -> Time {
        Time(self.now_ns.get())
    }

    fn caps(&self) -> &DeviceCaps {
        self.device.caps()
    }

    fn queue_limits(&self) -> QueueLimits {
        self.device.queue_limits()
    }

    fn local_addr(&self) -> SocketAddr {
        self.device.local_addr()
    }

    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        self.device.nic_addr(nic)
    }

    fn path_mtu(&self, dest: Option<SocketAddr>) -> PathMtu {
        self.device.path_mtu(dest)
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
        self.device.create_qp(init)
    }

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        self.device.connect_qp(qp_num, connect)
    }

    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError> {
        self.device.modify_qp(qp_num, state)
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        self.device.qp_state(qp_num)
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        self.device.destroy_qp(qp_num)
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

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        self.device.poll_cq(cq, out)
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.device.poll_async_event()
    }
}
