//! Work requests: what is handed to a queue pair.

use crate::caps::Mtu;
use crate::qp::UdAddress;
use core::fmt;
use core::ops::Deref;

/// The most gather entries of a send on any device: see
/// [`DeviceCaps::send_sge_max`](crate::DeviceCaps::send_sge_max) for those of one device.
pub const SEND_SGE_MAX: usize = 32;

/// The entries that an [`SgList`] has room for where nothing else is said: header and payload, and
/// two more. A receive has no more than these.
pub const SGE_DEFAULT: usize = 4;

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

/// A scatter / gather list with room for `N` entries, stored in place. To copy one copies all of
/// its room: a list that need not be long should not have room to be.
#[derive(Clone, Copy)]
pub struct SgList<const N: usize = SGE_DEFAULT> {
    /// Behind the last one anything.
    entries: [Sge; N],
    len: u32,
}

impl SgList {
    /// The list of `entries`, or `None` when there are more than [`SGE_DEFAULT`].
    #[must_use]
    pub fn new(entries: &[Sge]) -> Option<Self> {
        Self::with_room(entries)
    }

    /// A list of one entry.
    #[must_use]
    pub fn one(entry: Sge) -> Self {
        let mut list = Self { len: 1, ..Self::default() };
        list.entries[0] = entry;
        list
    }

    /// A list of two entries: header apart, payload apart.
    #[must_use]
    pub fn two(first: Sge, second: Sge) -> Self {
        let mut list = Self { len: 2, ..Self::default() };
        list.entries[0] = first;
        list.entries[1] = second;
        list
    }
}

impl<const N: usize> SgList<N> {
    /// The list of `entries` with room for `N`, or `None` when there are more.
    #[must_use]
    pub fn with_room(entries: &[Sge]) -> Option<Self> {
        let mut list = Self::default();
        list.entries.get_mut(..entries.len())?.copy_from_slice(entries);
        list.len = entries.len() as u32;
        Some(list)
    }

    /// Makes it a list of one entry, in place: less is written than for a new one.
    #[inline]
    pub fn set_one(&mut self, entry: Sge) {
        const { assert!(N > 0, "room for an entry") };
        self.entries[0] = entry;
        self.len = 1;
    }

    /// Adds an entry; false when there are `N` already.
    #[must_use]
    #[inline]
    pub fn push(&mut self, entry: Sge) -> bool {
        let Some(place) = self.entries.get_mut(self.len as usize) else { return false };
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

impl<const N: usize> Default for SgList<N> {
    fn default() -> Self {
        Self { entries: [Sge { addr: 0, length: 0, lkey: 0 }; N], len: 0 }
    }
}

impl<const N: usize> fmt::Debug for SgList<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<const N: usize> PartialEq for SgList<N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const N: usize> Eq for SgList<N> {}

impl<const N: usize> Deref for SgList<N> {
    type Target = [Sge];

    fn deref(&self) -> &[Sge] {
        &self.entries[..self.len as usize]
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
    /// What becomes of its packets is to be what becomes of any packet of their length: software
    /// does not hand them to the system in a run with others, which some wires take whole that
    /// drop its packets. Costs speed; no effect where hardware cuts runs.
    pub alone: bool,
}

/// A send work request (`ibv_send_wr`), whose list has room for `N` entries: as many as the queue
/// pair allows ([`QpInit::max_send_sge`](crate::QpInit::max_send_sge)) may be in it.
#[doc(alias = "ibv_send_wr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWr<const N: usize = SGE_DEFAULT> {
    /// The caller's own word, returned in the completion.
    pub wr_id: u64,
    /// The memory that is gathered from (for READ and atomics: scattered to).
    pub sg_list: SgList<N>,
    /// What it does.
    pub op: SendOp,
    /// Modifiers.
    pub flags: SendFlags,
    /// The destination, on UD queue pairs only.
    pub ud: Option<UdAddress>,
}

impl<const N: usize> SendWr<N> {
    /// A signaled work request on a connected queue pair.
    #[must_use]
    pub fn new(wr_id: u64, op: SendOp, sg_list: SgList<N>) -> Self {
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
    /// Whether peers may do anything.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.remote_write || self.remote_read || self.remote_atomic
    }

    /// For all that peers can do.
    pub const REMOTE_ALL: Self =
        Self { local_write: true, remote_write: true, remote_read: true, remote_atomic: true };
}
