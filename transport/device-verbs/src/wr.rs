//! Work requests in the driver's words, and what must not be posted.

use crate::sys::{
    self, ibv_send_flags as flags, ibv_send_wr, ibv_wr_opcode as opcode,
    imm_data_invalidated_rkey_union_t as Imm,
};
use towpath_verbs::{DeviceCaps, QpInit, QpType, SendOp, SendWr, Verb, VerbError};

/// What an atomic fetches.
const ATOMIC_BYTES: u64 = 8;

/// Whether such a queue pair may post it.
pub(crate) fn check<const N: usize>(
    wr: &SendWr<N>,
    init: &QpInit,
    caps: &DeviceCaps,
) -> Result<(), VerbError> {
    let qp_type = init.qp_type;
    let verb = Verb::PostSend;
    let supported = match wr.op {
        SendOp::Send | SendOp::SendWithImm { .. } => true,
        SendOp::Write { .. } | SendOp::WriteWithImm { .. } => qp_type != QpType::Ud,
        SendOp::Read { .. } => qp_type == QpType::Rc && caps.verbs.read,
        SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } => {
            qp_type == QpType::Rc && caps.verbs.atomics
        }
    };
    if !supported {
        return Err(VerbError::Unsupported(verb));
    }
    let bytes = wr.sg_list.byte_len();
    let fits = match wr.op {
        SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. } => bytes == ATOMIC_BYTES,
        _ if qp_type == QpType::Ud => bytes <= u64::from(caps.mtu_max.bytes()),
        _ => bytes <= u64::from(caps.message_bytes_max),
    };
    let addressed = wr.ud.is_some() == (qp_type == QpType::Ud);
    let few_enough = wr.sg_list.len() <= init.max_send_sge as usize;
    if fits && few_enough && addressed { Ok(()) } else { Err(VerbError::BadArgument(verb)) }
}

/// Whether the device writes to the `sg_list` rather than reads it.
pub(crate) fn lands_here(op: &SendOp) -> bool {
    matches!(op, SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. })
}

/// The work request without its list, under our ticket; what is short goes inline.
pub(crate) fn raw<const N: usize>(
    wr: &SendWr<N>,
    ticket: u64,
    ah: Option<&sys::Ah>,
    inline_bytes_max: u32,
) -> ibv_send_wr {
    let mut raw = sys::empty_send_wr();
    raw.wr_id = ticket;
    let on = |on: bool, flag: flags| if on { flag.0 } else { 0 };
    let inline = !lands_here(&wr.op) && wr.sg_list.byte_len() <= u64::from(inline_bytes_max);
    raw.send_flags = on(inline && inline_bytes_max > 0, flags::IBV_SEND_INLINE)
        | on(wr.flags.signaled, flags::IBV_SEND_SIGNALED)
        | on(wr.flags.solicited, flags::IBV_SEND_SOLICITED)
        | on(wr.flags.fence, flags::IBV_SEND_FENCE);
    let imm = |imm_data: u32| Imm { imm_data: imm_data.to_be() };
    match wr.op {
        SendOp::Send => raw.opcode = opcode::IBV_WR_SEND,
        SendOp::SendWithImm { imm_data } => {
            raw.opcode = opcode::IBV_WR_SEND_WITH_IMM;
            raw.imm_data_invalidated_rkey_union = imm(imm_data);
        }
        SendOp::Write { remote } => {
            raw.opcode = opcode::IBV_WR_RDMA_WRITE;
            raw.wr = sys::wr_rdma(remote);
        }
        SendOp::WriteWithImm { remote, imm_data } => {
            raw.opcode = opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
            raw.imm_data_invalidated_rkey_union = imm(imm_data);
            raw.wr = sys::wr_rdma(remote);
        }
        SendOp::Read { remote } => {
            raw.opcode = opcode::IBV_WR_RDMA_READ;
            raw.wr = sys::wr_rdma(remote);
        }
        SendOp::FetchAdd { remote, add } => {
            raw.opcode = opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
            raw.wr = sys::wr_atomic(remote, add, 0);
        }
        SendOp::CmpSwap { remote, compare, swap } => {
            raw.opcode = opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
            raw.wr = sys::wr_atomic(remote, compare, swap);
        }
    }
    if let (Some(ah), Some(address)) = (ah, &wr.ud) {
        raw.wr = sys::wr_ud(ah, address);
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_verbs::{RemoteAddr, SgList, Sge};

    fn is_inline(op: SendOp, length: u32, inline_bytes_max: u32) -> bool {
        let list = SgList::one(Sge { addr: 4096, length, lkey: 1 });
        let raw = raw(&SendWr::new(1, op, list), 7, None, inline_bytes_max);
        assert_eq!(raw.wr_id, 7);
        raw.send_flags & flags::IBV_SEND_INLINE.0 != 0
    }

    #[test]
    fn what_is_short_goes_inline_unless_it_lands_here() {
        let remote = RemoteAddr::default();
        assert!(is_inline(SendOp::Send, 128, 128) && is_inline(SendOp::Write { remote }, 1, 128));
        assert!(!is_inline(SendOp::Send, 129, 128));
        assert!(!is_inline(SendOp::Read { remote }, 8, 128));
        assert!(!is_inline(SendOp::FetchAdd { remote, add: 1 }, 8, 128));
        assert!(!is_inline(SendOp::Send, 0, 0), "the device inlines nothing");
    }
}
