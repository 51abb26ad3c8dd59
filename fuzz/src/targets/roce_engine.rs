//! A device that receives packets from a hostile wire: books balance, and no byte lands where no
//! receive was posted and no key was given.

use super::roce_wire::{HERE, PEER, Wire, seal};
use crate::class;
use crate::input::{Reader, coarse};
use std::net::SocketAddr;
use towpath_base::serial::Psn;
use towpath_device_roce::wire::{BTH_BYTES, ICRC_BYTES, Operation, Packet, Service};
use towpath_device_roce::{RoceConfig, RoceCounters, RoceDevice};
use towpath_memory::SharedMemory;
use towpath_verbs::{
    Access, Connect, CqNum, Device, Mtu, PdNum, QpInit, QpNum, QpState, QpType, RcAttr, RecvWr,
    SgList, Sge, SrqNum, Wc, WcStatus,
};

/// Most packets of one input.
const PACKETS_MAX: usize = 64;

/// Receives go round these; only the first half of each is ever posted.
const SLOTS: usize = 16;
const SLOT_BYTES: usize = 1024;

/// What stands where nothing may be written.
const GUARD: u8 = 0x5a;
const QKEY: u32 = 0x1122_3344;
const PSN_FIRST: u32 = 0xff_fffe;

/// The first byte says how many receives are posted at first; then packets: a byte that says what
/// is made right, a length, and bytes from BTH to pad.
pub(crate) fn run(input: &[u8]) -> u64 {
    let mut reader = Reader::new(input);
    let mut bench = Bench::new();
    for nth in 0..usize::from(reader.u8()) % SLOTS {
        bench.post(nth % 3);
    }
    for _ in 0..PACKETS_MAX {
        if reader.is_empty() {
            break;
        }
        let selector = reader.u8();
        let len = usize::from(reader.u16()) % 600;
        let bytes = reader.bytes(len).to_vec();
        if selector & 0x40 != 0 {
            bench.post(usize::from(selector & 3) % 3);
        }
        bench.packet(selector, bytes);
    }
    bench.check_memory();
    let c = bench.device.counters();
    let drops = [
        c.too_short,
        c.bad_version,
        c.bad_opcode,
        c.bad_icrc,
        c.bad_pkey,
        c.unknown_qp,
        c.wrong_source,
        c.bad_qkey,
        c.psn_mismatch,
        c.no_recv_wqe,
        c.length_error,
        c.recv_too_long,
        c.bad_rkey,
    ];
    let good = [c.messages_received, c.messages_lost, c.resyncs, bench.errors, bench.recv_bytes];
    let classes: Vec<u64> = drops.into_iter().chain(good).map(|n| coarse(n).min(3)).collect();
    class(&classes)
}

struct Bench {
    device: RoceDevice<Wire>,
    cq: CqNum,
    srq: SrqNum,
    /// A UC queue pair, one on the shared receive queue, a UD one.
    qps: [QpNum; 3],
    /// The PSN that each expects, as an honest sender would count.
    psns: [Psn; 3],
    memory: SharedMemory,
    lkey: u32,
    open: SharedMemory,
    rkey: u32,
    posted: usize,
    completed: usize,
    errors: u64,
    recv_bytes: u64,
}

impl Bench {
    fn new() -> Self {
        let mut device = RoceDevice::new(Wire::default(), RoceConfig::default());
        let window = || SharedMemory::new(SLOTS * SLOT_BYTES).unwrap();
        let (memory, open) = (window(), window());
        memory.write(0, &[GUARD; SLOTS * SLOT_BYTES]).unwrap();
        let lkey = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL)
            .unwrap()
            .lkey;
        let rkey = device
            .reg_shared_mr(PdNum::DEFAULT, &open, open.whole(), Access::REMOTE_WRITE)
            .unwrap()
            .rkey;
        let cq = device.create_cq(64).unwrap();
        let srq = device.create_srq(SLOTS as u32).unwrap();
        let uc = QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL).depth(1, SLOTS as u32);
        let ud = QpInit::new(QpType::Ud, cq)
            .access(Access::REMOTE_ALL)
            .depth(1, SLOTS as u32)
            .qkey(QKEY);
        let qps = [uc, uc.srq(srq), ud].map(|init| device.create_qp(&init).unwrap());
        for qp in qps {
            let connect = Connect {
                dest: PEER.into(),
                dest_qp_num: QpNum(17),
                rq_psn: Psn::new(PSN_FIRST),
                sq_psn: Psn::new(0),
                path_mtu: Mtu::Mtu256,
                source_port: 0,
                tclass: 0,
                rc: RcAttr::default(),
            };
            device.connect_qp(qp, &connect).unwrap();
        }
        let psns = [Psn::new(PSN_FIRST); 3];
        let (posted, completed, errors, recv_bytes) = (0, 0, 0, 0);
        Self {
            device,
            cq,
            srq,
            qps,
            psns,
            memory,
            lkey,
            open,
            rkey,
            posted,
            completed,
            errors,
            recv_bytes,
        }
    }

    /// Posts the next slot, unless all are out: two entries with a gap between them.
    fn post(&mut self, to: usize) {
        if self.posted - self.completed >= SLOTS {
            return;
        }
        let at = self.posted % SLOTS * SLOT_BYTES;
        let piece = |offset: usize, length| {
            let addr = self.memory.addr() + (at + offset) as u64;
            Sge { addr, length, lkey: self.lkey }
        };
        let sg_list = SgList::two(piece(0, 64), piece(128, 300 + (self.posted % 3) as u32));
        let wrs = [RecvWr { wr_id: self.posted as u64, sg_list }];
        match to {
            1 => self.device.post_srq_recv(self.srq, &wrs).unwrap(),
            _ => self.device.post_recv(self.qps[to], &wrs).unwrap(),
        }
        self.posted += 1;
    }

    fn packet(&mut self, selector: u8, mut bytes: Vec<u8>) {
        let to = usize::from(selector & 3);
        if selector & 0x80 == 0 {
            // Room for the ICRC, which the input leaves out.
            bytes.resize(bytes.len() + ICRC_BYTES, 0);
        }
        if to < 3 && bytes.len() >= BTH_BYTES {
            self.address(to, selector, &mut bytes);
        }
        let source = SocketAddr::from(if selector & 0x30 == 0x30 { HERE } else { PEER });
        if selector & 0x80 == 0 {
            seal(source, &mut bytes);
        }
        let before = self.device.counters();
        self.device.link_mut().coming.push_back((source, bytes));
        assert_eq!(self.device.progress(64), 1);
        assert!(self.device.link().sent.is_empty(), "UC and UD answer nothing");
        self.check_counters(&before);
        self.check_completions(&before);
    }

    /// Makes the packet one for this queue pair: number, PSN, key and address.
    fn address(&mut self, to: usize, selector: u8, bytes: &mut [u8]) {
        bytes[5..8].copy_from_slice(&self.qps[to].0.to_be_bytes()[1..]);
        if selector & 4 != 0 {
            bytes[9..12].copy_from_slice(&self.psns[to].value().to_be_bytes()[1..]);
        }
        if selector & 8 != 0 {
            (bytes[1], bytes[2], bytes[3]) = (bytes[1] & 0xf0, 0xff, 0xff);
        }
        let psn = u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]);
        self.psns[to] = Psn::new(psn).plus(1);
        let Ok(packet) = Packet::parse(bytes) else { return };
        let writes = packet.opcode.operation == Operation::Write && packet.reth().is_some();
        let datagram = packet.opcode.service == Service::Ud;
        if selector & 0x10 != 0 && writes {
            // The low bits of the address stay: beside the region is as near as within.
            let low = u64::from(bytes[BTH_BYTES + 6] & 0x7f) << 8 | u64::from(bytes[BTH_BYTES + 7]);
            let va = self.open.addr().wrapping_add(low);
            bytes[BTH_BYTES..BTH_BYTES + 8].copy_from_slice(&va.to_be_bytes());
            bytes[BTH_BYTES + 8..BTH_BYTES + 12].copy_from_slice(&self.rkey.to_be_bytes());
        } else if selector & 0x10 != 0 && datagram {
            bytes[BTH_BYTES..BTH_BYTES + 4].copy_from_slice(&QKEY.to_be_bytes());
        }
    }

    /// One packet has one fate.
    fn check_counters(&self, before: &RoceCounters) {
        let c = self.device.counters();
        assert_eq!(c.packets_received, before.packets_received + 1);
        let dropped = c.packets_dropped() - before.packets_dropped();
        let landed = c.messages_received - before.messages_received;
        assert!(dropped + landed <= 1, "{c:?} after {before:?}");
        assert_eq!((c.cq_overruns, c.events_lost, c.not_rtr), (0, 0, 0));
    }

    fn check_completions(&mut self, before: &RoceCounters) {
        let mut out = [Wc::default(); 8];
        let count = self.device.poll_cq(self.cq, &mut out);
        let c = self.device.counters();
        assert!(count <= 1, "one packet completes one receive at most");
        for wc in &out[..count] {
            assert!((wc.wr_id as usize) < self.posted && wc.opcode.is_recv());
            self.completed += 1;
            if wc.status == WcStatus::Success {
                assert_eq!(c.messages_received, before.messages_received + 1);
                self.recv_bytes += u64::from(wc.byte_len);
            } else {
                assert_eq!(wc.status, WcStatus::LocLenErr);
                assert_eq!(c.recv_too_long, before.recv_too_long + 1);
                self.errors += 1;
            }
        }
        assert!(self.completed <= self.posted);
        for qp in self.qps {
            assert_eq!(self.device.qp_state(qp), Ok(QpState::Rts), "no packet stops {qp}");
        }
        assert!(self.device.poll_async_event().is_none());
    }

    fn check_memory(&self) {
        let mut bytes = [0; SLOTS * SLOT_BYTES];
        self.memory.read(0, &mut bytes).unwrap();
        for (slot, nth) in bytes.chunks(SLOT_BYTES).zip(0..) {
            let posted: &[std::ops::Range<usize>] =
                if nth < self.posted { &[0..64, 128..430] } else { &[] };
            let guarded = |at: &usize| !posted.iter().any(|range| range.contains(at));
            let touched = (0..SLOT_BYTES).filter(guarded).find(|&at| slot[at] != GUARD);
            assert_eq!(touched, None, "slot {nth} was written outside its receive");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    /// A selector that makes everything right, for the queue pair `to`.
    fn right(to: u8) -> u8 {
        to | 4 | 8 | 0x10
    }

    fn packet(selector: u8, opcode: u8, ext: &[u8], payload: usize) -> Vec<u8> {
        let pad = payload.wrapping_neg() & 3;
        let mut bytes = vec![opcode, (pad as u8) << 4];
        bytes.extend([0; BTH_BYTES - 2]);
        bytes.extend(ext);
        bytes.extend(vec![0x77; payload]);
        bytes.extend(vec![0; pad]);
        let len = (bytes.len() as u16).to_le_bytes();
        [&[selector, len[0], len[1]], &bytes[..]].concat()
    }

    #[test]
    fn the_seeds_are_as_made() {
        let mut reth = [0; 16];
        (reth[7], reth[14], reth[15]) = (64, 300_u16.to_be_bytes()[0], 300_u16.to_be_bytes()[1]);
        let send = |to| {
            let parts = [(0x20, 256), (0x22, 30)].map(|(op, len)| packet(right(to), op, &[], len));
            [&[9], &parts.concat()[..]].concat()
        };
        let write = [packet(right(0), 0x26, &reth, 256), packet(right(0), 0x29, &[0; 4], 44)];
        let long = [0x20, 0x21].map(|op| packet(right(0), op, &[], 256));
        let made = [
            ("uc_send_two_packets", send(0)),
            ("uc_send_on_shared_queue", send(1)),
            ("uc_write_with_imm", [&[9], &write.concat()[..]].concat()),
            ("ud_send", [&[9], &packet(right(2), 0x64, &[0; 8], 100)[..]].concat()),
            ("uc_send_too_long", [&[3], &long.concat()[..]].concat()),
        ];
        seeds::check("roce_engine", &made);
    }

    #[test]
    fn a_sound_message_lands() {
        let mut bench = Bench::new();
        bench.post(0);
        let (selector, bytes) = (right(0), packet(0, 0x24, &[], 13));
        bench.packet(selector, bytes[3..].to_vec());
        assert_eq!((bench.completed, bench.recv_bytes), (1, 13));
        let mut landed = [0; 14];
        bench.memory.read(0, &mut landed).unwrap();
        assert_eq!(landed, [&[0x77; 13][..], &[GUARD]].concat()[..]);
    }
}
