//! The RDMA verbs as Rust types and traits: [`Device`], [`PacketLink`], and the types they use.
//!
//! Names and structure follow libibverbs. The crate contains interfaces only: devices implement
//! [`Device`], the networks under software devices implement [`PacketLink`], and the code that
//! drives a device depends only on this crate.
//!
//! # Who owns a buffer
//! From `post_send` / `post_recv` until the completion with the same `wr_id` has been polled, the
//! memory that the `sg_list` names belongs to the device: no other code may write it, and for a
//! receive no other code may read it. An error completion ends this as well. Destroying a QP
//! flushes its work requests with [`WcStatus::WrFlushErr`]; only these completions give the buffers
//! back. The types of `towpath-memory` enforce the rule: lent bytes cannot be reached.

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
pub mod served;
pub mod share;
pub mod wc;
pub mod wr;

pub use caps::{DeviceCaps, Mtu, VerbSet};
pub use device::{AsyncEvent, Device, Memory, MrKeys, QueueLimits};
pub use dscp::{dscp_of, tclass_of};
pub use either::Either;
pub use error::{BadWr, Verb, VerbError};
pub use link::{LinkCaps, LinkCounters, PacketLink, RxPacket, TxPacket};
pub use path_mtu::{InterfaceName, IpMtu, PathMtu};
pub use qp::{Connect, CqNum, PdNum, QpInit, QpNum, QpState, QpType, RcAttr, SrqNum, UdAddress};
pub use served::Served;
pub use share::{QpShare, SHARES_MAX};
pub use wc::{Wc, WcOpcode, WcStatus};
pub use wr::{
    Access, RecvWr, RemoteAddr, SEND_SGE_MAX, SGE_DEFAULT, SendFlags, SendOp, SendWr, SgList, Sge,
};
