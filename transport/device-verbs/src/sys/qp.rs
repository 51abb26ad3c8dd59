//! Queue pairs.

use super::{Ah, Chain, Cq, Pd, Srq, empty_qp_attr, errno, refusal, zeroed};
use rdma_sys::{
    atomic_t, ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_post_recv, ibv_post_send, ibv_qp,
    ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_query_qp, ibv_recv_wr,
    ibv_send_wr, rdma_t, ud_t, wr_t,
};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use towpath_verbs::{RemoteAddr, UdAddress, Verb, VerbError};

/// Where a list was refused, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// How many entries of the list the driver took.
    pub(crate) taken: usize,
    pub(crate) error: VerbError,
}

/// Reads what a posting call returned. The entry at fault lies in the array that `first` heads;
/// anything else counts as nothing taken, which at worst reports work as refused that is not.
pub(super) fn refused_at<T>(
    verb: Verb,
    status: i32,
    bad: *const T,
    first: *const T,
) -> Result<(), Refused> {
    if status == 0 {
        return Ok(());
    }
    let taken = (bad as usize).saturating_sub(first as usize) / size_of::<T>();
    let error = match status.abs() {
        libc::ENOMEM => VerbError::QueueFull(verb),
        errno => refusal(verb, errno),
    };
    Err(Refused { taken: if bad.is_null() { 0 } else { taken }, error })
}

/// What a queue pair is made from.
pub(crate) struct QpParts {
    pub(crate) pd: Arc<Pd>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
}

/// A queue pair.
pub(crate) struct Qp {
    raw: NonNull<ibv_qp>,
    inline_bytes_max: u32,
    _parts: QpParts,
}

// SAFETY: libibverbs is thread safe, and nothing of it is bound to a thread.
unsafe impl Send for Qp {}

impl Qp {
    /// A queue pair in RESET, of type `qp_type` in the driver's numbers; depths and gather entries
    /// are those of sends, then of receives. It inlines sends of up to
    /// `inline_bytes`, or none where the driver refuses that many.
    pub(crate) fn new(
        parts: QpParts,
        qp_type: u32,
        depth: (u32, u32),
        sge_max: (u32, u32),
        inline_bytes: u32,
    ) -> Result<Self, VerbError> {
        // SAFETY: numbers and pointers that may be null.
        let mut init: ibv_qp_init_attr = unsafe { zeroed() };
        init.send_cq = parts.send_cq.raw();
        init.recv_cq = parts.recv_cq.raw();
        init.srq = parts.srq.as_ref().map_or(null_mut(), |srq| srq.raw());
        (init.cap.max_send_wr, init.cap.max_recv_wr) = depth;
        (init.cap.max_send_sge, init.cap.max_recv_sge) = sge_max;
        init.qp_type = qp_type;
        for inline_bytes in [inline_bytes, 0] {
            init.cap.max_inline_data = inline_bytes;
            let mut init = init;
            // SAFETY: the parts are alive, and stay so until the queue pair is gone: it holds them.
            let raw = unsafe { ibv_create_qp(parts.pd.raw(), &raw mut init) };
            if let Some(raw) = NonNull::new(raw) {
                return Ok(Self { raw, inline_bytes_max: inline_bytes, _parts: parts });
            }
        }
        Err(refusal(Verb::CreateQp, errno()))
    }

    /// How many bytes of a send the driver copies when it is posted, so that the device need not
    /// fetch them.
    pub(crate) fn inline_bytes_max(&self) -> u32 {
        self.inline_bytes_max
    }

    pub(super) fn raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    pub(crate) fn num(&self) -> u32 {
        // SAFETY: alive until our drop.
        unsafe { self.raw.as_ref() }.qp_num
    }

    pub(crate) fn modify(
        &self,
        mut attr: ibv_qp_attr,
        mask: ibv_qp_attr_mask,
    ) -> Result<(), VerbError> {
        // SAFETY: a live queue pair, and attributes that are read now.
        match unsafe { ibv_modify_qp(self.raw.as_ptr(), &raw mut attr, mask.0 as i32) } {
            0 => Ok(()),
            status => Err(refusal(Verb::ModifyQp, status.abs())),
        }
    }

    /// The state in the driver's numbers.
    pub(crate) fn state(&self) -> Result<ibv_qp_state::Type, VerbError> {
        let mut attr = empty_qp_attr();
        // SAFETY: numbers and pointers.
        let mut init: ibv_qp_init_attr = unsafe { zeroed() };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0 as i32;
        // SAFETY: a live queue pair, and room for what is asked.
        let status = unsafe { ibv_query_qp(self.raw.as_ptr(), &raw mut attr, mask, &raw mut init) };
        if status == 0 { Ok(attr.qp_state) } else { Err(refusal(Verb::ModifyQp, status.abs())) }
    }

    /// Posts what is in the chain; at least one.
    pub(crate) fn post_send(&self, chain: &mut Chain<ibv_send_wr>) -> Result<(), Refused> {
        let (first, mut bad) = (chain.link(), null_mut());
        // SAFETY: a live queue pair and a list that was just linked; the driver copies it before
        // it returns. Address handles in it live as long as the device. What goes inline is read
        // now: `Regions::allow` has found it in memory that is registered, and so mapped.
        let status = unsafe { ibv_post_send(self.raw.as_ptr(), first, &raw mut bad) };
        refused_at(Verb::PostSend, status, bad, first)
    }

    /// Posts what is in the chain; at least one.
    pub(crate) fn post_recv(&self, chain: &mut Chain<ibv_recv_wr>) -> Result<(), Refused> {
        let (first, mut bad) = (chain.link(), null_mut());
        // SAFETY: as in `post_send`.
        let status = unsafe { ibv_post_recv(self.raw.as_ptr(), first, &raw mut bad) };
        refused_at(Verb::PostRecv, status, bad, first)
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: made by us, destroyed once; the device touches no memory of its work requests
        // afterwards.
        unsafe { ibv_destroy_qp(self.raw.as_ptr()) };
    }
}

/// The part of a send work request that says where a one-sided operation goes.
pub(crate) fn wr_rdma(remote: RemoteAddr) -> wr_t {
    wr_t { rdma: rdma_t { remote_addr: remote.addr, rkey: remote.rkey } }
}

/// The part of a send work request that says what an atomic does.
pub(crate) fn wr_atomic(remote: RemoteAddr, compare_add: u64, swap: u64) -> wr_t {
    wr_t { atomic: atomic_t { remote_addr: remote.addr, compare_add, swap, rkey: remote.rkey } }
}

/// The part of a send work request that says where a datagram goes.
pub(crate) fn wr_ud(ah: &Ah, address: &UdAddress) -> wr_t {
    let (remote_qpn, remote_qkey) = (address.remote_qpn.0, address.remote_qkey);
    wr_t { ud: ud_t { ah: ah.raw(), remote_qpn, remote_qkey } }
}
