//! Completion queues, receive queues, and queue pairs by number.

use std::collections::VecDeque;
use std::net::SocketAddr;
use towpath_memory::{Hold, Holds, MrTable};
use towpath_verbs::{
    AsyncEvent, BadWr, CqNum, PdNum, QpInit, QpNum, QpState, RecvWr, SendFlags, SendOp, Sge, Verb,
    VerbError, Wc, WcOpcode, WcStatus,
};

/// The most work requests of one queue: a shared receive queue for 6,000 links.
pub(super) const WR_MAX: u32 = 1 << 20;

/// The most completions of one queue.
pub(super) const CQE_MAX: u32 = 1 << 22;

/// The most queue pairs: 16 bits of index leave 8 of a number for its life.
pub(super) const QP_MAX: u32 = 1 << 16;

/// The most completion queues, and the most shared receive queues.
pub(super) const CQ_MAX: usize = 1 << 16;

/// Events of the device kept; later ones are lost.
const EVENTS_MAX: usize = 64;

struct Cq {
    ring: VecDeque<Wc>,
    depth: usize,
    failed: bool,
}

/// All completion queues, and the events of the device.
#[derive(Default)]
pub(super) struct Cqs {
    queues: Vec<Cq>,
    events: VecDeque<AsyncEvent>,
    /// A queue failed whose queue pairs are not yet in error.
    pub(super) newly_failed: bool,
}

impl Cqs {
    pub(super) fn create(&mut self, depth: u32) -> Result<CqNum, VerbError> {
        if depth == 0 || depth > CQE_MAX {
            return Err(VerbError::BadArgument(Verb::CreateCq));
        }
        if self.queues.len() == CQ_MAX {
            return Err(VerbError::OutOfResources(Verb::CreateCq));
        }
        // Grown as needed: most hosts of a large run have little under way.
        self.queues.push(Cq { ring: VecDeque::new(), depth: depth as usize, failed: false });
        Ok(CqNum(self.queues.len() as u32 - 1))
    }

    pub(super) fn exists(&self, cq: CqNum) -> bool {
        (cq.0 as usize) < self.queues.len()
    }

    pub(super) fn has_failed(&self, cq: CqNum) -> bool {
        self.queues.get(cq.0 as usize).is_none_or(|queue| queue.failed)
    }

    pub(super) fn push(&mut self, cq: CqNum, wc: Wc) {
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else { return };
        if queue.ring.len() < queue.depth && !queue.failed {
            queue.ring.push_back(wc);
        } else if !queue.failed {
            queue.failed = true;
            self.newly_failed = true;
            self.event(AsyncEvent::CqError(cq));
        }
    }

    pub(super) fn poll(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        let Some(queue) = self.queues.get_mut(cq.0 as usize) else { return 0 };
        let count = out.len().min(queue.ring.len());
        for (to, wc) in out.iter_mut().zip(queue.ring.drain(..count)) {
            *to = wc;
        }
        count
    }

    pub(super) fn event(&mut self, event: AsyncEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }
}

/// A posted receive work request, and what it holds.
pub(super) struct PostedRecv {
    pub(super) wr_id: u64,
    pub(super) list: Holds,
}

/// Posted receive work requests, oldest first.
pub(super) struct RecvQueue {
    queue: VecDeque<PostedRecv>,
    depth: usize,
}

impl RecvQueue {
    pub(super) fn new(depth: u32) -> Self {
        Self { queue: VecDeque::new(), depth: depth as usize }
    }

    pub(super) fn post(
        &mut self,
        verb: Verb,
        pd: PdNum,
        wrs: &[RecvWr],
        mrs: &MrTable,
    ) -> Result<(), BadWr> {
        for (index, wr) in wrs.iter().enumerate() {
            if self.queue.len() == self.depth {
                return Err(BadWr { index, error: VerbError::QueueFull(verb) });
            }
            let Some(list) = mrs.hold_list(pd, &wr.sg_list) else {
                return Err(BadWr { index, error: VerbError::BadMemory(verb) });
            };
            self.queue.push_back(PostedRecv { wr_id: wr.wr_id, list });
        }
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<PostedRecv> {
        self.queue.pop_front()
    }

    pub(super) fn clear(&mut self, mrs: &mut MrTable) {
        self.queue.drain(..).for_each(|wr| mrs.release_all(wr.list));
    }
}

/// Where a queue pair sends to.
#[derive(Clone, Copy)]
pub(super) struct Peer {
    pub(super) dest: SocketAddr,
    pub(super) dest_qp: QpNum,
    pub(super) source_port: u16,
    pub(super) tclass: u8,
    pub(super) mtu: u32,
}

/// A posted send without its list.
#[derive(Clone, Copy)]
pub(super) struct PostedSend {
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) flags: SendFlags,
    pub(super) byte_len: u32,
    /// Entries of its list.
    pub(super) sges: usize,
}

/// A queue pair.
pub(super) struct Qp {
    pub(super) num: QpNum,
    pub(super) state: QpState,
    pub(super) init: QpInit,
    pub(super) peer: Option<Peer>,
    pub(super) sends: VecDeque<PostedSend>,
    /// The entries of the lists of all `sends`, one list behind the other.
    pub(super) send_holds: VecDeque<Hold>,
    pub(super) recvs: RecvQueue,
    /// It stands in the list of those with something to send.
    pub(super) is_listed: bool,
}

impl Qp {
    /// Takes holds on the list of a send, or on none of it.
    pub(super) fn hold_list(&mut self, list: &[Sge], mrs: &mut MrTable) -> bool {
        let before = self.send_holds.len();
        for sge in list {
            let Some(hold) = mrs.hold(self.init.pd, sge, false) else {
                self.send_holds.drain(before..).for_each(|hold| mrs.release(hold));
                return false;
            };
            self.send_holds.push_back(hold);
        }
        true
    }

    /// To ERR: everything posted completes as flushed, sends first.
    pub(super) fn fail(&mut self, (cqs, mrs): (&mut Cqs, &mut MrTable), tell: bool) {
        if tell && self.state != QpState::Err {
            cqs.event(AsyncEvent::QpFatal(self.num));
        }
        self.state = QpState::Err;
        let (status, qp_num) = (WcStatus::WrFlushErr, self.num);
        self.send_holds.drain(..).for_each(|hold| mrs.release(hold));
        for wr in self.sends.drain(..) {
            let wc = Wc { wr_id: wr.wr_id, status, qp_num, ..Wc::default() };
            cqs.push(self.init.send_cq, wc);
        }
        while let Some(wr) = self.recvs.pop() {
            mrs.release_all(wr.list);
            let opcode = WcOpcode::Recv;
            let wc = Wc { wr_id: wr.wr_id, status, opcode, qp_num, ..Wc::default() };
            cqs.push(self.init.recv_cq, wc);
        }
    }

    /// To RESET: queues emptied without completions.
    pub(super) fn reset(&mut self, mrs: &mut MrTable) {
        self.state = QpState::Reset;
        self.sends.clear();
        self.send_holds.drain(..).for_each(|hold| mrs.release(hold));
        self.recvs.clear(mrs);
        self.peer = None;
    }
}

/// Queue pairs by number: an index, and above it a count of its lives, so that late messages for
/// a destroyed queue pair find nobody.
pub(super) struct QpTable {
    slots: Vec<(u32, Option<Qp>)>,
    free: VecDeque<u32>,
    first_life: u32,
}

impl QpTable {
    pub(super) fn new(seed: u64) -> Self {
        Self { slots: Vec::new(), free: VecDeque::new(), first_life: seed as u32 & 0xff }
    }

    pub(super) fn create(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        let index = if (self.slots.len() as u32) < QP_MAX {
            self.slots.push((self.first_life, None));
            self.slots.len() as u32 - 1
        } else {
            self.free.pop_front().ok_or(VerbError::OutOfResources(Verb::CreateQp))?
        };
        let (life, slot) = &mut self.slots[index as usize];
        *life += 1;
        let num = QpNum((*life << 16 | index) & QpNum::MAX.0);
        let depth = if init.srq.is_some() { 0 } else { init.max_recv_wr };
        *slot = Some(Qp {
            num,
            state: QpState::Init,
            init: *init,
            peer: None,
            sends: VecDeque::new(),
            send_holds: VecDeque::new(),
            recvs: RecvQueue::new(depth),
            is_listed: false,
        });
        Ok(num)
    }

    pub(super) fn find(&self, num: QpNum) -> Option<&Qp> {
        let (_, slot) = self.slots.get((num.0 & 0xffff) as usize)?;
        slot.as_ref().filter(|qp| qp.num == num)
    }

    pub(super) fn find_mut(&mut self, num: QpNum) -> Option<&mut Qp> {
        let (_, slot) = self.slots.get_mut((num.0 & 0xffff) as usize)?;
        slot.as_mut().filter(|qp| qp.num == num)
    }

    pub(super) fn remove(&mut self, num: QpNum) -> Option<Qp> {
        self.find(num)?;
        let index = num.0 & 0xffff;
        self.free.push_back(index);
        self.slots[index as usize].1.take()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Qp> {
        self.slots.iter_mut().filter_map(|(_, slot)| slot.as_mut())
    }
}
