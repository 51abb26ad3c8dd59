//! Queue pairs and the table that finds them by number.

use crate::cq::Cqs;
use crate::rc::Rc;
use crate::recv_queue::RecvQueue;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::send_queue::{Posted, Terms};
use std::collections::VecDeque;
use std::net::SocketAddr;
use towpath_base::Prng;
use towpath_memory::MrTable;
use towpath_verbs::{
    AsyncEvent, Connect, QpInit, QpNum, QpShare, QpState, QpType, SendOp, SendWr, Verb, VerbError,
    Wc, WcOpcode, WcStatus,
};

/// Where a queue pair sends to, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) dest: SocketAddr,
    pub(crate) dest_qp: QpNum,
    pub(crate) source_port: u16,
    pub(crate) tclass: u8,
    pub(crate) mtu: u32,
}

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) num: QpNum,
    pub(crate) state: QpState,
    pub(crate) init: QpInit,
    /// None before it is connected.
    pub(crate) path: Option<Path>,
    /// By which NIC it sends.
    pub(crate) nic: u16,
    /// UC and UD. On RC only what is common to all types is used: being listed, the receive work
    /// request that is held, the ICRC.
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// RC only.
    pub(crate) rc: Option<Box<Rc>>,
    /// Its packets have no ICRC, both ways; UC only.
    pub(crate) omits_icrc: bool,
    /// Unused with a shared receive queue.
    pub(crate) recv_queue: RecvQueue,
}

impl Qp {
    fn new(num: QpNum, init: &QpInit) -> Self {
        let recv_depth = if init.srq.is_some() { 0 } else { init.max_recv_wr };
        let is_rc = init.qp_type == QpType::Rc;
        let unreliable_depth = if is_rc { 0 } else { init.max_send_wr };
        Self {
            num,
            state: QpState::Init,
            init: *init,
            path: None,
            nic: 0,
            requester: Requester::new(unreliable_depth, init.max_send_sge),
            responder: Responder::default(),
            rc: is_rc.then(|| Box::new(Rc::new(init.max_send_wr, init.max_send_sge))),
            omits_icrc: false,
            recv_queue: RecvQueue::new(recv_depth),
        }
    }

    /// Whether packets for it are looked at.
    pub(crate) fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts)
    }

    /// To ERR: everything posted completes as flushed. A receive work request that was taken from a
    /// shared queue for a message that never ended comes back here too.
    pub(crate) fn fail(&mut self, (cqs, mrs): (&mut Cqs, &mut MrTable), tell: bool) {
        if tell && self.state != QpState::Err {
            cqs.event(AsyncEvent::QpFatal(self.num));
        }
        self.state = QpState::Err;
        let (num, init) = (self.num, self.init);
        let flushed = |wr_id, opcode| {
            let status = WcStatus::WrFlushErr;
            Wc { wr_id, status, opcode, qp_num: num, ..Wc::default() }
        };
        while let Some(wr) = self.pop_send(mrs) {
            cqs.push(init.send_cq, flushed(wr.wr_id, send_opcode(&wr.op)));
        }
        while let Some(wr) = self.responder.held.take().or_else(|| self.recv_queue.pop()) {
            mrs.release_all(wr.list);
            cqs.push(init.recv_cq, flushed(wr.wr_id, WcOpcode::Recv));
        }
        self.responder = Responder::default();
        if let Some(rc) = &mut self.rc {
            rc.responder.clear();
        }
    }

    /// The oldest send work request ends in error, and everything with it.
    #[cold]
    pub(crate) fn fail_send(&mut self, status: WcStatus, (cqs, mrs): (&mut Cqs, &mut MrTable)) {
        if let Some(wr) = self.pop_send(mrs) {
            let (wr_id, opcode, qp_num) = (wr.wr_id, send_opcode(&wr.op), self.num);
            cqs.push(self.init.send_cq, Wc { wr_id, status, opcode, qp_num, ..Wc::default() });
        }
        self.fail((cqs, mrs), true);
    }

    /// Takes the oldest send work request out, which holds nothing any more.
    fn pop_send(&mut self, mrs: &mut MrTable) -> Option<Posted> {
        match &mut self.rc {
            Some(rc) => rc.requester.pop(mrs),
            None => self.requester.pop_unsent(mrs),
        }
    }

    /// Brings it from INIT to RTS. An RC queue pair keeps up to `window` packets under way.
    pub(crate) fn start(&mut self, connect: &Connect, window: u32) {
        self.responder.forget_heard();
        match &mut self.rc {
            Some(rc) => rc.start(connect, window),
            None => {
                self.responder.start(connect.rq_psn);
                self.requester.start(connect.sq_psn);
            }
        }
        self.state = QpState::Rts;
    }

    /// Whether its send queue has room.
    pub(crate) fn send_queue_full(&self) -> bool {
        match &self.rc {
            Some(rc) => rc.requester.is_full(),
            None => self.requester.is_full(),
        }
    }

    /// Adds a send work request that was checked, memory aside; false when it may not name that.
    #[must_use]
    pub(crate) fn push_send<const N: usize>(
        &mut self,
        wr: &SendWr<N>,
        terms: Terms,
        mrs: &mut MrTable,
    ) -> bool {
        let memory = (mrs, self.init.pd);
        match &mut self.rc {
            Some(rc) => rc.requester.push(wr, terms, memory),
            None => self.requester.push(wr, terms, memory),
        }
    }

    /// To RESET: queues emptied without completions.
    pub(crate) fn reset(&mut self, mrs: &mut MrTable) {
        self.state = QpState::Reset;
        while self.pop_send(mrs).is_some() {}
        if let Some(rc) = &mut self.rc {
            rc.responder.clear();
        }
        if let Some(wr) = self.responder.held.take() {
            mrs.release_all(wr.list);
        }
        self.recv_queue.clear(mrs);
        self.responder = Responder::default();
        self.path = None;
        self.omits_icrc = false;
    }
}

/// What the completion of a send work request is called.
pub(crate) fn send_opcode(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send | SendOp::SendWithImm { .. } => WcOpcode::Send,
        SendOp::Write { .. } | SendOp::WriteWithImm { .. } => WcOpcode::RdmaWrite,
        SendOp::Read { .. } => WcOpcode::RdmaRead,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::CmpSwap { .. } => WcOpcode::CompSwap,
    }
}

struct Slot {
    generation: u32,
    qp: Option<Qp>,
}

/// Queue pairs by number. A number tells in its lowest bits whose it is where devices share an
/// address, then comes an index and above it a generation that changes with every use of the
/// index, so late packets for a destroyed queue pair find nobody.
pub(crate) struct QpTable {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    qp_max: u32,
    index_bits: u32,
    share: QpShare,
    share_bits: u32,
    prng: Prng,
}

impl QpTable {
    pub(crate) fn new(qp_max: u32, seed: u64, share: QpShare) -> Self {
        let index_bits = qp_max.next_power_of_two().trailing_zeros();
        let (slots, free) = (Vec::new(), VecDeque::new());
        let (share_bits, prng) = (share.bits(), Prng::new(seed));
        Self { slots, free, qp_max, index_bits, share, share_bits, prng }
    }

    pub(crate) fn create(&mut self, init: &QpInit) -> Result<QpNum, VerbError> {
        let index = if (self.slots.len() as u32) < self.qp_max {
            let generation = self.prng.next_u32();
            self.slots.push(Slot { generation, qp: None });
            self.slots.len() as u32 - 1
        } else {
            self.free.pop_front().ok_or(VerbError::OutOfResources(Verb::CreateQp))?
        };
        let bits = self.index_bits;
        let slot = &mut self.slots[index as usize];
        let num = loop {
            slot.generation = slot.generation.wrapping_add(1);
            let of_share = (slot.generation << bits | index) << self.share_bits;
            let num = QpNum((of_share | u32::from(self.share.index())) & QpNum::MAX.0);
            // 0 and 1 are for management, the largest is multicast's.
            if num > QpNum(1) && num < QpNum::MAX {
                break num;
            }
        };
        debug_assert!(self.share.owns(num), "{num} of {:?}", self.share);
        slot.qp = Some(Qp::new(num, init));
        Ok(num)
    }

    #[inline]
    pub(crate) fn index(&self, num: QpNum) -> u32 {
        (num.0 >> self.share_bits) & ((1 << self.index_bits) - 1)
    }

    /// The queue pair at an index, whatever its number.
    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> Option<&mut Qp> {
        self.slots.get_mut(index as usize)?.qp.as_mut()
    }

    #[inline]
    pub(crate) fn find(&self, num: QpNum) -> Option<&Qp> {
        let index = self.index(num);
        self.slots.get(index as usize)?.qp.as_ref().filter(|qp| qp.num == num)
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, num: QpNum) -> Option<&mut Qp> {
        let index = self.index(num);
        self.at(index).filter(|qp| qp.num == num)
    }

    pub(crate) fn remove(&mut self, num: QpNum) -> Option<Qp> {
        self.find(num)?;
        let index = self.index(num);
        self.free.push_back(index);
        self.slots[index as usize].qp.take()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Qp> {
        self.slots.iter_mut().filter_map(|slot| slot.qp.as_mut())
    }

    pub(crate) fn supports(qp_type: QpType) -> bool {
        matches!(qp_type, QpType::Rc | QpType::Uc | QpType::Ud)
    }
}
