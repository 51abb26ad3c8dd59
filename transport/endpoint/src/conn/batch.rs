//! Sends that wait to be posted in one call.

use crate::limits::{BATCH, SIGNAL_EVERY};
use towpath_verbs::{Mtu, SEND_SGE_MAX, SendOp, SendWr, SgList, Sge};

/// A send with room for as many gather entries as there may be.
type LongSendWr = SendWr<SEND_SGE_MAX>;

/// The sends of one path that wait. Work requests are written over where they are: they are long,
/// and few of their fields change.
#[derive(Debug)]
pub(crate) struct Batch {
    wrs: Vec<LongSendWr>,
    len: usize,
}

impl Batch {
    #[inline(never)]
    pub(crate) fn new() -> Self {
        Self { wrs: Vec::with_capacity(BATCH), len: 0 }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH
    }

    /// Adds a send of one entry, to which others may be added, and that is cut as its path needs
    /// it; there must be room.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        wr_id: u64,
        entry: Sge,
        cut_at: Option<Mtu>,
    ) -> &mut SgList<SEND_SGE_MAX> {
        debug_assert!(!self.is_full(), "a full batch is posted at once");
        if self.len == self.wrs.len() {
            self.grow();
        }
        let wr = &mut self.wrs[self.len];
        wr.wr_id = wr_id;
        wr.sg_list.set_one(entry);
        wr.flags.signaled = self.len % SIGNAL_EVERY == SIGNAL_EVERY - 1;
        (wr.flags.cut_at, wr.flags.alone) = (cut_at, false);
        self.len += 1;
        &mut wr.sg_list
    }

    #[cold]
    fn grow(&mut self) {
        self.wrs.push(SendWr::new(0, SendOp::Send, SgList::default()));
    }

    /// The newest send is longer by this.
    pub(crate) fn lengthen(&mut self, by: Sge) {
        if let Some(wr) = self.wrs[..self.len].last_mut() {
            let has_room = wr.sg_list.push(by);
            debug_assert!(has_room, "there is only the header so far");
        }
    }

    /// The newest send stands for packets of its length: it leaves in no run with others.
    pub(crate) fn set_alone(&mut self) {
        if let Some(wr) = self.wrs[..self.len].last_mut() {
            wr.flags.alone = true;
        }
    }

    /// All that wait, the last one signaled.
    pub(crate) fn sealed(&mut self) -> &[LongSendWr] {
        let wrs = &mut self.wrs[..self.len];
        if let Some(last) = wrs.last_mut() {
            last.flags.signaled = true;
        }
        wrs
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_over_is_as_what_is_new() {
        let mut batch = Batch::new();
        let entry = |length| Sge { addr: 1, length, lkey: 2 };
        for round in 0..3 {
            for wr_id in 0..SIGNAL_EVERY as u64 + 2 {
                let cut_at = wr_id.is_multiple_of(3).then_some(Mtu::Mtu1024);
                let list = batch.push(wr_id, entry(round), cut_at);
                assert!((wr_id + u64::from(round)).is_multiple_of(2) || list.push(entry(9)));
            }
            let last = SIGNAL_EVERY as u64 + 1;
            for (wr, wr_id) in batch.sealed().iter().zip(0..) {
                let mut list = SgList::default();
                assert!(list.push(entry(round)));
                assert!((wr_id + u64::from(round)).is_multiple_of(2) || list.push(entry(9)));
                let mut fresh = LongSendWr::new(wr_id, SendOp::Send, list);
                fresh.flags.cut_at = wr_id.is_multiple_of(3).then_some(Mtu::Mtu1024);
                fresh.flags.signaled = wr_id == SIGNAL_EVERY as u64 - 1 || wr_id == last;
                assert_eq!(*wr, fresh, "round {round}");
            }
            assert_eq!(batch.sealed().len() as u64, last + 1);
            batch.lengthen(entry(7));
            batch.set_alone();
            assert!(batch.sealed().last().is_some_and(|wr| wr.flags.alone));
            batch.clear();
            assert!(batch.sealed().is_empty());
        }
    }
}
