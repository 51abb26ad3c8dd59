//! Everything goes in order, whatever state it is in.

use crate::census::Census;
use crate::talker::Talker;
use crate::{open, pair};
use towpath_memory::{Region, SharedMemory};
use towpath_verbs::{
    Access, Device, PdNum, QpInit, QpState, QpType, RecvWr, SgList, Sge, Wc, WcStatus,
};

/// How often a device is made and dropped: a leak of anything shows.
const LIVES: usize = 20;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn queue_pairs_in_error_go_one_by_one_and_give_back_what_was_posted() {
    let [name, _] = pair();
    let before = Census::take();
    let mut device = open(&name);
    let memory = Region::new(1 << 16).expect("memory");
    let keys = device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL).expect("room");
    let cq = device.create_cq(256).expect("room");
    let alone = Census::take();
    let mut qps = Vec::new();
    for qp_type in [QpType::Uc, QpType::Ud, QpType::Rc] {
        let qp = device
            .create_qp(&QpInit::new(qp_type, cq).access(Access::REMOTE_ALL).depth(4, 8))
            .expect("room");
        let sg_list = SgList::one(Sge { addr: memory.addr(), length: 4096, lkey: keys.lkey });
        let recvs: Vec<_> = (0..8).map(|wr_id| RecvWr { wr_id, sg_list }).collect();
        device.post_recv(qp, &recvs).expect("room");
        device.modify_qp(qp, QpState::Err).expect("any state may go there");
        assert_eq!(device.qp_state(qp), Ok(QpState::Err));
        qps.push(qp);
    }
    for (gone, qp) in qps.iter().enumerate() {
        assert_eq!(Census::take().of(&name, "qp"), alone.of(&name, "qp") + 3 - gone as u64);
        device.destroy_qp(*qp).expect("it is there");
        let mut wcs = [Wc::default(); 32];
        // All three queue pairs flushed when they went to error; the last receive of each is told
        // of at its destruction at the latest.
        let _ = device.poll_cq(cq, &mut wcs);
        assert!(wcs.iter().all(|wc| wc.wr_id < 8));
    }
    assert_eq!(Census::take(), alone);
    drop(device);
    before.comes_back();
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn each_receive_of_a_queue_pair_in_error_comes_back_once() {
    let [name, _] = pair();
    let mut device = open(&name);
    let memory = Region::new(1 << 12).expect("memory");
    let keys = device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL).expect("room");
    let cq = device.create_cq(64).expect("room");
    let qp = device
        .create_qp(&QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL).depth(4, 8))
        .expect("room");
    let sg_list = SgList::one(Sge { addr: memory.addr(), length: 64, lkey: keys.lkey });
    let recvs: Vec<_> = (0..8).map(|wr_id| RecvWr { wr_id, sg_list }).collect();
    device.post_recv(qp, &recvs).expect("room");
    device.modify_qp(qp, QpState::Err).expect("any state may go there");
    device.destroy_qp(qp).expect("it is there");
    let mut wcs = [Wc::default(); 32];
    let count = device.poll_cq(cq, &mut wcs);
    assert!(wcs[..count].iter().map(|wc| wc.wr_id).eq(0..8), "{count}");
    assert!(wcs[..count].iter().all(|wc| wc.status == WcStatus::WrFlushErr));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm-test"]
fn a_device_that_is_dropped_as_it_is_leaves_nothing() {
    let [name, _] = pair();
    let before = Census::take();
    for life in 0..LIVES {
        let mut device = open(&name);
        let memory = Region::new(1 << 16).expect("memory");
        let keys = device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL).expect("room");
        let shared = SharedMemory::new(1 << 16).expect("memory");
        let pd = device.alloc_pd().expect("room");
        device.reg_shared_mr(pd, &shared, 8..4096, Access::REMOTE_ALL).expect("room");
        let cq = device.create_cq(64).expect("room");
        let srq = device.create_srq(16).expect("room");
        let sg_list = SgList::one(Sge { addr: memory.addr(), length: 64, lkey: keys.lkey });
        device.post_srq_recv(srq, &[RecvWr { wr_id: 1, sg_list }; 8]).expect("room");
        for qp_type in [QpType::Uc, QpType::Rc] {
            let own = device
                .create_qp(&QpInit::new(qp_type, cq).access(Access::REMOTE_ALL))
                .expect("room");
            device.post_recv(own, &[RecvWr { wr_id: 1, sg_list }; 8]).expect("room");
            let init =
                QpInit { srq: Some(srq), ..QpInit::new(qp_type, cq).access(Access::REMOTE_ALL) };
            let sharing = device.create_qp(&init).expect("room");
            if life % 2 == 1 {
                device.modify_qp(own, QpState::Err).expect("any state may go there");
                device.modify_qp(sharing, QpState::Err).expect("any state may go there");
            }
        }
        // The memory goes first, as far as we are concerned: the device still has it.
        drop((memory, shared));
    }
    before.comes_back();
}

#[test]
#[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
fn an_endpoint_that_is_dropped_in_the_middle_of_a_transfer_leaves_nothing() {
    let [near, far] = pair();
    let before = Census::take();
    let mut left = Talker::new(open(&near));
    let alone = Census::take();
    let mut gone = Talker::new(open(&far));
    gone.dial(left.listen());
    left.run_beside(&mut gone, "messages come", |left, gone| {
        left.received >= 20 && gone.received >= 20
    });
    drop(gone);
    left.run_until("the link is down", |counts| counts.down.is_some());
    for _ in 0..10 {
        left.turn();
    }
    let after = Census::take();
    assert_eq!(after.of(&far, "qp"), alone.of(&far, "qp"));
    assert_eq!(after.of(&far, "mr"), alone.of(&far, "mr"));
    assert_eq!(after.of(&near, "qp"), alone.of(&near, "qp"));
    drop(left);
    before.comes_back();
}
