//! What the device does not have, or not that much of.

use crate::census::Census;
use crate::{open, pair};
use std::net::SocketAddr;
use towpath_base::serial::Psn;
use towpath_memory::SharedMemory;
use towpath_verbs::{
    Access, Connect, CqNum, Device, Mtu, PdNum, QpInit, QpNum, QpType, RcAttr, RemoteAddr, SendOp,
    SendWr, SgList, Sge, UdAddress, Verb, VerbError,
};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn queues_deeper_than_the_device_has_them_are_refused() {
    let [name, _] = pair();
    let before = Census::take();
    let mut device = open(&name);
    let limits = device.queue_limits();
    let cq = device.create_cq(16).expect("room");
    let too_many = |verb| VerbError::BadArgument(verb);
    assert_eq!(device.create_cq(limits.cqe_max + 1), Err(too_many(Verb::CreateCq)));
    assert_eq!(device.create_cq(u32::MAX), Err(too_many(Verb::CreateCq)));
    assert_eq!(device.create_cq(0), Err(too_many(Verb::CreateCq)));
    let more = limits.wr_max + 1;
    for (sends, recvs) in [(more, 1), (1, more), (u32::MAX, u32::MAX)] {
        let init = QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL).depth(sends, recvs);
        assert_eq!(device.create_qp(&init), Err(too_many(Verb::CreateQp)));
    }
    for depth in [0, u32::MAX] {
        assert_eq!(device.create_srq(depth), Err(too_many(Verb::CreateSrq)));
    }
    let nowhere = QpInit::new(QpType::Uc, CqNum(77)).access(Access::REMOTE_ALL);
    assert_eq!(device.create_qp(&nowhere), Err(VerbError::NoSuchObject(Verb::CreateQp)));
    drop(device);
    before.comes_back();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn the_deepest_shared_receive_queue_is_as_deep_as_the_device_says() {
    let [name, _] = pair();
    let mut device = open(&name);
    let mut depth = device.queue_limits().wr_max;
    // Drivers have limits of their own for these; what is over them is refused like the rest.
    while let Err(error) = device.create_srq(depth) {
        assert_eq!(error, VerbError::BadArgument(Verb::CreateSrq), "{depth}");
        depth /= 2;
    }
    println!("{depth} of {}", device.queue_limits().wr_max);
    assert!(depth > 0);
}

#[test]
#[ignore = "needs an RDMA device without timestamps: cargo xtask vm-test"]
fn a_device_without_timestamps_or_movable_ports_says_so() {
    let [name, _] = pair();
    let mut device = open(&name);
    let caps = *device.caps();
    assert!(!caps.timestamps, "rxe keeps no time");
    assert!(caps.delay_noise.0 > 0, "so delays are as good as the scheduler");
    assert!(!caps.verbs.uc_srq_survives_loss, "nor is this claimed");
    let cq = device.create_cq(4).expect("room");
    let qp =
        device.create_qp(&QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL)).expect("room");
    let refused = device.set_source_port(qp, 7);
    assert_eq!(refused, Err(VerbError::Unsupported(Verb::ModifyQp)));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn work_that_a_queue_pair_cannot_do_is_refused_by_name() {
    let [name, _] = pair();
    let mut device = open(&name);
    let memory = SharedMemory::new(1 << 16).expect("memory");
    let (pd, whole) = (PdNum::DEFAULT, memory.whole());
    let keys = device.reg_shared_mr(pd, &memory, whole, Access::REMOTE_WRITE).expect("room");
    let cq = device.create_cq(64).expect("room");
    let list = |length| SgList::one(Sge { addr: memory.addr(), length, lkey: keys.lkey });
    let remote = RemoteAddr { addr: memory.addr(), rkey: keys.rkey };
    let here = device.local_addr();
    let to_itself = |qp| Connect {
        dest: here,
        dest_qp_num: qp,
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        path_mtu: Mtu::Mtu1024,
        source_port: 0,
        tclass: 0,
        rc: RcAttr::default(),
    };
    let mut queue_pair = |qp_type| {
        let qp =
            device.create_qp(&QpInit::new(qp_type, cq).access(Access::REMOTE_ALL)).expect("room");
        let connect = to_itself(qp);
        device.connect_qp(qp, &connect).expect("it was in INIT");
        qp
    };
    let (uc, ud) = (queue_pair(QpType::Uc), queue_pair(QpType::Ud));
    let unsupported = VerbError::Unsupported(Verb::PostSend);
    let bad = VerbError::BadArgument(Verb::PostSend);
    let address = UdAddress { dest: device.local_addr(), remote_qpn: ud, remote_qkey: 0 };
    let longest = device.caps().message_bytes_max;
    let packet = device.caps().mtu_max.bytes();
    let ud_wr = |op, length| SendWr { ud: Some(address), ..SendWr::new(1, op, list(length)) };
    let cases: [(&str, QpNum, SendWr, VerbError); 8] = [
        ("READ on UC", uc, SendWr::new(1, SendOp::Read { remote }, list(8)), unsupported),
        (
            "an atomic on UC",
            uc,
            SendWr::new(1, SendOp::FetchAdd { remote, add: 1 }, list(8)),
            unsupported,
        ),
        ("WRITE on UD", ud, ud_wr(SendOp::Write { remote }, 8), unsupported),
        ("two packets on UD", ud, ud_wr(SendOp::Send, packet + 1), bad),
        ("UD to nobody", ud, SendWr::new(1, SendOp::Send, list(8)), bad),
        ("an address on UC", uc, ud_wr(SendOp::Send, 8), bad),
        ("the longest and one more", uc, SendWr::new(1, SendOp::Send, list(longest + 1)), bad),
        (
            "more than is registered",
            uc,
            SendWr::new(1, SendOp::Send, list(1 << 17)),
            VerbError::BadMemory(Verb::PostSend),
        ),
    ];
    for (what, qp, wr, error) in cases {
        let refused = device.post_send(qp, &[wr]).expect_err(what);
        assert_eq!((refused.index, refused.error), (0, error), "{what}");
    }
    let mut elsewhere = to_itself(uc);
    elsewhere.dest = SocketAddr::from(([0xfd, 0, 0, 0, 0, 0, 0, 1], 4791));
    let fresh =
        device.create_qp(&QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL)).expect("room");
    let other_family = device.connect_qp(fresh, &elsewhere);
    assert_eq!(other_family, Err(VerbError::BadArgument(Verb::ModifyQp)));
}
