//! Two devices over UDP sockets of this machine, driven in turn by one thread: what both ends and
//! the kernel between them cost together.
//!
//! `cargo run --profile dist -p towpath-device-roce --example udp_device_bench`
//!
//! UC has no flow control, so the sender counts what the receiver took. A message that is lost
//! shows as the run standing still; it is reported then.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use towpath_base::serial::Psn;
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, Connect, CqNum, Device, Mtu, PdNum, QpInit, QpNum, QpType, RcAttr, RecvWr, SendOp,
    SendWr, SgList, Sge, Wc,
};

const HEADER_BYTES: usize = 64;
const STALL: Duration = Duration::from_secs(1);
const WCS: usize = 256;

struct End {
    device: RoceDevice<UdpLink>,
    cq: CqNum,
    qp: QpNum,
    memory: SharedMemory,
    lkey: u32,
}

impl End {
    fn new(slots: usize, payload_bytes: usize) -> Self {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let link = UdpLink::bind(UdpConfig::new(ip)).expect("sockets on the loopback");
        let mut device = RoceDevice::new(link, RoceConfig::default());
        let region = Region::new(4096 + slots * (4096 + payload_bytes)).expect("memory");
        let memory = SharedMemory::from_region(region).expect("a fresh region");
        let lkey = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL)
            .expect("the first region")
            .lkey;
        let cq = device.create_cq(8192).expect("the first queue");
        let init = QpInit::new(QpType::Uc, cq).depth(1024, 2048);
        let qp = device.create_qp(&init).expect("the first queue pair");
        Self { device, cq, qp, memory, lkey }
    }

    fn join(&mut self, peer: &Self) {
        let connect = Connect {
            dest: peer.device.local_addr(),
            dest_qp_num: peer.qp,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: Mtu::Mtu4096,
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        self.device.connect_qp(self.qp, &connect).expect("a fresh queue pair");
    }

    /// Header and payload of a slot; the payload page-aligned.
    fn list(&self, slot: usize, payload_bytes: usize) -> SgList {
        let base = self.memory.addr() as usize;
        let at = 4096 + slot * (4096 + payload_bytes.next_multiple_of(4096));
        let sge = |at: usize, len: usize| Sge {
            addr: (base + at) as u64,
            length: len as u32,
            lkey: self.lkey,
        };
        SgList::two(sge(at - HEADER_BYTES, HEADER_BYTES), sge(at, payload_bytes))
    }
}

/// Takes what has arrived and posts its receives again; how many messages.
fn receive(b: &mut End, wcs: &mut [Wc], payload_bytes: usize) -> u64 {
    b.device.progress(WCS);
    let count = b.device.poll_cq(b.cq, wcs);
    for wc in &wcs[..count] {
        let sg_list = b.list(wc.wr_id as usize, payload_bytes);
        let wr = RecvWr { wr_id: wc.wr_id, sg_list };
        b.device.post_recv(b.qp, &[wr]).expect("the place just left");
    }
    count as u64
}

fn run(payload_bytes: usize, window: u64, messages: u64) {
    let slots = window as usize;
    let room = payload_bytes.next_multiple_of(4096);
    let (mut a, mut b) = (End::new(slots, room), End::new(slots, room));
    a.join(&b);
    b.join(&a);
    for slot in 0..slots {
        let wr = RecvWr { wr_id: slot as u64, sg_list: b.list(slot, payload_bytes) };
        b.device.post_recv(b.qp, &[wr]).expect("room");
    }
    let mut wcs = vec![Wc::default(); WCS];
    let (mut sent, mut arrived) = (0, 0);
    let start = Instant::now();
    let mut last = start;
    while arrived < messages {
        for slot in 0..(arrived + window - sent).min(messages - sent) {
            let sg_list = a.list(slot as usize, payload_bytes);
            let wr = SendWr::new(sent + slot, SendOp::Send, sg_list).unsignaled();
            a.device.post_send(a.qp, &[wr]).expect("the window is below the depth");
        }
        sent += (arrived + window - sent).min(messages - sent);
        a.device.progress(1);
        let count = receive(&mut b, &mut wcs, payload_bytes);
        arrived += count;
        if count > 0 {
            last = Instant::now();
        } else if last.elapsed() > STALL {
            println!("stands still after {arrived} of {messages}: {:?}", b.device.counters());
            return;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let gbps = (messages as usize * (HEADER_BYTES + payload_bytes) * 8) as f64 / seconds / 1e9;
    let rate = messages as f64 / seconds / 1e6;
    println!("64 + {payload_bytes:>5} B, window {window:>4}: {gbps:>6.2} Gb/s, {rate:>6.3} M/s");
}

fn main() {
    for _ in 0..3 {
        run(56 << 10, 4, 20_000);
        run(56 << 10, 16, 20_000);
        run(64, 128, 1_000_000);
        run(64, 1, 100_000);
    }
}
