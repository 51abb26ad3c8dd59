//! Protection domains, memory regions, shared receive queues, address handles.

use super::qp::{Refused, refused_at};
use super::{Chain, Context, errno, refusal, zeroed};
use rdma_sys::{
    ibv_access_flags, ibv_ah, ibv_ah_attr, ibv_alloc_pd, ibv_create_ah, ibv_create_srq,
    ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_ah, ibv_destroy_srq, ibv_mr, ibv_pd,
    ibv_post_srq_recv, ibv_recv_wr, ibv_reg_mr, ibv_srq, ibv_srq_init_attr,
};
use std::any::Any;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{Access, MrKeys, Verb, VerbError};

/// A protection domain: what can reach what.
pub(crate) struct Pd {
    raw: NonNull<ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: libibverbs is thread safe, and nothing of it is bound to a thread.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, VerbError> {
        // SAFETY: an open context.
        let raw = NonNull::new(unsafe { ibv_alloc_pd(context.raw()) });
        let raw = raw.ok_or_else(|| refusal(Verb::AllocPd, errno()))?;
        Ok(Self { raw, context: Arc::clone(context) })
    }

    pub(crate) fn raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: made by us, freed once, and nothing made from it is left: those hold an Arc.
        unsafe { ibv_dealloc_pd(self.raw.as_ptr()) };
    }
}

/// The driver's flags for an access.
pub(crate) fn access_flags(access: Access) -> u32 {
    let flag = |on: bool, flag: ibv_access_flags| if on { flag.0 } else { 0 };
    // The driver refuses remote writing and atomics without local writing.
    let local = access.local_write || access.remote_write || access.remote_atomic;
    flag(local, ibv_access_flags::IBV_ACCESS_LOCAL_WRITE)
        | flag(access.remote_write, ibv_access_flags::IBV_ACCESS_REMOTE_WRITE)
        | flag(access.remote_read, ibv_access_flags::IBV_ACCESS_REMOTE_READ)
        | flag(access.remote_atomic, ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC)
}

/// A registration, with the memory that it pins.
pub(crate) struct Mr {
    raw: NonNull<ibv_mr>,
    /// Keeps the bytes mapped.
    memory: Arc<dyn Any + Send + Sync>,
    _pd: Arc<Pd>,
}

// SAFETY: as for `Pd`.
unsafe impl Send for Mr {}

impl Mr {
    pub(crate) fn register(
        pd: &Arc<Pd>,
        region: &Region,
        access: Access,
    ) -> Result<Self, VerbError> {
        Self::of(pd, region.addr(), region.byte_len(), access, Arc::new(region.clone()))
    }

    /// Of a range that lies within the memory.
    pub(crate) fn register_shared(
        pd: &Arc<Pd>,
        memory: &SharedMemory,
        range: &Range<usize>,
        access: Access,
    ) -> Result<Self, VerbError> {
        let addr = memory.addr() + range.start as u64;
        Self::of(pd, addr, range.len(), access, Arc::new(memory.clone()))
    }

    fn of(
        pd: &Arc<Pd>,
        addr: u64,
        bytes: usize,
        access: Access,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, VerbError> {
        let (addr, flags) = (addr as *mut libc::c_void, access_flags(access) as i32);
        // SAFETY: the bytes are a mapping that `memory` keeps until after the deregistration.
        let raw = unsafe { ibv_reg_mr(pd.raw(), addr, bytes, flags) };
        let raw = NonNull::new(raw).ok_or_else(|| refusal(Verb::RegMr, errno()))?;
        Ok(Self { raw, memory, _pd: Arc::clone(pd) })
    }

    pub(crate) fn keys(&self) -> MrKeys {
        // SAFETY: alive until our drop.
        let mr = unsafe { self.raw.as_ref() };
        MrKeys { lkey: mr.lkey, rkey: mr.rkey }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: registered by us, given back once.
        if unsafe { ibv_dereg_mr(self.raw.as_ptr()) } != 0 {
            // The device still holds the memory: losing it is better than giving it to others.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

/// A shared receive queue.
pub(crate) struct Srq {
    raw: NonNull<ibv_srq>,
    _pd: Arc<Pd>,
}

// SAFETY: as for `Pd`.
unsafe impl Send for Srq {}
// SAFETY: as for `Pd`.
unsafe impl Sync for Srq {}

impl Srq {
    pub(crate) fn new(pd: &Arc<Pd>, max_wr: u32, max_sge: u32) -> Result<Self, VerbError> {
        // SAFETY: numbers and a pointer that may be null.
        let mut init: ibv_srq_init_attr = unsafe { zeroed() };
        (init.attr.max_wr, init.attr.max_sge) = (max_wr, max_sge);
        // SAFETY: a live protection domain, and attributes that are read and written now.
        let raw = unsafe { ibv_create_srq(pd.raw(), &raw mut init) };
        let raw = NonNull::new(raw).ok_or_else(|| refusal(Verb::CreateSrq, errno()))?;
        Ok(Self { raw, _pd: Arc::clone(pd) })
    }

    pub(crate) fn raw(&self) -> *mut ibv_srq {
        self.raw.as_ptr()
    }

    /// Posts what is in the chain; at least one.
    pub(crate) fn post(&self, chain: &mut Chain<ibv_recv_wr>) -> Result<(), Refused> {
        let (first, mut bad) = (chain.link(), null_mut());
        // SAFETY: a live queue and a list that was just linked; the driver copies it before it
        // returns.
        let status = unsafe { ibv_post_srq_recv(self.raw(), first, &raw mut bad) };
        refused_at(Verb::PostSrqRecv, status, bad, first)
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: made by us, destroyed once, after the queue pairs that share it.
        unsafe { ibv_destroy_srq(self.raw.as_ptr()) };
    }
}

/// Where datagrams go.
pub(crate) struct Ah {
    raw: NonNull<ibv_ah>,
    _pd: Arc<Pd>,
}

// SAFETY: as for `Pd`.
unsafe impl Send for Ah {}

impl Ah {
    pub(crate) fn new(pd: &Arc<Pd>, mut attr: ibv_ah_attr) -> Result<Self, VerbError> {
        // SAFETY: a live protection domain, and attributes that are read now.
        let raw = unsafe { ibv_create_ah(pd.raw(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(|| refusal(Verb::PostSend, errno()))?;
        Ok(Self { raw, _pd: Arc::clone(pd) })
    }

    pub(crate) fn raw(&self) -> *mut ibv_ah {
        self.raw.as_ptr()
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        // SAFETY: made by us, destroyed once, after the queue pairs that send to it.
        unsafe { ibv_destroy_ah(self.raw.as_ptr()) };
    }
}
