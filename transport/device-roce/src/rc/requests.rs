//! Requests that came in order: checked, carried out, or refused.
//!
//! - A refused request ends the queue pair, after its NAK (rxe: class C errors). Invalid request:
//!   an opcode that does not go on with the message under way, or that `qp_access_flags` do not
//!   grant, lengths that do not fit, more READs and atomics than `max_dest_rd_atomic`, a misaligned
//!   atomic, SEND with invalidate (which is not offered). Remote access error: key, range or access
//!   of the region, checked for the whole message at its first packet. Remote operational error: a
//!   receive work request whose memory is gone.
//! - The receive work request of the refused message completes as rxe does it (`RemInvReqErr`),
//!   with `LocLenErr` where it was too short (libibverbs), `LocProtErr` where its memory is gone.

use super::resources::Content;
use super::responder::read_of;
use crate::qp::Qp;
use crate::responder::{Message, Surroundings, length_fits, scatter};
use crate::wire::{NakCode, Operation, Packet};
use towpath_verbs::{RemoteAddr, RxPacket, Wc, WcOpcode, WcStatus};

/// What became of a request that came in order.
enum Verdict {
    Done,
    NotReady,
    Refused(NakCode, WcStatus),
}

const INVALID: Verdict = Verdict::Refused(NakCode::InvalidRequest, WcStatus::RemInvReqErr);
const FORBIDDEN: Verdict = Verdict::Refused(NakCode::RemoteAccessError, WcStatus::LocAccessErr);

impl Qp {
    /// A request from the peer.
    pub(super) fn on_rc_request(
        &mut self,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) {
        let reader = self.init.qp_access_flags.remote_read.then_some(self.init.pd);
        let Some(rc) = self.rc.as_mut() else { return };
        if !rc.responder.is_next(packet, reader, s) {
            return;
        }
        let expected = rc.responder.expected;
        let verdict = self.take_request(packet, rx, s);
        let Some(rc) = self.rc.as_mut() else { return };
        let answered = matches!(
            packet.opcode.operation,
            Operation::ReadRequest | Operation::CmpSwap | Operation::FetchAdd
        );
        match verdict {
            Verdict::Done if packet.bth.ack_req() && !answered => rc.responder.acknowledge(),
            Verdict::Done => {}
            Verdict::NotReady => {
                s.counters.no_recv_wqe += 1;
                s.counters.rnr_naks_sent += 1;
                rc.responder.ask_to_wait();
            }
            Verdict::Refused(code, status) => self.refuse_request(code, status, expected, s),
        }
    }

    /// Ends the queue pair because of a request, after telling the peer.
    pub(crate) fn refuse_request(
        &mut self,
        code: NakCode,
        status: WcStatus,
        seq: u64,
        s: &mut Surroundings<'_>,
    ) {
        s.counters.naks_sent += 1;
        if let Some(wr_id) = self.give_up_held(s) {
            let (opcode, qp_num) = (WcOpcode::Recv, self.num);
            s.cqs.push(self.init.recv_cq, Wc { wr_id, status, opcode, qp_num, ..Wc::default() });
        }
        let owed = self.rc.as_mut().map(|rc| std::mem::take(&mut rc.responder));
        self.fail((s.cqs, s.mrs), true);
        if let (Some(rc), Some(mut responder)) = (self.rc.as_mut(), owed) {
            responder.refuse(code, seq);
            rc.responder = responder;
        }
    }

    /// What a peer reads cannot be read any more; the packet `seq` was to carry it.
    #[cold]
    pub(crate) fn refuse_read(&mut self, seq: u64, s: &mut Surroundings<'_>) {
        if let Some(rc) = self.rc.as_mut() {
            rc.responder.clear();
        }
        s.counters.bad_rkey += 1;
        self.refuse_request(NakCode::RemoteAccessError, WcStatus::LocAccessErr, seq, s);
    }

    fn take_request(
        &mut self,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) -> Verdict {
        let Some(rc) = self.rc.as_mut() else { return INVALID };
        let (responder, opcode) = (&mut rc.responder, packet.opcode);
        let goes_on = match (responder.message, opcode.operation) {
            (Message::None, _) => opcode.position.starts(),
            (Message::Send { .. }, Operation::Send) | (Message::Write { .. }, Operation::Write) => {
                !opcode.position.starts()
            }
            _ => false,
        };
        if !goes_on || opcode.has_ieth() {
            s.counters.bad_sequences += 1;
            return INVALID;
        }
        match opcode.operation {
            Operation::Send | Operation::Write if !length_fits(packet, responder.mtu) => {
                s.counters.length_error += 1;
                INVALID
            }
            Operation::Send => self.take_send(packet, rx, s),
            Operation::Write => self.take_write(packet, rx, s),
            Operation::ReadRequest => self.take_read(packet, s),
            _ => self.take_atomic(packet, s),
        }
    }

    fn take_send(
        &mut self,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) -> Verdict {
        self.hold_recv_wr(s);
        let Some(wr) = &self.responder.held else { return Verdict::NotReady };
        let Some(rc) = self.rc.as_mut() else { return INVALID };
        let offset = match rc.responder.message {
            Message::Send { offset } => offset,
            _ => 0,
        };
        let end = u64::from(offset) + packet.payload.len() as u64;
        if end > wr.list.byte_len() {
            s.counters.recv_too_long += 1;
            return Verdict::Refused(NakCode::InvalidRequest, WcStatus::LocLenErr);
        }
        if !scatter(s.mrs, &wr.list, offset, packet.payload) {
            return Verdict::Refused(NakCode::RemoteOperationalError, WcStatus::LocProtErr);
        }
        let (ends, end) = (packet.opcode.position.ends(), end as u32);
        let message = if ends { Message::None } else { Message::Send { offset: end } };
        rc.responder.go_on(message);
        if ends {
            self.complete_recv(WcOpcode::Recv, end, packet, rx, s);
        }
        Verdict::Done
    }

    fn take_write(
        &mut self,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) -> Verdict {
        let Some(rc) = self.rc.as_ref() else { return INVALID };
        let (remote, total, offset) = match (rc.responder.message, packet.reth()) {
            (Message::Write { remote, total, offset }, _) => (remote, total, offset),
            (_, Some(reth)) => (RemoteAddr { addr: reth.va, rkey: reth.rkey }, reth.dma_len, 0),
            _ => return INVALID,
        };
        if !self.init.qp_access_flags.remote_write {
            s.counters.bad_sequences += 1;
            return INVALID;
        }
        // A WRITE of no bytes reaches no memory, and its key is not looked at.
        let open = total == 0 || s.mrs.allows_remote_write(self.init.pd, remote, total as usize);
        if offset == 0 && !open {
            s.counters.bad_rkey += 1;
            return FORBIDDEN;
        }
        let (ends, left) = (packet.opcode.position.ends(), (total - offset) as usize);
        let len = packet.payload.len();
        if if ends { len != left } else { len >= left } {
            s.counters.length_error += 1;
            return INVALID;
        }
        let takes_one = packet.opcode.has_imm();
        if takes_one && !self.hold_recv_wr(s) {
            return Verdict::NotReady;
        }
        let addr = remote.addr.wrapping_add(u64::from(offset));
        let here = RemoteAddr { addr, rkey: remote.rkey };
        if len > 0 && s.mrs.remote_write(self.init.pd, here, packet.payload).is_err() {
            s.counters.bad_rkey += 1;
            return FORBIDDEN;
        }
        let Some(rc) = self.rc.as_mut() else { return INVALID };
        rc.responder.served.writes += u64::from(ends);
        rc.responder.served.write_bytes += len as u64;
        let offset = offset + len as u32;
        let message = if ends { Message::None } else { Message::Write { remote, total, offset } };
        rc.responder.go_on(message);
        match takes_one {
            true => self.complete_recv(WcOpcode::RecvRdmaWithImm, total, packet, rx, s),
            false => s.counters.messages_received += u64::from(ends),
        }
        Verdict::Done
    }

    fn take_read(&mut self, packet: &Packet<'_>, s: &mut Surroundings<'_>) -> Verdict {
        let Some(rc) = self.rc.as_mut() else { return INVALID };
        let Some((remote, byte_len)) = read_of(packet) else {
            s.counters.length_error += 1;
            return INVALID;
        };
        let granted = self.init.qp_access_flags.remote_read;
        if !granted || !rc.responder.resources.has_room() || !packet.payload.is_empty() {
            s.counters.bad_sequences += 1;
            return INVALID;
        }
        if byte_len > 0 && !s.mrs.allows_remote_read(self.init.pd, remote, byte_len as usize) {
            s.counters.bad_rkey += 1;
            return FORBIDDEN;
        }
        let packets = rc.responder.packets(byte_len);
        rc.responder.owe(packets, Content::Read { remote, byte_len });
        rc.responder.count_read(byte_len.into());
        s.counters.messages_received += 1;
        Verdict::Done
    }

    fn take_atomic(&mut self, packet: &Packet<'_>, s: &mut Surroundings<'_>) -> Verdict {
        let (Some(rc), Some(eth)) = (self.rc.as_mut(), packet.atomic()) else { return INVALID };
        let granted = self.init.qp_access_flags.remote_atomic;
        if !granted || !rc.responder.resources.has_room() || !packet.payload.is_empty() {
            s.counters.bad_sequences += 1;
            return INVALID;
        }
        let remote = RemoteAddr { addr: eth.va, rkey: eth.rkey };
        if !s.mrs.allows_remote_atomic(self.init.pd, remote) {
            s.counters.bad_rkey += 1;
            return FORBIDDEN;
        }
        let adds = packet.opcode.operation == Operation::FetchAdd;
        let done = s.mrs.remote_atomic(self.init.pd, remote, |was| match adds {
            true => was.wrapping_add(eth.swap_add),
            false if was == eth.compare => eth.swap_add,
            false => was,
        });
        let Ok(original) = done else {
            s.counters.bad_sequences += 1;
            return INVALID;
        };
        let responder = &mut rc.responder;
        responder.resources.remember(responder.expected, original);
        responder.owe(1, Content::Atomic { original });
        responder.served.atomics += 1;
        s.counters.messages_received += 1;
        Verdict::Done
    }
}
