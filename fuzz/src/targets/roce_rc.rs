//! Reliable connections against a hostile peer and a hostile wire: books balance, nothing is done
//! twice, no byte lands or leaves where it must not, and no answer is amplified.

use super::roce_wire::{PEER, Wire, seal};
use crate::class;
use crate::input::{Reader, coarse};
use std::collections::BTreeSet;
use towpath_base::Nanos;
use towpath_base::serial::Psn;
use towpath_device_roce::wire::{BTH_BYTES, ICRC_BYTES, Operation, Packet};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::SharedMemory;
use towpath_verbs::{
    Access, Connect, CqNum, Device, Mtu, PdNum, QpInit, QpNum, QpState, QpType, RcAttr, RecvWr,
    RemoteAddr, SendOp, SendWr, SgList, Sge, SrqNum, Wc, WcStatus,
};

/// Most steps of one input.
const STEPS_MAX: usize = 96;

const SLOTS: usize = 16;
const SLOT_BYTES: usize = 1024;
const MEMORY_BYTES: usize = SLOTS * SLOT_BYTES;
const MTU_BYTES: u32 = 256;
const WINDOW_PACKETS: u32 = 8;

/// What stands where nothing may be written, and may never be seen on the wire in a run of twelve:
/// inputs do not hold it.
const GUARD: u8 = 0x5a;
/// The peer's queue pairs: this one and the next.
const PEER_QP: u32 = 17;
const PSN_FIRST: u32 = 0xff_fffe;

/// Two bytes of setting, then steps: a byte that says what happens, and what it needs.
pub(crate) fn run(input: &[u8]) -> u64 {
    let mut reader = Reader::new(input);
    let mut bench = Bench::new(reader.u8());
    for _ in 0..STEPS_MAX {
        if reader.is_empty() {
            break;
        }
        bench.step(&mut reader);
    }
    bench.check_memory();
    let c = bench.device.counters();
    let counts = [
        c.messages_received,
        c.messages_sent,
        c.psn_mismatch,
        c.no_recv_wqe,
        c.length_error,
        c.recv_too_long,
        c.bad_rkey,
        c.bad_sequences,
        c.duplicates,
        c.repeats_refused,
        c.naks_sent,
        c.naks_received,
        c.rnr_naks_received,
        c.go_backs,
        c.ack_timeouts,
        c.retransmitted,
        c.stale_answers,
        c.bad_answers,
        bench.lives,
    ];
    class(&counts.map(|n| coarse(n).min(3)))
}

struct Bench {
    device: RoceDevice<Wire>,
    cq: CqNum,
    srq: SrqNum,
    attr: RcAttr,
    /// A queue pair with a receive queue of its own, and one on the shared queue.
    qps: [QpNum; 2],
    /// The PSN of the peer's next request, and of our last one.
    psns: [(Psn, Psn); 2],
    /// Only receives and READs land here, and no peer has its key.
    memory: SharedMemory,
    lkey: u32,
    /// What peers may reach.
    open: SharedMemory,
    rkey: u32,
    /// Work requests that have not completed.
    outstanding: BTreeSet<u64>,
    next_wr_id: u64,
    /// Slots that something may have landed in.
    touched: [bool; SLOTS],
    lives: u64,
}

impl Bench {
    fn new(setting: u8) -> Self {
        let config = RoceConfig::default().rc_window_packets(WINDOW_PACKETS);
        let mut device = RoceDevice::new(Wire::default(), config);
        let window = |bytes| SharedMemory::new(bytes).unwrap();
        let (memory, open) = (window(MEMORY_BYTES), window(MEMORY_BYTES));
        memory.write(0, &[GUARD; MEMORY_BYTES]).unwrap();
        let lkey = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL)
            .unwrap()
            .lkey;
        let rkey = device
            .reg_shared_mr(PdNum::DEFAULT, &open, open.whole(), Access::REMOTE_ALL)
            .unwrap()
            .rkey;
        let cq = device.create_cq(256).unwrap();
        let srq = device.create_srq(SLOTS as u32).unwrap();
        let init = QpInit::new(QpType::Rc, cq).access(Access::REMOTE_ALL).depth(8, SLOTS as u32);
        let qps = [init, init.srq(srq)].map(|init| device.create_qp(&init).unwrap());
        let attr = RcAttr {
            timeout: 1 + (setting & 3),
            retry_cnt: setting >> 2 & 1,
            rnr_retry: if setting & 8 == 0 { 1 } else { 7 },
            min_rnr_timer: 1,
            max_rd_atomic: 1 + (setting >> 4 & 3),
            max_dest_rd_atomic: setting >> 6,
        };
        let psns = [(Psn::new(0), Psn::new(0)); 2];
        let (outstanding, next_wr_id) = (BTreeSet::new(), 0);
        let touched = [false; SLOTS];
        let mut bench = Self {
            device,
            cq,
            srq,
            attr,
            qps,
            psns,
            memory,
            lkey,
            open,
            rkey,
            outstanding,
            next_wr_id,
            touched,
            lives: 0,
        };
        for to in 0..2 {
            bench.connect(to);
        }
        bench
    }

    /// One step of an input.
    fn step(&mut self, reader: &mut Reader<'_>) {
        let (step, to) = (reader.u8(), usize::from(reader.u8()));
        match step % 8 {
            0 => self.post_recv(to % 2),
            1 => self.post_send(to % 2, reader.u8(), reader.u16()),
            2 => self.pass(u64::from(reader.u16()) << (to % 16)),
            3 => self.device.link_mut().room = to % 8,
            _ => {
                let len = usize::from(reader.u16()) % 600;
                let bytes = reader.bytes(len).to_vec();
                self.packet(step >> 3, to, bytes);
            }
        }
        self.check();
    }

    fn connect(&mut self, to: usize) {
        let connect = Connect {
            dest: PEER.into(),
            dest_qp_num: QpNum(PEER_QP + to as u32),
            rq_psn: Psn::new(PSN_FIRST),
            sq_psn: Psn::new(PSN_FIRST),
            path_mtu: Mtu::Mtu256,
            source_port: 0,
            tclass: 0,
            rc: self.attr,
        };
        self.device.connect_qp(self.qps[to], &connect).unwrap();
        self.psns[to] = (Psn::new(PSN_FIRST), Psn::new(PSN_FIRST));
        self.lives += 1;
    }

    fn wr_id(&mut self) -> u64 {
        self.next_wr_id += 1;
        self.outstanding.insert(self.next_wr_id);
        self.next_wr_id
    }

    /// A gather or scatter list of two entries with a gap between them.
    fn list(&self, slot: usize, len: u32) -> SgList {
        let piece = |offset: usize, length| {
            let addr = self.memory.addr() + (slot * SLOT_BYTES + offset) as u64;
            Sge { addr, length, lkey: self.lkey }
        };
        let first = len.min(64);
        SgList::two(piece(0, first), piece(128, len - first))
    }

    fn post_recv(&mut self, to: usize) {
        let slot = self.next_wr_id as usize % SLOTS;
        let sg_list = self.list(slot, 300);
        let wr_id = self.wr_id();
        let wrs = [RecvWr { wr_id, sg_list }];
        let posted = match to {
            1 => self.device.post_srq_recv(self.srq, &wrs),
            _ => self.device.post_recv(self.qps[0], &wrs),
        };
        match posted {
            Ok(()) => self.touched[slot] = true,
            Err(_) => assert!(self.outstanding.remove(&wr_id)),
        }
    }

    fn post_send(&mut self, to: usize, kind: u8, len: u16) {
        let slot = self.next_wr_id as usize % SLOTS;
        let (remote, imm_data) = (RemoteAddr { addr: 4096, rkey: 1 }, 7);
        let (op, len, lands) = match kind % 7 {
            0 => (SendOp::Send, len % 700, false),
            1 => (SendOp::SendWithImm { imm_data }, len % 700, false),
            2 => (SendOp::Write { remote }, len % 700, false),
            3 => (SendOp::WriteWithImm { remote, imm_data }, len % 700, false),
            4 => (SendOp::Read { remote }, len % 700, true),
            5 => (SendOp::FetchAdd { remote, add: 3 }, 8, true),
            _ => (SendOp::CmpSwap { remote, compare: 1, swap: 2 }, 8, true),
        };
        // Sends gather from what may be shown.
        let sg_list = if lands {
            self.list(slot, u32::from(len))
        } else {
            let (addr, length) = (self.open.addr(), u32::from(len));
            SgList::one(Sge { addr, length, lkey: self.rkey })
        };
        let wr_id = self.wr_id();
        let mut wr = SendWr::new(wr_id, op, sg_list);
        wr.flags.fence = kind & 0x80 != 0;
        match self.device.post_send(self.qps[to], &[wr]) {
            Ok(()) => self.touched[slot] |= lands,
            Err(_) => assert!(self.outstanding.remove(&wr_id)),
        }
        self.device.progress(0);
    }

    /// Lets time pass.
    fn pass(&mut self, span: u64) {
        let link = self.device.link_mut();
        link.now += Nanos(span);
        self.device.progress(0);
    }

    fn packet(&mut self, selector: u8, to: usize, mut bytes: Vec<u8>) {
        for byte in bytes.iter_mut().skip(BTH_BYTES).filter(|byte| **byte == GUARD) {
            *byte = 0;
        }
        bytes.resize(bytes.len() + ICRC_BYTES, 0);
        let (to, near) = (to % 2, (to >> 1) as u32);
        if bytes.len() >= BTH_BYTES {
            self.address(to, selector, near, &mut bytes);
        }
        seal(PEER.into(), &mut bytes);
        let before = self.device.counters();
        self.device.link_mut().coming.push_back((PEER.into(), bytes));
        self.device.progress(64);
        let c = self.device.counters();
        assert_eq!(c.packets_received, before.packets_received + 1);
        let dropped = c.packets_dropped() - before.packets_dropped();
        let landed = c.messages_received - before.messages_received;
        assert!(dropped + landed <= 1, "one packet has one fate: {c:?} after {before:?}");
        assert_eq!((c.cq_overruns, c.not_rtr), (0, 0));
    }

    /// Makes the packet one for this queue pair: number, PSN, key and address.
    fn address(&mut self, to: usize, selector: u8, near: u32, bytes: &mut [u8]) {
        bytes[5..8].copy_from_slice(&self.qps[to].0.to_be_bytes()[1..]);
        if selector & 1 == 0 {
            (bytes[1], bytes[2], bytes[3]) = (bytes[1] & 0xb0, 0xff, 0xff);
        }
        let Ok(packet) = Packet::parse(bytes) else { return };
        let (answers, operation) = (packet.opcode.is_answer(), packet.opcode.operation);
        let keyed = packet.reth().is_some() || packet.atomic().is_some();
        let dma_len = packet.reth().map_or(0, |reth| reth.dma_len);
        let (theirs, ours) = self.psns[to];
        if selector & 2 == 0 {
            // Mostly the right one, sometimes near it.
            let psn = match (answers, near % 8) {
                (true, back) => ours.plus(0x100_0001 - back / 2),
                (false, 0..=4) => theirs,
                (false, off) => theirs.plus(0x100_0000 + 1 - (off - 5) * 2),
            };
            bytes[9..12].copy_from_slice(&psn.value().to_be_bytes()[1..]);
            if !answers && psn == theirs {
                let reads = operation == Operation::ReadRequest;
                let packets = if reads { dma_len.div_ceil(MTU_BYTES).max(1) } else { 1 };
                self.psns[to].0 = theirs.plus(packets);
            }
        }
        if selector & 4 == 0 && keyed {
            // The low bits of the address stay: beside the region is as near as within.
            let low = u64::from(bytes[BTH_BYTES + 6] & 0x7f) << 8 | u64::from(bytes[BTH_BYTES + 7]);
            let va = self.open.addr().wrapping_add(low);
            bytes[BTH_BYTES..BTH_BYTES + 8].copy_from_slice(&va.to_be_bytes());
            bytes[BTH_BYTES + 8..BTH_BYTES + 12].copy_from_slice(&self.rkey.to_be_bytes());
        }
    }

    /// What must hold after every step.
    fn check(&mut self) {
        let mut out = [Wc::default(); 64];
        let count = self.device.poll_cq(self.cq, &mut out);
        assert!(count < out.len(), "no step completes so much");
        for wc in &out[..count] {
            assert!(self.outstanding.remove(&wc.wr_id), "{wc:?} was not outstanding");
            let error = !matches!(wc.status, WcStatus::Success);
            let state = self.device.qp_state(wc.qp_num);
            assert!(!error || state == Ok(QpState::Err), "{wc:?} in {state:?}");
        }
        self.check_sent();
        while self.device.poll_async_event().is_some() {}
        for to in 0..2 {
            if self.device.qp_state(self.qps[to]) == Ok(QpState::Err) {
                self.device.modify_qp(self.qps[to], QpState::Reset).unwrap();
                self.device.modify_qp(self.qps[to], QpState::Init).unwrap();
                self.connect(to);
            }
        }
    }

    /// Looks at what went out, and learns the PSNs from it.
    fn check_sent(&mut self) {
        let sent = std::mem::take(&mut self.device.link_mut().sent);
        assert!(sent.len() <= 512, "{} packets in one step", sent.len());
        for bytes in sent {
            let packet = Packet::parse(&bytes).expect("what we send is well-formed");
            let runs = packet.payload.windows(12).any(|run| run == [GUARD; 12]);
            assert!(!runs, "closed memory was sent");
            let psn = packet.bth.psn();
            let known = &mut self.psns[(packet.bth.dest_qp() - PEER_QP) as usize];
            match (packet.opcode.operation, packet.aeth()) {
                (Operation::Acknowledge, Some(aeth)) => {
                    known.0 = psn.plus(u32::from(aeth.syndrome & 0xe0 == 0));
                }
                _ if !packet.opcode.is_answer() => known.1 = psn,
                _ => {}
            }
        }
    }

    fn check_memory(&self) {
        let mut bytes = [0; MEMORY_BYTES];
        self.memory.read(0, &mut bytes).unwrap();
        for (slot, nth) in bytes.chunks(SLOT_BYTES).zip(0..) {
            let posted: &[std::ops::Range<usize>] =
                if self.touched[nth] { &[0..64, 128..764] } else { &[] };
            let guarded = |at: &usize| !posted.iter().any(|range| range.contains(at));
            let found = (0..SLOT_BYTES).filter(guarded).find(|&at| slot[at] != GUARD);
            assert_eq!(found, None, "slot {nth} was written outside its work requests");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    const RECV: u8 = 0;
    const SEND: u8 = 1;
    const PASS: u8 = 2;
    const PACKET: u8 = 4;

    /// A step in which a packet comes in, made right, for the first queue pair.
    fn packet(opcode: u8, ext: &[u8], payload: usize) -> Vec<u8> {
        let pad = payload.wrapping_neg() & 3;
        let mut bytes = vec![opcode, (pad as u8) << 4];
        bytes.extend([0; BTH_BYTES - 2]);
        bytes[8] = 0x80;
        bytes.extend(ext);
        bytes.extend(vec![0x77; payload]);
        bytes.extend(vec![0; pad]);
        let len = (bytes.len() as u16).to_le_bytes();
        [&[PACKET, 0, len[0], len[1]], &bytes[..]].concat()
    }

    /// An answer to our last request, or to one a little before.
    fn answer(opcode: u8, ext: &[u8], payload: usize, back: u8) -> Vec<u8> {
        let mut step = packet(opcode, ext, payload);
        step[1] = (2 + back * 2) << 1;
        step
    }

    fn reth(len: u16) -> [u8; 16] {
        let mut reth = [0; 16];
        reth[14..].copy_from_slice(&len.to_be_bytes());
        reth
    }

    fn input(steps: &[Vec<u8>]) -> Vec<u8> {
        [&[0b1001_1110][..], &steps.concat()].concat()
    }

    fn made() -> Vec<(&'static str, Vec<u8>)> {
        let recv = || vec![RECV, 0];
        let send = |kind, len: u8| vec![SEND, 0, kind, len, 0];
        let pass = || vec![PASS, 4, 0xff, 0xff];
        let (ack, nak) = ([0x1f, 0, 0, 1], [0x60, 0, 0, 1]);
        let mut cas = [0; 28];
        (cas[19], cas[7]) = (9, 8);
        let (first, last) = (packet(0x00, &[], 256), packet(0x02, &[], 30));
        vec![
            ("send_in", input(&[recv(), first.clone(), last])),
            ("send_in_without_receive", input(&[first, pass(), recv()])),
            ("write_in", input(&[packet(0x06, &reth(300), 256), packet(0x08, &[], 44)])),
            ("read_in", input(&[packet(0x0c, &reth(700), 0), pass()])),
            ("atomics_in", input(&[packet(0x14, &cas, 0), packet(0x13, &cas, 0)])),
            ("send_out", input(&[send(0, 100), answer(0x11, &ack, 0, 0)])),
            ("write_out_gone_back", input(&[send(2, 200), answer(0x11, &nak, 0, 0), pass()])),
            ("read_out", input(&[send(4, 200), answer(0x10, &ack, 200, 0)])),
            ("atomic_out", input(&[send(5, 8), answer(0x12, &[&ack[..], &[0; 8]].concat(), 0, 0)])),
            ("given_up", input(&[send(1, 100), pass(), pass(), pass()])),
        ]
    }

    #[test]
    fn the_seeds_are_as_made() {
        seeds::check("roce_rc", &made());
    }

    #[test]
    fn the_seeds_reach_what_they_are_named_for() {
        let reached = |name| {
            let (_, input) = made().into_iter().find(|(made, _)| *made == name).unwrap();
            let mut reader = Reader::new(&input);
            let mut bench = Bench::new(reader.u8());
            while !reader.is_empty() {
                bench.step(&mut reader);
            }
            bench.device.counters()
        };
        assert_eq!(reached("send_in").messages_received, 1);
        assert_eq!(reached("send_in_without_receive").rnr_naks_sent, 1);
        assert_eq!(reached("write_in").messages_received, 1);
        assert_eq!(reached("read_in").messages_received, 1);
        assert_eq!(reached("atomics_in").messages_received, 2);
        for name in ["send_out", "read_out", "atomic_out"] {
            assert_eq!(reached(name).messages_sent, 1, "{name}");
        }
        assert_eq!(reached("write_out_gone_back").go_backs, 1);
        assert!(reached("given_up").ack_timeouts > 1);
    }
}
