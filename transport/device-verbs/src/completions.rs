//! Work completions in our words.

use crate::sys::{ibv_wc_opcode as opcode, ibv_wc_status as status};
use towpath_verbs::{SendOp, WcOpcode, WcStatus};

/// What the driver's status means. What has no word of its own here is an inconsistency of the
/// queue pair.
pub(crate) fn to_status(raw: status::Type) -> WcStatus {
    match raw {
        status::IBV_WC_SUCCESS => WcStatus::Success,
        status::IBV_WC_LOC_LEN_ERR => WcStatus::LocLenErr,
        status::IBV_WC_LOC_PROT_ERR => WcStatus::LocProtErr,
        status::IBV_WC_WR_FLUSH_ERR => WcStatus::WrFlushErr,
        status::IBV_WC_BAD_RESP_ERR => WcStatus::BadRespErr,
        status::IBV_WC_LOC_ACCESS_ERR => WcStatus::LocAccessErr,
        status::IBV_WC_REM_INV_REQ_ERR => WcStatus::RemInvReqErr,
        status::IBV_WC_REM_ACCESS_ERR => WcStatus::RemAccessErr,
        status::IBV_WC_REM_OP_ERR => WcStatus::RemOpErr,
        status::IBV_WC_RETRY_EXC_ERR | status::IBV_WC_RESP_TIMEOUT_ERR => WcStatus::RetryExcErr,
        status::IBV_WC_RNR_RETRY_EXC_ERR => WcStatus::RnrRetryExcErr,
        _ => WcStatus::LocQpOpErr,
    }
}

/// What was received, by the driver's word.
pub(crate) fn recv_opcode(raw: opcode::Type) -> WcOpcode {
    match raw {
        opcode::IBV_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvRdmaWithImm,
        _ => WcOpcode::Recv,
    }
}

/// What a send completes as. It is remembered because an error completion does not tell.
pub(crate) fn send_opcode(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send | SendOp::SendWithImm { .. } => WcOpcode::Send,
        SendOp::Write { .. } | SendOp::WriteWithImm { .. } => WcOpcode::RdmaWrite,
        SendOp::Read { .. } => WcOpcode::RdmaRead,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::CmpSwap { .. } => WcOpcode::CompSwap,
    }
}
