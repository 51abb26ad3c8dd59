//! The device as everybody but its thread sees it: one lock around it, and what ends a wait.

use super::sleep::Ears;
use super::{EngineOptions, EngineThread, Shared, Signals};
use crate::udp::sys::{add_to_epoll, wait_readable};
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use towpath_base::{Nanos, Time};
use towpath_verbs::{
    Access, AsyncEvent, BadWr, Connect, CqNum, Device, DeviceCaps, Memory, MrKeys, PathMtu, PdNum,
    QpInit, QpNum, QpState, QueueLimits, RecvWr, SendWr, Served, SrqNum, VerbError, Wc,
};

/// What a device takes for no file.
const NO_FILE: c_int = -1;

/// A device that an [`EngineThread`] drives too. Clones are the same device; each call takes its
/// lock, so one thread that posts and polls in batches does best.
pub struct SharedDevice<D> {
    shared: Arc<Shared<D>>,
    /// Wakes the thread.
    driver: Waker,
    caps: DeviceCaps,
    limits: QueueLimits,
    local_addr: SocketAddr,
    /// The moves when completions were polled here for the first time since the last wait.
    seen: u64,
    /// They were.
    has_polled: bool,
    /// What ends the waits of this handle; made when it is first needed.
    ears: OnceLock<Option<Ears>>,
    watched: c_int,
    /// Somebody waits for our files elsewhere.
    is_in_epoll: bool,
    /// The thread, where it ends with the last handle.
    thread: Option<Arc<EngineThread>>,
}

impl<D> Clone for SharedDevice<D> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            driver: self.driver.clone(),
            ears: OnceLock::new(),
            watched: NO_FILE,
            is_in_epoll: false,
            thread: self.thread.clone(),
            ..*self
        }
    }
}

impl<D> std::fmt::Debug for SharedDevice<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedDevice").field("local_addr", &self.local_addr).finish()
    }
}

impl<D: Device> SharedDevice<D> {
    pub(super) fn new(device: D, signals: Arc<Signals>, driver: Waker) -> Self {
        let caps = DeviceCaps { arrives_in_progress: false, ..*device.caps() };
        let (limits, local_addr) = (device.queue_limits(), device.local_addr());
        let (device, sleepers) = (Mutex::new(device), Mutex::default());
        Self {
            shared: Arc::new(Shared { device, sleepers, signals }),
            driver,
            caps,
            limits,
            local_addr,
            seen: 0,
            has_polled: false,
            ears: OnceLock::new(),
            watched: NO_FILE,
            is_in_epoll: false,
            thread: None,
        }
    }

    /// A device with a thread that drives it, which ends when the last handle is dropped.
    ///
    /// # Errors
    /// When the system has no thread to give, or no files.
    pub fn spawn(device: D, options: EngineOptions) -> io::Result<Self>
    where
        D: Send + 'static,
    {
        let (thread, handle) = EngineThread::spawn_with(device, options)?;
        Ok(Self { thread: Some(Arc::new(thread)), ..handle })
    }

    pub(super) fn shared(&self) -> Arc<Shared<D>> {
        Arc::clone(&self.shared)
    }

    /// Lends the device itself, for what verbs do not know: counters, the link.
    pub fn with<R>(&self, work: impl FnOnce(&mut D) -> R) -> R {
        work(&mut self.shared.lock())
    }

    /// Rings the bell after something was posted.
    fn wake(&self) {
        if self.shared.signals.rest.is_to_be_woken() {
            self.driver.wake_by_ref();
        }
    }

    fn ears(&self) -> Option<&Ears> {
        let make = || Ears::new(&self.shared.signals).inspect(|ears| self.shared.expect(ears));
        self.ears.get_or_init(make).as_ref()
    }

    /// Whether there may be completions that polling did not find.
    fn has_news(&self) -> bool {
        self.shared.signals.moves.load(Ordering::SeqCst) != self.seen
    }
}

impl<D: Device> Device for SharedDevice<D> {
    type Memory = D::Memory;

    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn queue_limits(&self) -> QueueLimits {
        self.limits
    }

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        self.shared.lock().nic_addr(nic)
    }

    fn path_mtu(&self, dest: Option<SocketAddr>) -> PathMtu {
        self.shared.lock().path_mtu(dest)
    }

    fn packets_too_long(&self) -> u64 {
        self.shared.lock().packets_too_long()
    }

    fn now(&self) -> Time {
        self.shared.lock().now()
    }

    fn alloc_pd(&mut self) -> Result<PdNum, VerbError> {
        self.shared.lock().alloc_pd()
    }

    fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError> {
        self.shared.lock().dealloc_pd(pd)
    }

    fn reg_mr(
        &mut self,
        pd: PdNum,
        memory: &Self::Memory,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        self.shared.lock().reg_mr(pd, memory, access)
    }

    fn reg_shared_mr(
        &mut self,
        pd: PdNum,
        memory: &<Self::Memory as Memory>::Shared,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError> {
        self.shared.lock().reg_shared_mr(pd, memory, range, access)
    }

    fn dereg_mr(&mut self, lkey: u32) -> Result<(), VerbError> {
        self.shared.lock().dereg_mr(lkey)
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        self.shared.lock().create_cq(depth)
    }

    fn create_srq(&mut self, depth: u32) -> Result<SrqNum, VerbError> {
        self.shared.lock().create_srq(depth)
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        self.shared.lock().create_qp(init)
    }

    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError> {
        self.shared.lock().connect_qp(qp_num, connect)
    }

    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError> {
        let mut device = self.shared.lock();
        let modified = device.modify_qp(qp_num, state);
        self.shared.tell(device);
        modified
    }

    fn set_source_port(&mut self, qp_num: QpNum, source_port: u16) -> Result<(), VerbError> {
        self.shared.lock().set_source_port(qp_num, source_port)
    }

    fn omit_icrc(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        self.shared.lock().omit_icrc(qp_num)
    }

    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError> {
        self.shared.lock().qp_state(qp_num)
    }

    fn served(&self, qp_num: QpNum) -> Option<Served> {
        self.shared.lock().served(qp_num)
    }

    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        let mut device = self.shared.lock();
        let destroyed = device.destroy_qp(qp_num);
        self.shared.tell(device);
        destroyed
    }

    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr> {
        let posted = self.shared.lock().post_send(qp_num, wrs);
        self.wake();
        posted
    }

    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.shared.lock().post_recv(qp_num, wrs)
    }

    fn post_srq_recv(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        self.shared.lock().post_srq_recv(srq, wrs)
    }

    /// Moves packets here and now, beside what the thread moves. Those that completed nothing count
    /// as none: an application whose memory is read would find some each time, and never sleep.
    fn progress(&mut self, budget: usize) -> usize {
        let (moved, has_news) = self.shared.progress(self.shared.lock(), budget);
        let drives_alone = self.shared.signals.stops.load(Ordering::SeqCst);
        if has_news || drives_alone { moved } else { 0 }
    }

    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        let mut device = self.shared.lock();
        // The first of several queues counts: what comes meanwhile may be for that one.
        if !std::mem::replace(&mut self.has_polled, true) {
            if let Some(Some(ears)) = self.ears.get() {
                ears.sleeper.wake();
            }
            self.seen = self.shared.signals.moves.load(Ordering::SeqCst);
        }
        device.poll_cq(cq, out)
    }

    /// Blocks until there may be completions that polling through this handle since the last wait
    /// did not find, its waker is used, or `timeout` is over; false in the last case. Packets of
    /// peers that complete nothing here end no wait.
    fn wait(&mut self, timeout: Nanos) -> bool {
        self.has_polled = false;
        let Some(ears) = self.ears() else { return self.has_news() };
        // From here on completions ring the bell.
        ears.sleeper.rest();
        let span = if self.has_news() { Nanos::ZERO } else { timeout };
        let files = [ears.bell.as_fd().as_raw_fd(), self.watched];
        let [_, watched] = wait_readable(files, span.into());
        let rung = self
            .ears
            .get_mut()
            .is_some_and(|ears| ears.as_mut().is_some_and(|ears| ears.bell.clear()));
        let is_over = rung | watched | self.has_news();
        // Who waits elsewhere is told of all that comes until the next poll.
        let goes_on = self.is_in_epoll && timeout == Nanos::ZERO && !is_over;
        if let Some(ears) = self.ears().filter(|_| !goes_on) {
            ears.sleeper.wake();
        }
        is_over
    }

    fn waker(&self) -> Option<Waker> {
        Some(self.ears()?.bell.waker())
    }

    fn watch_file(&mut self, file: c_int) -> bool {
        self.watched = file;
        self.ears().is_some()
    }

    fn add_to_epoll(&mut self, epoll: c_int) -> bool {
        let added = self
            .ears()
            .is_some_and(|ears| add_to_epoll(epoll, ears.bell.as_fd().as_raw_fd()).is_ok());
        self.is_in_epoll |= added;
        added
    }

    fn completions_made(&self) -> Option<u64> {
        self.shared.lock().completions_made()
    }

    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        self.shared.lock().poll_async_event()
    }
}
