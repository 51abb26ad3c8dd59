//! The moving parts: whose turn it is to send, and where a message goes.

use super::TrainLink;
use super::frame::Frame;
use super::queues::{Cqs, Qp, QpTable, RecvQueue};
use std::collections::VecDeque;
use towpath_memory::{Hold, MrTable};
use towpath_sim::{RxTrain, TxTrain};
use towpath_verbs::{QpNum, QpState, Wc, WcOpcode, WcStatus};

/// Messages sent in one `progress`, so that what came in gets its turn.
const SENDS_PER_PROGRESS: usize = 128;

/// What a device did; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrCounters {
    /// Messages handed to the link.
    pub messages_sent: u64,
    /// Messages that completed a receive.
    pub messages_received: u64,
    /// Messages dropped for want of a receive work request.
    pub no_recv_wqe: u64,
    /// Messages longer than their receive work request.
    pub recv_too_long: u64,
    /// Messages of which a packet was damaged.
    pub damaged: u64,
    /// Messages for a queue pair that is not there, does not receive, or has another peer.
    pub misdirected: u64,
}

/// A device without its link.
pub(super) struct Engine {
    pub(super) mrs: MrTable,
    pub(super) qps: QpTable,
    pub(super) cqs: Cqs,
    pub(super) srqs: Vec<RecvQueue>,
    pub(super) counters: WrCounters,
    ready: VecDeque<QpNum>,
    scratch: Vec<u8>,
}

impl Engine {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            mrs: MrTable::new(seed),
            qps: QpTable::new(seed),
            cqs: Cqs::default(),
            srqs: Vec::new(),
            counters: WrCounters::default(),
            ready: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// A queue pair has something to send.
    pub(super) fn list(&mut self, num: QpNum) {
        if let Some(qp) = self.qps.find_mut(num).filter(|qp| !qp.is_listed) {
            qp.is_listed = true;
            self.ready.push_back(num);
        }
    }

    /// Sends what is posted, one message of each queue pair in turn.
    pub(super) fn pump<L: TrainLink>(&mut self, link: &mut L) -> usize {
        let mut sent = 0;
        while sent < SENDS_PER_PROGRESS
            && let Some(num) = self.ready.pop_front()
        {
            let Some(qp) = self.qps.find_mut(num) else { continue };
            qp.is_listed = false;
            if qp.state != QpState::Rts {
                continue;
            }
            let (Some(&wr), Some(peer)) = (qp.sends.front(), qp.peer) else { continue };
            let list = qp.send_holds.range(..wr.sges);
            let frame = Frame::of(&wr.op, peer.dest_qp);
            if !gather(&self.mrs, frame, list, &mut self.scratch) {
                qp.sends.pop_front();
                let (wr_id, status) = (wr.wr_id, WcStatus::LocProtErr);
                let wc = Wc { wr_id, status, qp_num: num, ..Wc::default() };
                self.cqs.push(qp.init.send_cq, wc);
                qp.fail((&mut self.cqs, &mut self.mrs), true);
                continue;
            }
            let mtu = wr.flags.cut_at.map_or(peer.mtu, |size| size.bytes().min(peer.mtu));
            let (packets, byte_len) = frame.on_wire(wr.byte_len, mtu);
            let (dest, source_port, tclass) = (peer.dest, peer.source_port, peer.tclass);
            let (token, bytes) = (0, &self.scratch[..]);
            let train = TxTrain { dest, source_port, tclass, packets, byte_len, token, bytes };
            if !link.send_train(&train) {
                qp.is_listed = true;
                self.ready.push_front(num);
                break;
            }
            qp.sends.pop_front();
            qp.send_holds.drain(..wr.sges).for_each(|hold| self.mrs.release(hold));
            self.counters.messages_sent += 1;
            sent += 1;
            if wr.flags.signaled {
                let (wr_id, timestamp) = (wr.wr_id, Some(link.now()));
                let wc = Wc { wr_id, qp_num: num, timestamp, ..Wc::default() };
                self.cqs.push(qp.init.send_cq, wc);
            }
            if !qp.sends.is_empty() {
                qp.is_listed = true;
                self.ready.push_back(num);
            }
        }
        sent
    }

    /// A message came whole.
    pub(super) fn on_train(&mut self, train: &RxTrain<'_>) {
        if train.is_damaged {
            return self.counters.damaged += 1;
        }
        let Some((frame, message)) = Frame::parse(train.bytes) else {
            return self.counters.misdirected += 1;
        };
        let source = train.source.ip();
        let takes = |qp: &&mut Qp| {
            let is_peer = qp.peer.is_some_and(|peer| peer.dest.ip() == source);
            matches!(qp.state, QpState::Rtr | QpState::Rts) && is_peer
        };
        let Some(qp) = self.qps.find_mut(frame.dest_qp).filter(takes) else {
            return self.counters.misdirected += 1;
        };
        let recvs = match qp.init.srq {
            Some(srq) => self.srqs.get_mut(srq.0 as usize),
            None => Some(&mut qp.recvs),
        };
        let Some(wr) = recvs.and_then(RecvQueue::pop) else {
            return self.counters.no_recv_wqe += 1;
        };
        let (wr_id, opcode, qp_num) = (wr.wr_id, WcOpcode::Recv, qp.num);
        let status = if message.len() as u64 > wr.list.byte_len() {
            self.counters.recv_too_long += 1;
            WcStatus::LocLenErr
        } else if !scatter(&mut self.mrs, &wr.list, message) {
            WcStatus::LocProtErr
        } else {
            self.counters.messages_received += 1;
            let (byte_len, imm_data) = (message.len() as u32, frame.imm_data);
            let (tclass, timestamp) = (Some(train.tclass), Some(train.timestamp));
            let received = Wc { wr_id, opcode, byte_len, imm_data, qp_num, ..Wc::default() };
            let wc = Wc { tclass, timestamp, ..received };
            self.mrs.release_all(wr.list);
            return self.cqs.push(qp.init.recv_cq, wc);
        };
        self.mrs.release_all(wr.list);
        self.cqs.push(qp.init.recv_cq, Wc { wr_id, status, opcode, qp_num, ..Wc::default() });
        if status == WcStatus::LocProtErr {
            qp.fail((&mut self.cqs, &mut self.mrs), true);
        }
    }

    /// Queue pairs of completion queues that overflowed go to ERR; each fails once, so this ends.
    pub(super) fn settle(&mut self) {
        while std::mem::take(&mut self.cqs.newly_failed) {
            for qp in self.qps.iter_mut() {
                let hit =
                    self.cqs.has_failed(qp.init.send_cq) || self.cqs.has_failed(qp.init.recv_cq);
                if hit && qp.state != QpState::Err {
                    qp.fail((&mut self.cqs, &mut self.mrs), true);
                }
            }
        }
    }
}

impl Drop for Engine {
    /// What is posted is held no longer: its owners get it back.
    fn drop(&mut self) {
        let Self { qps, srqs, mrs, .. } = self;
        qps.iter_mut().for_each(|qp| qp.reset(mrs));
        srqs.iter_mut().for_each(|srq| srq.clear(mrs));
    }
}

fn gather<'l>(
    mrs: &MrTable,
    frame: Frame,
    list: impl Iterator<Item = &'l Hold>,
    bytes: &mut Vec<u8>,
) -> bool {
    bytes.clear();
    bytes.extend_from_slice(&frame.emit());
    list.filter(|hold| hold.byte_len() > 0).all(|hold| {
        let start = bytes.len();
        bytes.resize(start + hold.byte_len() as usize, 0);
        mrs.gather_into(&hold.whole(), &mut bytes[start..]).is_ok()
    })
}

fn scatter(mrs: &mut MrTable, list: &[Hold], mut bytes: &[u8]) -> bool {
    for hold in list {
        let (part, rest) = bytes.split_at(bytes.len().min(hold.byte_len() as usize));
        if mrs.scatter(&hold.whole(), part).is_err() {
            return false;
        }
        bytes = rest;
    }
    true
}
