//! Queue pairs, by slot and by number.

use crate::queue::{Fifo, PostedRecv};
use crate::regions::Regions;
use crate::sys::{self, ibv_qp_state, ibv_qp_type};
use std::collections::{BTreeMap, VecDeque};
use towpath_memory::Hold;
use towpath_verbs::{Connect, QpInit, QpNum, QpState, QpType, WcOpcode};

/// A posted send: the caller's word, and what it completes as.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedSend {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    /// So many of the holds are its own.
    pub(crate) holds: u32,
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
    /// What the device has for the sends, in their order.
    pub(crate) send_holds: VecDeque<Hold>,
    pub(crate) recvs: Fifo<PostedRecv>,
}

impl Qp {
    /// Takes the oldest send out, with which the device is done.
    pub(crate) fn pop_send(&mut self, regions: &mut Regions) -> Option<PostedSend> {
        let sent = self.sends.pop()?;
        let count = self.send_holds.len().min(sent.holds as usize);
        regions.release(self.send_holds.drain(..count));
        Some(sent)
    }

    /// Takes everything out; the driver has let go of it.
    pub(crate) fn clear(&mut self, regions: &mut Regions) {
        while self.pop_send(regions).is_some() {}
        self.recvs.drain().for_each(|recv| regions.release_all(recv.list));
    }
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

    pub(crate) fn into_all(self) -> impl Iterator<Item = Qp> {
        self.slots.into_iter().flatten()
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
