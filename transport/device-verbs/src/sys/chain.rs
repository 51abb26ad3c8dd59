//! Work requests in the driver's words, in one list.

use crate::limits::POST_BATCH;
use rdma_sys::{ibv_recv_wr, ibv_send_wr, ibv_sge};
use towpath_verbs::{SGE_MAX, SgList};

/// What send and receive work requests have in common.
pub(crate) trait Entry {
    fn set_list(&mut self, list: *mut ibv_sge, count: i32);
    fn set_next(&mut self, next: *mut Self);
}

impl Entry for ibv_send_wr {
    fn set_list(&mut self, list: *mut ibv_sge, count: i32) {
        (self.sg_list, self.num_sge) = (list, count);
    }

    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }
}

impl Entry for ibv_recv_wr {
    fn set_list(&mut self, list: *mut ibv_sge, count: i32) {
        (self.sg_list, self.num_sge) = (list, count);
    }

    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }
}

/// Work requests and their `sg_list`s, in arrays that are made once and filled for each posting.
pub(crate) struct Chain<W> {
    wrs: Vec<W>,
    sges: Vec<[ibv_sge; SGE_MAX]>,
    counts: Vec<i32>,
}

// SAFETY: the pointers in it are written by `link` right before they are used, and lead into it or
// to address handles, which are not bound to a thread.
unsafe impl<W> Send for Chain<W> {}

impl<W: Entry> Chain<W> {
    pub(crate) fn new() -> Self {
        Self {
            wrs: Vec::with_capacity(POST_BATCH),
            sges: Vec::with_capacity(POST_BATCH),
            counts: Vec::with_capacity(POST_BATCH),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.wrs.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.wrs.len() == POST_BATCH
    }

    pub(crate) fn clear(&mut self) {
        self.wrs.clear();
        self.sges.clear();
        self.counts.clear();
    }

    /// Adds a work request with `list`, from which empty entries are left out: to some devices a
    /// length of 0 means 2 GiB.
    pub(crate) fn push(&mut self, wr: W, list: &SgList) {
        let mut sges = [ibv_sge { addr: 0, length: 0, lkey: 0 }; SGE_MAX];
        let mut count = 0;
        for sge in list.iter().filter(|sge| sge.length > 0) {
            sges[count] = ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey };
            count += 1;
        }
        self.wrs.push(wr);
        self.sges.push(sges);
        self.counts.push(count as i32);
    }

    /// Joins what is there to a list, and returns its head; valid until the next change.
    pub(super) fn link(&mut self) -> *mut W {
        let (first, len) = (self.wrs.as_mut_ptr(), self.wrs.len());
        for (index, (sges, &count)) in self.sges.iter_mut().zip(&self.counts).enumerate() {
            let is_last = index + 1 == len;
            // SAFETY: `index` is below the length of `wrs`, as the three grow together, and the
            // next one is too unless this is the last.
            unsafe {
                let next = if is_last { std::ptr::null_mut() } else { first.add(index + 1) };
                let wr = &mut *first.add(index);
                wr.set_list(sges.as_mut_ptr(), count);
                wr.set_next(next);
            }
        }
        first
    }
}
