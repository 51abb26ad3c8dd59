//! Posted send work requests, each apart from its `sg_list`: lists are of uneven lengths, and only
//! their entries are kept.

use towpath_verbs::{SendFlags, SendOp, SendWr, Sge, UdAddress};

/// A posted send work request without its list.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) ud: Option<UdAddress>,
    /// Bytes of all entries.
    pub(crate) byte_len: u32,
    /// Where its list lies.
    list: ListAt,
}

#[derive(Clone, Copy)]
struct ListAt {
    start: u32,
    len: u32,
}

/// The lists of the work requests of a send queue, which come and go in order.
pub(crate) struct Lists {
    /// Lists lie in it one behind the other; none goes on at the front.
    entries: Vec<Sge>,
    entries_max: usize,
    /// Behind the newest list.
    end: usize,
}

impl Lists {
    /// Of a queue of so many work requests with so many entries each.
    pub(crate) fn new(max_send_wr: u32, max_send_sge: u32) -> Self {
        // Before the end of the memory and before the oldest list less than a list's length each
        // may lie idle.
        let entries_max = (max_send_wr as usize + 1) * max_send_sge as usize;
        Self { entries: Vec::with_capacity(entries_max), entries_max, end: 0 }
    }

    /// Keeps a work request's list; `is_first` when no other is kept. The queue has room for the
    /// work request, and its list is no longer than is allowed.
    #[inline]
    pub(crate) fn post<const N: usize>(
        &mut self,
        wr: &SendWr<N>,
        byte_len: u32,
        is_first: bool,
    ) -> Posted {
        let list: &[Sge] = &wr.sg_list;
        let from_front = is_first || self.end + list.len() > self.entries_max;
        let start = if from_front { 0 } else { self.end };
        self.end = start + list.len();
        if self.end > self.entries.len() {
            self.entries.resize(self.end, Sge::default());
        }
        self.entries[start..self.end].copy_from_slice(list);
        let list = ListAt { start: start as u32, len: list.len() as u32 };
        Posted { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, ud: wr.ud, byte_len, list }
    }

    /// The list of a work request that is still in the queue.
    #[inline]
    pub(crate) fn of(&self, posted: &Posted) -> &[Sge] {
        let ListAt { start, len } = posted.list;
        &self.entries[start as usize..(start + len) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use towpath_base::Prng;
    use towpath_verbs::{SEND_SGE_MAX, SgList};

    #[test]
    fn lists_stay_as_they_are_until_their_work_requests_leave_and_take_no_more_memory() {
        for seed in 0..50 {
            let mut prng = Prng::new(seed);
            let (depth, longest) = (1 + prng.below(6), 1 + prng.below(SEND_SGE_MAX as u64));
            let mut lists = Lists::new(depth as u32, longest as u32);
            let room = lists.entries.capacity();
            let mut queue: VecDeque<(Posted, Vec<Sge>)> = VecDeque::new();
            for number in 0..400 {
                if queue.len() == depth as usize || prng.below(3) == 0 {
                    queue.pop_front();
                    continue;
                }
                let sge = |at| Sge { addr: number * 100 + at, length: 1, lkey: 7 };
                let list: Vec<Sge> = (0..prng.below(longest + 1)).map(sge).collect();
                let sg_list = SgList::<SEND_SGE_MAX>::with_room(&list).expect("no more than fit");
                let wr = SendWr::new(number, SendOp::Send, sg_list);
                queue.push_back((lists.post(&wr, 9, queue.is_empty()), list));
                for (posted, list) in &queue {
                    assert_eq!(lists.of(posted), list, "seed {seed}");
                }
            }
            assert_eq!(lists.entries.capacity(), room, "seed {seed}");
        }
    }
}
