//! Queue pairs, by slot and by number.

use crate::queue::{Fifo, PostedRecv};
use crate::sys::{self, ibv_qp_state, ibv_qp_type};
use std::collections::BTreeMap;
use towpath_verbs::{Connect, QpInit, QpNum, QpState, QpType, WcOpcode};

/// A posted send: the caller's word, and what it completes as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedSend {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
}

/// What decides which way packets take, beside where they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    pub(crate) source_port: u16,
    pub(crate) tclass: u8,
}

impl Route {
    pub(crate) fn of(connect: &Connect) -> Self {
        Self { source_port: connect.source_port, tclass: connect.tclass }
    }
}

/// One queue pair.
pub(crate) struct Qp {
    pub(crate) raw: sys::Qp,
    pub(crate) num: QpNum,
    pub(crate) init: QpInit,
    /// As we brought it about, or learned from a completion or an event.
    pub(crate) state: QpState,
    /// UD: the way of its datagrams.
    pub(crate) route: Route,
    pub(crate) sends: Fifo<PostedSend>,
    pub(crate) recvs: Fifo<PostedRecv>,
}

/// All of a device.
#[derive(Default)]
pub(crate) struct Qps {
    slots: Vec<Option<Qp>>,
    by_num: BTreeMap<QpNum, usize>,
    /// What was looked up last: batches of work go to one queue pair.
    last: Option<(QpNum, usize)>,
}

impl Qps {
    /// The slot of the next one.
    pub(crate) fn vacant(&self) -> usize {
        self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len())
    }

    pub(crate) fn insert(&mut self, slot: usize, qp: Qp) {
        self.by_num.insert(qp.num, slot);
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(qp);
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<Qp> {
        let qp = self.slots.get_mut(slot)?.take()?;
        self.by_num.remove(&qp.num);
        self.last = None;
        Some(qp)
    }

    pub(crate) fn slot_of(&mut self, num: QpNum) -> Option<usize> {
        if let Some((last, slot)) = self.last
            && last == num
        {
            return Some(slot);
        }
        let slot = *self.by_num.get(&num)?;
        self.last = Some((num, slot));
        Some(slot)
    }

    pub(crate) fn find(&self, num: QpNum) -> Option<&Qp> {
        self.at(*self.by_num.get(&num)?)
    }

    pub(crate) fn at(&self, slot: usize) -> Option<&Qp> {
        self.slots.get(slot)?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, slot: usize) -> Option<&mut Qp> {
        self.slots.get_mut(slot)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.slots.iter().flatten()
    }
}

/// The driver's number of a type.
pub(crate) fn raw_type(qp_type: QpType) -> u32 {
    match qp_type {
        QpType::Rc => ibv_qp_type::IBV_QPT_RC,
        QpType::Uc => ibv_qp_type::IBV_QPT_UC,
        QpType::Ud => ibv_qp_type::IBV_QPT_UD,
    }
}

/// What the driver's state is called here.
pub(crate) fn to_state(raw: ibv_qp_state::Type) -> QpState {
    match raw {
        ibv_qp_state::IBV_QPS_RESET => QpState::Reset,
        ibv_qp_state::IBV_QPS_INIT => QpState::Init,
        ibv_qp_state::IBV_QPS_RTR => QpState::Rtr,
        ibv_qp_state::IBV_QPS_RTS => QpState::Rts,
        ibv_qp_state::IBV_QPS_SQD => QpState::Sqd,
        ibv_qp_state::IBV_QPS_SQE => QpState::Sqe,
        _ => QpState::Err,
    }
}
