//! Work completions.

use crate::qp::QpNum;
use core::net::SocketAddr;
use towpath_base::Time;

/// How a work request ended (`ibv_wc_status`).
#[doc(alias = "ibv_wc_status")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WcStatus {
    /// Done.
    #[default]
    Success,
    /// A message was longer than the receive work request, or longer than the device allows.
    LocLenErr,
    /// Internal inconsistency of the queue pair.
    LocQpOpErr,
    /// The `sg_list` is not covered by its memory region.
    LocProtErr,
    /// The queue pair went to the error state; nothing happened to this request.
    WrFlushErr,
    /// The response of an RC peer broke the rules.
    BadRespErr,
    /// An incoming request broke the rules of the receiving queue pair.
    LocAccessErr,
    /// The peer found the request malformed.
    RemInvReqErr,
    /// The peer refused the address or key.
    RemAccessErr,
    /// The peer could not finish the request.
    RemOpErr,
    /// Retried in vain: no answer.
    RetryExcErr,
    /// Retried in vain: the peer had no receive work request.
    RnrRetryExcErr,
}

/// What completed (`ibv_wc_opcode`).
#[doc(alias = "ibv_wc_opcode")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// A SEND left the send queue.
    #[default]
    Send,
    /// A WRITE left the send queue.
    RdmaWrite,
    /// A READ has landed.
    RdmaRead,
    /// A compare-and-swap has landed.
    CompSwap,
    /// A fetch-and-add has landed.
    FetchAdd,
    /// A SEND was received.
    Recv,
    /// A WRITE with immediate data was received.
    RecvRdmaWithImm,
}

impl WcOpcode {
    /// Whether this is a completion of a receive queue.
    #[must_use]
    pub fn is_recv(self) -> bool {
        matches!(self, Self::Recv | Self::RecvRdmaWithImm)
    }
}

/// A work completion (`ibv_wc`). In an error completion only `wr_id`, `status`, `qp_num` and
/// `vendor_err` mean something.
#[doc(alias = "ibv_wc")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wc {
    /// The word of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// What completed.
    pub opcode: WcOpcode,
    /// Bytes received; for a READ or an atomic, bytes fetched.
    pub byte_len: u32,
    /// Immediate data, where the message carried any.
    pub imm_data: Option<u32>,
    /// The local queue pair.
    pub qp_num: QpNum,
    /// UD: the sender's queue pair.
    pub src_qp: QpNum,
    /// UD: the sender's address. Its port is where the datagram left from; the peer need not
    /// receive there.
    pub src_addr: Option<SocketAddr>,
    /// Of a receive: IPv4 ToS or IPv6 traffic class of its last packet, as it came in (a switch may
    /// have rewritten the DSCP in the upper six bits, and marked congestion in the lower two). None
    /// where the device does not tell.
    pub tclass: Option<u8>,
    /// When the device finished it, on the device's clock (for a send: when it was put on the
    /// wire, as near as the device knows, on RC when its acknowledgement came in; for a receive:
    /// when its last packet came in), where the device has timestamps.
    pub timestamp: Option<Time>,
    /// The device's own code for an error; zero otherwise.
    pub vendor_err: u32,
}
