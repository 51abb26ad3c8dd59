//! Reliable connections: two devices, a wire with faults, and time that the test moves.

mod answers;
mod flow;
mod lives;
mod loss;
mod served;
mod verbs;

use super::*;
use crate::wire::{Operation, PacketRepr};
use towpath_base::Prng;

/// What a wire does to packets in flight.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) loss: f64,
    pub(super) duplication: f64,
    /// The chance that a packet is overtaken by the next one.
    pub(super) reorder: f64,
}

/// An RC queue pair on each of two devices, joined.
pub(super) struct RcPair {
    pub(super) ends: [End; 2],
    qps: [QpNum; 2],
    pub(super) faults: Faults,
    rng: Prng,
    /// Packets that were offered to the wire, oldest first.
    log: Vec<PacketRepr>,
}

#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) attr: RcAttr,
    pub(super) mtu: Mtu,
    pub(super) window: u32,
    pub(super) seed: u64,
    pub(super) srq: bool,
    pub(super) access: Access,
}

impl Default for Setup {
    fn default() -> Self {
        let attr = RcAttr::default();
        let (mtu, window, access) = (Mtu::Mtu256, 128, Access::REMOTE_ALL);
        Self { attr, mtu, window, seed: 1, srq: false, access }
    }
}

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;

impl RcPair {
    fn new() -> Self {
        Self::with(Setup::default())
    }

    pub(super) fn with(setup: Setup) -> Self {
        println!("seed {}", setup.seed);
        let ends = ["10.0.0.1:4791", "10.0.0.2:4791"].map(|addr| {
            let mut link = TestLink::new(addr);
            link.rx_buffer_bytes = None;
            End::on(link, RoceConfig::default().seed(7).rc_window_packets(setup.window))
        });
        let [mut a, mut b] = ends;
        let init = |cq| {
            let init = QpInit::new(QpType::Rc, cq).access(setup.access).depth(512, 512);
            init.max_send_sge(SEND_SGE_MAX as u32)
        };
        let mut b_init = init(b.cq);
        if setup.srq {
            b_init.srq = Some(b.device.create_srq(512).unwrap());
        }
        let a_qp = a.device.create_qp(&init(a.cq)).unwrap();
        let b_qp = b.device.create_qp(&b_init).unwrap();
        let mut connect = Connect {
            dest: b.device.local_addr(),
            dest_qp_num: b_qp,
            rq_psn: Psn::new(B_PSN),
            sq_psn: Psn::new(A_PSN),
            path_mtu: setup.mtu,
            source_port: 0,
            tclass: 0,
            rc: setup.attr,
        };
        a.device.connect_qp(a_qp, &connect).unwrap();
        (connect.dest, connect.dest_qp_num) = (a.device.local_addr(), a_qp);
        (connect.rq_psn, connect.sq_psn) = (connect.sq_psn, connect.rq_psn);
        b.device.connect_qp(b_qp, &connect).unwrap();
        let (rng, faults) = (Prng::new(setup.seed), Faults::default());
        Self { ends: [a, b], qps: [a_qp, b_qp], faults, rng, log: Vec::new() }
    }

    pub(super) fn qp(&self, side: usize) -> QpNum {
        self.qps[side]
    }

    pub(super) fn recv(&mut self, side: usize, wr_id: u64, at: usize, len: usize) {
        let qp = self.qps[side];
        self.ends[side].recv(qp, wr_id, at, len);
    }

    /// Posts on A over `len` bytes of its memory from `at` on.
    fn post(&mut self, wr_id: u64, op: SendOp, at: usize, len: usize) {
        let list = self.ends[A].list(at, len);
        let wr = SendWr::new(wr_id, op, list);
        self.ends[A].device.post_send(self.qps[A], &[wr]).unwrap();
    }

    /// Fills A's memory with bytes that differ.
    fn fill(&mut self, at: usize, len: usize) {
        self.ends[A].memory.write(at, &pattern(len)).unwrap();
    }

    fn remote(&self, at: usize) -> RemoteAddr {
        self.ends[B].remote(at)
    }

    /// What `side` puts on the wire now.
    fn take(&mut self, side: usize) -> Vec<OnWire> {
        while self.ends[side].device.progress(0) > 0 {}
        std::mem::take(&mut self.ends[side].device.link_mut().sent)
    }

    /// Hands packets to `side` one by one.
    fn give(&mut self, side: usize, packets: impl IntoIterator<Item = OnWire>) {
        for packet in packets {
            self.ends[side].device.link_mut().coming.push_back(packet);
            self.ends[side].device.progress(1);
        }
    }

    /// One crossing of the wire each way, with its faults; false when nothing moved.
    fn cross(&mut self) -> bool {
        let mut moved = false;
        for side in [A, B] {
            let packets = self.take(side);
            moved |= !packets.is_empty();
            let mut out: Vec<OnWire> = Vec::new();
            for packet in packets {
                self.log.push(PacketRepr::parse(&packet.bytes).unwrap());
                if self.rng.chance(self.faults.loss) {
                    continue;
                }
                if self.rng.chance(self.faults.duplication) {
                    out.push(packet.clone());
                }
                let before = out.len().saturating_sub(1);
                let at = if self.rng.chance(self.faults.reorder) { before } else { out.len() };
                out.insert(at, packet);
            }
            let to = &mut self.ends[1 - side].device;
            to.link_mut().coming.extend(out);
            while to.progress(64) > 0 {}
        }
        moved
    }

    /// Lets time pass at both ends.
    fn advance_to(&mut self, now: Time) {
        for end in &mut self.ends {
            let link = end.device.link_mut();
            link.now = link.now.max(now);
        }
    }

    fn now(&self) -> Time {
        self.ends[A].device.now()
    }

    fn next_timeout(&self) -> Time {
        self.ends.iter().map(|end| end.device.next_timeout()).min().unwrap()
    }

    /// Until nothing moves and no timer runs.
    pub(super) fn run(&mut self) {
        for _ in 0..1_000_000 {
            if self.cross() {
                continue;
            }
            match self.next_timeout() {
                Time::NEVER => return,
                due => self.advance_to(due),
            }
        }
        panic!("it does not end");
    }

    /// Everything that can move without a timer.
    fn run_now(&mut self) {
        while self.cross() {}
    }

    pub(super) fn completions(&mut self, side: usize) -> Vec<Wc> {
        self.ends[side].completions()
    }

    /// (`wr_id`, status) of all completions.
    fn ends_of(&mut self, side: usize) -> Vec<(u64, WcStatus)> {
        self.completions(side).iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    fn state(&self, side: usize) -> QpState {
        self.ends[side].device.qp_state(self.qps[side]).unwrap()
    }

    fn counters(&self, side: usize) -> RoceCounters {
        self.ends[side].counters()
    }

    pub(super) fn bytes(&self, side: usize, at: usize, len: usize) -> Vec<u8> {
        self.ends[side].bytes(at, len)
    }
}

const OK: WcStatus = WcStatus::Success;

/// The packets among `packets` that do `operation`.
fn of(packets: &[OnWire], operation: Operation) -> usize {
    let is =
        |p: &&OnWire| crate::wire::Packet::parse(&p.bytes).unwrap().opcode.operation == operation;
    packets.iter().filter(is).count()
}
