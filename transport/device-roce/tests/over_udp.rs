//! Two devices over real UDP sockets of this machine.

use std::net::IpAddr;
use std::time::Duration;
use towpath_base::Nanos;
use towpath_base::serial::Psn;
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_memory::SharedMemory;
use towpath_verbs::{
    Access, Connect, CqNum, Device, Mtu, PacketLink, PdNum, QpInit, QpNum, QpType, RcAttr, RecvWr,
    SendOp, SendWr, SgList, Sge, Wc, WcStatus,
};

const HEADER_BYTES: usize = 64;
const PAYLOAD_BYTES: usize = 56 << 10;
/// DSCP 46, and a sender that is capable of congestion marks.
const TCLASS: u8 = 46 << 2 | 0b10;
/// Long enough for a loaded machine; a lost packet shows as this time running out.
const WAIT: Duration = Duration::from_secs(60);

struct End {
    device: RoceDevice<UdpLink>,
    cq: CqNum,
    qp: QpNum,
    memory: SharedMemory,
    lkey: u32,
}

impl End {
    fn new(ip: IpAddr) -> Self {
        let link = UdpLink::bind(UdpConfig::new(ip)).expect("sockets on the loopback");
        let mut device = RoceDevice::new(link, RoceConfig::default());
        let memory = SharedMemory::new(1 << 20).unwrap();
        let lkey = device
            .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), Access::LOCAL)
            .unwrap()
            .lkey;
        let cq = device.create_cq(1024).unwrap();
        let qp = device.create_qp(&QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL)).unwrap();
        Self { device, cq, qp, memory, lkey }
    }

    fn join(&mut self, peer: &Self, path_mtu: Mtu) {
        let connect = Connect {
            dest: peer.device.local_addr(),
            dest_qp_num: peer.qp,
            rq_psn: Psn::new(9),
            sq_psn: Psn::new(9),
            path_mtu,
            source_port: 0,
            tclass: TCLASS,
            rc: RcAttr::default(),
        };
        self.device.connect_qp(self.qp, &connect).unwrap();
    }

    fn list(&self, payload: usize, len: usize) -> SgList {
        let sge = |at: usize, len: usize| Sge {
            addr: self.memory.addr() + at as u64,
            length: len as u32,
            lkey: self.lkey,
        };
        SgList::two(sge(0, HEADER_BYTES), sge(payload, len))
    }
}

/// Drives both ends until the receiver has a completion.
fn one_completion(a: &mut End, b: &mut End) -> Wc {
    let start = std::time::Instant::now();
    let mut wc = [Wc::default()];
    while b.device.poll_cq(b.cq, &mut wc) == 0 {
        a.device.progress(64);
        if b.device.progress(64) == 0 {
            b.device.wait(Nanos::from_millis(1));
        }
        assert!(
            start.elapsed() < WAIT,
            "a: {:?} b: {:?}",
            a.device.counters(),
            b.device.counters()
        );
    }
    wc[0]
}

fn chunks_cross(ip: &str, mtu: Mtu) {
    let ip: IpAddr = ip.parse().unwrap();
    let (mut a, mut b) = (End::new(ip), End::new(ip));
    a.join(&b, mtu);
    b.join(&a, mtu);
    for (i, len) in [PAYLOAD_BYTES, 0, 1, 64, 4096, 5000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..HEADER_BYTES + len).map(|at| (at * 7 + i) as u8 | 1).collect();
        a.memory.write(0, &bytes[..HEADER_BYTES]).unwrap();
        a.memory.write(8192, &bytes[HEADER_BYTES..]).unwrap();
        let sg_list = b.list(4096, PAYLOAD_BYTES);
        b.device.post_recv(b.qp, &[RecvWr { wr_id: i as u64, sg_list }]).unwrap();
        let wr = SendWr::new(1, SendOp::SendWithImm { imm_data: 5 }, a.list(8192, len));
        a.device.post_send(a.qp, &[wr.unsignaled()]).unwrap();
        let wc = one_completion(&mut a, &mut b);
        assert_eq!((wc.wr_id, wc.status), (i as u64, WcStatus::Success));
        assert_eq!(wc.byte_len as usize, HEADER_BYTES + len);
        let mut got = vec![0; HEADER_BYTES + len];
        let (header, payload) = got.split_at_mut(HEADER_BYTES);
        b.memory.read(0, header).unwrap();
        b.memory.read(4096, payload).unwrap();
        assert_eq!(got, bytes, "MTU {mtu}, {len} bytes behind the header");
        assert!(wc.timestamp.is_some_and(|at| at <= b.device.now()));
        assert_eq!(wc.tclass, Some(TCLASS), "the ICRC leaves it out, and the kernel passes it on");
    }
    let counters = b.device.counters();
    assert_eq!((counters.packets_dropped(), counters.messages_received), (0, 6));
    assert_eq!(counters.packets_received, b.device.link().counters().packets_received);
}

#[test]
fn chunks_cross_a_socket_pair_whole_over_ipv4() {
    for mtu in Mtu::ALL {
        chunks_cross("127.0.0.1", mtu);
    }
}

#[test]
fn chunks_cross_a_socket_pair_whole_over_ipv6() {
    if UdpLink::bind(UdpConfig::new("::1".parse().unwrap())).is_err() {
        println!("skipped: this machine has no IPv6 loopback");
        return;
    }
    for mtu in [Mtu::Mtu256, Mtu::Mtu4096] {
        chunks_cross("::1", mtu);
    }
}
