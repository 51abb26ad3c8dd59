//! The completer: what answers and silence do to the work requests under way.
//!
//! - An ACK or NAK acknowledges everything before it, completions come in the order of posting, and
//!   only what asked for one or failed completes visibly (`ibv_post_send(3)`, rxe).
//! - An answer that passes over a READ or an atomic whose own answer is missing is an implied NAK:
//!   go back to what is missing (rxe: `COMPST_ERROR_RETRY` from `check_psn`).
//! - NAK for a PSN sequence error: go back at once, once per gap (rxe: `started_retry`). It counts
//!   as a retry.
//! - Silence for `timeout`: go back, and count it. The counter is full again after any progress
//!   (rxe: `reset_retry_counters`); with none left the oldest work request ends with `RetryExcErr`.
//!   Seven is seven here, as the manual page has it (rxe takes it for ever).
//! - RNR NAK: leave the peer alone for as long as its timer says, then go back. Its own counter,
//!   where 7 is for ever, ends in `RnrRetryExcErr` (`ibv_modify_qp(3)`, rxe).
//! - NAKs of the other kinds end the work request that they name with `RemInvReqErr`,
//!   `RemAccessErr` or `RemOpErr`, and the queue pair with it (rxe: `check_ack`).
//! - A response that does not fit its READ or atomic ends it with `BadRespErr` (rxe; hardware's
//!   manual: IBV_WC_BAD_RESP_ERR). Memory of ours that is gone: `LocProtErr`.
//! - Answers to what is acknowledged, or was never sent, are dropped (rxe: ghost acks), and so are
//!   reserved syndromes (choice).

use super::Requester;
use super::requester::Wqe;
use crate::qp::{Qp, send_opcode};
use crate::responder::{Surroundings, scatter};
use crate::wire::{NakCode, Operation, Packet, Syndrome};
use towpath_base::Time;
use towpath_verbs::{CqNum, QpNum, RxPacket, SendOp, Wc, WcStatus};

/// Whose completions they are, and when the answer came in.
#[derive(Clone, Copy)]
struct Owner {
    num: QpNum,
    cq: CqNum,
    at: Time,
}

/// Whether everything up to where an answer points is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Whole,
    /// A READ or an atomic in between is not answered.
    Missing,
}

impl Qp {
    /// An answer from the peer.
    pub(super) fn on_rc_answer(
        &mut self,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
        now: Time,
        s: &mut Surroundings<'_>,
    ) {
        let owner = Owner { num: self.num, cq: self.init.send_cq, at: rx.timestamp };
        let Some(rc) = self.rc.as_mut() else { return };
        if let Err(status) = rc.requester.on_answer(packet, now, owner, s) {
            self.fail_send(status, (s.cqs, s.mrs));
        }
    }

    /// Its timer is due.
    pub(crate) fn on_rc_timer(&mut self, now: Time, s: &mut Surroundings<'_>) {
        let Some(rc) = self.rc.as_mut() else { return };
        if let Err(status) = rc.requester.on_timer(now, s) {
            self.fail_send(status, (s.cqs, s.mrs));
        }
    }
}

impl Requester {
    fn on_answer(
        &mut self,
        packet: &Packet<'_>,
        now: Time,
        owner: Owner,
        s: &mut Surroundings<'_>,
    ) -> Result<(), WcStatus> {
        let seq = self.numbering.seq(packet.bth.psn(), self.una);
        let Some(seq) = seq.filter(|&seq| self.una <= seq && seq < self.sent) else {
            s.counters.stale_answers += 1;
            return Ok(());
        };
        let syndrome = match packet.aeth().map(|aeth| Syndrome::of(aeth.syndrome)) {
            Some(None) => {
                s.counters.bad_answers += 1;
                return Ok(());
            }
            Some(Some(syndrome)) => Some(syndrome),
            None => None,
        };
        match packet.opcode.operation {
            Operation::Acknowledge => match syndrome {
                Some(syndrome) => self.on_ack(seq, syndrome, now, owner, s),
                None => Ok(()),
            },
            _ if !matches!(syndrome, None | Some(Syndrome::Ack { .. })) => {
                s.counters.bad_answers += 1;
                Err(WcStatus::BadRespErr)
            }
            _ => self.on_response(seq, packet, now, owner, s),
        }
    }

    fn on_ack(
        &mut self,
        seq: u64,
        syndrome: Syndrome,
        now: Time,
        owner: Owner,
        s: &mut Surroundings<'_>,
    ) -> Result<(), WcStatus> {
        let acknowledged = match syndrome {
            Syndrome::Ack { .. } => seq + 1,
            _ => seq,
        };
        if self.acknowledge(acknowledged, now, owner, s) == Reach::Missing {
            return self.retry(now, s);
        }
        match syndrome {
            Syndrome::Ack { .. } => Ok(()),
            Syndrome::RnrNak(timer) => {
                s.counters.rnr_naks_received += 1;
                if self.rnr_until != Time::NEVER {
                    return Ok(());
                }
                match (self.terms.attr.rnr_retry, self.rnr_retries_left) {
                    (7, _) => {}
                    (_, 0) => return Err(WcStatus::RnrRetryExcErr),
                    (_, left) => self.rnr_retries_left = left - 1,
                }
                self.rnr_until = now + timer.delay();
                Ok(())
            }
            Syndrome::Nak(code) => {
                s.counters.naks_received += 1;
                match code {
                    NakCode::PsnSequenceError => self.retry(now, s),
                    NakCode::InvalidRequest => Err(WcStatus::RemInvReqErr),
                    NakCode::RemoteAccessError => Err(WcStatus::RemAccessErr),
                    NakCode::RemoteOperationalError => Err(WcStatus::RemOpErr),
                }
            }
        }
    }

    /// A packet of the response to a READ or an atomic.
    fn on_response(
        &mut self,
        seq: u64,
        packet: &Packet<'_>,
        now: Time,
        owner: Owner,
        s: &mut Surroundings<'_>,
    ) -> Result<(), WcStatus> {
        let index = self.queue.partition_point(|wqe| wqe.end <= seq);
        let is_read = packet.opcode.operation == Operation::ReadResponse;
        let wqe = self.queue.get(index).filter(|w| w.is_answered() && w.is_read() == is_read);
        let fits = wqe.is_some_and(|wqe| !is_read || self.fits(wqe, seq, packet));
        if !fits {
            s.counters.bad_answers += 1;
            return Err(WcStatus::BadRespErr);
        }
        if self.acknowledge(seq, now, owner, s) == Reach::Missing {
            return self.retry(now, s);
        }
        let Some(wqe) = self.queue.front() else { return Ok(()) };
        let list = self.lists.of(&wqe.wr);
        let landed = match packet.atomic_ack() {
            Some(ack) => scatter(s.mrs, list, 0, &ack.original.to_ne_bytes()),
            None => {
                let offset = (seq - wqe.first) as u32 * self.terms.mtu;
                scatter(s.mrs, list, offset, packet.payload)
            }
        };
        if !landed {
            return Err(WcStatus::LocProtErr);
        }
        self.una = seq + 1;
        if self.una == wqe.end {
            self.complete_front(owner, s);
        }
        self.on_progress(now);
        Ok(())
    }

    /// Whether a response packet has the length and the place that its number demands. FIRST and
    /// MIDDLE are not told apart: a READ that was asked for again starts anywhere (rxe).
    fn fits(&self, wqe: &Wqe, seq: u64, packet: &Packet<'_>) -> bool {
        let offset = (seq - wqe.first) as u32 * self.terms.mtu;
        let bytes = (wqe.wr.byte_len - offset).min(self.terms.mtu);
        let ends = self.read_end(wqe, seq) == seq + 1;
        packet.payload.len() == bytes as usize && packet.opcode.position.ends() == ends
    }

    /// Everything before `end` is acknowledged, up to what must be answered otherwise.
    fn acknowledge(
        &mut self,
        end: u64,
        now: Time,
        owner: Owner,
        s: &mut Surroundings<'_>,
    ) -> Reach {
        let before = self.una;
        let mut reach = Reach::Whole;
        while self.una < end {
            let Some(wqe) = self.queue.front() else { break };
            if wqe.is_answered() {
                reach = Reach::Missing;
                break;
            }
            self.una = end.min(wqe.end);
            if self.una == wqe.end {
                self.complete_front(owner, s);
            }
        }
        if self.una > before {
            self.on_progress(now);
        }
        reach
    }

    fn complete_front(&mut self, owner: Owner, s: &mut Surroundings<'_>) {
        let Some(Wqe { wr, .. }) = self.queue.pop_front() else { return };
        self.lists.give_up(&wr, s.mrs);
        self.next_index = self.next_index.saturating_sub(1);
        s.counters.messages_sent += 1;
        if wr.flags.signaled {
            let fetched = !matches!(
                wr.op,
                SendOp::Send
                    | SendOp::SendWithImm { .. }
                    | SendOp::Write { .. }
                    | SendOp::WriteWithImm { .. }
            );
            let wc = Wc {
                wr_id: wr.wr_id,
                opcode: send_opcode(&wr.op),
                byte_len: if fetched { wr.byte_len } else { 0 },
                qp_num: owner.num,
                timestamp: Some(owner.at),
                ..Wc::default()
            };
            s.cqs.push(owner.cq, wc);
        }
    }

    /// Something is missing: goes back for it, unless it did.
    fn retry(&mut self, now: Time, s: &mut Surroundings<'_>) -> Result<(), WcStatus> {
        if self.went_back || self.rnr_until != Time::NEVER {
            return Ok(());
        }
        self.count_retry()?;
        s.counters.go_backs += 1;
        self.go_back();
        self.went_back = true;
        self.arm(now);
        Ok(())
    }

    fn count_retry(&mut self) -> Result<(), WcStatus> {
        self.retries_left = self.retries_left.checked_sub(1).ok_or(WcStatus::RetryExcErr)?;
        Ok(())
    }

    fn on_timer(&mut self, now: Time, s: &mut Surroundings<'_>) -> Result<(), WcStatus> {
        if self.deadline() > now {
            return Ok(());
        }
        if self.rnr_until == Time::NEVER {
            s.counters.ack_timeouts += 1;
            self.count_retry()?;
        }
        self.rnr_until = Time::NEVER;
        self.go_back();
        self.went_back = false;
        self.arm(now);
        Ok(())
    }
}
