//! How a message lands at the peer, by the rules of UC and UD.
//!
//! They are those of the RoCE device (its responder says where each comes from) with one packet
//! for each message of any length: a message without a receive work request is dropped silently;
//! one longer than its receive work request completes it with `LocLenErr`, and nothing is written;
//! receive memory that was deregistered is `LocProtErr`, and the queue pair goes to ERR; a WRITE
//! to a key or range that is not open is dropped silently.

use crate::limits::GRH_BYTES;
use crate::port::{Arrival, Inbound, Port, Responder};
use crate::recvs::Recvs;
use towpath_memory::{Holds, MrTable, Source, Target};
use towpath_verbs::{
    CqNum, PdNum, QpNum, QpType, RemoteAddr, SendOp, SendWr, SgList, WcOpcode, WcStatus,
};

/// The bytes of a message, piece by piece.
///
/// One serves all messages of a post: a fresh one for each would be copied while its pieces are
/// still being stored.
pub(crate) struct Gather<'t, const N: usize> {
    pieces: [Source<'t>; N],
    count: usize,
    next: usize,
    byte_len: u32,
}

impl<'t, const N: usize> Gather<'t, N> {
    /// Of no bytes.
    pub(crate) fn new() -> Self {
        Self { pieces: [const { Source::EMPTY }; N], count: 0, next: 0, byte_len: 0 }
    }

    /// Takes the bytes that a send names; false when its memory does not cover them.
    #[inline]
    pub(crate) fn take(
        &mut self,
        (mrs, pd): (&'t MrTable, PdNum),
        list: &SgList<N>,
        byte_len: u32,
    ) -> bool {
        (self.count, self.next, self.byte_len) = (0, 0, byte_len);
        for (place, sge) in self.pieces.iter_mut().zip(&**list) {
            let Some(source) = mrs.source(pd, sge) else { return false };
            *place = source;
            self.count += 1;
        }
        true
    }

    /// Copies on into `target` until one of them has no more.
    #[inline]
    fn fill(&mut self, mut target: Target<'_>) {
        while target.byte_len() > 0
            && let Some(piece) = self.pieces[..self.count].get_mut(self.next)
        {
            target.fill(piece);
            if piece.byte_len() == 0 {
                self.next += 1;
            }
        }
    }
}

/// The queue pair that a message comes from.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) qp_type: QpType,
    pub(crate) num: QpNum,
    /// UC: the queue pair that it is joined to.
    pub(crate) dest_qp: QpNum,
}

/// What a send carries beside its bytes.
fn remote_and_imm(op: &SendOp) -> (Option<RemoteAddr>, Option<u32>) {
    match *op {
        SendOp::SendWithImm { imm_data } => (None, Some(imm_data)),
        SendOp::Write { remote } => (Some(remote), None),
        SendOp::WriteWithImm { remote, imm_data } => (Some(remote), Some(imm_data)),
        _ => (None, None),
    }
}

impl Inbound {
    /// Lands the message of a send, or drops it and counts why.
    #[inline]
    pub(crate) fn land<const N: usize>(
        &mut self,
        port: &Port,
        from: Origin,
        wr: &SendWr<N>,
        bytes: &mut Gather<'_, N>,
    ) {
        let Self { mrs, responders, srqs, counters, .. } = self;
        let dest_qp = wr.ud.as_ref().map_or(from.dest_qp, |ud| ud.remote_qpn);
        let found = responders.get_mut(crate::qp::index_of(dest_qp)).and_then(Option::as_mut);
        let Some(qp) = found.filter(|qp| qp.num == dest_qp) else {
            counters.unknown_qp += 1;
            return;
        };
        if !qp.receives || qp.qp_type != from.qp_type {
            counters.not_rtr += 1;
            return;
        }
        if wr.ud.as_ref().is_some_and(|ud| ud.remote_qkey != qp.qkey) {
            counters.bad_qkey += 1;
            return;
        }
        let (remote, imm_data) = remote_and_imm(&wr.op);
        let mut arrival = Arrival {
            wr_id: 0,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: bytes.byte_len,
            imm_data,
            qp_num: qp.num,
            src_qp: wr.ud.as_ref().map(|_| from.num),
        };
        if let Some(remote) = remote {
            let Some(target) = write_target(mrs, qp, remote, bytes.byte_len) else {
                counters.bad_rkey += 1;
                return;
            };
            if imm_data.is_none() {
                bytes.fill(target);
                counters.messages_received += 1;
                return;
            }
            let Some(recv) = recvs_of(qp, srqs).and_then(Recvs::pop) else {
                counters.no_recv_wqe += 1;
                return;
            };
            bytes.fill(target);
            (arrival.wr_id, arrival.opcode) = (recv.wr_id, WcOpcode::RecvRdmaWithImm);
            mrs.release_all(recv.list);
        } else {
            let Some(recvs) = recvs_of(qp, srqs) else {
                counters.no_recv_wqe += 1;
                return;
            };
            // Looked at in its place, not copied out of it.
            let Some(recv) = recvs.peek() else {
                counters.no_recv_wqe += 1;
                return;
            };
            arrival.wr_id = recv.wr_id;
            let grh_bytes = if wr.ud.is_some() { GRH_BYTES } else { 0 };
            (arrival.status, arrival.byte_len) = scatter(mrs, &recv.list, grh_bytes, bytes);
            recvs.finish_peeked(mrs);
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

/// Where the receives of a queue pair wait.
#[inline]
fn recvs_of<'q>(qp: &'q mut Responder, srqs: &'q mut [Recvs]) -> Option<&'q mut Recvs> {
    match qp.srq {
        Some(srq) => srqs.get_mut(srq.0 as usize),
        None => Some(&mut qp.recvs),
    }
}

/// Where a WRITE goes, if it may. One of no bytes reaches no memory, and its key is not looked at.
fn write_target<'t>(
    mrs: &'t mut MrTable,
    qp: &Responder,
    remote: RemoteAddr,
    byte_len: u32,
) -> Option<Target<'t>> {
    if byte_len == 0 {
        return Some(Target::empty());
    }
    if !qp.access.remote_write {
        return None;
    }
    mrs.remote_target(qp.pd, remote, byte_len as usize)
}

/// Copies a SEND into its receive, behind `grh_bytes` of routing header; how that ended, and how
/// many bytes are there now.
#[inline]
fn scatter<const N: usize>(
    mrs: &mut MrTable,
    list: &Holds,
    grh_bytes: usize,
    bytes: &mut Gather<'_, N>,
) -> (WcStatus, u32) {
    let byte_len = u64::from(bytes.byte_len) + grh_bytes as u64;
    if byte_len > list.byte_len() {
        return (WcStatus::LocLenErr, 0);
    }
    let (mut left, mut grh_left) = (byte_len, grh_bytes as u32);
    for hold in list.iter() {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(u64::from(hold.byte_len()));
        let mut rest = hold.whole();
        if grh_left > 0 {
            // There is no network whose addresses a routing header could show: it is zero.
            let here = grh_left.min(rest.byte_len());
            if mrs.scatter(&rest, &[0; GRH_BYTES][..here as usize]).is_err() {
                return (WcStatus::LocProtErr, 0);
            }
            grh_left -= here;
            rest = rest.part(here, rest.byte_len());
        }
        if rest.byte_len() > 0 {
            let Some(target) = mrs.target(&rest) else {
                return (WcStatus::LocProtErr, 0);
            };
            bytes.fill(target);
        }
    }
    (WcStatus::Success, byte_len as u32)
}
