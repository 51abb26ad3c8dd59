//! The requester: posted work requests, the window, and which packet goes next.
//!
//! - Packets go out in the order of their numbers as long as at most a window of them is
//!   unacknowledged (rxe: `RXE_MAX_UNACKED_PSNS`, 128).
//! - The last packet of each message asks for an acknowledgement, and so does every so many
//!   packets within one (rxe: `RXE_MAX_PKT_PER_ACK`, 64), and what fills the window (choice).
//! - Going back means to send everything from the oldest unacknowledged packet on again; a READ is
//!   asked for again from the first packet of its response that is missing (rxe).
//! - A READ or an atomic waits while `max_rd_atomic` of them are outstanding (`ibv_modify_qp(3)`),
//!   and everything behind it waits with it. A fenced work request waits until none is.
//! - A READ of more than half a window goes out as several requests (choice: so that its response
//!   never exceeds the window; PSNs, and what the peer's memory is asked for, are those of one).

use super::plain::Plain;
use super::{Numbering, Terms, Turn};
use crate::requester::{Batch, Draft, Planned, Sender, What, position};
use crate::send_queue::{self, Lists, Posted};
use crate::wire::{AtomicEth, IcrcBase, Reth, opcode::number};
use std::collections::VecDeque;
use towpath_base::Time;
use towpath_base::serial::Psn;
use towpath_memory::MrTable;
use towpath_verbs::{PdNum, RcAttr, RemoteAddr, SendOp, SendWr};

/// A posted work request.
pub(super) struct Wqe {
    pub(super) wr: Posted,
    /// Its first packet's number.
    pub(super) first: u64,
    /// One behind its last packet.
    pub(super) end: u64,
}

impl Wqe {
    /// Whether its packets are answered by packets of the same numbers.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.wr.op, SendOp::Read { .. } | SendOp::FetchAdd { .. } | SendOp::CmpSwap { .. })
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.wr.op, SendOp::Read { .. })
    }
}

/// The sending half of an RC queue pair.
pub(crate) struct Requester {
    pub(super) queue: VecDeque<Wqe>,
    pub(super) lists: Lists,
    depth: usize,
    pub(super) numbering: Numbering,
    pub(super) terms: Terms,
    /// The oldest packet that is not acknowledged; it belongs to the front of the queue.
    pub(super) una: u64,
    /// The packet that goes next.
    pub(super) next: u64,
    /// The work request that it belongs to.
    pub(super) next_index: usize,
    /// One behind the last packet that was ever sent.
    pub(super) sent: u64,
    /// One behind the last packet of all that is posted.
    posted: u64,
    /// Where the READ and atomic requests that are under way end.
    pub(super) rd_atomics: VecDeque<u64>,
    /// The memory of the next packet is gone, but older work requests go first.
    stuck: bool,
    pub(super) retries_left: u8,
    pub(super) rnr_retries_left: u8,
    /// It went back already for what is missing now.
    pub(super) went_back: bool,
    /// When it gives up waiting for an acknowledgement.
    pub(super) retry_at: Time,
    /// Until when it leaves a peer alone that was not ready.
    pub(super) rnr_until: Time,
}

impl Requester {
    pub(super) fn new(depth: u32, max_send_sge: u32) -> Self {
        let lists = Lists::new(depth, max_send_sge);
        let depth = depth as usize;
        Self {
            queue: VecDeque::with_capacity(depth),
            lists,
            depth,
            numbering: Numbering::default(),
            terms: Terms { attr: RcAttr::default(), mtu: 1, window: 1 },
            una: 0,
            next: 0,
            next_index: 0,
            sent: 0,
            posted: 0,
            rd_atomics: VecDeque::new(),
            stuck: false,
            retries_left: 0,
            rnr_retries_left: 0,
            went_back: false,
            retry_at: Time::NEVER,
            rnr_until: Time::NEVER,
        }
    }

    /// A new life, in which nothing is posted.
    pub(super) fn start(&mut self, psn: Psn, terms: Terms) {
        let none = Self::new(0, 0);
        let Self { mut queue, lists, depth, .. } = std::mem::replace(self, none);
        queue.clear();
        *self = Self {
            queue,
            lists,
            depth,
            numbering: Numbering { zero: psn },
            terms,
            rd_atomics: VecDeque::with_capacity(usize::from(terms.attr.max_rd_atomic)),
            retries_left: terms.attr.retry_cnt,
            rnr_retries_left: terms.attr.rnr_retry,
            ..Self::new(0, 0)
        };
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() == self.depth
    }

    /// How many READs and atomics may be outstanding.
    pub(crate) fn rd_atomic_max(&self) -> u8 {
        self.terms.attr.max_rd_atomic
    }

    #[inline(never)]
    /// False when a queue pair of the domain may not name its memory.
    pub(crate) fn push<const N: usize>(
        &mut self,
        wr: &SendWr<N>,
        terms: send_queue::Terms,
        memory: (&mut MrTable, PdNum),
    ) -> bool {
        let packets = terms.byte_len.div_ceil(self.terms.mtu).max(1);
        let (first, end) = (self.posted, self.posted + u64::from(packets));
        let Some(wr) = self.lists.post(wr, terms, self.queue.is_empty(), memory) else {
            return false;
        };
        self.posted = end;
        self.queue.push_back(Wqe { wr, first, end });
        true
    }

    /// Takes the oldest work request out, whatever became of it; nothing is under way after.
    pub(crate) fn pop(&mut self, mrs: &mut MrTable) -> Option<Posted> {
        let wqe = self.queue.pop_front()?;
        self.lists.give_up(&wqe.wr, mrs);
        (self.una, self.sent) = (wqe.end, wqe.end);
        self.rnr_until = Time::NEVER;
        self.go_back();
        Some(wqe.wr)
    }

    /// The next packet is the oldest unacknowledged one.
    pub(super) fn go_back(&mut self) {
        self.next = self.una;
        self.next_index = 0;
        self.rd_atomics.clear();
        self.stuck = false;
    }

    /// Takes note that `una` moved.
    pub(super) fn on_progress(&mut self, now: Time) {
        if self.next < self.una {
            (self.next, self.next_index) = (self.una, 0);
        }
        while self.rd_atomics.front().is_some_and(|&end| end <= self.una) {
            self.rd_atomics.pop_front();
        }
        self.retries_left = self.terms.attr.retry_cnt;
        self.rnr_retries_left = self.terms.attr.rnr_retry;
        (self.went_back, self.stuck) = (false, false);
        self.arm(now);
    }

    /// Starts the retry timer anew.
    pub(super) fn arm(&mut self, now: Time) {
        self.retry_at = self.terms.timeout().map_or(Time::NEVER, |span| now + span);
    }

    /// When something is to be done though nothing comes in.
    pub(crate) fn deadline(&self) -> Time {
        match self.rnr_until {
            Time::NEVER if self.una < self.sent => self.retry_at,
            until => until,
        }
    }

    /// One behind the last packet of the READ request that `seq` belongs to.
    pub(super) fn read_end(&self, wqe: &Wqe, seq: u64) -> u64 {
        let piece = self.terms.read_piece(wqe.end - wqe.first);
        wqe.end.min(wqe.first + ((seq - wqe.first) / piece + 1) * piece)
    }

    /// One behind the last packet of the request that goes next, if one may.
    fn next_end(&self) -> Option<u64> {
        let wqe = self.queue.get(self.next_index)?;
        if self.rnr_until != Time::NEVER || self.stuck {
            return None;
        }
        let end = if wqe.is_read() { self.read_end(wqe, self.next) } else { self.next + 1 };
        let open_max = usize::from(self.terms.attr.max_rd_atomic);
        let free = (!wqe.is_answered() || self.rd_atomics.len() < open_max)
            && (!wqe.wr.flags.fence || self.next > wqe.first || self.rd_atomics.is_empty());
        (free && end - self.una <= u64::from(self.terms.window)).then_some(end)
    }

    pub(super) fn can_send(&self) -> bool {
        self.next_end().is_some()
    }

    /// Adds up to `packets_max` requests to the batch.
    #[inline(never)]
    pub(super) fn plan(
        &mut self,
        sender: &Sender<'_>,
        base: &IcrcBase,
        packets_max: usize,
        batch: &mut Batch<'_>,
        planned: &mut Vec<Planned>,
    ) -> Turn {
        for _ in 0..packets_max {
            let Some(end) = self.next_end() else { return Turn::Idle };
            let wqe = &self.queue[self.next_index];
            let (seq, is_answered, last) = (self.next, wqe.is_answered(), end == wqe.end);
            let full = end - self.una == u64::from(self.terms.window);
            let place = (seq - wqe.first) as u32 + 1;
            let due = place.is_multiple_of(self.terms.ack_interval());
            let ack_req = is_answered || last || full || due;
            if self.emit(seq, end, ack_req, sender, base, batch).is_err() {
                self.stuck = true;
                // Work requests complete in order: the error waits until it is the oldest's.
                return if self.next_index == 0 { Turn::SendMemoryGone } else { Turn::Idle };
            }
            if is_answered {
                self.rd_atomics.push_back(end);
            }
            planned.push(Planned { qp_index: sender.index, what: What::Request { seq, end } });
            self.next = end;
            self.next_index += usize::from(last);
        }
        if self.can_send() { Turn::More } else { Turn::Idle }
    }

    fn emit(
        &self,
        seq: u64,
        end: u64,
        ack_req: bool,
        sender: &Sender<'_>,
        base: &IcrcBase,
        batch: &mut Batch<'_>,
    ) -> Result<(), towpath_verbs::VerbError> {
        let wqe = &self.queue[self.next_index];
        let (mtu, psn) = (self.terms.mtu, self.numbering.psn(seq));
        let offset = (seq - wqe.first) as u32 * mtu;
        let (opcode, ext): (u8, &[u8]) = match wqe.wr.op {
            SendOp::Read { remote } => {
                let byte_len =
                    ((end - seq) as u32).saturating_mul(mtu).min(wqe.wr.byte_len - offset);
                let va = remote.addr.wrapping_add(u64::from(offset));
                let reth = Reth { va, rkey: remote.rkey, dma_len: byte_len };
                (number::RC_READ_REQUEST, &reth.emit())
            }
            SendOp::FetchAdd { remote: RemoteAddr { addr, rkey }, add } => {
                let eth = AtomicEth { va: addr, rkey, swap_add: add, compare: 0 };
                (number::RC_FETCH_ADD, &eth.emit())
            }
            SendOp::CmpSwap { remote: RemoteAddr { addr, rkey }, compare, swap } => {
                let eth = AtomicEth { va: addr, rkey, swap_add: swap, compare };
                (number::RC_CMP_SWAP, &eth.emit())
            }
            _ => {
                let payload_bytes = (wqe.wr.byte_len - offset).min(mtu);
                let position = position(seq == wqe.first, end == wqe.end);
                let (wr, list) = (&wqe.wr, self.lists.of(&wqe.wr));
                let draft = Draft { wr, list, offset, payload_bytes, psn, position, ack_req };
                return draft.emit(sender, Some(base), batch);
            }
        };
        let plain = Plain { opcode, ack_req, psn, ext, payload_bytes: 0 };
        let packet = plain.emit(sender, base, &mut batch.scratch, |_| Ok(()))?;
        batch.packets.push(packet);
        Ok(())
    }

    /// The link took a request that ends there; true when it had gone out before.
    pub(super) fn on_taken(&mut self, end: u64, now: Time) -> bool {
        if self.una >= self.sent {
            self.arm(now);
        }
        let again = end <= self.sent;
        self.sent = self.sent.max(end);
        again
    }

    /// The link did not take the request that begins there, nor any after it.
    pub(super) fn undo(&mut self, seq: u64) {
        // What held it up may lie behind this one.
        self.stuck = false;
        if seq >= self.next {
            return;
        }
        self.next = seq.max(self.una);
        self.next_index = self.queue.partition_point(|wqe| wqe.end <= self.next);
        while self.rd_atomics.back().is_some_and(|&end| end > self.next) {
            self.rd_atomics.pop_back();
        }
    }
}
