//! libibverbs: owned objects, each of which keeps those alive that it rests on.
//!
//! This is the one room for foreign calls. The objects are destroyed in the order that the driver
//! demands because each holds an `Arc` of what it was made from.
//!
//! Safety of what the device does later: work requests name memory by `lkey`, and the device
//! reaches no byte outside the regions of its protection domain, whose memory [`Mr`] keeps until
//! it is deregistered. Who may touch those bytes in the meantime is the contract of
//! `towpath-memory`.
#![allow(unsafe_code)]

mod chain;
mod context;
mod cq;
mod extended;
mod objects;
mod port;
mod qp;

pub(crate) use chain::Chain;
pub(crate) use context::{Context, DeviceInfo, GidType, PortInfo, RawEvent, device_names};
pub(crate) use cq::{Channel, Cq, RawWc};
pub(crate) use extended::{clock, ticks};
pub(crate) use objects::{Ah, Mr, Pd, Srq, access_flags};
pub(crate) use port::PortChange;
#[cfg(test)]
pub(crate) use port::made_up;
pub(crate) use qp::{Qp, QpParts, Refused, wr_atomic, wr_rdma, wr_ud};
pub(crate) use rdma_sys::{
    ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state,
    ibv_qp_type, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode, imm_data_invalidated_rkey_union_t,
};

use towpath_verbs::{Verb, VerbError};

/// The system's reason for the call that just failed.
fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// What a refusal of `verb` means.
fn refusal(verb: Verb, errno: i32) -> VerbError {
    match errno {
        // EAGAIN: a control group has no more of the device.
        libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::EAGAIN => {
            VerbError::OutOfResources(verb)
        }
        libc::EOPNOTSUPP | libc::ENOSYS => VerbError::Unsupported(verb),
        libc::EINVAL => VerbError::BadArgument(verb),
        errno => VerbError::Os(verb, errno),
    }
}

/// A value of plain C words with all bits zero, as C programs begin with.
///
/// # Safety
/// All bits zero must be a value of `T`.
unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller's promise.
    unsafe { std::mem::zeroed() }
}

/// An empty send work request.
pub(crate) fn empty_send_wr() -> ibv_send_wr {
    // SAFETY: numbers, null pointers and unions of them.
    unsafe { zeroed() }
}

/// An empty receive work request.
pub(crate) fn empty_recv_wr() -> ibv_recv_wr {
    ibv_recv_wr { wr_id: 0, next: std::ptr::null_mut(), sg_list: std::ptr::null_mut(), num_sge: 0 }
}

/// Empty attributes.
pub(crate) fn empty_qp_attr() -> ibv_qp_attr {
    // SAFETY: numbers, enumerations as numbers, and unions of them.
    unsafe { zeroed() }
}
