//! The moving parts together: which queue pair sends next, and where a packet goes.

use crate::bundle::recycle;
use crate::config::RoceConfig;
use crate::counters::RoceCounters;
use crate::cq::Cqs;
use crate::limits::{
    READ_REPLY_PACKETS, TX_BATCH_PACKETS, TX_BATCH_PACKETS_MIN, TX_BATCHES_PER_PROGRESS,
    TX_TURN_PACKETS,
};
use crate::qp::{Qp, QpTable, send_opcode};
use crate::rc;
use crate::recv_queue::RecvQueue;
use crate::requester::{Batch, Planned, Sender, Turn, What};
use crate::responder::Surroundings;
use crate::timers::Timers;
use crate::wire::icrc::IdSpace;
use crate::wire::{IcrcBase, NO_ICRC, Operation, PKEY_DEFAULT, Packet, Service, WireError};
use std::collections::VecDeque;
use std::hint::cold_path;
use towpath_base::Time;
use towpath_memory::MrTable;
use towpath_verbs::{
    LinkCaps, PacketLink, QpNum, QpState, QpType, RxPacket, TxPacket, Wc, WcStatus,
};

/// Those that have something to send by one NIC: one that is full keeps no other waiting.
struct Line {
    /// Indexes of queue pairs with work, in turn. Each stands here at most once.
    ready: VecDeque<u32>,
    /// Packets of the next batch at most: few after the link took only some, because what it does
    /// not take was prepared in vain.
    batch_max: usize,
}

impl Line {
    const EMPTY: Self = Self { ready: VecDeque::new(), batch_max: TX_BATCH_PACKETS };
}

/// A device without its link.
pub(crate) struct Engine {
    pub(crate) mrs: MrTable,
    pub(crate) qps: QpTable,
    pub(crate) cqs: Cqs,
    pub(crate) srqs: Vec<RecvQueue>,
    pub(crate) counters: RoceCounters,
    /// By NIC.
    lines: Vec<Line>,
    /// Index of the UC queue pair that a packet last went through the rules for: most likely the
    /// next one is for it, too.
    last_heard: u32,
    scratch: Box<[u8]>,
    /// Where responses to READs are written; made for the first READ that comes in, because most
    /// devices never see one.
    replies: Box<[u8]>,
    /// Of scratch a packet needs no more than this either.
    packet_bytes_max: usize,
    packets: Vec<TxPacket<'static>>,
    planned: Vec<Planned>,
    /// Queue pairs that were found in planning to have lost the memory of their oldest work
    /// request, or what their peers were to read with the packet of that number.
    gone: Vec<(u32, Option<u64>)>,
    id_space: Option<IdSpace>,
    /// Of RC queue pairs.
    pub(crate) timers: Timers,
    /// The time of this turn, for RC alone.
    now: Time,
    /// What came in lets RC queue pairs send at once.
    answers_due: bool,
}

impl Engine {
    pub(crate) fn new(
        config: &RoceConfig,
        packet_bytes_max: usize,
        (of_link, nics): (&LinkCaps, usize),
    ) -> Self {
        Self {
            mrs: MrTable::new(config.seed),
            qps: QpTable::new(config.qp_max, config.seed, of_link.qp_share),
            cqs: Cqs::new(),
            srqs: Vec::new(),
            counters: RoceCounters::default(),
            lines: std::iter::repeat_with(|| Line::EMPTY).take(nics).collect(),
            last_heard: 0,
            scratch: vec![0; TX_BATCH_PACKETS * packet_bytes_max].into(),
            replies: Box::default(),
            packet_bytes_max,
            packets: Vec::with_capacity(TX_BATCH_PACKETS),
            planned: Vec::with_capacity(TX_BATCH_PACKETS),
            gone: Vec::new(),
            id_space: of_link.foreign_peers.then(|| IdSpace::new(packet_bytes_max)),
            timers: Timers::default(),
            now: Time::ZERO,
            answers_due: false,
        }
    }

    /// It is `now`: RC queue pairs whose timers are due go back, or give up.
    pub(crate) fn tick(&mut self, now: Time) {
        self.now = now;
        while let Some(index) = self.timers.pop_due(now) {
            let Some(qp) = self.qps.at(index) else { continue };
            let mut surroundings = Surroundings {
                mrs: &mut self.mrs,
                cqs: &mut self.cqs,
                srqs: &mut self.srqs,
                counters: &mut self.counters,
            };
            qp.on_rc_timer(now, &mut surroundings);
            self.after_rc(index);
        }
    }

    /// Lists an RC queue pair that may send, and sets its timer.
    fn after_rc(&mut self, index: u32) {
        let Some(qp) = self.qps.at(index) else { return };
        let Some(rc) = &qp.rc else { return };
        self.timers.set(index, rc.requester.deadline());
        if rc.has_work() {
            self.answers_due = true;
            self.list(index);
        }
    }

    /// Whether packets that came in are to be answered in the same turn.
    pub(crate) fn has_answers(&self) -> bool {
        self.answers_due
    }

    /// Whether a queue pair may have something to send, or completion queues have failed whose
    /// queue pairs are not yet in error.
    pub(crate) fn has_work(&self) -> bool {
        self.lines.iter().any(|line| !line.ready.is_empty()) || self.cqs.newly_failed
    }

    /// Room in the list of queue pairs with work, so that posting never allocates.
    pub(crate) fn reserve_ready(&mut self, qps: usize) {
        for Line { ready, .. } in &mut self.lines {
            ready.reserve(qps.saturating_sub(ready.len()));
        }
    }

    /// The queue pair at `index` has work.
    pub(crate) fn list(&mut self, index: u32) {
        if let Some(qp) = self.qps.at(index) {
            line_up(qp, &mut self.lines, index);
        }
    }

    /// Sends what is posted, until the link is full or received packets deserve their turn.
    pub(crate) fn pump<L: PacketLink>(&mut self, link: &mut L) -> usize {
        let mut moved = 0;
        self.answers_due = false;
        for nic in 0..self.lines.len() {
            for _ in 0..TX_BATCHES_PER_PROGRESS {
                if self.lines[nic].ready.is_empty() {
                    break;
                }
                let (offered, taken) = self.offer(link, nic);
                moved += taken;
                if taken < offered {
                    break;
                }
            }
        }
        moved
    }

    /// Plans a batch, offers it and books what the link took.
    fn offer<L: PacketLink>(&mut self, link: &mut L, nic: usize) -> (usize, usize) {
        let batch_max = self.lines[nic].batch_max;
        let mut batch = Batch {
            packets: std::mem::take(&mut self.packets),
            scratch: &mut self.scratch,
            replies: &mut self.replies,
            reply_packets: 0,
            mrs: &self.mrs,
        };
        self.planned.clear();
        while batch.packets.len() < batch_max && batch.scratch.len() >= self.packet_bytes_max {
            let Some(index) = self.lines[nic].ready.pop_front() else { break };
            let Some(qp) = self.qps.at(index) else { continue };
            qp.requester.listed = false;
            let (num, qp_type, pd) = (qp.num, qp.init.qp_type, qp.init.pd);
            let omits_icrc = qp.omits_icrc;
            // An RC queue pair in error still tells why.
            let may_send = qp.state == QpState::Rts || qp.rc.is_some();
            let Some(path) = qp.path.as_ref().filter(|_| may_send) else { continue };
            let source = link.source_addr(path.source_port);
            let sender = Sender { num, index, qp_type, pd, path, source, omits_icrc };
            // A packet whose memory is gone takes scratch, too.
            let room = batch_max - batch.packets.len();
            let room = TX_TURN_PACKETS.min(room).min(batch.scratch.len() / self.packet_bytes_max);
            if let Some(rc) = &mut qp.rc {
                let before = self.planned.len();
                let turn = rc.plan(&sender, room, &mut batch, &mut self.planned);
                match turn {
                    rc::Turn::Idle => {}
                    rc::Turn::More => line_up(qp, &mut self.lines, index),
                    rc::Turn::SendMemoryGone => self.gone.push((index, None)),
                    rc::Turn::ReadMemoryGone(seq) => self.gone.push((index, Some(seq))),
                }
                if turn == rc::Turn::More && self.planned.len() == before {
                    // No room for responses in this batch: it is full for its turn's purposes, and
                    // the next one begins here.
                    let ready = &mut self.lines[nic].ready;
                    ready.rotate_right(usize::from(!ready.is_empty()));
                    break;
                }
                continue;
            }
            let turn = qp.requester.plan(&sender, room, &mut batch, &mut self.planned);
            if turn == Turn::BadMemory && qp.requester.nothing_planned() {
                self.gone.push((index, None));
                continue;
            }
            if turn == Turn::Empty {
                continue;
            }
            line_up(qp, &mut self.lines, index);
            if turn == Turn::BadMemory {
                break;
            }
        }
        let offered = batch.packets.len();
        let taken = if offered == 0 { 0 } else { link.transmit(&batch.packets).min(offered) };
        self.packets = recycle(batch.packets);
        self.lines[nic].batch_max = match taken < offered {
            true => (2 * taken).clamp(TX_BATCH_PACKETS_MIN, TX_BATCH_PACKETS),
            false => (2 * batch_max).min(TX_BATCH_PACKETS),
        };
        self.book(taken, link, nic);
        if !self.gone.is_empty() {
            self.fail_those_gone();
        }
        (offered, taken)
    }

    /// Fails the queue pairs whose memory is gone, now that no batch has bytes that they hold.
    #[cold]
    fn fail_those_gone(&mut self) {
        let Self { gone, qps, mrs, cqs, srqs, counters, lines, .. } = self;
        for (index, read) in gone.drain(..) {
            let Some(qp) = qps.at(index) else { continue };
            match read {
                // Choice: ERR rather than SQE, so that one recovery serves every queue pair type.
                None => qp.fail_send(WcStatus::LocProtErr, (cqs, mrs)),
                Some(seq) => {
                    qp.refuse_read(seq, &mut Surroundings { mrs, cqs, srqs, counters });
                    line_up(qp, lines, index);
                }
            }
        }
    }

    /// Completes what was taken and takes back the plans for the rest.
    fn book<L: PacketLink>(&mut self, taken: usize, link: &mut L, nic: usize) {
        let mut left_at = None;
        let (done, rest) = self.planned.split_at(taken);
        self.counters.packets_sent += taken as u64;
        for packet in done {
            let Some(qp) = self.qps.at(packet.qp_index) else { continue };
            let What::Message { payload_bytes, last } = packet.what else {
                if let Some(rc) = &mut qp.rc {
                    let again = rc.on_taken(packet.what, self.now);
                    self.counters.retransmitted += u64::from(again);
                    self.timers.set(packet.qp_index, rc.requester.deadline());
                }
                continue;
            };
            let taken = qp.requester.on_taken(payload_bytes, last, &mut self.mrs);
            let Some(wr) = taken else { continue };
            self.counters.messages_sent += 1;
            if wr.flags.signaled {
                let wc = Wc {
                    wr_id: wr.wr_id,
                    opcode: send_opcode(&wr.op),
                    qp_num: qp.num,
                    timestamp: Some(*left_at.get_or_insert_with(|| link.left_at())),
                    ..Wc::default()
                };
                self.cqs.push(qp.init.send_cq, wc);
            }
        }
        if rest.is_empty() {
            return;
        }
        cold_path();
        for packet in rest {
            let Some(qp) = self.qps.at(packet.qp_index) else { continue };
            match &mut qp.rc {
                Some(rc) => rc.undo(packet.what),
                None => qp.requester.unplan(),
            }
            qp.requester.listed = false;
        }
        self.line_up_again(taken, nic);
    }

    /// Puts the queue pairs in line again whose packets the link did not take: of whom it took
    /// nothing keeps its turn. Were it to lose that, a link that has room now and then might find
    /// the same one in front each time.
    #[cold]
    fn line_up_again(&mut self, taken: usize, nic: usize) {
        let Self { planned, qps, lines, .. } = self;
        let ready = &mut lines[nic].ready;
        let (done, rest) = planned.split_at(taken);
        ready.retain(|&index| qps.at(index).is_some_and(|qp| qp.requester.listed));
        let last = done.last().map(|packet| packet.qp_index);
        for index in rest.iter().rev().map(|packet| packet.qp_index) {
            let Some(qp) = qps.at(index) else { continue };
            if Some(index) != last && !qp.requester.listed {
                qp.requester.listed = true;
                ready.push_front(index);
            }
        }
        if let Some(index) = last
            && rest.iter().any(|packet| packet.qp_index == index)
            && let Some(qp) = qps.at(index)
        {
            line_up(qp, lines, index);
        }
    }

    /// A packet came in.
    pub(crate) fn on_packet(&mut self, rx: &RxPacket<'_>) {
        self.counters.packets_received += 1;
        // What foreign peers send on IPv4 has an ICRC that only the long way makes sense of.
        if self.id_space.is_none()
            && let Some(qp) = self.qps.at(self.last_heard)
            && qp.on_middle(rx, &mut self.mrs)
        {
            return;
        }
        let packet = match Packet::parse(rx.bytes) {
            Ok(packet) => packet,
            Err(error) => return self.note_unreadable(&error),
        };
        let num = QpNum(packet.bth.dest_qp());
        let qp = self.qps.find_mut(num);
        let ((base, from_peer), known) = match qp {
            Some(qp) => (qp.hear(rx), Some(qp)),
            None => {
                cold_path();
                ((IcrcBase::new(rx.source, rx.dest, num.0), false), None)
            }
        };
        // The ICRC comes first: corruption is counted as such, whatever field it hit.
        let difference = match &known {
            Some(qp) if qp.omits_icrc => Some(packet.icrc ^ NO_ICRC),
            _ => base.difference(rx.bytes),
        };
        if difference != Some(0) {
            cold_path();
            let ids = self.id_space.as_ref().filter(|_| base.is_v4()).zip(difference);
            // Of a foreign peer, or corrupt.
            if !ids.is_some_and(|(ids, difference)| ids.explains(rx.bytes.len(), difference)) {
                return self.counters.bad_icrc += 1;
            }
            self.counters.icrc_by_ip_id += 1;
        }
        // The top bit only tells full members of the partition from limited ones.
        if packet.bth.pkey() | 0x8000 != PKEY_DEFAULT {
            cold_path();
            return self.counters.bad_pkey += 1;
        }
        let Some(qp) = known else { return self.counters.unknown_qp += 1 };
        if !qp.receives() {
            cold_path();
            return self.counters.not_rtr += 1;
        }
        let mut surroundings = Surroundings {
            mrs: &mut self.mrs,
            cqs: &mut self.cqs,
            srqs: &mut self.srqs,
            counters: &mut self.counters,
        };
        match (qp.init.qp_type, packet.opcode.service) {
            (QpType::Uc, Service::Uc) if from_peer => {
                qp.on_uc(&packet, rx, &mut surroundings);
                self.last_heard = self.qps.index(num);
            }
            (QpType::Ud, Service::Ud) => qp.on_ud(&packet, rx, &mut surroundings),
            (QpType::Rc, Service::Rc) if from_peer => {
                qp.on_rc(&packet, rx, self.now, &mut surroundings);
                self.after_rc_packet(num, packet.opcode.operation);
            }
            (QpType::Uc, Service::Uc) | (QpType::Rc, Service::Rc) => {
                self.counters.wrong_source += 1;
            }
            _ => self.counters.bad_opcode += 1,
        }
    }

    #[cold]
    fn note_unreadable(&mut self, error: &WireError) {
        match error {
            WireError::BadVersion(_) => self.counters.bad_version += 1,
            WireError::BadOpcode(_) => self.counters.bad_opcode += 1,
            _ => self.counters.too_short += 1,
        }
    }

    #[inline(never)]
    fn after_rc_packet(&mut self, num: QpNum, operation: Operation) {
        if operation == Operation::ReadRequest && self.replies.is_empty() {
            self.replies = vec![0; READ_REPLY_PACKETS * self.packet_bytes_max].into();
        }
        let index = self.qps.index(num);
        self.after_rc(index);
    }

    /// Queue pairs of completion queues that overflowed go to ERR. Their own flushes may overflow
    /// others; each queue fails once, so this ends.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.cqs.newly_failed {
            self.fail_those_hit();
        }
    }

    #[cold]
    fn fail_those_hit(&mut self) {
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

/// Puts a queue pair in line for its turn, where it is not.
#[inline(never)]
fn line_up(qp: &mut Qp, lines: &mut [Line], index: u32) {
    if !qp.requester.listed {
        qp.requester.listed = true;
        lines[usize::from(qp.nic)].ready.push_back(index);
    }
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
