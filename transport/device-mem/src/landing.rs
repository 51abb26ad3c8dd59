//! How a message lands at the peer, by the rules of UC and UD.
//!
//! They are those of the RoCE device (its responder says where each comes from) with one packet
//! for each message of any length: a message without a receive work request is dropped silently;
//! one longer than its receive work request completes it with `LocLenErr`, and nothing is written;
//! receive memory that was deregistered is `LocProtErr`, and the queue pair goes to ERR; a WRITE
//! to a key or range that is not open is dropped silently.

use crate::limits::GRH_BYTES;
use crate::port::{Arrival, Inbound, Port};
use towpath_memory::{MrTable, Source};
use towpath_verbs::{
    QpNum, QpType, RecvWr, RemoteAddr, SGE_MAX, SendWr, SgList, WcOpcode, WcStatus,
};

/// The bytes of a message, piece by piece.
pub(crate) struct Gather<'t> {
    pieces: [Source<'t>; SGE_MAX],
    next: usize,
    byte_len: u32,
}

impl<'t> Gather<'t> {
    /// The bytes that a send names; `None` when its memory does not cover them.
    #[inline]
    pub(crate) fn new(mrs: &'t MrTable, list: &SgList, byte_len: u32) -> Option<Self> {
        let mut pieces = [Source::EMPTY; SGE_MAX];
        for (piece, sge) in pieces.iter_mut().zip(list.iter()).filter(|(_, sge)| sge.length > 0) {
            *piece = mrs.source(sge)?;
        }
        Some(Self { pieces, next: 0, byte_len })
    }

    /// Copies on into `target` until one of them has no more.
    #[inline]
    fn fill(&mut self, mut target: towpath_memory::Target<'_>) {
        while let Some(piece) = self.pieces.get_mut(self.next).filter(|_| target.byte_len() > 0) {
            target.fill(piece);
            self.next += usize::from(piece.byte_len() == 0);
        }
    }
}

/// A message on its way.
pub(crate) struct Message<'t> {
    pub(crate) qp_type: QpType,
    pub(crate) dest_qp: QpNum,
    pub(crate) imm_data: Option<u32>,
    pub(crate) bytes: Gather<'t>,
    /// UD: the sender, and the key that it names.
    pub(crate) datagram: Option<(QpNum, u32)>,
    /// WRITE: where it goes.
    pub(crate) remote: Option<RemoteAddr>,
}

impl<'t> Message<'t> {
    /// What a send work request carries, on a queue pair of this type that is number `from` and
    /// joined to `dest_qp`.
    pub(crate) fn new(
        wr: &SendWr,
        (qp_type, from, dest_qp): (QpType, QpNum, QpNum),
        bytes: Gather<'t>,
    ) -> Self {
        use towpath_verbs::SendOp::{SendWithImm, Write, WriteWithImm};
        let (remote, imm_data) = match wr.op {
            SendWithImm { imm_data } => (None, Some(imm_data)),
            Write { remote } => (Some(remote), None),
            WriteWithImm { remote, imm_data } => (Some(remote), Some(imm_data)),
            _ => (None, None),
        };
        let datagram = wr.ud.as_ref().map(|ud| (from, ud.remote_qkey));
        let dest_qp = wr.ud.as_ref().map_or(dest_qp, |ud| ud.remote_qpn);
        Self { qp_type, dest_qp, imm_data, bytes, datagram, remote }
    }
}

impl Inbound {
    /// Lands a message, or drops it and counts why.
    pub(crate) fn land(&mut self, port: &Port, mut message: Message<'_>) {
        let (counters, dest_qp) = (&mut self.counters, message.dest_qp);
        let index = crate::qp::index_of(dest_qp);
        let found = self.responders.get_mut(index).and_then(Option::as_mut);
        let Some(qp) = found.filter(|qp| qp.num == dest_qp) else {
            counters.unknown_qp += 1;
            return;
        };
        if !qp.receives || qp.qp_type != message.qp_type {
            counters.not_rtr += 1;
            return;
        }
        if message.datagram.is_some_and(|(_, qkey)| qkey != qp.qkey) {
            counters.bad_qkey += 1;
            return;
        }
        let byte_len = message.bytes.byte_len;
        let target = match message.remote {
            // A WRITE of no bytes reaches no memory, and its key is not looked at.
            Some(remote) if byte_len > 0 => {
                let open = qp.access.remote_write;
                let target = self.mrs.remote_target(remote, byte_len as usize).filter(|_| open);
                if target.is_none() {
                    counters.bad_rkey += 1;
                    return;
                }
                target
            }
            _ => None,
        };
        let is_write = message.remote.is_some();
        let mut wr = None;
        if !is_write || message.imm_data.is_some() {
            let queue = match qp.srq {
                Some(srq) => self.srqs.get_mut(srq.0 as usize),
                None => Some(&mut qp.recvs),
            };
            wr = queue.and_then(|queue| queue.pop().ok());
            if wr.is_none() {
                counters.no_recv_wqe += 1;
                return;
            }
        }
        if let Some(target) = target {
            message.bytes.fill(target);
        }
        let mut arrival = Arrival {
            wr_id: wr.map_or(0, |wr| wr.wr_id),
            status: WcStatus::Success,
            opcode: if is_write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv },
            byte_len,
            imm_data: message.imm_data,
            qp_num: qp.num,
            src_qp: message.datagram.map(|(src_qp, _)| src_qp),
        };
        if let Some(wr) = wr.as_ref().filter(|_| !is_write) {
            (arrival.status, arrival.byte_len) = scatter(&self.mrs, wr, &mut message);
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
        if wr.is_some() {
            self.complete(port, cq, arrival);
        }
    }

    fn complete(&mut self, port: &Port, cq: towpath_verbs::CqNum, arrival: Arrival) {
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

/// Copies a SEND into its receive; how that ended, and how many bytes are there now.
#[inline]
fn scatter(mrs: &MrTable, wr: &RecvWr, message: &mut Message<'_>) -> (WcStatus, u32) {
    let grh = if message.datagram.is_some() { GRH_BYTES } else { 0 };
    let byte_len = u64::from(message.bytes.byte_len) + grh as u64;
    if byte_len > wr.sg_list.byte_len() {
        return (WcStatus::LocLenErr, 0);
    }
    let (mut left, mut grh_left) = (byte_len, grh);
    for sge in wr.sg_list.iter() {
        if left == 0 {
            break;
        }
        if sge.length == 0 {
            continue;
        }
        let Some(target) = mrs.target(sge) else { return (WcStatus::LocProtErr, 0) };
        left = left.saturating_sub(u64::from(sge.length));
        if grh_left == 0 {
            message.bytes.fill(target);
            continue;
        }
        // There is no network whose addresses a routing header could show: it is zero.
        let here = grh_left.min(sge.length as usize);
        grh_left -= here;
        let rest = towpath_verbs::Sge {
            addr: sge.addr + here as u64,
            length: sge.length - here as u32,
            lkey: sge.lkey,
        };
        if mrs.scatter(sge, 0, &[0; GRH_BYTES][..here]).is_err() {
            return (WcStatus::LocProtErr, 0);
        }
        if rest.length > 0
            && let Some(target) = mrs.target(&rest)
        {
            message.bytes.fill(target);
        }
    }
    (WcStatus::Success, byte_len as u32)
}
