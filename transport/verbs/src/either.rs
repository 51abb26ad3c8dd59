//! Two kinds of device as one type, for programs that are told at run time which to use.

use core::ffi::c_int;
use core::net::SocketAddr;
use core::ops::Range;
use core::task::Waker;
use towpath_base::{Nanos, Time};

use crate::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, Memory, MrKeys, PathMtu, PdNum,
    QpInit, QpNum, QpState, QueueLimits, RecvWr, SendWr, Served, SrqNum, VerbError, Wc,
};

/// One of two kinds of device. Each call costs one predictable branch.
#[derive(Debug)]
pub enum Either<A, B> {
    /// The first kind.
    Left(A),
    /// The second kind.
    Right(B),
}

/// Asks whichever it is.
macro_rules! ask {
    ($either:expr, $device:ident => $answer:expr) => {
        match $either {
            Either::Left($device) => $answer,
            Either::Right($device) => $answer,
        }
    };
}

impl<A: Device, B: Device<Memory = A::Memory>> Device for Either<A, B> {
    type Memory = A::Memory;

    fn caps(&self) -> &DeviceCaps {
        ask!(self, device => device.caps())
    }

    fn queue_limits(&self) -> QueueLimits {
        ask!(self, device => device.queue_limits())
    }

    fn local_addr(&self) -> SocketAddr {
        ask!(self, device => device.local_addr())
    }

    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        ask!(self, device => device.nic_addr(nic))
    }

    fn path_mtu(&self, dest: Option<SocketAddr>) -> PathMtu {
        ask!(self, device => device.path_mtu(dest))
    }

    fn packets_too_long(&self) -> u64 {
        ask!(self, device => device.packets_too_long())
    }

    fn now(&self) -> Time {
        ask!(self, device => device.now())
    }

    fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        ask!(self, device => device.alloc_pd())
    }

    fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError> {
        ask!(self, device => device.dealloc_pd(pd))
    }

    fn reg_mr(
        &mut self,
        pd: PdNum,
        memory: &A::Memory,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        ask!(self, device => device.reg_mr(pd, memory, access))
    }

    fn reg_shared_mr(
        &mut self,
        pd: PdNum,
        memory: &<A::Memory as Memory>::Shared,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        ask!(self, device => device.reg_shared_mr(pd, memory, range, access))
    }

    fn dereg_mr(&mut self, lkey: u32) -> Result<(), VerbError> {
        ask!(self, device => device.dereg_mr(lkey))
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        ask!(self, device => device.create_cq(depth))
    }

    fn create_srq(&mut self, depth: u32) -> Result<SrqNum, VerbError> {
        ask!(self, device => device.create_srq(depth))
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        ask!(self, device => device.create_qp(init))
    }

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        ask!(self, device => device.connect_qp(qp_num, connect))
    }

    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError> {
        ask!(self, device => device.modify_qp(qp_num, state))
    }

    fn set_source_port(&mut self, qp_num: QpNum, source_port: u16) -> Result<(), VerbError> {
        ask!(self, device => device.set_source_port(qp_num, source_port))
    }

    fn omit_icrc(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        ask!(self, device => device.omit_icrc(qp_num))
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        ask!(self, device => device.qp_state(qp_num))
    }

    fn served(&self, qp_num: QpNum) -> Option<Served> {
        ask!(self, device => device.served(qp_num))
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        ask!(self, device => device.destroy_qp(qp_num))
    }

    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr> {
        ask!(self, device => device.post_send(qp_num, wrs))
    }

    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        ask!(self, device => device.post_recv(qp_num, wrs))
    }

    fn post_srq_recv(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        ask!(self, device => device.post_srq_recv(srq, wrs))
    }

    fn progress(&mut self, budget: usize) -> usize {
        ask!(self, device => device.progress(budget))
    }

    fn next_timeout(&self) -> Time {
        ask!(self, device => device.next_timeout())
    }

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        ask!(self, device => device.poll_cq(cq, out))
    }

    fn wait(&mut self, timeout: Nanos) -> bool {
        ask!(self, device => device.wait(timeout))
    }

    fn waker(&self) -> Option<Waker> {
        ask!(self, device => device.waker())
    }

    fn watch_file(&mut self, file: c_int) -> bool {
        ask!(self, device => device.watch_file(file))
    }

    fn add_to_epoll(&mut self, epoll: c_int) -> bool {
        ask!(self, device => device.add_to_epoll(epoll))
    }

    fn completions_made(&self) -> Option<u64> {
        ask!(self, device => device.completions_made())
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        ask!(self, device => device.poll_async_event())
    }
}
