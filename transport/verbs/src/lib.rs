//! The RDMA verbs contract: the words, `trait Device` and `trait PacketLink`.
//!
//! Shaped like libibverbs, with its words verbatim. Nothing here does anything: devices implement
//! [`Device`], the wires under software devices implement [`PacketLink`], and whoever drives them
//! names only these types.
//!
//! # Who owns a buffer
//! From `post_send` / `post_recv` until the completion with the same `wr_id` has been polled, the
//! memory that the `sg_list` names belongs to the device: nobody else writes it, and for a receive
//! nobody reads it. An error completion gives it back too. Destroying a QP flushes its work
//! requests with [`WcStatus::WrFlushErr`]; only those completions give the buffers back.
//! `towpath-memory` makes the rule a matter of types: lent bytes cannot be reached.

#![no_std]
#![forbid(unsafe_code)]

pub mod caps;
pub mod device;
pub mod dscp;
pub mod either;
pub mod error;
pub mod link;
pub mod path_mtu;
pub mod qp;
pub mod share;
pub mod wc;
pub mod wr;

pub use caps::{DeviceCaps, Mtu, VerbSet};
pub use device::{AsyncEvent, Device, MrKeys, QueueLimits};
pub use dscp::{dscp_of, tclass_of};
pub use either::Either;
pub use error::{BadWr, Verb, VerbError};
pub use link::{LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};
pub use path_mtu::{InterfaceName, IpMtu, PathMtu};
pub use qp::{Connect, CqNum, QpInit, QpNum, QpState, QpType, RcAttr, SrqNum, UdAddress};
pub use share::{QpShare, SHARES_MAX};
pub use wc::{Wc, WcOpcode, WcStatus};
pub use wr::{Access, RecvWr, RemoteAddr, SGE_MAX, SendFlags, SendOp, SendWr, SgList, Sge};
