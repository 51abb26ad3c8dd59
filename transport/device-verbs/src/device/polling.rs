//! Takes completions and events from the driver.

use super::VerbsDevice;
use crate::gid;
use crate::limits::{CLOCK_POLL_NS, EVENT_POLL_NS, EVENTS_MAX};
use crate::queue::{Kind, PostedRecv, Ticket};
use crate::sys::{self, RawEvent, RawWc};
use crate::{completions, qps};
use std::net::SocketAddr;
use towpath_base::{Nanos, Time};
use towpath_verbs::{AsyncEvent, CqNum, Device, QpNum, QpState, QpType, Wc, WcOpcode, WcStatus};

impl VerbsDevice {
    pub(super) fn poll(&mut self, cq: CqNum, out: &mut [Wc]) -> usize {
        let mut filled = 0;
        loop {
            let Some(queue) = self.cqs.find_mut(cq) else { return filled };
            while filled < out.len() {
                let Some(wc) = queue.pending.pop_front() else { break };
                out[filled] = wc;
                filled += 1;
            }
            if filled == out.len() || self.take_in(cq) == 0 {
                return filled;
            }
        }
    }

    /// Takes a batch from the driver; returns how many it had.
    fn take_in(&mut self, cq: CqNum) -> usize {
        let Some(raw) = self.cqs.find(cq).map(|queue| queue.raw.clone()) else { return 0 };
        self.set_clock();
        let mut taken = std::mem::take(&mut self.taken);
        raw.poll(|wc| taken.push(wc));
        let count = taken.len();
        for wc in taken.drain(..) {
            self.on_completion(cq, &wc);
        }
        self.taken = taken;
        count
    }

    /// Sets the device's clock against ours, now and then.
    fn set_clock(&mut self) {
        let before = match &self.clock {
            Some(_) if self.now() >= self.clock_due => self.now(),
            _ => return,
        };
        let ticks = sys::ticks(self.pd.context());
        let after = self.now();
        self.clock_due = after + Nanos(CLOCK_POLL_NS);
        if let (Some(clock), Some(ticks)) = (&mut self.clock, ticks) {
            // The device was asked somewhere in between.
            clock.set(ticks, before + Nanos((after.0 - before.0) / 2));
        }
    }

    /// When the device finished it.
    fn timestamp(&self, raw: &RawWc) -> Option<Time> {
        Some(self.clock.as_ref()?.time(raw.ticks?))
    }

    /// Takes everything from the driver, so that what comes later is known to be later.
    pub(super) fn take_in_all(&mut self) {
        for cq in (0..self.cqs.len()).map(CqNum) {
            while self.take_in(cq) > 0 {}
        }
    }

    fn tell(&mut self, cq: CqNum, wc: Wc) {
        if let Some(queue) = self.cqs.find_mut(cq) {
            queue.pending.push_back(wc);
        }
    }

    fn on_completion(&mut self, cq: CqNum, raw: &RawWc) {
        let Some(ticket) = Ticket::unpack(raw.wr_id) else { return };
        let status = completions::to_status(raw.status);
        match ticket.kind {
            Kind::Send => self.on_sent(cq, ticket, raw, status),
            Kind::Recv => self.on_received(cq, ticket, raw, status),
            Kind::Srq => {
                let shared = self.srqs.get_mut(ticket.owner);
                if let Some(entry) = shared.and_then(|shared| shared.posted.take(ticket.place)) {
                    let wc = self.received(entry, raw, status);
                    self.tell(cq, wc);
                }
            }
        }
        if status != WcStatus::Success {
            self.notice(QpNum(raw.qp_num));
        }
    }

    fn on_sent(&mut self, cq: CqNum, ticket: Ticket, raw: &RawWc, status: WcStatus) {
        let timestamp = self.timestamp(raw);
        let qp = self.qps.at_mut(ticket.owner).filter(|qp| qp.num.0 == raw.qp_num);
        let Some(qp) = qp else { return };
        let mut last = None;
        for _ in 0..qp.sends.upto(ticket.place) {
            last = qp.pop_send(&mut self.regions);
        }
        let Some(sent) = last else { return };
        let fetched =
            matches!(sent.opcode, WcOpcode::RdmaRead | WcOpcode::FetchAdd | WcOpcode::CompSwap);
        let is_good = status == WcStatus::Success;
        let wc = Wc {
            wr_id: sent.wr_id,
            status,
            opcode: sent.opcode,
            byte_len: if fetched && is_good { raw.byte_len } else { 0 },
            qp_num: qp.num,
            timestamp,
            vendor_err: if is_good { 0 } else { raw.vendor_err },
            ..Wc::default()
        };
        self.tell(cq, wc);
    }

    fn on_received(&mut self, cq: CqNum, ticket: Ticket, raw: &RawWc, status: WcStatus) {
        let qp = self.qps.at_mut(ticket.owner).filter(|qp| qp.num.0 == raw.qp_num);
        let Some(qp) = qp else { return };
        let num = qp.num;
        let mut left = qp.recvs.upto(ticket.place);
        while let Some(qp) = self.qps.at_mut(ticket.owner).filter(|_| left > 0) {
            let Some(entry) = qp.recvs.pop() else { break };
            left -= 1;
            let wc = if left == 0 {
                self.received(entry, raw, status)
            } else {
                // Consumed without a word: its message was lost on the way.
                let status = WcStatus::WrFlushErr;
                let opcode = WcOpcode::Recv;
                self.regions.release_all(entry.list);
                Wc { wr_id: entry.wr_id, status, opcode, qp_num: num, ..Wc::default() }
            };
            self.tell(cq, wc);
        }
    }

    /// The completion of a receive.
    fn received(&mut self, entry: PostedRecv, raw: &RawWc, status: WcStatus) -> Wc {
        let wc = self.recv_wc(&entry, raw, status);
        self.regions.release_all(entry.list);
        wc
    }

    fn recv_wc(&self, entry: &PostedRecv, raw: &RawWc, status: WcStatus) -> Wc {
        let qp_num = QpNum(raw.qp_num);
        let mut wc = Wc { wr_id: entry.wr_id, status, qp_num, ..Wc::default() };
        wc.opcode = WcOpcode::Recv;
        if status != WcStatus::Success {
            wc.vendor_err = raw.vendor_err;
            return wc;
        }
        wc.opcode = completions::recv_opcode(raw.opcode);
        wc.byte_len = raw.byte_len;
        wc.imm_data = raw.imm_data;
        wc.timestamp = self.timestamp(raw);
        let is_datagram = self.qps.find(qp_num).is_some_and(|qp| qp.init.qp_type == QpType::Ud);
        if is_datagram {
            wc.src_qp = QpNum(raw.src_qp);
            let header = self.regions.routing_header(&entry.list);
            let sender = header.as_ref().and_then(gid::sender);
            wc.src_addr = sender.map(|ip| SocketAddr::new(ip, gid::UDP_PORT));
        }
        wc
    }

    /// An error completion came: asks what it did to the queue pair.
    fn notice(&mut self, num: QpNum) {
        let slot = self.qps.slot_of(num);
        let Some(qp) = slot.and_then(|slot| self.qps.at_mut(slot)) else { return };
        if matches!(qp.state, QpState::Reset | QpState::Err) {
            return;
        }
        match qp.raw.state().map(qps::to_state) {
            Ok(QpState::Err) => self.failed(num),
            Ok(QpState::Sqe) => qp.state = QpState::Sqe,
            _ => {}
        }
    }

    /// A queue pair went to the error state without being asked to.
    fn failed(&mut self, num: QpNum) {
        let slot = self.qps.slot_of(num);
        let Some(qp) = slot.and_then(|slot| self.qps.at_mut(slot)) else { return };
        if qp.state != QpState::Err {
            qp.state = QpState::Err;
            self.happened(AsyncEvent::QpFatal(num));
        }
    }

    fn happened(&mut self, event: AsyncEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        }
    }

    pub(super) fn event(&mut self) -> Option<AsyncEvent> {
        let now = self.now();
        if now >= self.events_due {
            self.events_due = now + Nanos(EVENT_POLL_NS);
            while let Some(raw) = self.pd.context().event() {
                self.on_event(raw);
            }
        }
        self.events.pop_front()
    }

    fn on_event(&mut self, raw: RawEvent) {
        match raw {
            RawEvent::QpFatal(num) => self.failed(QpNum(num)),
            RawEvent::CqError(number) => self.cq_failed(CqNum(number as u32)),
            RawEvent::PortDown(port) if port == self.port.number => {
                self.happened(AsyncEvent::PortDown);
            }
            RawEvent::DeviceFatal => self.happened(AsyncEvent::DeviceFatal),
            RawEvent::PortDown(_) | RawEvent::Other => {}
        }
    }

    /// A completion queue overflowed: what was lost with its completions is given back when its
    /// queue pairs are destroyed. The driver tells of each completion that it loses.
    fn cq_failed(&mut self, cq: CqNum) {
        match self.cqs.find_mut(cq) {
            Some(queue) if !queue.failed => queue.failed = true,
            _ => return,
        }
        self.happened(AsyncEvent::CqError(cq));
        let uses = |qp: &&qps::Qp| qp.init.send_cq == cq || qp.init.recv_cq == cq;
        let hit: Vec<QpNum> = self.qps.iter().filter(uses).map(|qp| qp.num).collect();
        for num in hit {
            // A refusal leaves it in the state that it is in, and its owner is told either way.
            let _ = self.modify(num, QpState::Err);
            self.happened(AsyncEvent::QpFatal(num));
        }
    }

    pub(super) fn block(&mut self, timeout: Nanos) -> bool {
        if self.cqs.any_pending() {
            return true;
        }
        // Whatever completes after this wakes us; what completed before is seen now.
        self.cqs.arm();
        self.take_in_all();
        if self.cqs.any_pending() {
            return true;
        }
        let rung = self.cqs.wait(timeout.0);
        // Armed also when this returns, for whoever waits for the files elsewhere.
        self.cqs.arm();
        self.take_in_all();
        rung || self.cqs.any_pending()
    }
}
