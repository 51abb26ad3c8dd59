//! What the device itself costs: each side alone, over a link that costs nothing.
//!
//! `cargo run --profile dist -p towpath-device-roce --example engine_bench -- [BYTES [MESSAGES]]`
//!
//! BYTES is the payload of one row, MESSAGES how many it has: few for callgrind.
//!
//! The sender's link takes every packet and forgets it; the receiver's link hands over packets that
//! were recorded before. So a figure is post, progress and poll of one side, ICRC and (on the
//! receiving side) the copy into memory included.

use std::net::SocketAddr;
use std::time::Instant;
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, Connect, CqNum, Device, LinkCaps, LinkCounters, Mtu, PacketLink, PdNum, QpInit, QpNum,
    QpShare, QpType, RcAttr, RecvWr, RxPacket, SendOp, SendWr, SgList, Sge, TxPacket, Wc,
};

const HEADER_BYTES: usize = 64;
/// Messages posted between two calls of `progress`.
const DEPTH: usize = 16;
const ROUNDS: usize = 5;

/// Takes everything; hands over what was recorded, again and again.
struct BenchLink {
    addr: SocketAddr,
    record: Option<Vec<Vec<u8>>>,
    replay: Vec<Vec<u8>>,
    next: usize,
    source: SocketAddr,
}

impl BenchLink {
    fn new(addr: SocketAddr, source: SocketAddr) -> Self {
        Self { addr, record: None, replay: Vec::new(), next: 0, source }
    }
}

impl PacketLink for BenchLink {
    fn caps(&self) -> LinkCaps {
        let (packet_bytes_max, source_ports) = (4096 + 39, 1);
        LinkCaps {
            packet_bytes_max,
            source_ports,
            rx_buffer_bytes: None,
            rx_charge_bytes: 0,
            delay_noise: Nanos::ZERO,
            foreign_peers: false,
            qp_share: QpShare::ALL,
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    fn now(&self) -> Time {
        Time(1)
    }

    fn source_addr(&self, _source_port: u16) -> SocketAddr {
        self.addr
    }

    fn transmit(&mut self, packets: &[TxPacket<'_>]) -> usize {
        if let Some(record) = &mut self.record {
            record.extend(packets.iter().map(|packet| packet.parts().concat()));
        }
        std::hint::black_box(packets).len()
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize {
        if self.replay.is_empty() {
            return 0;
        }
        for _ in 0..budget {
            let bytes = &self.replay[self.next];
            let (source, dest, timestamp) = (self.source, self.addr, Time(1));
            sink(RxPacket { source, dest, tclass: Some(0), bytes, timestamp });
            self.next = (self.next + 1) % self.replay.len();
        }
        budget
    }

    fn counters(&self) -> LinkCounters {
        LinkCounters::default()
    }
}

struct End {
    device: RoceDevice<BenchLink>,
    cq: CqNum,
    qp: QpNum,
    sg_list: SgList,
    _memory: SharedMemory,
}

fn end(addr: &str, peer: &str, payload_bytes: usize) -> End {
    let (addr, peer) = (addr.parse().expect("literal"), peer.parse().expect("literal"));
    let mut device = RoceDevice::new(BenchLink::new(addr, peer), RoceConfig::default());
    let region = Region::new(4096 + payload_bytes).expect("memory for a benchmark");
    let memory = SharedMemory::from_region(region).expect("a fresh region");
    let keys = device
        .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL)
        .expect("the first region");
    let cq = device.create_cq(4096).expect("the first queue");
    let qp = device.create_qp(&QpInit::new(QpType::Uc, cq)).expect("the first queue pair");
    let at = |skip: usize, length: usize| {
        let addr = memory.addr() + skip as u64;
        Sge { addr, length: length as u32, lkey: keys.lkey }
    };
    let sg_list = SgList::two(at(0, HEADER_BYTES), at(4096, payload_bytes));
    End { device, cq, qp, sg_list, _memory: memory }
}

fn join(end: &mut End, dest_qp_num: QpNum, peer: SocketAddr, has_icrc: bool) {
    if !has_icrc {
        end.device.omit_icrc(end.qp).expect("a fresh queue pair");
    }
    let connect = Connect {
        dest: peer,
        dest_qp_num,
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        path_mtu: Mtu::Mtu4096,
        source_port: 0,
        tclass: 0,
        rc: RcAttr::default(),
    };
    end.device.connect_qp(end.qp, &connect).expect("a fresh queue pair");
}

#[inline(never)]
fn send_round(end: &mut End, wcs: &mut [Wc]) {
    let wr = SendWr::new(1, SendOp::Send, end.sg_list);
    end.device.post_send(end.qp, &[wr; DEPTH]).expect("room");
    let mut done = 0;
    while done < DEPTH {
        end.device.progress(0);
        done += end.device.poll_cq(end.cq, wcs);
    }
}

#[inline(never)]
fn recv_round(end: &mut End, packets: usize, wcs: &mut [Wc]) {
    let wr = RecvWr { wr_id: 1, sg_list: end.sg_list };
    end.device.post_recv(end.qp, &[wr; DEPTH]).expect("room");
    end.device.progress(packets);
    let done = end.device.poll_cq(end.cq, wcs);
    assert_eq!(done, DEPTH, "every message arrives");
}

/// The best of a few timed rounds, in nanoseconds for each message.
fn best(messages: usize, mut round: impl FnMut()) -> f64 {
    let loops = messages / DEPTH;
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..loops).for_each(|_| round());
            start.elapsed().as_nanos() as f64 / (loops * DEPTH) as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Prints the row of one kind of message.
#[inline(never)]
fn measure(payload_bytes: usize, messages: usize, has_icrc: bool) {
    let (a_addr, b_addr) = ("10.0.0.1:4791", "10.0.0.2:4791");
    let mut a = end(a_addr, b_addr, payload_bytes);
    let mut b = end(b_addr, a_addr, payload_bytes);
    let (a_qp, b_qp) = (a.qp, b.qp);
    join(&mut a, b_qp, b_addr.parse().expect("literal"), has_icrc);
    join(&mut b, a_qp, a_addr.parse().expect("literal"), has_icrc);
    let mut wcs = vec![Wc::default(); 4 * DEPTH];

    a.device.link_mut().record = Some(Vec::new());
    send_round(&mut a, &mut wcs);
    let recorded = a.device.link_mut().record.take().expect("just set");
    let packets = recorded.len();
    b.device.link_mut().replay = recorded;

    let send_ns = best(messages, || send_round(&mut a, &mut wcs));
    let recv_ns = best(messages, || recv_round(&mut b, packets, &mut wcs));
    let icrc = if has_icrc { "yes" } else { "no" };
    println!("{:>14} {icrc:>5} {send_ns:>12.1} {recv_ns:>12.1}", format!("64 + {payload_bytes}"));
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse().expect("a number"));
    let (only, count): (Option<usize>, Option<usize>) = (words.next(), words.next());
    println!("{:>14} {:>5} {:>12} {:>12}", "message", "ICRC", "send ns", "receive ns");
    for (payload_bytes, messages) in [(64, 1 << 19), (4096, 1 << 17), (56 << 10, 1 << 14)] {
        if only.is_none_or(|only| only == payload_bytes) {
            for has_icrc in [true, false] {
                measure(payload_bytes, count.unwrap_or(messages), has_icrc);
            }
        }
    }
}
