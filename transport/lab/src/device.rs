//! A wire that outlives its host, and a device that repeats its numbers.

use std::cell::{Ref, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceCounters, RoceDevice};
use towpath_memory::{Region, SharedMemory};
use towpath_sim::{FaultLink, VirtualLink};
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, LinkCaps, LinkCounters, MrKeys,
    PacketLink, PdNum, QpInit, QpNum, QpState, QueueLimits, RecvWr, RxPacket, SendWr, Served,
    SrqNum, TxPacket, VerbError, Wc,
};

/// One end of a wire with faults. Clones are the same end: when a host dies, its next life finds
/// what was under way, and what the faults hold back, where it was.
#[derive(Clone)]
pub struct SharedLink {
    link: Rc<RefCell<FaultLink<VirtualLink>>>,
}

impl SharedLink {
    /// That end.
    #[must_use]
    pub fn new(link: FaultLink<VirtualLink>) -> Self {
        Self { link: Rc::new(RefCell::new(link)) }
    }

    /// The end itself.
    #[must_use]
    pub fn link(&self) -> Ref<'_, FaultLink<VirtualLink>> {
        self.link.borrow()
    }
}

impl PacketLink for SharedLink {
    fn caps(&self) -> LinkCaps {
        self.link.borrow().caps()
    }

    fn local_addr(&self) -> SocketAddr {
        self.link.borrow().local_addr()
    }

    fn now(&self) -> Time {
        self.link.borrow().now()
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        self.link.borrow().source_addr(source_port)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        self.link.borrow_mut().transmit(packets)
    }

    fn left_at(&mut self) -> Time {
        self.link.borrow_mut().left_at()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        self.link.borrow_mut().receive(budget, sink)
    }

    fn counters(&self) -> LinkCounters {
        self.link.borrow().counters()
    }
}

/// A RoCE device on a [`SharedLink`] whose PSNs follow from its queue pair numbers alone. With
/// equal device seeds, the next life of a host has the same queue pairs with the same PSNs, as on
/// a device that keeps its queue pairs through RESET: then only the generation in a header stands
/// between a stale packet and the application.
pub struct LabDevice {
    roce: RoceDevice<SharedLink>,
    psn_salt: u32,
}

impl LabDevice {
    /// A device on `link`; both ends of a wire need the same `psn_salt`.
    #[must_use]
    pub fn new(link: SharedLink, config: RoceConfig, psn_salt: u32) -> Self {
        Self { roce: RoceDevice::new(link, config), psn_salt }
    }

    /// What it moved and dropped.
    #[must_use]
    pub fn counters(&self) -> RoceCounters {
        self.roce.counters()
    }

    fn psn_of(&self, sender: QpNum) -> Psn {
        Psn::new(sender.0.wrapping_mul(0x9e37_79b1) ^ self.psn_salt)
    }
}

impl Device for LabDevice {
    type Memory = Region;

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        let (sq_psn, rq_psn) = (self.psn_of(qp_num), self.psn_of(connect.dest_qp_num));
        self.roce.connect_qp(qp_num, &Connect { sq_psn, rq_psn, ..*connect })
    }

    fn caps(&self) -> &DeviceCaps {
        self.roce.caps()
    }

    fn queue_limits(&self) -> QueueLimits {
        self.roce.queue_limits()
    }

    fn local_addr(&self) -> SocketAddr {
        self.roce.local_addr()
    }

    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        self.roce.nic_addr(nic)
    }

    fn now(&self) -> Time {
        self.roce.now()
    }

    fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        self.roce.alloc_pd()
    }

    fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError> {
        self.roce.dealloc_pd(pd)
    }

    fn reg_mr(&mut self, pd: PdNum, memory: &Region, access: Access) -> Result<MrKeys, VerbError> {
        self.roce.reg_mr(pd, memory, access)
    }

    fn reg_shared_mr(
        &mut self,
        pd: PdNum,
        memory: &SharedMemory,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        self.roce.reg_shared_mr(pd, memory, range, access)
    }

    fn dereg_mr(&mut self, lkey: u32) -> Result<(), VerbError> {
        self.roce.dereg_mr(lkey)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        self.roce.create_cq(depth)
    }

    fn create_srq(&mut self, depth: u32) -> Result<SrqNum, VerbError> {
        self.roce.create_srq(depth)
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        self.roce.create_qp(init)
    }

    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError> {
        self.roce.modify_qp(qp_num, state)
    }

    fn set_source_port(&mut self, qp_num: QpNum, source_port: u16) -> Result<(), VerbError> {
        self.roce.set_source_port(qp_num, source_port)
    }

    fn omit_icrc(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        self.roce.omit_icrc(qp_num)
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        self.roce.qp_state(qp_num)
    }

    fn served(&self, qp_num: QpNum) -> Option<Served> {
        self.roce.served(qp_num)
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        self.roce.destroy_qp(qp_num)
    }

    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr> {
        self.roce.post_send(qp_num, wrs)
    }

    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.roce.post_recv(qp_num, wrs)
    }

    fn post_srq_recv(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.roce.post_srq_recv(srq, wrs)
    }

    fn progress(&mut self, budget: usize) -> usize {
        self.roce.progress(budget)
    }

    fn next_timeout(&self) -> Time {
        self.roce.next_timeout()
    }

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        self.roce.poll_cq(cq, out)
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        self.roce.wait(timeout)
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.roce.poll_async_event()
    }
}
