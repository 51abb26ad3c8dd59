//! `trait Device`: what every RDMA device here offers.

use crate::caps::DeviceCaps;
use crate::error::{BadWr, Verb, VerbError};
use crate::path_mtu::PathMtu;
use crate::qp::{Connect, CqNum, PdNum, QpInit, QpNum, QpState, SrqNum};
use crate::served::Served;
use crate::wc::Wc;
use crate::wr::{Access, RecvWr, SendWr};
use core::ffi::c_int;
use core::net::SocketAddr;
use core::ops::Range;
use core::task::Waker;
use towpath_base::{Nanos, Time};

/// Something that happened to the device itself (`ibv_async_event`).
#[doc(alias = "ibv_async_event")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue overflowed: completions are lost and its queue pairs are in error.
    CqError(CqNum),
    /// A queue pair went to the error state.
    QpFatal(QpNum),
    /// The port does not carry packets any more.
    PortDown,
    /// The device is lost.
    DeviceFatal,
}

/// The keys of a registered region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrKeys {
    /// For `sg_list` entries here.
    pub lkey: u32,
    /// For peers.
    pub rkey: u32,
}

/// A kind of memory that devices register for their own sends and receives.
pub trait Memory {
    /// Its counterpart that peers may reach: another type, since whoever holds it has to reckon
    /// with changes at any time.
    type Shared: ?Sized;
}

/// How deep the queues of a device may be, for whoever sizes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The most work requests of a queue.
    pub wr_max: u32,
    /// The most completions of a completion queue.
    pub cqe_max: u32,
}

/// An RDMA device. One owner drives it: all methods take `&mut self` and none but `wait` blocks.
///
/// Call order on the hot path: post a batch, [`progress`](Self::progress), poll a batch. A hardware
/// device progresses by itself; a software device sends and receives packets only in `progress`
/// (or in an engine thread of its own).
pub trait Device {
    /// What this device registers: the type of `towpath-memory`.
    type Memory: Memory;

    /// What it can do.
    fn caps(&self) -> &DeviceCaps;

    /// How deep its queues may be.
    fn queue_limits(&self) -> QueueLimits;

    /// Where peers send to: IP and UDP port.
    fn local_addr(&self) -> SocketAddr;

    /// Where peers send to on each of its NICs in turn, of which most devices have one: `None`
    /// behind the last. All have addresses of one family and as many
    /// [source ports](DeviceCaps::source_ports) each, those of the first NIC first: so a source
    /// port says by which NIC packets leave. A queue pair takes packets in by any of them.
    fn nic_addr(&self, nic: usize) -> Option<SocketAddr> {
        (nic == 0).then(|| self.local_addr())
    }

    /// The largest MTU whose packets go to `dest` whole, as far as the host knows now; with `None`
    /// that of the port. For set-up: it may ask the system. A device that cannot ask answers with
    /// [`DeviceCaps::mtu_max`].
    fn path_mtu(&self, dest: Option<SocketAddr>) -> PathMtu {
        let _ = dest;
        PathMtu { mtu: self.caps().mtu_max, ip: None }
    }

    /// How many packets the system has refused because they were too long for their way, as it
    /// knows that, or has been told so by routers (or by whoever says that he is one): a reason to
    /// ask for [`path_mtu`](Self::path_mtu) again. Cheap; only grows. Zero where the device cannot
    /// tell.
    fn packets_too_long(&self) -> u64 {
        0
    }

    /// The device's clock now. Timestamps of completions are on the same clock.
    fn now(&self) -> Time;

    /// Makes a protection domain, beside [`PdNum::DEFAULT`].
    ///
    /// # Errors
    /// [`VerbError::OutOfResources`] when there can be no more.
    fn alloc_pd(&mut self) -> Result<PdNum, VerbError>;

    /// Gives a protection domain up.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`] for an unknown one and for [`PdNum::DEFAULT`],
    /// [`VerbError::BadArgument`] while memory is registered or queue pairs are in it.
    fn dealloc_pd(&mut self, pd: PdNum) -> Result<(), VerbError>;

    /// Registers memory for sends and receives of this device; it keeps the memory alive until
    /// [`dereg_mr`](Self::dereg_mr). No peer reaches it.
    ///
    /// # Errors
    /// [`VerbError::OutOfResources`] when no more regions can be registered,
    /// [`VerbError::NoSuchObject`] without that domain, [`VerbError::BadArgument`] when `access`
    /// names rights of peers.
    fn reg_mr(
        &mut self,
        pd: PdNum,
        memory: &Self::Memory,
        access: Access,
    ) -> Result<MrKeys, VerbError>;

    /// Registers a range of shared memory, for peers too; the device keeps the memory alive until
    /// [`dereg_mr`](Self::dereg_mr). When that has returned no peer reaches the range any more.
    ///
    /// # Errors
    /// As for [`reg_mr`](Self::reg_mr); [`VerbError::BadArgument`] when the range is empty or
    /// leaves the memory.
    fn reg_shared_mr(
        &mut self,
        pd: PdNum,
        memory: &<Self::Memory as Memory>::Shared,
        range: Range<usize>,
        access: Access,
    ) -> Result<MrKeys, VerbError>;

    /// Takes a registration back. Work requests that still name it complete in error; the memory
    /// stays mapped until they have, and nobody gets it back before.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`] for an unknown key.
    fn dereg_mr(&mut self, lkey: u32) -> Result<(), VerbError>;

    /// Makes a completion queue for `depth` completions.
    ///
    /// # Errors
    /// [`VerbError::OutOfResources`], [`VerbError::BadArgument`].
    fn create_cq(&mut self, depth: u32) -> Result<CqNum, VerbError>;

    /// Makes a shared receive queue for `depth` work requests.
    ///
    /// # Errors
    /// [`VerbError::Unsupported`] where the device has none.
    fn create_srq(&mut self, depth: u32) -> Result<SrqNum, VerbError> {
        let _ = depth;
        Err(VerbError::Unsupported(Verb::CreateSrq))
    }

    /// Makes a queue pair, in INIT: receives can be posted at once.
    ///
    /// # Errors
    /// [`VerbError::Unsupported`] for a type that the device lacks, [`VerbError::BadArgument`] for
    /// more work requests or gather entries than the device has.
    fn create_qp(&mut self, init: &QpInit) -> Result<QpNum, VerbError>;

    /// Brings a queue pair from INIT to RTS.
    ///
    /// # Errors
    /// [`VerbError::WrongState`] when it is not in INIT.
    fn connect_qp(&mut self, qp_num: QpNum, connect: &Connect) -> Result<(), VerbError>;

    /// Moves a queue pair to RESET (emptying its queues without completions) and on to INIT, or to
    /// ERR (flushing with completions).
    ///
    /// # Errors
    /// [`VerbError::BadArgument`] for any other state.
    fn modify_qp(&mut self, qp_num: QpNum, state: QpState) -> Result<(), VerbError>;

    /// Changes the source port of a running queue pair, to one of the same NIC.
    ///
    /// # Errors
    /// [`VerbError::Unsupported`] unless the caps say `source_port_live`.
    fn set_source_port(&mut self, qp_num: QpNum, source_port: u16) -> Result<(), VerbError> {
        let _ = (qp_num, source_port);
        Err(VerbError::Unsupported(Verb::ModifyQp))
    }

    /// Leaves the ICRC out of the packets of a UC queue pair in INIT, until it is reset: none is
    /// computed, and none is checked. The peer's queue pair has to be told so, too, and whoever
    /// uses it has to have a checksum of its own over all that a message says.
    ///
    /// # Errors
    /// [`VerbError::Unsupported`] unless the caps say `omits_icrc`, [`VerbError::BadArgument`] for
    /// another type of queue pair, [`VerbError::WrongState`] when it is not in INIT.
    fn omit_icrc(&mut self, qp_num: QpNum) -> Result<(), VerbError> {
        let _ = qp_num;
        Err(VerbError::Unsupported(Verb::ModifyQp))
    }

    /// The state of a queue pair.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    fn qp_state(&self, qp_num: QpNum) -> Result<QpState, VerbError>;

    /// What the peer of an RC queue pair did to memory here by READ, WRITE and atomics since the
    /// queue pair was made, whatever its state. It only grows, and not any more once
    /// [`modify_qp`](Self::modify_qp) to ERR has returned. `None` where the device does not count,
    /// as no hardware does, where the queue pair is of another type, and where there is none.
    fn served(&self, qp_num: QpNum) -> Option<Served> {
        let _ = qp_num;
        None
    }

    /// Destroys a queue pair. What is still posted completes with a flush error first; poll it.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    fn destroy_qp(&mut self, qp_num: QpNum) -> Result<(), VerbError>;

    /// Posts send work requests in order. Until one is done, as a completion of it or of one behind
    /// it says, or the queue pair is gone, nobody gets the buffers back that it names.
    ///
    /// # Errors
    /// The first entry that was refused; everything before it is posted. A list of more entries
    /// than [`QpInit::max_send_sge`] is [`VerbError::BadArgument`]; an entry that names memory that
    /// is not registered, or a buffer that is not lent, is [`VerbError::BadMemory`].
    fn post_send<const N: usize>(&mut self, qp_num: QpNum, wrs: &[SendWr<N>]) -> Result<(), BadWr>;

    /// Posts receive work requests in order. Their buffers are the device's as those of
    /// [sends](Self::post_send) are.
    ///
    /// # Errors
    /// As for [`post_send`](Self::post_send).
    fn post_recv(&mut self, qp_num: QpNum, wrs: &[RecvWr]) -> Result<(), BadWr>;

    /// Posts receive work requests to a shared queue. In which order they are taken is up to the
    /// device: who needs to know which one was finds it in the completion's `wr_id`.
    ///
    /// # Errors
    /// The first entry that was refused; everything before it is posted.
    fn post_srq_recv(&mut self, srq: SrqNum, wrs: &[RecvWr]) -> Result<(), BadWr> {
        let _ = (srq, wrs);
        Err(BadWr { index: 0, error: VerbError::Unsupported(Verb::PostSrqRecv) })
    }

    /// Moves packets: sends what is posted, takes in at most about `budget` received packets.
    /// Returns how many packets moved; zero means idle. A hardware device does nothing here.
    fn progress(&mut self, budget: usize) -> usize {
        let _ = budget;
        0
    }

    /// When [`progress`](Self::progress) must be called though no packet came in: the next of the
    /// device's own timers (RC retries), or [`Time::NEVER`]. Who blocks, or jumps through virtual
    /// time, goes no further than this. Hardware keeps its timers to itself.
    fn next_timeout(&self) -> Time {
        Time::NEVER
    }

    /// Takes completions in order; returns how many were written to `out`.
    fn poll_cq(&mut self, cq: CqNum, out: &mut [Wc]) -> usize;

    /// Blocks until completions may be there, its [waker](Self::waker) is used, or `timeout` is
    /// over; false in the last case. A device that cannot block returns false at once.
    fn wait(&mut self, timeout: Nanos) -> bool {
        let _ = timeout;
        false
    }

    /// Ends a [`wait`](Self::wait) from any thread, one that is under way or else the next: a wake
    /// is never lost. `None` where the device cannot block, or not be woken.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// Lets a file end each [`wait`](Self::wait), too, while there is something to read: its
    /// descriptor stays open until another one, or -1 for none, takes its place, or the device is
    /// dropped. False where the device cannot do so: then its owner looks from time to time.
    fn watch_file(&mut self, file: c_int) -> bool {
        let _ = file;
        false
    }

    /// Adds the files that are readable when a [`wait`](Self::wait) would end, but for the
    /// [watched](Self::watch_file) one, to the epoll instance with this descriptor, for as long as
    /// the device lives. They tell of all that comes after a `wait` with no timeout that returned
    /// false. False where the device has no such files.
    fn add_to_epoll(&mut self, epoll: c_int) -> bool {
        let _ = epoll;
        false
    }

    /// How many completions and [events](Self::poll_async_event) there were so far, polled or not:
    /// who drives the device for others tells them when it grows. `None` where the device does not
    /// count: then each packet may have made some.
    fn completions_made(&self) -> Option<u64> {
        None
    }

    /// Takes one event of the device itself.
    fn poll_async_event(&mut self) -> Option<AsyncEvent> {
        None
    }
}
