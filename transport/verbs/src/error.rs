//! What can go wrong with a verb, named by the verb.

use core::fmt;

/// The verbs, for naming the one that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// `ibv_open_device`.
    OpenDevice,
    /// `ibv_alloc_pd`.
    AllocPd,
    /// `ibv_dealloc_pd`.
    DeallocPd,
    /// `ibv_reg_mr`.
    RegMr,
    /// `ibv_dereg_mr`.
    DeregMr,
    /// `ibv_create_cq`.
    CreateCq,
    /// `ibv_create_srq`.
    CreateSrq,
    /// `ibv_create_qp`.
    CreateQp,
    /// `ibv_modify_qp`.
    ModifyQp,
    /// `ibv_destroy_qp`.
    DestroyQp,
    /// `ibv_post_send`.
    PostSend,
    /// `ibv_post_recv`.
    PostRecv,
    /// `ibv_post_srq_recv`.
    PostSrqRecv,
}

/// Why a verb failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VerbError {
    /// The device does not have it: see its [`DeviceCaps`](crate::DeviceCaps).
    Unsupported(Verb),
    /// No such queue pair, queue or key.
    NoSuchObject(Verb),
    /// A limit of the device or of the queue is reached; retry after completions were polled.
    QueueFull(Verb),
    /// The device has no more of what the verb makes.
    OutOfResources(Verb),
    /// The queue pair's state does not allow the verb.
    WrongState(Verb),
    /// The `sg_list` lies outside its memory region, or the region forbids the use.
    BadMemory(Verb),
    /// An argument is out of range: too long, wrong queue pair type, no destination.
    BadArgument(Verb),
    /// The peer listens on another UDP port than 4791, which is the only one that this device
    /// sends to. A userspace NIC has to be set up for foreign peers.
    PeerPort(Verb),
    /// The operating system refused; its error number.
    Os(Verb, i32),
}

impl VerbError {
    /// The verb that failed.
    #[must_use]
    pub fn verb(&self) -> Verb {
        match *self {
            Self::Unsupported(verb)
            | Self::NoSuchObject(verb)
            | Self::QueueFull(verb)
            | Self::OutOfResources(verb)
            | Self::WrongState(verb)
            | Self::BadMemory(verb)
            | Self::BadArgument(verb)
            | Self::PeerPort(verb)
            | Self::Os(verb, _) => verb,
        }
    }
}

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.verb();
        match self {
            Self::Unsupported(_) => write!(f, "{verb:?}: this device does not support it"),
            Self::NoSuchObject(_) => write!(f, "{verb:?}: no such queue pair, queue or key"),
            Self::QueueFull(_) => write!(f, "{verb:?}: the queue is full; poll completions first"),
            Self::OutOfResources(Verb::RegMr) => write!(
                f,
                "{verb:?}: the device has no more of these, or the memory is more than this \
                 process may lock (`ulimit -l`)"
            ),
            Self::OutOfResources(_) => write!(f, "{verb:?}: the device has no more of these"),
            Self::WrongState(_) => write!(f, "{verb:?}: the queue pair is in the wrong state"),
            Self::BadMemory(_) => {
                write!(f, "{verb:?}: the sg_list is not covered by its memory region")
            }
            Self::BadArgument(_) => write!(f, "{verb:?}: an argument is out of range"),
            Self::PeerPort(_) => write!(
                f,
                "{verb:?}: this device sends to UDP port 4791 only, and the peer listens on \
                 another; set the peer up for foreign peers"
            ),
            Self::Os(_, errno) => write!(f, "{verb:?}: the system refused (errno {errno})"),
        }
    }
}

impl core::error::Error for VerbError {}

/// A posting stopped at its first bad entry: everything before `index` was accepted, nothing from
/// it on (`bad_wr`).
#[doc(alias = "bad_wr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BadWr {
    /// The first entry that was not accepted.
    pub index: usize,
    /// Why.
    pub error: VerbError,
}

impl fmt::Display for BadWr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "work request {}: {}", self.index, self.error)
    }
}

impl core::error::Error for BadWr {}
