//! The half of a device that its peer reaches.

use crate::counters::MemCounters;
use crate::limits::QP_INDEX_BITS;
use crate::recvs::Recvs;
use rtrb::Producer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::Thread;
use towpath_memory::MrTable;
use towpath_verbs::{Access, CqNum, PdNum, QpNum, QpType, SrqNum, WcOpcode, WcStatus};

/// A completion of a receive on its way to the owner of the queue: a `Wc` without what the owner
/// can fill in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) wr_id: u64,
    pub(crate) status: WcStatus,
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u32,
    pub(crate) imm_data: Option<u32>,
    pub(crate) qp_num: QpNum,
    /// UD only.
    pub(crate) src_qp: Option<QpNum>,
}

/// The receiving half of a queue pair.
pub(crate) struct Responder {
    pub(crate) num: QpNum,
    pub(crate) qp_type: QpType,
    pub(crate) qkey: u32,
    pub(crate) pd: PdNum,
    pub(crate) access: Access,
    pub(crate) recv_cq: CqNum,
    pub(crate) srq: Option<SrqNum>,
    /// Between RTR and ERR.
    pub(crate) receives: bool,
    /// Unused with a shared receive queue.
    pub(crate) recvs: Recvs,
}

/// The filling end of a completion queue.
pub(crate) struct ArrivalQueue {
    pub(crate) ring: Producer<Arrival>,
    pub(crate) failed: bool,
}

/// What the peer works on while it delivers, behind the port's lock.
#[derive(Default)]
pub(crate) struct Inbound {
    /// The same entries as the owner's own table.
    pub(crate) mrs: MrTable,
    pub(crate) responders: Vec<Option<Responder>>,
    pub(crate) srqs: Vec<Recvs>,
    pub(crate) cqs: Vec<ArrivalQueue>,
    pub(crate) counters: MemCounters,
    /// Queue pairs and completion queues that failed while the peer delivered, for the owner.
    pub(crate) failed_qps: Vec<QpNum>,
    pub(crate) failed_cqs: Vec<CqNum>,
    /// The owner, while it blocks.
    pub(crate) waiter: Option<Thread>,
    /// The owner's next wait ends at once.
    pub(crate) woken: bool,
}

impl Inbound {
    /// The responder with this number.
    pub(crate) fn responder(&mut self, num: QpNum) -> Option<&mut Responder> {
        let index = num.0 & ((1 << QP_INDEX_BITS) - 1);
        self.responders.get_mut(index as usize)?.as_mut().filter(|found| found.num == num)
    }
}

/// One end of the wire, shared by the device that owns it and the peer that delivers to it.
#[derive(Default)]
pub(crate) struct Port {
    inbound: Mutex<Inbound>,
    /// The failed lists are not empty.
    trouble: AtomicBool,
}

impl Port {
    /// Nothing here panics half-way through a change, so a poisoned lock is as good as any.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inbound> {
        self.inbound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_trouble(&self) -> bool {
        self.trouble.load(Ordering::Relaxed)
    }

    /// Says whether the failed lists have something in them; called under the lock. A reader that
    /// sees it takes the lock, which orders the rest.
    pub(crate) fn set_trouble(&self, yes: bool) {
        self.trouble.store(yes, Ordering::Relaxed);
    }
}

/// Ends a wait of the owner.
impl Wake for Port {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut inbound = self.lock();
        inbound.woken = true;
        let waiter = inbound.waiter.take();
        drop(inbound);
        if let Some(waiter) = waiter {
            waiter.unpark();
        }
    }
}
