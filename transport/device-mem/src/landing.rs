//! How a message lands at the peer, by the rules of UC and UD.
//!
//! The rules are those of the RoCE device, whose responder cites them; each message is one packet.
//! One without a receive work request is dropped silently; one longer than its receive completes it
//! with `LocLenErr`, and nothing is written. Deregistered receive memory is `LocProtErr`, and the
//! queue pair goes to ERR. A WRITE to a key or range that is not open is dropped silently. A
//! refused send may leave bytes in a receive, which stays posted, or where it WRITEs.

use crate::counters::MemCounters;
use crate::limits::GRH_BYTES;
use crate::port::{Arrival, Inbound, Port, Responder};
use crate::qp::index_of;
use crate::recvs::Recvs;
use std::hint::cold_path;
use towpath_memory::{Holds, MrTable, Room};
use towpath_verbs::{CqNum, PdNum, QpNum, QpType, RemoteAddr, SendOp, SendWr, WcOpcode, WcStatus};

/// The memory of the sender: a table, and the domain of the queue pair.
pub(crate) type Sender<'t> = (&'t MrTable, PdNum);

/// The queue pair that a message comes from.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) qp_type: QpType,
    pub(crate) num: QpNum,
    /// UC: the queue pair that it is joined to.
    pub(crate) dest_qp: QpNum,
}

/// The address and the immediate data of a send.
fn remote_and_imm(op: &SendOp) -> (Option<RemoteAddr>, Option<u32>) {
    match *op {
        SendOp::SendWithImm { imm_data } => (None, Some(imm_data)),
        SendOp::Write { remote } => (Some(remote), None),
        SendOp::WriteWithImm { remote, imm_data } => (Some(remote), Some(imm_data)),
        _ => (None, None),
    }
}

impl Inbound {
    /// Lands the message of a send of `byte_len` bytes, or drops it and counts why. False when
    /// memory that it names may not be read; bytes of its first entries may have landed by then.
    #[inline]
    pub(crate) fn land<const N: usize>(
        &mut self,
        port: &Port,
        from: Origin,
        wr: &SendWr<N>,
        (sender, byte_len): (Sender<'_>, u32),
    ) -> bool {
        let Self { mrs, responders, srqs, counters, .. } = self;
        let (table, pd) = sender;
        let drop_for = |count: &mut u64| {
            cold_path();
            let is_covered = table.covers(pd, &wr.sg_list);
            *count += u64::from(is_covered);
            is_covered
        };
        let qp = match receiver_of(responders, from, wr) {
            Ok(qp) => qp,
            Err(reason) => return drop_for(reason(counters)),
        };
        let (remote, imm_data) = remote_and_imm(&wr.op);
        let mut arrival = Arrival {
            wr_id: 0,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len,
            imm_data,
            qp_num: qp.num,
            src_qp: wr.ud.as_ref().map(|_| from.num),
        };
        if let Some(remote) = remote {
            let may_write = qp.access.remote_write || byte_len == 0;
            let room = Room::of_write(mrs, qp.pd, remote, byte_len as usize);
            let Some(mut room) = room.filter(|_| may_write) else {
                return drop_for(&mut counters.bad_rkey);
            };
            let mut recvs = if imm_data.is_some() { recvs_of(qp, srqs) } else { None };
            let recv = recvs.as_mut().and_then(|recvs| recvs.peek());
            if imm_data.is_some() && recv.is_none() {
                return drop_for(&mut counters.no_recv_wqe);
            }
            let wr_id = recv.map(|recv| recv.wr_id);
            if !table.copy_to(pd, &wr.sg_list, &mut room) {
                return false;
            }
            let (Some(wr_id), Some(recvs)) = (wr_id, recvs) else {
                counters.messages_received += 1;
                return true;
            };
            (arrival.wr_id, arrival.opcode) = (wr_id, WcOpcode::RecvRdmaWithImm);
            recvs.finish_peeked(mrs);
        } else {
            let mut recvs = recvs_of(qp, srqs);
            // Read in place, not copied.
            let Some(recv) = recvs.as_mut().and_then(|recvs| recvs.peek()) else {
                return drop_for(&mut counters.no_recv_wqe);
            };
            arrival.wr_id = recv.wr_id;
            let grh_bytes = if wr.ud.is_some() { GRH_BYTES } else { 0 };
            let landed = scatter(mrs, &recv.list, grh_bytes, (sender, wr, byte_len));
            let Some(landed) = landed else { return false };
            (arrival.status, arrival.byte_len) = landed;
            if let Some(recvs) = recvs {
                recvs.finish_peeked(mrs);
            }
        }
        match arrival.status {
            WcStatus::Success => counters.messages_received += 1,
            WcStatus::LocLenErr => counters.recv_too_long += 1,
            _ => {
                qp.receives = false;
                self.failed_qps.push(qp.num);
                port.set_trouble(true);
            }
        }
        let cq = qp.recv_cq;
        self.complete(port, cq, arrival);
        true
    }

    #[inline]
    fn complete(&mut self, port: &Port, cq: CqNum, arrival: Arrival) {
        let Some(queue) = self.cqs.get_mut(cq.0 as usize) else { return };
        if !queue.failed && queue.ring.push(arrival).is_ok() {
            return;
        }
        self.counters.cq_overruns += 1;
        if !std::mem::replace(&mut queue.failed, true) {
            self.failed_cqs.push(cq);
            port.set_trouble(true);
        }
    }
}

/// The queue pair that takes a message in, or the counter of messages that none takes.
#[inline]
fn receiver_of<'r, const N: usize>(
    responders: &'r mut [Option<Responder>],
    from: Origin,
    wr: &SendWr<N>,
) -> Result<&'r mut Responder, fn(&mut MemCounters) -> &mut u64> {
    let dest_qp = wr.ud.as_ref().map_or(from.dest_qp, |ud| ud.remote_qpn);
    let found = responders.get_mut(index_of(dest_qp)).and_then(Option::as_mut);
    let Some(qp) = found.filter(|qp| qp.num == dest_qp) else {
        return Err(|counters| &mut counters.unknown_qp);
    };
    if !qp.receives || qp.qp_type != from.qp_type {
        return Err(|counters| &mut counters.not_rtr);
    }
    if wr.ud.as_ref().is_some_and(|ud| ud.remote_qkey != qp.qkey) {
        return Err(|counters| &mut counters.bad_qkey);
    }
    Ok(qp)
}

/// The queue in which the receives of a queue pair wait.
#[inline]
fn recvs_of<'q>(qp: &'q mut Responder, srqs: &'q mut [Recvs]) -> Option<&'q mut Recvs> {
    match qp.srq {
        Some(srq) => srqs.get_mut(srq.0 as usize),
        None => Some(&mut qp.recvs),
    }
}

/// Copies a SEND into its receive, behind `grh_bytes` of routing header. Returns the status and how
/// many bytes are there. None when memory of the send may not be read.
#[inline]
fn scatter<const N: usize>(
    mrs: &mut MrTable,
    list: &Holds,
    grh_bytes: usize,
    ((table, pd), wr, byte_len): (Sender<'_>, &SendWr<N>, u32),
) -> Option<(WcStatus, u32)> {
    let byte_len = u64::from(byte_len) + grh_bytes as u64;
    if byte_len > list.byte_len() {
        cold_path();
        return table.covers(pd, &wr.sg_list).then_some((WcStatus::LocLenErr, 0));
    }
    let mut room = Room::of_receive(mrs, list);
    if grh_bytes > 0 {
        // There is no network whose addresses a routing header could show: it is zero.
        room.write(&[0; GRH_BYTES][..grh_bytes]);
    }
    if !table.copy_to(pd, &wr.sg_list, &mut room) {
        return None;
    }
    Some(if room.is_gone() {
        (WcStatus::LocProtErr, 0)
    } else {
        (WcStatus::Success, byte_len as u32)
    })
}
