//! Work requests: what is handed to a queue pair.

use crate::caps::Mtu;
use crate::qp::UdAddress;
use core::fmt;
use core::ops::Deref;

/// The most entries of a `sg_list`. Two serve a chunk (header, payload); four leave room for a
/// message that gathers from several places. Real NICs offer 16 and more.
pub const SGE_MAX: usize = 4;

/// One piece of registered memory (`ibv_sge`).
#[doc(alias = "ibv_sge")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Virtual address of the first byte, within the region of `lkey`.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// The local key of the memory region.
    pub lkey: u32,
}

/// A scatter / gather list of at most [`SGE_MAX`] entries, stored in place.
#[derive(Clone, Copy, Default)]
pub struct SgList {
    /// Behind the last one anything.
    entries: [Sge; SGE_MAX],
    len: u8,
}

impl SgList {
    /// The list of `entries`, or `None` when there are more than [`SGE_MAX`].
    #[must_use]
    pub fn new(entries: &[Sge]) -> Option<Self> {
        let mut list = Self::default();
        list.entries.get_mut(..entries.len())?.copy_from_slice(entries);
        list.len = entries.len() as u8;
        Some(list)
    }

    /// A list of one entry.
    #[must_use]
    pub fn one(entry: Sge) -> Self {
        let mut list = Self { len: 1, ..Self::default() };
        list.entries[0] = entry;
        list
    }

    /// Makes it a list of one entry, in place: less is written than for a new one.
    #[inline]
    pub fn set_one(&mut self, entry: Sge) {
        self.entries[0] = entry;
        self.len = 1;
    }

    /// A list of two entries: header apart, payload apart.
    #[must_use]
    pub fn two(first: Sge, second: Sge) -> Self {
        let mut list = Self { len: 2, ..Self::default() };
        list.entries[0] = first;
        list.entries[1] = second;
        list
    }

    /// Adds an entry; false when there are [`SGE_MAX`] already.
    #[must_use]
    pub fn push(&mut self, entry: Sge) -> bool {
        let Some(place) = self.entries.get_mut(usize::from(self.len)) else { return false };
        *place = entry;
        self.len += 1;
        true
    }

    /// Bytes of all entries together.
    #[must_use]
    #[inline]
    pub fn byte_len(&self) -> u64 {
        self.iter().map(|sge| u64::from(sge.length)).sum()
    }
}

impl fmt::Debug for SgList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for SgList {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SgList {}

impl Deref for SgList {
    type Target = [Sge];

    fn deref(&self) -> &[Sge] {
        &self.entries[..usize::from(self.len)]
    }
}

/// Where a one-sided operation lands: an address of the peer under one of its `rkey`s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddr {
    /// Virtual address at the peer.
    pub addr: u64,
    /// The peer's remote key.
    pub rkey: u32,
}

/// What a send work request does (`ibv_wr_opcode`).
#[doc(alias = "ibv_wr_opcode")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Lands in the peer's next receive work request.
    Send,
    /// As [`SendOp::Send`], with 32 bits of immediate data in the peer's completion.
    SendWithImm {
        /// The 32 bits, in network order on the wire.
        imm_data: u32,
    },
    /// Lands at an address of the peer, which is not told.
    Write {
        /// Where it lands.
        remote: RemoteAddr,
    },
    /// As [`SendOp::Write`], and consumes a receive work request of the peer to tell it.
    WriteWithImm {
        /// Where it lands.
        remote: RemoteAddr,
        /// The 32 bits, in network order on the wire.
        imm_data: u32,
    },
    /// Fetches from an address of the peer (RC only).
    Read {
        /// Where it is fetched from.
        remote: RemoteAddr,
    },
    /// Adds to eight bytes of the peer and fetches what they were (RC only).
    FetchAdd {
        /// The eight-byte-aligned target.
        remote: RemoteAddr,
        /// What is added, wrapping.
        add: u64,
    },
    /// Swaps eight bytes of the peer if they equal `compare`, and fetches what they were (RC only).
    CmpSwap {
        /// The eight-byte-aligned target.
        remote: RemoteAddr,
        /// What must be there.
        compare: u64,
        /// What is put there then.
        swap: u64,
    },
}

/// Modifiers of a send work request (`ibv_send_flags`).
#[doc(alias = "ibv_send_flags")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// A completion is wanted. An unsignaled work request completes silently with the next
    /// signaled one of its queue (errors always complete).
    pub signaled: bool,
    /// The peer's completion raises its event.
    pub solicited: bool,
    /// RC: waits until the READs and atomics before it are done (`IBV_SEND_FENCE`).
    pub fence: bool,
    /// UC: cut it at this size, where that is smaller than the MTU of the queue pair and
    /// [`DeviceCaps::cuts_each_send`](crate::DeviceCaps::cuts_each_send) says that both ends'
    /// devices know that. Elsewhere it has no effect. Default: at the MTU of the queue pair.
    pub cut_at: Option<Mtu>,
}

/// A send work request (`ibv_send_wr`).
#[doc(alias = "ibv_send_wr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWr {
    /// The caller's own word, returned in the completion.
    pub wr_id: u64,
    /// The memory that is gathered from (for READ and atomics: scattered to).
    pub sg_list: SgList,
    /// What it does.
    pub op: SendOp,
    /// Modifiers.
    pub flags: SendFlags,
    /// The destination, on UD queue pairs only.
    pub ud: Option<UdAddress>,
}

impl SendWr {
    /// A signaled work request on a connected queue pair.
    #[must_use]
    pub fn new(wr_id: u64, op: SendOp, sg_list: SgList) -> Self {
        let flags = SendFlags { signaled: true, ..SendFlags::default() };
        Self { wr_id, sg_list, op, flags, ud: None }
    }

    /// Without a completion of its own.
    #[must_use]
    pub fn unsignaled(mut self) -> Self {
        self.flags.signaled = false;
        self
    }

    /// Cut at `size`: see [`SendFlags::cut_at`].
    #[must_use]
    pub fn cut_at(mut self, size: Mtu) -> Self {
        self.flags.cut_at = Some(size);
        self
    }

    /// Only after the READs and atomics before it are done.
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.flags.fence = true;
        self
    }

    /// To one datagram destination.
    #[must_use]
    pub fn to(mut self, address: UdAddress) -> Self {
        self.ud = Some(address);
        self
    }
}

/// A receive work request (`ibv_recv_wr`).
#[doc(alias = "ibv_recv_wr")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvWr {
    /// The caller's own word, returned in the completion.
    pub wr_id: u64,
    /// The memory that is scattered to, in order.
    pub sg_list: SgList,
}

/// What a memory region may be used for (`ibv_access_flags`). Local reading always may.
#[doc(alias = "ibv_access_flags")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Receives and READ responses may land in it.
    pub local_write: bool,
    /// Peers may WRITE it.
    pub remote_write: bool,
    /// Peers may READ it.
    pub remote_read: bool,
    /// Peers may do atomics on it.
    pub remote_atomic: bool,
}

impl Access {
    /// For sending and receiving: no peer reaches it by key.
    pub const LOCAL: Self =
        Self { local_write: true, remote_write: false, remote_read: false, remote_atomic: false };
    /// For one-sided writing by peers too.
    pub const REMOTE_WRITE: Self = Self { remote_write: true, ..Self::LOCAL };
    /// For all that peers can do.
    pub const REMOTE_ALL: Self =
        Self { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };
}
