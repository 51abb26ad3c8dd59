//! Posted send work requests, each apart from its `sg_list`: lists are of uneven lengths, and only
//! their entries are kept, as holds on what they name.

use std::hint::cold_path;
use std::mem::take;
use towpath_memory::{Hold, MrTable};
use towpath_verbs::{PdNum, SendFlags, SendOp, SendWr, UdAddress};

/// A posted send work request without its list, which is to be [given up](Lists::give_up) with it.
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

/// What was found of a work request when it was checked.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// Bytes of all entries.
    pub(crate) byte_len: u32,
    /// Its memory is written.
    pub(crate) is_fetched: bool,
}

#[derive(Clone, Copy)]
struct ListAt {
    start: u32,
    len: u32,
}

/// The lists of the work requests of a send queue, which come and go in order.
pub(crate) struct Lists {
    /// Lists lie in it one behind the other; none goes on at the front.
    entries: Vec<Hold>,
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

    /// Takes holds on a work request's list and keeps them; `is_first` when no other is kept. The
    /// queue has room for the work request, and its list is no longer than is allowed. None when a
    /// queue pair of the domain may not name all of it.
    #[inline]
    pub(crate) fn post<const N: usize>(
        &mut self,
        wr: &SendWr<N>,
        sized: Terms,
        is_first: bool,
        (mrs, pd): (&mut MrTable, PdNum),
    ) -> Option<Posted> {
        let len = wr.sg_list.len();
        let from_front = is_first || self.end + len > self.entries_max;
        let start = if from_front { 0 } else { self.end };
        let end = start + len;
        if end > self.entries.len() {
            self.entries.resize_with(end, Hold::default);
        }
        for (place, sge) in self.entries[start..end].iter_mut().zip(&*wr.sg_list) {
            let Some(hold) = mrs.hold(pd, sge, sized.is_fetched) else {
                cold_path();
                // What was not reached holds nothing.
                self.entries[start..end].iter_mut().for_each(|hold| mrs.release(take(hold)));
                return None;
            };
            *place = hold;
        }
        self.end = end;
        let list = ListAt { start: start as u32, len: len as u32 };
        let byte_len = sized.byte_len;
        Some(Posted { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, ud: wr.ud, byte_len, list })
    }

    /// The list of a work request that is still in the queue.
    #[inline]
    pub(crate) fn of(&self, posted: &Posted) -> &[Hold] {
        let ListAt { start, len } = posted.list;
        &self.entries[start as usize..(start + len) as usize]
    }

    /// A work request has left the queue: nothing of its list is held any more.
    #[inline]
    pub(crate) fn give_up(&mut self, posted: &Posted, mrs: &mut MrTable) {
        let ListAt { start, len } = posted.list;
        let list = &mut self.entries[start as usize..(start + len) as usize];
        list.iter_mut().for_each(|hold| mrs.release(take(hold)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use towpath_base::Prng;
    use towpath_memory::{Buf, Pool, SharedMemory};
    use towpath_verbs::{Access, SEND_SGE_MAX, SgList, Sge};

    const PD: PdNum = PdNum::DEFAULT;

    #[test]
    fn lists_stay_as_they_are_until_their_work_requests_leave_and_take_no_more_memory() {
        let mut mrs = MrTable::new(7);
        let memory = SharedMemory::new(1 << 20).expect("memory for a test");
        let keys = mrs.register_shared(PD, &memory, memory.whole(), Access::LOCAL);
        let lkey = keys.expect("a fresh table").lkey;
        for seed in 0..50 {
            let mut prng = Prng::new(seed);
            let (depth, longest) = (1 + prng.below(6), 1 + prng.below(SEND_SGE_MAX as u64));
            let mut lists = Lists::new(depth as u32, longest as u32);
            let room = lists.entries.capacity();
            let mut queue: VecDeque<(Posted, Vec<u32>)> = VecDeque::new();
            for number in 0..400 {
                if queue.len() == depth as usize || prng.below(3) == 0 {
                    if let Some((posted, _)) = queue.pop_front() {
                        lists.give_up(&posted, &mut mrs);
                    }
                    continue;
                }
                let sge = |at| Sge { addr: memory.addr(), length: number * 100 + at + 1, lkey };
                let list: Vec<Sge> = (0..prng.below(longest + 1) as u32).map(sge).collect();
                let sg_list = SgList::<SEND_SGE_MAX>::with_room(&list).expect("no more than fit");
                let wr = SendWr::new(0, SendOp::Send, sg_list);
                let sized = Terms { byte_len: 9, is_fetched: false };
                let posted = lists.post(&wr, sized, queue.is_empty(), (&mut mrs, PD));
                let lengths = list.iter().map(|sge| sge.length).collect();
                queue.push_back((posted.expect("registered"), lengths));
                for (posted, lengths) in &queue {
                    assert!(lists.of(posted).iter().map(Hold::byte_len).eq(lengths.clone()));
                }
            }
            assert_eq!(lists.entries.capacity(), room, "seed {seed}");
        }
    }

    #[test]
    fn a_list_of_which_one_entry_is_not_lent_holds_none() {
        let mut mrs = MrTable::new(7);
        let pool = Pool::with_count(4096, 2).expect("memory for a test");
        let lkey = mrs.register(PD, pool.region(), Access::LOCAL).expect("a fresh table").lkey;
        let (lent, owned) = (pool.take().map(Buf::lend), pool.take());
        let lent = lent.expect("a fresh pool");
        let at = owned.as_ref().map_or(0, |buf| buf.as_ptr() as u64);
        let (first, last) = (lent.sge(lkey, 0, 8), Sge { addr: at, length: 8, lkey });
        let wr = SendWr::new(0, SendOp::Send, SgList::two(first, last));
        let mut lists = Lists::new(4, 2);
        let sized = Terms { byte_len: 16, is_fetched: false };
        assert!(lists.post(&wr, sized, true, (&mut mrs, PD)).is_none());
        assert!(lent.reclaim().is_ok());
    }
}
