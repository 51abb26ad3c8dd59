//! Queue pairs at their owner, and the table that finds them by number.

use crate::limits::{QP_INDEX_BITS, QP_MAX};
use crate::recvs::PostedRecv;
use rtrb::Producer;
use towpath_verbs::{QpInit, QpNum, QpState, Verb, VerbError};

/// A queue pair, as its owner sees it; its receiving half is with the port.
pub(crate) struct Qp {
    pub(crate) num: QpNum,
    pub(crate) state: QpState,
    pub(crate) init: QpInit,
    /// UC: where sends go.
    pub(crate) dest_qp: QpNum,
    /// Unused with a shared receive queue.
    pub(crate) recvs: Producer<PostedRecv>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    qp: Option<Qp>,
}

/// Queue pairs by number. A number is an index in the low bits and a generation above it that
/// changes with every use of the index, so a late message for a destroyed queue pair finds nobody.
#[derive(Default)]
pub(crate) struct QpTable {
    slots: Vec<Slot>,
}

pub(crate) fn index_of(num: QpNum) -> usize {
    (num.0 & ((1 << QP_INDEX_BITS) - 1)) as usize
}

impl QpTable {
    /// The number of the next queue pair; [`insert`](Self::insert) it under that.
    pub(crate) fn vacant(&mut self) -> Result<QpNum, VerbError> {
        let found = self.slots.iter().position(|slot| slot.qp.is_none());
        let index = match found {
            Some(index) => index,
            None if self.slots.len() < QP_MAX as usize => {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            }
            None => return Err(VerbError::OutOfResources(Verb::CreateQp)),
        };
        let slot = &mut self.slots[index];
        loop {
            slot.generation = slot.generation.wrapping_add(1);
            let num = QpNum((slot.generation << QP_INDEX_BITS | index as u32) & QpNum::MAX.0);
            // 0 and 1 are for management, the largest is multicast's.
            if num.0 > 1 && num != QpNum::MAX {
                return Ok(num);
            }
        }
    }

    pub(crate) fn insert(&mut self, qp: Qp) {
        let index = index_of(qp.num);
        self.slots[index].qp = Some(qp);
    }

    pub(crate) fn find(&self, num: QpNum) -> Option<&Qp> {
        self.slots.get(index_of(num))?.qp.as_ref().filter(|qp| qp.num == num)
    }

    pub(crate) fn find_mut(&mut self, num: QpNum) -> Option<&mut Qp> {
        self.slots.get_mut(index_of(num))?.qp.as_mut().filter(|qp| qp.num == num)
    }

    pub(crate) fn remove(&mut self, num: QpNum) -> Option<Qp> {
        self.find(num)?;
        self.slots[index_of(num)].qp.take()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.slots.iter().filter_map(|slot| slot.qp.as_ref())
    }
}
