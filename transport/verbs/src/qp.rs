//! Queue pairs: their types, states, numbers and how two of them are joined.

use crate::caps::Mtu;
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
    /// UD: datagrams with another key are dropped.
    pub qkey: u32,
}

impl QpInit {
    /// A queue pair that completes on `cq` both ways, with a receive queue of its own.
    #[must_use]
    pub fn new(qp_type: QpType, cq: CqNum) -> Self {
        let (send_cq, recv_cq) = (cq, cq);
        Self { qp_type, send_cq, recv_cq, srq: None, max_send_wr: 128, max_recv_wr: 128, qkey: 0 }
    }

    /// With room for this many work requests each way.
    #[must_use]
    pub fn depth(mut self, max_send_wr: u32, max_recv_wr: u32) -> Self {
        (self.max_send_wr, self.max_recv_wr) = (max_send_wr, max_recv_wr);
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
    /// IPv4 ToS or IPv6 traffic class: DSCP in the upper six bits.
    pub tclass: u8,
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
