//! States, limits and errors of the verbs.

use super::*;
use crate::limits::QP_MAX;
use std::collections::HashSet;

#[test]
fn capabilities_follow_the_link() {
    for (room, mtu) in [(4135, Mtu::Mtu4096), (4134, Mtu::Mtu2048), (295, Mtu::Mtu256)] {
        let mut link = TestLink::new("10.0.0.1:1");
        link.packet_bytes_max = room;
        let device = RoceDevice::new(link, RoceConfig::default());
        let caps = device.caps();
        assert_eq!((caps.mtu_max, caps.source_ports), (mtu, 4));
        assert_eq!((caps.rx_buffer_bytes, caps.rx_charge_bytes), (Some(7), 9));
        assert_eq!(caps.delay_noise, Nanos(13));
        assert!(caps.verbs.uc && caps.verbs.ud && caps.verbs.srq && caps.verbs.rc);
    }
}

#[test]
fn posting_needs_a_connected_queue_pair_room_and_memory() {
    let mut pair = Pair::uc(Mtu::Mtu1024);
    let post = |pair: &mut Pair, wr| pair.a.device.post_send(pair.a_qp, &[wr, wr]);
    let list = pair.a.list(0, 10);
    let good = SendWr::new(1, SendOp::Send, list);
    let refused = |error| Err(BadWr { index: 0, error });
    let outside = SgList::one(pair.a.sge(MEMORY_BYTES - 9, 10));
    let bad_memory = SendWr { sg_list: outside, ..good };
    assert_eq!(post(&mut pair, bad_memory), refused(VerbError::BadMemory(Verb::PostSend)));
    let read = SendOp::Read { remote: RemoteAddr::default() };
    let unsupported = VerbError::Unsupported(Verb::PostSend);
    assert_eq!(post(&mut pair, SendWr { op: read, ..good }), refused(unsupported));

    for _ in 0..63 {
        post(&mut pair, good).unwrap();
    }
    pair.a.device.post_send(pair.a_qp, &[good]).unwrap();
    let full = BadWr { index: 1, error: VerbError::QueueFull(Verb::PostSend) };
    assert_eq!(post(&mut pair, good), Err(full), "127 are posted, the 128th fits");
    pair.a.device.progress(0);
    assert_eq!(post(&mut pair, good), Ok(()));

    let fresh = pair
        .a
        .device
        .create_qp(&QpInit::new(QpType::Uc, pair.a.cq).access(Access::REMOTE_ALL))
        .unwrap();
    let wrong = pair.a.device.post_send(fresh, &[good]).unwrap_err();
    assert_eq!(wrong.error, VerbError::WrongState(Verb::PostSend));
    pair.a.recv(fresh, 1, 0, 10);
    let nobody = pair.a.device.post_recv(QpNum(0x55_5555), &[RecvWr::default()]).unwrap_err();
    assert_eq!(nobody.error, VerbError::NoSuchObject(Verb::PostRecv));
}

#[test]
fn unsignaled_sends_leave_no_completion() {
    let mut pair = Pair::uc(Mtu::Mtu1024);
    let wr = |wr_id| SendWr::new(wr_id, SendOp::Send, pair.a.list(0, 10));
    let wrs = [wr(1).unsignaled(), wr(2).unsignaled(), wr(3)];
    pair.a.device.post_send(pair.a_qp, &wrs).unwrap();
    pair.a.device.progress(0);
    let done = pair.a.completions();
    assert_eq!((done.len(), done[0].wr_id), (1, 3));
    assert_eq!(done[0].timestamp, Some(Time(1_000)));
}

#[test]
fn error_flushes_destroying_flushes_and_reset_forgets() {
    for how in ["err", "destroy", "reset"] {
        let mut pair = Pair::uc(Mtu::Mtu256);
        for wr_id in 10..13 {
            pair.b.recv(pair.b_qp, wr_id, 0, 1024);
        }
        let mut started = pair.packets(SendOp::Send, 700);
        pair.a.completions();
        started.truncate(1);
        pair.deliver(started);
        let wr = SendWr::new(20, SendOp::Send, pair.b.list(0, 1)).unsignaled();
        pair.b.device.post_send(pair.b_qp, &[wr]).unwrap();
        match how {
            "err" => pair.b.device.modify_qp(pair.b_qp, QpState::Err).unwrap(),
            "destroy" => pair.b.device.destroy_qp(pair.b_qp).unwrap(),
            _ => pair.b.device.modify_qp(pair.b_qp, QpState::Reset).unwrap(),
        }
        let completions = pair.b.completions();
        assert!(completions.iter().all(|wc| wc.status == WcStatus::WrFlushErr));
        let ids: Vec<u64> = completions.iter().map(|wc| wc.wr_id).collect();
        let expected: &[u64] = if how == "reset" { &[] } else { &[20, 10, 11, 12] };
        assert_eq!(ids, expected, "{how}: the receive of the unfinished message comes too");
        let late = pair.packets(SendOp::Send, 1);
        pair.deliver(late);
        assert_eq!(pair.b.completions(), []);
        let c = pair.b.counters();
        let dropped = if how == "destroy" { c.unknown_qp } else { c.not_rtr };
        assert_eq!(dropped, 1);
        assert_eq!(pair.b.device.progress(0), 0, "nothing is left to send");
    }
}

#[test]
fn who_sent_too_early_is_no_stranger_later() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    pair.b.device.modify_qp(pair.b_qp, QpState::Reset).unwrap();
    pair.b.device.modify_qp(pair.b_qp, QpState::Init).unwrap();
    let early = pair.packets(SendOp::Send, 100);
    pair.deliver(early);
    assert_eq!(pair.b.counters().not_rtr, 1);
    let connect = Connect {
        rq_psn: Psn::new(A_PSN),
        sq_psn: Psn::new(B_PSN),
        ..connect_to(pair.a.device.local_addr(), pair.a_qp)
    };
    pair.b.device.connect_qp(pair.b_qp, &connect).unwrap();
    pair.b.recv(pair.b_qp, 1, 0, 100);
    let packets = pair.packets(SendOp::Send, 100);
    pair.deliver(packets);
    assert_eq!((pair.b.received(), pair.b.counters().wrong_source), (vec![(1, 100)], 0));
}

#[test]
fn a_queue_pair_lives_again_after_reset_under_its_number() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    pair.a.device.modify_qp(pair.a_qp, QpState::Err).unwrap();
    let early = pair.a.device.modify_qp(pair.a_qp, QpState::Init);
    assert_eq!(early, Err(VerbError::WrongState(Verb::ModifyQp)));
    pair.a.device.modify_qp(pair.a_qp, QpState::Reset).unwrap();
    pair.a.device.modify_qp(pair.a_qp, QpState::Init).unwrap();
    let connect =
        Connect { sq_psn: Psn::new(77), ..connect_to(pair.b.device.local_addr(), pair.b_qp) };
    pair.a.device.connect_qp(pair.a_qp, &connect).unwrap();
    pair.b.recv(pair.b_qp, 1, 0, 100);
    pair.post(1, SendOp::Send, 100);
    pair.run();
    assert_eq!(pair.b.received(), [(1, 100)]);
    let jump = Connect { path_mtu: Mtu::Mtu4096, ..connect };
    assert_eq!(
        pair.a.device.connect_qp(pair.a_qp, &jump),
        Err(VerbError::WrongState(Verb::ModifyQp))
    );
}

#[test]
fn an_overflowing_completion_queue_takes_its_queue_pairs_down_and_says_so() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    let small = pair.a.device.create_cq(2).unwrap();
    let mut init = QpInit::new(QpType::Uc, pair.a.cq).access(Access::REMOTE_ALL);
    init.send_cq = small;
    let qp = pair.a.device.create_qp(&init).unwrap();
    let connect = connect_to(pair.b.device.local_addr(), pair.b_qp);
    pair.a.device.connect_qp(qp, &connect).unwrap();
    pair.a.recv(qp, 50, 0, 10);
    let wr = SendWr::new(1, SendOp::Send, pair.a.list(0, 1));
    pair.a.device.post_send(qp, &[wr; 3]).unwrap();
    pair.a.device.progress(0);
    assert_eq!(pair.a.device.qp_state(qp), Ok(QpState::Err));
    assert_eq!(pair.a.device.qp_state(pair.a_qp), Ok(QpState::Rts), "another queue's");
    assert_eq!(pair.a.device.poll_async_event(), Some(AsyncEvent::CqError(small)));
    assert_eq!(pair.a.device.poll_async_event(), Some(AsyncEvent::QpFatal(qp)));
    assert_eq!(pair.a.device.poll_async_event(), None);
    let flushed = pair.a.completions();
    assert_eq!((flushed.len(), flushed[0].wr_id), (1, 50));
    assert_eq!(pair.a.device.poll_cq(small, &mut [Wc::default(); 8]), 2, "what fitted is there");
    assert_eq!(pair.a.counters().cq_overruns, 1);
}

#[test]
fn memory_that_is_gone_fails_the_work_request_that_names_it() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    let other = Region::new(4096).unwrap();
    let keys = pair.a.device.reg_mr(PdNum::DEFAULT, &other, Access::LOCAL).unwrap();
    let gone = SgList::one(Sge { addr: other.addr(), length: 600, lkey: keys.lkey });
    let good = SendWr::new(1, SendOp::Send, pair.a.list(0, 600));
    let bad = SendWr::new(2, SendOp::Send, gone);
    let after = SendWr::new(3, SendOp::Send, pair.a.list(0, 1));
    pair.a.device.post_send(pair.a_qp, &[good, bad, after]).unwrap();
    pair.a.device.dereg_mr(keys.lkey).unwrap();
    while pair.a.device.progress(0) > 0 {}
    let ends: Vec<_> = pair.a.completions().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let expected = [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)];
    assert_eq!(ends, expected);
    assert_eq!(pair.a.device.poll_async_event(), Some(AsyncEvent::QpFatal(pair.a_qp)));

    let keys = pair.b.device.reg_mr(PdNum::DEFAULT, &other, Access::LOCAL).unwrap();
    let sg_list = SgList::one(Sge { addr: other.addr(), length: 600, lkey: keys.lkey });
    pair.b.device.post_recv(pair.b_qp, &[RecvWr { wr_id: 9, sg_list }]).unwrap();
    pair.b.device.dereg_mr(keys.lkey).unwrap();
    let sent = std::mem::take(&mut pair.a.device.link_mut().sent);
    pair.deliver(sent);
    assert_eq!(pair.b.completions()[0].status, WcStatus::LocProtErr);
}

#[test]
fn a_device_that_goes_away_gives_up_what_was_posted_to_it() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    let pool = Pool::with_count(1024, 4).unwrap();
    let lkey = pair.b.device.reg_mr(PdNum::DEFAULT, pool.region(), Access::LOCAL).unwrap().lkey;
    let lent = [(); 4].map(|()| pool.take().unwrap().lend());
    let list = |at: usize| SgList::one(lent[at].sge(lkey, 0, 1024));
    for at in 0..2 {
        let wr = RecvWr { wr_id: 1, sg_list: list(at) };
        pair.b.device.post_recv(pair.b_qp, &[wr]).unwrap();
    }
    let mut started = pair.packets(SendOp::Send, 700);
    started.truncate(1);
    pair.deliver(started);
    let srq = pair.b.device.create_srq(8).unwrap();
    pair.b.device.post_srq_recv(srq, &[RecvWr { wr_id: 1, sg_list: list(2) }]).unwrap();
    pair.b.device.post_send(pair.b_qp, &[SendWr::new(1, SendOp::Send, list(3))]).unwrap();
    let lent = lent.map(|lent| lent.reclaim().expect_err("it is posted"));
    drop(pair);
    assert!(lent.map(|lent| lent.reclaim().is_ok()).iter().all(|&is_back| is_back));
}

#[test]
fn queue_pair_numbers_come_back_late_and_never_name_a_special_one() {
    let config = RoceConfig::default().qp_max(4).seed(3);
    let mut end = End::on(TestLink::new("10.0.0.1:1"), config);
    let init = QpInit::new(QpType::Uc, end.cq).access(Access::REMOTE_ALL).depth(1, 1);
    let mut seen = HashSet::new();
    for round in 0..10_000 {
        let qp = end.device.create_qp(&init).unwrap();
        assert!(qp.0 > 1 && qp < QpNum::MAX);
        assert!(seen.insert(qp), "{qp} came back in round {round}");
        end.device.destroy_qp(qp).unwrap();
        assert_eq!(end.device.qp_state(qp), Err(VerbError::NoSuchObject(Verb::ModifyQp)));
    }
    for _ in 0..4 {
        end.device.create_qp(&init).unwrap();
    }
    let full = end.device.create_qp(&init);
    assert_eq!(full, Err(VerbError::OutOfResources(Verb::CreateQp)));
    let another = RoceConfig::default().qp_max(4).seed(4);
    let mut other = End::on(TestLink::new("10.0.0.1:1"), another);
    let first = other.device.create_qp(&init.depth(1, 1)).unwrap();
    assert!(!seen.contains(&first), "another seed starts elsewhere");
}

#[test]
fn numbers_are_of_the_share_of_the_link_and_used_again_late() {
    for (index, count) in [(0, 1), (0, 2), (1, 2), (2, 3), (0, 8), (7, 8), (63, 64)] {
        let share = QpShare::new(index, count).unwrap();
        for qp_max in [1, 5, QP_MAX] {
            let mut link = TestLink::new("10.0.0.1:1");
            link.qp_share = share;
            let config = RoceConfig::default().seed(u64::from(index)).qp_max(qp_max);
            let mut device = RoceDevice::new(link, config);
            let init = QpInit::new(QpType::Uc, device.create_cq(8).unwrap())
                .access(Access::REMOTE_ALL)
                .depth(1, 1);
            let (mut seen, mut live) = (HashSet::new(), Vec::new());
            for _ in 0..3 {
                for _ in 0..qp_max.min(50) {
                    let num = device.create_qp(&init).unwrap();
                    assert!(share.owns(num), "{num} of {share:?}");
                    assert!(seen.insert(num), "{num} came twice");
                    assert_eq!(device.qp_state(num), Ok(QpState::Init));
                    live.push(num);
                }
                for num in live.drain(..) {
                    device.destroy_qp(num).unwrap();
                    assert!(device.qp_state(num).is_err(), "{num} is gone");
                }
            }
        }
    }
}
