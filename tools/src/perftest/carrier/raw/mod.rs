//! Plain verbs as a carrier, as perftest runs them: no transport above the queue pairs.
//!
//! On RC a message completes when the peer's device has it (a READ or an atomic: when its answer
//! is here), on UC and UD when it has left: nothing is acknowledged there.

mod ends;
mod memory;
mod queue;

pub(crate) use ends::{RawEnd, connect};

use super::{Carrier, Counters, RowPlan, Turn};
use crate::perftest::args::values::{Atomic, Connection};
use crate::perftest::content::Content;
use crate::perftest::control::Control;
use crate::perftest::error::RunError;
use crate::perftest::limits::{
    ATOMIC_BYTES, GRH_BYTES, IDLE_SLEEP, LATENCY_SIGNAL_EVERY, PASSIVE_WAIT, PASSIVE_WAIT_WATCHED,
    POLL_BATCH, PROGRESS_BUDGET,
};
use crate::perftest::patience::Patience;
use crate::perftest::settings::Settings;
use crate::perftest::tool::Op;
use memory::{Memory, stride};
use queue::{Queue, split, wr_id};
use std::time::Duration;
use towpath_base::Nanos;
use towpath_memory::Region;
use towpath_verbs::{
    CqNum, Device, QpNum, RecvWr, RemoteAddr, SendOp, SendWr, SgList, Wc, WcStatus,
};

/// Messages by plain verbs.
pub(crate) struct Raw<D> {
    device: D,
    memory: Memory,
    queues: Vec<Queue>,
    send_cq: CqNum,
    recv_cq: CqNum,
    wcs: Vec<Wc>,
    op: Op,
    atomic: Atomic,
    latency: bool,
    lossy: bool,
    validate: bool,
    /// This end only lets itself be written to or read from.
    passive: bool,
    passive_wait: Duration,
    cq_mod: u32,
    /// Bytes in front of what is received.
    grh_bytes: u32,
    content: Content,
    scratch: Vec<u8>,
    /// What a READ that fetches nothing would leave.
    blank: Vec<u8>,
    size: u32,
    /// Each message under way has memory of its own.
    apart: bool,
    depth_each: u64,
    signal_every: u32,
    next: usize,
    /// Of a latency row: posted, to be told as completed by the next poll.
    told: u64,
    /// Of a latency row of WRITE: messages posted and seen, whose numbers are their last bytes.
    written: u8,
    seen: u8,
    patience: Patience,
}

impl<D: Device<Memory = Region>> Raw<D> {
    fn new(
        device: D,
        settings: &Settings,
        memory: Memory,
        queues: Vec<Queue>,
        (send_cq, recv_cq): (CqNum, CqNum),
    ) -> Self {
        let plan = &settings.plan;
        Self {
            device,
            memory,
            queues,
            send_cq,
            recv_cq,
            wcs: vec![Wc::default(); POLL_BATCH],
            op: plan.tool.op(),
            atomic: plan.atomic,
            latency: plan.tool.is_latency(),
            lossy: plan.lossy(),
            validate: plan.validate,
            passive: plan.is_passive(settings.is_client()),
            passive_wait: PASSIVE_WAIT,
            cq_mod: settings.cq_mod.unwrap_or(LATENCY_SIGNAL_EVERY),
            grh_bytes: if plan.connection == Connection::Ud { GRH_BYTES } else { 0 },
            content: Content::new(1, false),
            scratch: Vec::new(),
            blank: Vec::new(),
            size: 0,
            // Messages of a latency row end in a number.
            apart: settings.apart() || plan.tool.is_latency(),
            depth_each: 0,
            signal_every: 1,
            next: 0,
            told: 0,
            written: 0,
            seen: 0,
            patience: Patience::new(settings.idle_polls_max()),
        }
    }

    /// An end that only lets itself be written to or read from is woken by the peer's word that
    /// it is done.
    fn watch(&mut self, control: &Control) {
        if self.passive && self.device.watch_file(control.file()) {
            self.passive_wait = PASSIVE_WAIT_WATCHED;
        }
    }

    /// Whether an answer tells that a message has arrived.
    fn answered(&self) -> bool {
        self.latency && matches!(self.op, Op::Send | Op::Write)
    }

    fn recv_wr(&self, queue: usize, index: usize) -> RecvWr {
        let layout = &self.memory.layout;
        let each = layout.recv_slots / self.queues.len();
        let slot = queue * each + if self.apart { index % each } else { 0 };
        let length = layout.recv_stride as u32;
        let sge = self.memory.sge(layout.recv + slot * layout.recv_stride, length);
        RecvWr { wr_id: wr_id(queue, index as u64), sg_list: SgList::one(sge) }
    }

    /// Posts the receives of all queue pairs. All share a slot, or where messages are apart and
    /// memory is short several; where content is checked, there are as many as slots.
    fn post_all_recvs(&mut self, wanted: u32) -> Result<(), RunError> {
        if self.op != Op::Send {
            return Ok(());
        }
        let each = self.memory.layout.recv_slots / self.queues.len();
        let count = if self.validate { each.min(wanted as usize) } else { wanted as usize };
        for queue in 0..self.queues.len() {
            let wrs: Vec<RecvWr> = (0..count).map(|index| self.recv_wr(queue, index)).collect();
            self.device.post_recv(self.queues[queue].qp_num, &wrs)?;
        }
        Ok(())
    }

    fn slot(&self, queue: usize, count: u64) -> usize {
        let count = if self.apart { count % self.depth_each } else { 0 };
        let slot = queue as u64 * self.depth_each + count;
        self.memory.layout.local + slot as usize * stride(self.size)
    }

    /// Where the peer writes to, reads from or works on, of this queue pair.
    fn target(&self, queue: usize) -> usize {
        queue * self.memory.layout.target_stride
    }

    /// Posts a message on a queue pair, as one of the `left` that come before the next poll.
    fn push(&mut self, index: usize, left: u64) -> Result<(), RunError> {
        let count = self.queues[index].posted;
        let at = self.slot(index, count);
        self.stamp(at)?;
        let (queues, answered) = (self.queues.len() as u64, self.answered());
        let queue = &mut self.queues[index];
        let op = operation(self.op, self.atomic, queue.remote, count);
        queue.posted += 1;
        let sg_list = SgList::one(self.memory.sge(at, self.size));
        let mut wr = SendWr::new(wr_id(index, queue.posted), op, sg_list);
        wr.ud = queue.dest;
        let last = queue.may_be_last(left, queues, self.depth_each);
        queue.push(wr, last && !answered, self.signal_every);
        Ok(())
    }

    /// Numbers the message at `at`, or clears the place for it, where somebody looks.
    fn stamp(&mut self, at: usize) -> Result<(), RunError> {
        if self.op == Op::Write && self.latency {
            self.written = following(self.written);
            return self.memory.write(at + self.size as usize - 1, &[self.written]);
        }
        if self.validate && self.op == Op::Read {
            return self.memory.write(at, &self.blank);
        }
        if self.validate && self.op == Op::Send {
            let mut number = [0; 8];
            let number = &mut number[..(self.size as usize).min(8)];
            self.content.stamp(number);
            self.memory.write(at, number)?;
        }
        Ok(())
    }

    fn poll_sends(&mut self, turn: &mut Turn) -> Result<(), RunError> {
        let mut wcs = std::mem::take(&mut self.wcs);
        let count = self.device.poll_cq(self.send_cq, &mut wcs);
        for wc in &wcs[..count] {
            check(wc)?;
            let (index, upto) = split(wc.wr_id);
            let from = self.queues[index].completed;
            let done = self.queues[index].complete(upto);
            if !self.answered() {
                turn.completed += done;
            }
            if self.validate {
                self.check_fetched(index, from, from + done)?;
            }
        }
        self.wcs = wcs;
        Ok(())
    }

    /// Looks at what the messages `from..upto` of a queue pair have fetched.
    fn check_fetched(&mut self, queue: usize, from: u64, upto: u64) -> Result<(), RunError> {
        for count in from..upto {
            let at = self.slot(queue, count);
            match self.op {
                Op::Send | Op::Write => {}
                Op::Read => {
                    self.memory.read(at, &mut self.scratch)?;
                    let wanted = self.content.bytes();
                    let differs = wanted.iter().zip(&self.scratch).position(|(a, b)| a != b);
                    if let Some(offset) = differs {
                        let (wanted, got) = (wanted[offset], self.scratch[offset]);
                        return Err(RunError::Content { offset, wanted, got });
                    }
                }
                Op::Atomic => {
                    let mut word = [0; ATOMIC_BYTES as usize];
                    self.memory.read(at, &mut word)?;
                    let got = u64::from_ne_bytes(word);
                    if got != count {
                        return Err(RunError::Atomic { wanted: count, got });
                    }
                }
            }
        }
        Ok(())
    }

    fn poll_recvs(&mut self, turn: &mut Turn) -> Result<(), RunError> {
        let mut wcs = std::mem::take(&mut self.wcs);
        let count = self.device.poll_cq(self.recv_cq, &mut wcs);
        for wc in &wcs[..count] {
            let (index, number) = split(wc.wr_id);
            let wr = self.recv_wr(index, number as usize);
            // On UC a receive may be used up by a message that was lost on the way.
            if !(self.lossy && wc.status == WcStatus::WrFlushErr) {
                check(wc)?;
                self.check_received(wc, &wr)?;
                turn.received += 1;
            }
            self.queues[index].recvs.push(wr);
        }
        self.wcs = wcs;
        self.repost()
    }

    fn check_received(&mut self, wc: &Wc, wr: &RecvWr) -> Result<(), RunError> {
        let got = wc.byte_len.saturating_sub(self.grh_bytes);
        if got != self.size {
            return Err(RunError::Length { wanted: self.size, got });
        }
        if self.validate {
            let offset = (wr.sg_list[0].addr - self.memory.addr(0)) as usize;
            self.memory.read(offset + self.grh_bytes as usize, &mut self.scratch)?;
            self.content.check(0, &self.scratch)?;
        }
        Ok(())
    }

    fn repost(&mut self) -> Result<(), RunError> {
        for queue in self.queues.iter_mut().filter(|queue| !queue.recvs.is_empty()) {
            self.device.post_recv(queue.qp_num, &queue.recvs)?;
            queue.recvs.clear();
        }
        Ok(())
    }

    /// Whether the peer's WRITE has landed: its last byte tells, as in perftest.
    fn poll_memory(&mut self, turn: &mut Turn) -> Result<(), RunError> {
        let mut last = [0];
        self.memory.read(self.target(0) + self.size as usize - 1, &mut last)?;
        if last[0] == following(self.seen) {
            self.seen = last[0];
            turn.received += 1;
        }
        Ok(())
    }

    fn wait(&mut self) {
        if self.passive && self.patience.is_idle() {
            self.device.wait(nanos(self.passive_wait));
        } else if self.patience.is_over() {
            // Short: what lands in memory wakes nobody.
            self.device.wait(nanos(IDLE_SLEEP));
        }
    }
}

fn nanos(span: Duration) -> Nanos {
    Nanos(span.as_nanos() as u64)
}

/// The number of the message after this one; 0 is that of none.
fn following(number: u8) -> u8 {
    if number == u8::MAX { 1 } else { number + 1 }
}

fn operation(op: Op, atomic: Atomic, remote: RemoteAddr, count: u64) -> SendOp {
    match (op, atomic) {
        (Op::Send, _) => SendOp::Send,
        (Op::Write, _) => SendOp::Write { remote },
        (Op::Read, _) => SendOp::Read { remote },
        (Op::Atomic, Atomic::FetchAdd) => SendOp::FetchAdd { remote, add: 1 },
        (Op::Atomic, Atomic::CmpSwap) => {
            SendOp::CmpSwap { remote, compare: count, swap: count + 1 }
        }
    }
}

fn check(wc: &Wc) -> Result<(), RunError> {
    let Wc { status, qp_num, vendor_err, .. } = *wc;
    if status == WcStatus::Success {
        return Ok(());
    }
    Err(RunError::Completion { qp_num, status, vendor_err })
}

impl<D: Device<Memory = Region>> Carrier for Raw<D> {
    fn prepare(&mut self, row: &RowPlan) -> Result<(), RunError> {
        self.size = row.size;
        self.content = Content::new(row.size, row.validate);
        self.scratch = vec![0; row.size as usize];
        self.blank = vec![0; row.size as usize];
        self.depth_each = u64::from(row.depth) / self.queues.len() as u64;
        let half = (self.depth_each / 2).max(1) as u32;
        self.signal_every = self.cq_mod.clamp(1, half);
        (self.told, self.written, self.seen) = (0, 0, 0);
        let bytes = self.content.bytes();
        for queue in 0..self.queues.len() {
            self.queues[queue].forget();
            if self.op == Op::Atomic {
                continue; // Counts go on, at both ends.
            }
            self.memory.write(self.target(queue), bytes)?;
            for slot in 0..self.depth_each {
                self.memory.write(self.slot(queue, slot), bytes)?;
            }
        }
        if self.op == Op::Write && self.latency {
            self.memory.write(self.target(0) + row.size as usize - 1, &[0])?;
        }
        Ok(())
    }

    fn post(&mut self, count: u64, after: u64) -> Result<u64, RunError> {
        for posted in 0..count {
            let queues = self.queues.len();
            let free = (0..queues)
                .map(|step| (self.next + step) % queues)
                .find(|&index| self.queues[index].under_way() < self.depth_each);
            let Some(index) = free else { return Ok(posted) };
            self.push(index, count - posted + after)?;
            self.next = (index + 1) % queues;
            self.told += u64::from(self.answered());
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), RunError> {
        for queue in self.queues.iter_mut().filter(|queue| !queue.batch.is_empty()) {
            let (num, batch): (QpNum, &[SendWr]) = (queue.qp_num, &queue.batch);
            self.device.post_send(num, batch)?;
            queue.batch.clear();
        }
        self.wait();
        Ok(())
    }

    fn end_posting(&mut self) -> Result<(), RunError> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Turn, RunError> {
        let moved = self.device.progress(PROGRESS_BUDGET);
        let mut turn = Turn { completed: std::mem::take(&mut self.told), ..Turn::default() };
        self.poll_sends(&mut turn)?;
        match self.op {
            Op::Send => self.poll_recvs(&mut turn)?,
            Op::Write if self.latency => self.poll_memory(&mut turn)?,
            Op::Write | Op::Read | Op::Atomic => {}
        }
        let quiet = moved == 0 && turn == Turn::default();
        self.patience.note(!quiet);
        Ok(turn)
    }

    fn blocks(&self) -> bool {
        false
    }

    fn waits(&self) -> bool {
        self.patience.is_over()
    }

    fn digests(&self) -> (u64, u64) {
        (self.content.sent_digest(), self.content.received_digest())
    }

    /// The device retransmits without telling.
    fn counters(&self) -> Option<Counters> {
        None
    }
}
