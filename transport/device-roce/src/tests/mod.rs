//! Tests of the device over a wire in memory.

mod forged;
mod gather;
mod golden;
mod golden_rc;
mod hostile;
mod icrc;
mod middle;
mod rc;
mod replay;
mod sizes;
mod uc;
mod ud;
mod verbs;

use crate::{RoceConfig, RoceCounters, RoceDevice};
use std::collections::VecDeque;
use std::net::SocketAddr;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Time};
use towpath_memory::{Pool, Region, SharedMemory};
use towpath_verbs::*;

/// A packet on the wire of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OnWire {
    source: SocketAddr,
    dest: SocketAddr,
    tclass: u8,
    bytes: Vec<u8>,
}

/// A link whose packets a test moves, changes or forgets by hand.
struct TestLink {
    addr: SocketAddr,
    source_ports: u16,
    packet_bytes_max: u32,
    rx_buffer_bytes: Option<u64>,
    foreign_peers: bool,
    qp_share: QpShare,
    sent: Vec<OnWire>,
    coming: VecDeque<OnWire>,
    /// How many more packets it takes.
    room: usize,
    now: Time,
}

impl TestLink {
    fn new(addr: &str) -> Self {
        let (source_ports, packet_bytes_max, now) = (4, 4096 + 39, Time(1_000));
        let (sent, coming) = (Vec::new(), VecDeque::new());
        let addr = addr.parse().unwrap();
        Self {
            addr,
            source_ports,
            packet_bytes_max,
            rx_buffer_bytes: Some(7),
            foreign_peers: false,
            qp_share: QpShare::ALL,
            sent,
            coming,
            room: usize::MAX,
            now,
        }
    }
}

impl PacketLink for TestLink {
    fn caps(&self) -> LinkCaps {
        let (packet_bytes_max, source_ports) = (self.packet_bytes_max, self.source_ports);
        LinkCaps {
            packet_bytes_max,
            source_ports,
            rx_buffer_bytes: self.rx_buffer_bytes,
            rx_charge_bytes: 9,
            delay_noise: Nanos(13),
            foreign_peers: self.foreign_peers,
            qp_share: self.qp_share,
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    fn now(&self) -> Time {
        self.now
    }

    fn source_addr(&self, source_port: u16) -> SocketAddr {
        assert!(source_port < self.source_ports);
        SocketAddr::new(self.addr.ip(), self.addr.port() + source_port)
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        let taken = packets.len().min(self.room);
        self.room -= taken;
        for packet in &packets[..taken] {
            let source = self.source_addr(packet.source_port);
            let (dest, tclass, bytes) = (packet.dest, packet.tclass, packet.parts().concat());
            self.sent.push(OnWire { source, dest, tclass, bytes });
        }
        taken
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        let count = budget.min(self.coming.len());
        for OnWire { source, dest, tclass, bytes } in self.coming.drain(..count) {
            let (dest, timestamp) = (SocketAddr::new(dest.ip(), self.addr.port()), self.now);
            sink(RxPacket { source, dest, tclass: Some(tclass), bytes: &bytes, timestamp });
        }
        count
    }

    fn counters(&self) -> LinkCounters {
        LinkCounters::default()
    }
}

const MEMORY_BYTES: usize = 1 << 18;

/// A device with one completion queue and one open region.
struct End {
    device: RoceDevice<TestLink>,
    cq: CqNum,
    memory: SharedMemory,
    keys: MrKeys,
}

impl End {
    fn new(addr: &str) -> Self {
        Self::on(TestLink::new(addr), RoceConfig::default().seed(7))
    }

    fn on(link: TestLink, config: RoceConfig) -> Self {
        let mut device = RoceDevice::new(link, config);
        let memory = SharedMemory::new(MEMORY_BYTES).unwrap();
        let keys = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::REMOTE_ALL)
            .unwrap();
        let cq = device.create_cq(1024).unwrap();
        Self { device, cq, memory, keys }
    }

    fn sge(&self, at: usize, length: usize) -> Sge {
        let addr = self.memory.addr() + at as u64;
        Sge { addr, length: length as u32, lkey: self.keys.lkey }
    }

    fn list(&self, at: usize, length: usize) -> SgList {
        SgList::one(self.sge(at, length))
    }

    fn remote(&self, at: usize) -> RemoteAddr {
        RemoteAddr { addr: self.memory.addr() + at as u64, rkey: self.keys.rkey }
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(at, &mut bytes).unwrap();
        bytes
    }

    fn recv(&mut self, qp: QpNum, wr_id: u64, at: usize, len: usize) {
        let sg_list = self.list(at, len);
        self.device.post_recv(qp, &[RecvWr { wr_id, sg_list }]).unwrap();
    }

    fn completions(&mut self) -> Vec<Wc> {
        let mut out = vec![Wc::default(); 2048];
        let count = self.device.poll_cq(self.cq, &mut out);
        out.truncate(count);
        out
    }

    /// Completions of received messages: (`wr_id`, length).
    fn received(&mut self) -> Vec<(u64, u32)> {
        let all = self.completions();
        let good = all.iter().filter(|wc| wc.status == WcStatus::Success && wc.opcode.is_recv());
        good.map(|wc| (wc.wr_id, wc.byte_len)).collect()
    }

    fn counters(&self) -> RoceCounters {
        self.device.counters()
    }
}

/// To a queue pair of an address, in packets of 256 bytes, with all else at its least.
fn connect_to(dest: SocketAddr, dest_qp_num: QpNum) -> Connect {
    Connect {
        dest,
        dest_qp_num,
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        path_mtu: Mtu::Mtu256,
        source_port: 0,
        tclass: 0,
        rc: RcAttr::default(),
    }
}

/// A queue pair on each of two devices, joined.
struct Pair {
    a: End,
    b: End,
    a_qp: QpNum,
    b_qp: QpNum,
}

const A_PSN: u32 = 0xff_fffe;
const B_PSN: u32 = 0x123;

impl Pair {
    fn uc(mtu: Mtu) -> Self {
        Self::between(End::new("10.0.0.1:4791"), End::new("10.0.0.2:4791"), mtu, None)
    }

    fn between(a: End, b: End, mtu: Mtu, b_srq: Option<SrqNum>) -> Self {
        Self::joined(a, b, mtu, b_srq, [false; 2])
    }

    /// Ends whose packets have no ICRC where `omits_icrc` says so.
    fn joined(
        mut a: End,
        mut b: End,
        mtu: Mtu,
        b_srq: Option<SrqNum>,
        omits_icrc: [bool; 2],
    ) -> Self {
        let long = QpInit::new(QpType::Uc, a.cq)
            .access(Access::REMOTE_ALL)
            .max_send_sge(SEND_SGE_MAX as u32);
        let a_qp = a.device.create_qp(&long).unwrap();
        let mut init = QpInit::new(QpType::Uc, b.cq).access(Access::REMOTE_ALL);
        init.srq = b_srq;
        let b_qp = b.device.create_qp(&init).unwrap();
        for (omits, end, qp) in [(omits_icrc[0], &mut a, a_qp), (omits_icrc[1], &mut b, b_qp)] {
            if omits {
                end.device.omit_icrc(qp).unwrap();
            }
        }
        let mut connect = Connect {
            rq_psn: Psn::new(B_PSN),
            sq_psn: Psn::new(A_PSN),
            path_mtu: mtu,
            tclass: 0x28,
            ..connect_to(b.device.local_addr(), b_qp)
        };
        a.device.connect_qp(a_qp, &connect).unwrap();
        (connect.dest, connect.dest_qp_num) = (a.device.local_addr(), a_qp);
        (connect.rq_psn, connect.sq_psn) = (connect.sq_psn, connect.rq_psn);
        b.device.connect_qp(b_qp, &connect).unwrap();
        Self { a, b, a_qp, b_qp }
    }

    /// Fills A's memory with bytes that differ, and posts `op` over its first `len`.
    fn post(&mut self, wr_id: u64, op: SendOp, len: usize) {
        self.a.memory.write(0, &pattern(len)).unwrap();
        let wr = SendWr::new(wr_id, op, self.a.list(0, len));
        self.a.device.post_send(self.a_qp, &[wr]).unwrap();
    }

    /// What A puts on the wire for `op` over `len` bytes.
    fn packets(&mut self, op: SendOp, len: usize) -> Vec<OnWire> {
        self.post(0, op, len);
        while self.a.device.progress(0) > 0 {}
        std::mem::take(&mut self.a.device.link_mut().sent)
    }

    fn deliver(&mut self, packets: impl IntoIterator<Item = OnWire>) {
        self.b.device.link_mut().coming.extend(packets);
        while self.b.device.progress(64) > 0 {}
    }

    /// Everything that A posted, to B.
    fn run(&mut self) {
        while self.a.device.progress(64) > 0 {}
        let packets = std::mem::take(&mut self.a.device.link_mut().sent);
        self.deliver(packets);
    }
}

/// Bytes of which no two neighbours at any MTU's distance are alike.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i / 251) as u8 | 1).collect()
}
