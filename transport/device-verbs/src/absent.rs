//! The device of a build without the feature: a type that has no value, so that whoever chooses a
//! device by name compiles either way.

use crate::{OpenError, Target};
use std::net::SocketAddr;
use std::ops::Range;
use towpath_base::Time;
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, BadWr, Connect, CqNum, Device, DeviceCaps, MrKeys, PdNum, QpInit, QpNum, QpState,
    QueueLimits, RecvWr, SendWr, VerbError, Wc,
};

/// An RDMA device, which this build cannot open: it lacks the feature `verbs`.
#[derive(Debug)]
pub enum VerbsDevice {}

impl VerbsDevice {
    /// Opens none.
    ///
    /// # Errors
    /// Always [`OpenError::NotBuilt`].
    pub fn open(_target: &Target) -> Result<Self, OpenError> {
        Err(OpenError::NotBuilt)
    }

    /// What the driver calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        match *self {}
    }
}

impl Device for VerbsDevice {
    type Memory = Region;

    fn caps(&self) -> &DeviceCaps {
        match *self {}
    }

    fn queue_limits(&self) -> QueueLimits {
        match *self {}
    }

    fn local_addr(&self) -> SocketAddr {
        match *self {}
    }

    fn now(&self) -> Time {
        match *self {}
    }

    fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        match *self {}
    }

    fn dealloc_pd(&mut self, _: PdNum) -> Result<(), VerbError> {
        match *self {}
    }

    fn reg_mr(&mut self, _: PdNum, _: &Region, _: Access) -> Result<MrKeys, VerbError> {
        match *self {}
    }

    fn reg_shared_mr(
        &mut self,
        _: PdNum,
        _: &SharedMemory,
        _: Range<usize>,
        _: Access,
    ) -> Result<MrKeys, VerbError> {
        match *self {}
    }

    fn dereg_mr(&mut self, _: u32) -> Result<(), VerbError> {
        match *self {}
    }

    fn create_cq(&mut self, _: u32) -> Result<CqNum, VerbError> {
        match *self {}
    }

    fn create_qp(&mut self, _: &QpInit) -> Result<QpNum, VerbError> {
        match *self {}
    }

    fn connect_qp(&mut self, _: QpNum, _: &Connect) -> Result<(), VerbError> {
        match *self {}
    }

    fn modify_qp(&mut self, _: QpNum, _: QpState) -> Result<(), VerbError> {
        match *self {}
    }

    fn qp_state(&self, _: QpNum) -> Result<QpState, VerbError> {
        match *self {}
    }

    fn destroy_qp(&mut self, _: QpNum) -> Result<(), VerbError> {
        match *self {}
    }

    fn post_send<const N: usize>(&mut self, _: QpNum, _: &[SendWr<N>]) -> Result<(), BadWr> {
        match *self {}
    }

    fn post_recv(&mut self, _: QpNum, _: &[RecvWr]) -> Result<(), BadWr> {
        match *self {}
    }

    fn poll_cq(&mut self, _: CqNum, _: &mut [Wc]) -> usize {
        match *self {}
    }
}
