//! Work requests in the driver's words, in one list.

use crate::limits::POST_BATCH;
use rdma_sys::{ibv_recv_wr, ibv_send_wr, ibv_sge};
use towpath_verbs::{SGE_DEFAULT, Sge};

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

/// Work requests and their `sg_list`s, in arrays that are filled anew for each posting. They grow
/// where lists are long, and keep the room.
pub(crate) struct Chain<W> {
    wrs: Vec<W>,
    /// Of all lists, one behind the other.
    sges: Vec<ibv_sge>,
    /// How many each list has.
    counts: Vec<i32>,
}

// SAFETY: the pointers in it are written by `link` right before they are used, and lead into it or
// to address handles, which are not bound to a thread.
unsafe impl<W> Send for Chain<W> {}

impl<W: Entry> Chain<W> {
    pub(crate) fn new() -> Self {
        Self {
            wrs: Vec::with_capacity(POST_BATCH),
            sges: Vec::with_capacity(POST_BATCH * SGE_DEFAULT),
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
    pub(crate) fn push(&mut self, wr: W, list: &[Sge]) {
        let before = self.sges.len();
        let full = list.iter().filter(|sge| sge.length > 0);
        self.sges.extend(full.map(|sge| ibv_sge {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        }));
        self.wrs.push(wr);
        self.counts.push((self.sges.len() - before) as i32);
    }

    /// Joins what is there to a list, and returns its head; valid until the next change.
    pub(super) fn link(&mut self) -> *mut W {
        let (first, len) = (self.wrs.as_mut_ptr(), self.wrs.len());
        let mut list = self.sges.as_mut_ptr();
        for (index, &count) in self.counts.iter().enumerate() {
            let is_last = index + 1 == len;
            // SAFETY: `index` is below the length of `wrs`, as it grows together with `counts`, and
            // the next one is too unless this is the last. The counts add up to the length of
            // `sges`, so that `list` stays within it or right behind it.
            unsafe {
                let next = if is_last { std::ptr::null_mut() } else { first.add(index + 1) };
                let wr = &mut *first.add(index);
                wr.set_list(list, count);
                wr.set_next(next);
                list = list.add(count as usize);
            }
        }
        first
    }
}
