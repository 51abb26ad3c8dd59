//! Queue pairs: their types, states, numbers and how two of them are joined.

use crate::caps::Mtu;
use crate::wr::{Access, SGE_DEFAULT};
use core::fmt;
use core::net::SocketAddr;
use towpath_base::serial::Psn;

/// A queue pair number, 24 bits on the wire (`qp_num`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QpNum(pub u32);

impl QpNum {
    /// The largest number that the BTH can carry.
    pub const MAX: Self = Self(0xff_ffff);
}

impl fmt::Display for QpNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {:#x}", self.0)
    }
}

/// A completion queue of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CqNum(pub u32);

/// A shared receive queue of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SrqNum(pub u32);

/// A protection domain of one device: a queue pair reaches memory of its own domain alone, whether
/// as `lkey` or for a peer as `rkey`.
#[doc(alias = "ibv_pd")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PdNum(pub u32);

impl PdNum {
    /// The domain that every device has.
    pub const DEFAULT: Self = Self(0);
}

/// Transport service of a queue pair (`ibv_qp_type`).
#[doc(alias = "ibv_qp_type")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpType {
    /// Reliable connected: acknowledged and ordered by the device, Go-Back-N.
    Rc,
    /// Unreliable connected: messages of many packets, no acknowledgement, silent drops.
    Uc,
    /// Unreliable datagram: single-packet messages to any peer.
    Ud,
}

/// States of a queue pair (`ibv_qp_state`).
#[doc(alias = "ibv_qp_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Fresh, or taken back: empty queues.
    Reset,
    /// Receives can be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drained.
    Sqd,
    /// Send queue in error (UC and UD).
    Sqe,
    /// In error: everything posted is flushed.
    Err,
}

/// What a queue pair is made of (`ibv_qp_init_attr`).
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// Whose memory it reaches.
    pub pd: PdNum,
    /// Where send completions go.
    pub send_cq: CqNum,
    /// Where receive completions go.
    pub recv_cq: CqNum,
    /// The shared receive queue, or a receive queue of its own.
    pub srq: Option<SrqNum>,
    /// The most send work requests outstanding.
    pub max_send_wr: u32,
    /// The most receive work requests posted (without an SRQ).
    pub max_recv_wr: u32,
    /// The most entries of the `sg_list` of a send, at most
    /// [`DeviceCaps::send_sge_max`](crate::DeviceCaps::send_sge_max). Queues take memory for as
    /// many, and NICs allow fewer sends where these may be long.
    pub max_send_sge: u32,
    /// UD: datagrams with another key are dropped.
    pub qkey: u32,
    /// What peers may do through this queue pair at most (`qp_access_flags`); the memory region
    /// must allow it too.
    pub qp_access_flags: Access,
}

impl QpInit {
    /// A queue pair that completes on `cq` both ways, with a receive queue of its own and room for
    /// 128 work requests each way; sends have up to [`SGE_DEFAULT`] gather entries. Peers
    /// reach no memory by key, and its memory is that of [`PdNum::DEFAULT`].
    #[must_use]
    pub fn new(qp_type: QpType, cq: CqNum) -> Self {
        Self {
            qp_type,
            pd: PdNum::DEFAULT,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: SGE_DEFAULT as u32,
            qkey: 0,
            qp_access_flags: Access::LOCAL,
        }
    }

    /// With room for this many work requests each way.
    #[must_use]
    pub fn depth(mut self, max_send_wr: u32, max_recv_wr: u32) -> Self {
        (self.max_send_wr, self.max_recv_wr) = (max_send_wr, max_recv_wr);
        self
    }

    /// With sends of up to so many gather entries.
    #[must_use]
    pub fn max_send_sge(mut self, max_send_sge: u32) -> Self {
        self.max_send_sge = max_send_sge;
        self
    }

    /// With a shared receive queue.
    #[must_use]
    pub fn srq(mut self, srq: SrqNum) -> Self {
        self.srq = Some(srq);
        self
    }

    /// With this UD queue key.
    #[must_use]
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.qkey = qkey;
        self
    }

    /// In this protection domain.
    #[must_use]
    pub fn pd(mut self, pd: PdNum) -> Self {
        self.pd = pd;
        self
    }

    /// With so much open to peers, where the memory is too.
    #[must_use]
    pub fn access(mut self, qp_access_flags: Access) -> Self {
        self.qp_access_flags = qp_access_flags;
        self
    }
}

/// How an RC queue pair insists, in the encodings of `ibv_qp_attr`. The default is what perftest
/// sets, and suits a local network.
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcAttr {
    /// How long an acknowledgement may take: 4.096 us times two to this power, 0 to 31; 0 means
    /// for ever. Default: 14, which is 67 ms.
    pub timeout: u8,
    /// How often to send again without any progress before giving up, 0 to 7. Default: 7.
    pub retry_cnt: u8,
    /// How often to send again after the peer had no receive work request, 0 to 7; 7 means for
    /// ever. Default: 7.
    pub rnr_retry: u8,
    /// How long a peer is asked to wait when we have no receive work request: an entry of the
    /// table of RNR timers, 0 to 31. Default: 12, which is 640 us.
    pub min_rnr_timer: u8,
    /// READs and atomics that we have outstanding at most, 0 to 128; 0 refuses to post any.
    /// Default: 16. It must not exceed the peer's `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding here, 0 to 128. Default: 16.
    pub max_dest_rd_atomic: u8,
}

impl Default for RcAttr {
    fn default() -> Self {
        Self {
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
        }
    }
}

impl RcAttr {
    /// The most READs and atomics outstanding each way.
    pub const RD_ATOMIC_MAX: u8 = 128;

    /// Whether every value lies in its range.
    #[must_use]
    pub fn in_range(&self) -> bool {
        self.timeout <= 31
            && self.retry_cnt <= 7
            && self.rnr_retry <= 7
            && self.min_rnr_timer <= 31
            && self.max_rd_atomic <= Self::RD_ATOMIC_MAX
            && self.max_dest_rd_atomic <= Self::RD_ATOMIC_MAX
    }
}

/// The peer and the numbers that bring a connected queue pair from INIT to RTS
/// (`ibv_modify_qp`: RTR then RTS). For UD only `source_port` and `tclass` matter.
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The peer's address: IP and UDP port.
    pub dest: SocketAddr,
    /// The peer's queue pair.
    pub dest_qp_num: QpNum,
    /// The first PSN that the peer will send.
    pub rq_psn: Psn,
    /// The first PSN that we send.
    pub sq_psn: Psn,
    /// Payload bytes of a full packet.
    pub path_mtu: Mtu,
    /// Path entropy: which of the device's source ports the packets leave from, modulo how many
    /// there are ([`DeviceCaps::source_ports`](crate::DeviceCaps::source_ports)).
    pub source_port: u16,
    /// IPv4 ToS or IPv6 traffic class (`ibv_global_route.traffic_class`): DSCP in the upper six
    /// bits, ECN in the lower two. A device without a wire ignores it.
    #[doc(alias = "traffic_class")]
    pub tclass: u8,
    /// Retries, timers and limits; RC only.
    pub rc: RcAttr,
}

/// Destination of one UD datagram (`ibv_ah` with `remote_qpn` and `remote_qkey`).
#[doc(alias = "ibv_ah")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdAddress {
    /// The peer's address: IP and UDP port.
    pub dest: SocketAddr,
    /// The peer's queue pair.
    pub remote_qpn: QpNum,
    /// The peer's queue key.
    pub remote_qkey: u32,
}
