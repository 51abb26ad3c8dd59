//! The responder: requests in the order of their PSNs, and what is answered to them.
//!
//! - A request ahead of the expected PSN is dropped; the first one gets a NAK for a sequence error,
//!   and no more of them until the expected one is there (rxe: `sent_psn_nak`).
//! - A request behind it is a duplicate. SEND and WRITE are acknowledged again, a READ is read
//!   again, an atomic is answered with its first result (rxe: `duplicate_request`).
//! - ACKs are asked for by the requester, and one may stand for many: only the last of those that
//!   the link did not take yet goes out (choice: rxe sends each). It carries how many messages were
//!   finished (MSN) and no credits (rxe: `AETH_ACK_UNLIMITED`).
//! - Replies to READs and atomics go out in the order of their PSNs, ACKs and NAKs behind them,
//!   because they acknowledge everything before.
//! - No receive work request: RNR NAK with our `min_rnr_timer`, and the request is expected again.
//!   A SEND takes one at its first packet, a WRITE at the packet with the immediate (rxe).
//!
//! How a request is checked and carried out stands in `requests`.

use super::plain::{Plain, packet_bytes_max};
use super::resources::{Content, Repeat, Reply, Resources};
use super::{Numbering, Terms, Turn};
use crate::limits::{MESSAGE_BYTES_MAX, READ_REPLY_PACKETS_ENOUGH};
use crate::requester::{Batch, Planned, Sender, What, position};
use crate::responder::{Message, Surroundings};
use crate::wire::opcode::{AETH_BYTES, ATOMIC_ACK_BYTES, number};
use crate::wire::{
    Aeth, AtomicAckEth, CREDITS_UNLIMITED, IcrcBase, NakCode, Opcode, Operation, Packet, RnrTimer,
    Syndrome,
};
use towpath_base::serial::Psn;
use towpath_verbs::{PdNum, RemoteAddr, Served, VerbError};

/// What is to be said besides the replies.
#[derive(Clone, Copy)]
enum Answer {
    /// Everything up to the last SEND or WRITE packet is here.
    Ack,
    /// The packet `seq` is refused, missing or too early.
    Nak { seq: u64, syndrome: Syndrome },
}

/// The receiving half of an RC queue pair.
#[derive(Default)]
pub(crate) struct Responder {
    numbering: Numbering,
    pub(super) mtu: u32,
    rnr_timer: RnrTimer,
    /// The packet that comes next.
    pub(super) expected: u64,
    /// One behind the last packet of a SEND or WRITE that was taken. ACKs reach no further: one at
    /// the PSN of a READ or atomic would stand for an answer that may be lost (rxe takes it so).
    ack_end: u64,
    /// Messages finished.
    msn: u32,
    pub(super) message: Message,
    /// The gap before what came last has been told, or the peer told to wait.
    nak_sent: bool,
    answer: Option<Answer>,
    /// The answer lies in the batch being offered.
    answer_planned: bool,
    pub(super) resources: Resources,
    /// What the peer did, and READs owed, over all connections of the queue pair.
    pub(crate) served: Served,
}

impl Responder {
    /// The responder of the next connection: a queue pair that went through RESET goes on counting.
    pub(super) fn start(&self, psn: Psn, terms: Terms) -> Self {
        Self {
            numbering: Numbering { zero: psn },
            mtu: terms.mtu,
            rnr_timer: RnrTimer::new(terms.attr.min_rnr_timer).unwrap_or_default(),
            resources: Resources::new(terms.attr.max_dest_rd_atomic),
            served: self.served,
            ..Self::default()
        }
    }

    /// Owes nothing any more.
    pub(crate) fn clear(&mut self) {
        self.resources.clear();
        self.answer = None;
        self.message = Message::None;
    }

    /// Whether something is to be sent.
    pub(crate) fn owes(&self) -> bool {
        (self.answer.is_some() && !self.answer_planned) || !self.resources.is_idle()
    }

    /// Adds up to `packets_max` packets to the batch.
    pub(super) fn plan(
        &mut self,
        sender: &Sender<'_>,
        base: &IcrcBase,
        packets_max: usize,
        batch: &mut Batch<'_>,
        planned: &mut Vec<Planned>,
    ) -> Turn {
        let (qp_index, end) = (sender.index, planned.len() + packets_max);
        while planned.len() < end {
            let numbering = self.numbering;
            let Some(reply) = self.resources.current() else { break };
            let seq = reply.next;
            let is_read = matches!(reply.content, Content::Read { .. });
            let has_enough =
                reply.next == reply.start && batch.reply_packets >= READ_REPLY_PACKETS_ENOUGH;
            let has_room = batch.replies.len() >= packet_bytes_max(self.mtu as usize);
            if is_read && (has_enough || !has_room) {
                return Turn::More;
            }
            let psn = numbering.psn(seq);
            if emit_reply(reply, psn, self.mtu, sender, base, batch).is_err() {
                return Turn::ReadMemoryGone(seq);
            }
            reply.next += 1;
            batch.reply_packets += usize::from(is_read);
            planned.push(Planned { qp_index, what: What::Reply { seq } });
        }
        if self.resources.is_idle() && self.owes() && planned.len() < end {
            self.emit_answer(sender, base, batch);
            planned.push(Planned { qp_index, what: What::Answer });
        }
        if self.owes() { Turn::More } else { Turn::Idle }
    }

    fn emit_answer(&mut self, sender: &Sender<'_>, base: &IcrcBase, batch: &mut Batch<'_>) {
        let (psn, syndrome) = match self.answer {
            Some(Answer::Nak { seq, syndrome }) => (self.numbering.psn(seq), syndrome),
            // PSNs wrap.
            _ => (
                self.numbering.psn(self.ack_end.wrapping_sub(1)),
                Syndrome::Ack { credits: CREDITS_UNLIMITED },
            ),
        };
        let ext = Aeth { syndrome: syndrome.bits(), msn: self.msn }.emit();
        let opcode = number::RC_ACKNOWLEDGE;
        let plain = Plain { opcode, ack_req: false, psn, ext: &ext, payload_bytes: 0 };
        if let Ok(packet) = plain.emit(sender, base, &mut batch.scratch, |_| Ok(())) {
            batch.packets.push(packet);
            self.answer_planned = true;
        }
    }

    pub(super) fn on_reply_taken(&mut self, seq: u64) {
        self.resources.on_taken(seq);
    }

    pub(super) fn undo_reply(&mut self, seq: u64) {
        self.resources.undo(seq);
    }

    pub(super) fn on_answer_taken(&mut self) {
        (self.answer, self.answer_planned) = (None, false);
    }

    pub(super) fn undo_answer(&mut self) {
        self.answer_planned = false;
    }

    /// Whether the request is the one that is expected; any other is dealt with here. `reader`
    /// is the domain that READs reach, where the queue pair is open to them.
    pub(super) fn is_next(
        &mut self,
        packet: &Packet<'_>,
        reader: Option<PdNum>,
        s: &mut Surroundings<'_>,
    ) -> bool {
        let psn = packet.bth.psn();
        let ahead = psn.distance(self.numbering.psn(self.expected));
        if ahead < 0 {
            let seq = self.numbering.seq(psn, self.expected);
            self.on_duplicate(packet, seq, reader, s);
        } else if ahead > 0 {
            s.counters.psn_mismatch += 1;
            if !std::mem::replace(&mut self.nak_sent, true) {
                s.counters.naks_sent += 1;
                self.refuse(NakCode::PsnSequenceError, self.expected);
            }
        } else {
            self.nak_sent = false;
            self.answer = self.answer.filter(|answer| matches!(answer, Answer::Ack));
        }
        ahead == 0
    }

    /// Says that everything up to here has come.
    pub(super) fn acknowledge(&mut self) {
        self.answer = Some(Answer::Ack);
    }

    /// Asks the peer to send the expected request later.
    pub(super) fn ask_to_wait(&mut self) {
        let syndrome = Syndrome::RnrNak(self.rnr_timer);
        self.answer = Some(Answer::Nak { seq: self.expected, syndrome });
        self.nak_sent = true;
    }

    /// Says that the packet `seq` is refused, or missing.
    pub(super) fn refuse(&mut self, code: NakCode, seq: u64) {
        self.answer = Some(Answer::Nak { seq, syndrome: Syndrome::Nak(code) });
    }

    /// A request that came before.
    fn on_duplicate(
        &mut self,
        packet: &Packet<'_>,
        seq: Option<u64>,
        reader: Option<PdNum>,
        s: &mut Surroundings<'_>,
    ) {
        s.counters.duplicates += 1;
        let msn = self.msn;
        let reply = |start: u64, packets: u32, content| {
            let end = start + u64::from(packets);
            Reply { start, next: start, end, msn, content, fresh: false }
        };
        let again = match (packet.opcode.operation, seq) {
            (Operation::ReadRequest, Some(seq)) => {
                // Checked anew: whoever sends it need not have sent the first one.
                let open = |&(remote, byte_len): &(RemoteAddr, u32)| {
                    reader.is_some_and(|pd| s.mrs.allows_remote_read(pd, remote, byte_len as usize))
                };
                read_of(packet)
                    .filter(|read| read.1 == 0 || open(read))
                    .map(|(remote, byte_len)| {
                        reply(seq, self.packets(byte_len), Content::Read { remote, byte_len })
                    })
                    .filter(|again| again.end <= self.expected)
            }
            (Operation::CmpSwap | Operation::FetchAdd, Some(seq)) => self
                .resources
                .result_of(seq)
                .map(|original| reply(seq, 1, Content::Atomic { original })),
            (Operation::Send | Operation::Write, _) => {
                self.answer.get_or_insert(Answer::Ack);
                return;
            }
            _ => None,
        };
        let repeat = again.map_or(Repeat::Refused, |again| self.resources.repeat(again));
        s.counters.repeats_refused += u64::from(repeat == Repeat::Refused);
        if let Some(Content::Read { byte_len, .. }) = again.map(|again| again.content)
            && let Repeat::StartsOver { packets } = repeat
        {
            let bytes = packets.saturating_mul(self.mtu.into()).min(byte_len.into());
            self.served.reads_again += 1;
            self.served.read_again_bytes += bytes;
            self.count_read(bytes);
        }
    }

    /// Counts a READ when its answer is owed: what of it goes out is not for the peer to choose.
    pub(super) fn count_read(&mut self, bytes: u64) {
        self.served.reads += 1;
        self.served.read_bytes += bytes;
    }

    pub(super) fn packets(&self, byte_len: u32) -> u32 {
        byte_len.div_ceil(self.mtu.max(1)).max(1)
    }

    /// A packet of a SEND or a WRITE is done with; the message under way now.
    pub(super) fn go_on(&mut self, message: Message) {
        self.expected += 1;
        self.ack_end = self.expected;
        self.msn = self.msn.wrapping_add(u32::from(message == Message::None));
        self.message = message;
    }

    /// Owes a reply to a new READ or atomic.
    pub(super) fn owe(&mut self, packets: u32, content: Content) {
        let (start, end) = (self.expected, self.expected + u64::from(packets));
        self.msn = self.msn.wrapping_add(1);
        let msn = self.msn;
        self.resources.push(Reply { start, next: start, end, msn, content, fresh: true });
        self.expected = end;
        // The reply acknowledges what came before it.
        self.answer = None;
    }
}

/// What a READ asks for.
pub(super) fn read_of(packet: &Packet<'_>) -> Option<(RemoteAddr, u32)> {
    let reth = packet.reth().filter(|reth| reth.dma_len <= MESSAGE_BYTES_MAX)?;
    Some((RemoteAddr { addr: reth.va, rkey: reth.rkey }, reth.dma_len))
}

fn emit_reply(
    reply: &Reply,
    psn: Psn,
    mtu: u32,
    sender: &Sender<'_>,
    base: &IcrcBase,
    batch: &mut Batch<'_>,
) -> Result<(), VerbError> {
    let syndrome = Syndrome::Ack { credits: CREDITS_UNLIMITED }.bits();
    let aeth = Aeth { syndrome, msn: reply.msn }.emit();
    let mrs = batch.mrs;
    let packet = match reply.content {
        Content::Atomic { original } => {
            let mut ext = [0; AETH_BYTES + ATOMIC_ACK_BYTES];
            ext[..AETH_BYTES].copy_from_slice(&aeth);
            ext[AETH_BYTES..].copy_from_slice(&AtomicAckEth { original }.emit());
            let opcode = number::RC_ATOMIC_ACKNOWLEDGE;
            let plain = Plain { opcode, ack_req: false, psn, ext: &ext, payload_bytes: 0 };
            plain.emit(sender, base, &mut batch.scratch, |_| Ok(()))?
        }
        Content::Read { remote, byte_len } => {
            let offset = (reply.next - reply.start) as u32 * mtu;
            let payload_bytes = byte_len.saturating_sub(offset).min(mtu) as usize;
            let position = position(reply.next == reply.start, reply.next + 1 == reply.end);
            let opcode = Opcode::read_response(position);
            let ext =
                if Opcode::of(opcode).is_some_and(Opcode::has_aeth) { &aeth[..] } else { &[] };
            let plain = Plain { opcode, ack_req: false, psn, ext, payload_bytes };
            let addr = remote.addr.wrapping_add(u64::from(offset));
            let from = RemoteAddr { addr, rkey: remote.rkey };
            plain.emit(sender, base, &mut batch.replies, |payload| match payload {
                [] => Ok(()),
                payload => mrs.remote_read(sender.pd, from, payload),
            })?
        }
    };
    batch.packets.push(packet);
    Ok(())
}
