//! The moving parts together: which queue pair sends next, and where a packet goes.

use crate::config::RoceConfig;
use crate::counters::RoceCounters;
use crate::cq::Cqs;
use crate::limits::{TX_BATCH_PACKETS, TX_BATCHES_PER_PROGRESS, TX_TURN_PACKETS};
use crate::qp::{QpTable, send_opcode};
use crate::recv_queue::RecvQueue;
use crate::requester::{Batch, Planned, SCRATCH_BYTES_MAX, Sender, Turn};
use crate::responder::Surroundings;
use crate::wire::icrc::IdSpace;
use crate::wire::{IcrcBase, PKEY_DEFAULT, Packet, Service, WireError};
use std::collections::VecDeque;
use towpath_memory::MrTable;
use towpath_verbs::{PacketLink, QpNum, QpState, QpType, RxPacket, TxPacket, Wc, WcStatus};

/// A device without its link.
pub(crate) struct Engine {
    pub(crate) mrs: MrTable,
    pub(crate) qps: QpTable,
    pub(crate) cqs: Cqs,
    pub(crate) srqs: Vec<RecvQueue>,
    pub(crate) counters: RoceCounters,
    /// Indexes of queue pairs with work, in turn. Each stands here at most once.
    ready: VecDeque<u32>,
    scratch: Box<[u8]>,
    packets: Vec<TxPacket<'static>>,
    planned: Vec<Planned>,
    id_space: Option<IdSpace>,
}

impl Engine {
    pub(crate) fn new(config: &RoceConfig, packet_bytes_max: usize) -> Self {
        Self {
            mrs: MrTable::new(),
            qps: QpTable::new(config.qp_max, config.seed),
            cqs: Cqs::new(),
            srqs: Vec::new(),
            counters: RoceCounters::default(),
            ready: VecDeque::new(),
            scratch: vec![0; TX_BATCH_PACKETS * SCRATCH_BYTES_MAX].into(),
            packets: Vec::with_capacity(TX_BATCH_PACKETS),
            planned: Vec::with_capacity(TX_BATCH_PACKETS),
            id_space: config.foreign_peers.then(|| IdSpace::new(packet_bytes_max)),
        }
    }

    /// Room in the list of queue pairs with work, so that posting never allocates.
    pub(crate) fn reserve_ready(&mut self, qps: usize) {
        self.ready.reserve(qps.saturating_sub(self.ready.len()));
    }

    /// The queue pair at `index` has work.
    pub(crate) fn list(&mut self, index: u32) {
        if let Some(qp) = self.qps.at(index)
            && !qp.requester.listed
        {
            qp.requester.listed = true;
            self.ready.push_back(index);
        }
    }

    /// Sends what is posted, until the link is full or received packets deserve their turn.
    pub(crate) fn pump<L: PacketLink>(&mut self, link: &mut L) -> usize {
        let mut moved = 0;
        for _ in 0..TX_BATCHES_PER_PROGRESS {
            if self.ready.is_empty() {
                break;
            }
            let (offered, taken) = self.offer(link);
            moved += taken;
            if taken < offered || offered == 0 {
                break;
            }
        }
        moved
    }

    /// Plans a batch, offers it and books what the link took.
    fn offer<L: PacketLink>(&mut self, link: &mut L) -> (usize, usize) {
        let mut batch = Batch {
            packets: std::mem::take(&mut self.packets),
            scratch: &mut self.scratch,
            mrs: &self.mrs,
        };
        self.planned.clear();
        while batch.packets.len() < TX_BATCH_PACKETS {
            let Some(index) = self.ready.pop_front() else { break };
            let Some(qp) = self.qps.at(index) else { continue };
            qp.requester.listed = false;
            let (num, qp_type) = (qp.num, qp.init.qp_type);
            let Some(path) = qp.path.as_ref().filter(|_| qp.state == QpState::Rts) else {
                continue;
            };
            let source = link.source_addr(path.source_port);
            let sender = Sender { num, index, qp_type, path, source };
            let room = TX_TURN_PACKETS.min(TX_BATCH_PACKETS - batch.packets.len());
            let turn = qp.requester.plan(&sender, room, &mut batch, &mut self.planned);
            if turn == Turn::BadMemory && qp.requester.nothing_planned() {
                // Choice: ERR rather than SQE, so that one recovery serves every queue pair type.
                if let Some(wr) = qp.requester.pop_unsent() {
                    let (wr_id, opcode) = (wr.wr_id, send_opcode(&wr.op));
                    let status = WcStatus::LocProtErr;
                    let wc = Wc { wr_id, status, opcode, qp_num: num, ..Wc::default() };
                    self.cqs.push(qp.init.send_cq, wc);
                }
                qp.fail(&mut self.cqs, true);
                continue;
            }
            if turn != Turn::Empty {
                qp.requester.listed = true;
                self.ready.push_back(index);
            }
            if turn == Turn::BadMemory {
                break;
            }
        }
        let offered = batch.packets.len();
        let taken = if offered == 0 { 0 } else { link.transmit(&batch.packets).min(offered) };
        self.packets = recycle(batch.packets);
        self.book(taken, link);
        (offered, taken)
    }

    /// Completes what was taken and takes back the plans for the rest.
    fn book<L: PacketLink>(&mut self, taken: usize, link: &L) {
        let mut now = None;
        let (done, rest) = self.planned.split_at(taken);
        self.counters.packets_sent += taken as u64;
        for packet in done {
            let Some(qp) = self.qps.at(packet.qp_index) else { continue };
            let Some(wr) = qp.requester.on_taken(packet) else { continue };
            self.counters.messages_sent += 1;
            if wr.flags.signaled {
                let wc = Wc {
                    wr_id: wr.wr_id,
                    opcode: send_opcode(&wr.op),
                    qp_num: qp.num,
                    timestamp: Some(*now.get_or_insert_with(|| link.now())),
                    ..Wc::default()
                };
                self.cqs.push(qp.init.send_cq, wc);
            }
        }
        for packet in rest {
            let Some(qp) = self.qps.at(packet.qp_index) else { continue };
            qp.requester.unplan();
            if !qp.requester.listed {
                qp.requester.listed = true;
                self.ready.push_back(packet.qp_index);
            }
        }
    }

    /// A packet came in.
    pub(crate) fn on_packet(&mut self, rx: &RxPacket<'_>) {
        self.counters.packets_received += 1;
        let packet = match Packet::parse(rx.bytes) {
            Ok(packet) => packet,
            Err(WireError::BadVersion(_)) => return self.counters.bad_version += 1,
            Err(WireError::BadOpcode(_)) => return self.counters.bad_opcode += 1,
            Err(_) => return self.counters.too_short += 1,
        };
        let num = QpNum(packet.bth.dest_qp());
        let qp = self.qps.find_mut(num);
        let (base, known) = match qp {
            Some(qp) => (qp.responder.base(rx, num), Some(qp)),
            None => (IcrcBase::new(rx.source, rx.dest, num.0), None),
        };
        // The ICRC comes first: corruption is counted as such, whatever field it hit.
        match base.difference(rx.bytes) {
            Some(0) => {}
            Some(difference)
                if base.is_v4()
                    && self
                        .id_space
                        .as_ref()
                        .is_some_and(|ids| ids.explains(rx.bytes.len(), difference)) =>
            {
                self.counters.icrc_by_ip_id += 1;
            }
            _ => return self.counters.bad_icrc += 1,
        }
        // The top bit only tells full members of the partition from limited ones.
        if packet.bth.pkey() | 0x8000 != PKEY_DEFAULT {
            return self.counters.bad_pkey += 1;
        }
        let Some(qp) = known else { return self.counters.unknown_qp += 1 };
        if !qp.receives() {
            return self.counters.not_rtr += 1;
        }
        let mut surroundings = Surroundings {
            mrs: &self.mrs,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            counters: &mut self.counters,
        };
        match (qp.init.qp_type, packet.opcode.service) {
            (QpType::Uc, Service::Uc) if !qp.is_peer(rx.source.ip()) => {
                self.counters.wrong_source += 1;
            }
            (QpType::Uc, Service::Uc) => qp.on_uc(&packet, rx, &mut surroundings),
            (QpType::Ud, Service::Ud) => qp.on_ud(&packet, rx, &mut surroundings),
            _ => self.counters.bad_opcode += 1,
        }
    }

    /// Queue pairs of completion queues that overflowed go to ERR. Their own flushes may overflow
    /// others; each queue fails once, so this ends.
    pub(crate) fn settle(&mut self) {
        while std::mem::take(&mut self.cqs.newly_failed) {
            for qp in self.qps.iter_mut() {
                let hit =
                    self.cqs.has_failed(qp.init.send_cq) || self.cqs.has_failed(qp.init.recv_cq);
                if hit && qp.state != QpState::Err {
                    qp.fail(&mut self.cqs, true);
                }
            }
        }
    }
}

/// The empty vector with its allocation, for packets of another lifetime: collecting an emptied
/// vector's own iterator reuses its memory.
fn recycle(mut packets: Vec<TxPacket<'_>>) -> Vec<TxPacket<'static>> {
    packets.clear();
    packets.into_iter().map_while(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recycling_keeps_the_allocation() {
        let mut packets = Vec::with_capacity(8);
        packets.push(TxPacket::new("10.0.0.1:1".parse().expect("literal"), 0, 0));
        let before = (packets.as_ptr() as usize, packets.capacity());
        let after = recycle(packets);
        assert_eq!((after.as_ptr() as usize, after.capacity()), before);
        assert!(after.is_empty());
    }
}
