//! Memory that goes, links that stall and queue pairs that start anew, at the worst moment.

use super::*;

/// Gives A memory of its own for one work request: its keys, and the list of it.
fn lend(pair: &mut RcPair, len: u32) -> (MrKeys, SgList, Region) {
    let memory = Region::new(4096).unwrap();
    let keys = pair.ends[A].device.reg_mr(&memory, Access::LOCAL).unwrap();
    let list = SgList::one(Sge { addr: memory.addr(), length: len, lkey: keys.lkey });
    (keys, list, memory)
}

#[test]
fn memory_that_is_gone_holds_nothing_up_that_the_link_did_not_take_at_first() {
    let mut pair = RcPair::new();
    let remote = pair.remote(0);
    let (keys, list, _memory) = lend(&mut pair, 300);
    pair.post(1, SendOp::Write { remote }, 0, 300);
    let wr = SendWr::new(2, SendOp::Write { remote }, list);
    pair.ends[A].device.post_send(pair.qp(A), &[wr]).unwrap();
    pair.ends[A].device.dereg_mr(keys.lkey).unwrap();
    pair.ends[A].device.link_mut().room = 1;
    pair.take(A);
    pair.ends[A].device.link_mut().room = usize::MAX;
    pair.run();
    assert_eq!(pair.ends_of(A), [(1, OK), (2, WcStatus::LocProtErr)]);
    assert_eq!(pair.counters(A).ack_timeouts, 0, "nobody waited for what was not sent");
}

#[test]
fn any_number_of_queue_pairs_may_lose_their_memory_at_once() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut end = End::new("10.0.0.1:4791");
        let memory = Region::new(4096).unwrap();
        let keys = end.device.reg_mr(&memory, Access::LOCAL).unwrap();
        let list = SgList::one(Sge { addr: memory.addr(), length: 500, lkey: keys.lkey });
        let connect = Connect {
            dest: "10.0.0.2:4791".parse().unwrap(),
            dest_qp_num: QpNum(17),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            path_mtu: Mtu::Mtu1024,
            source_port: 0,
            tclass: 0,
            rc: RcAttr::default(),
        };
        for _ in 0..500 {
            let init = QpInit::new(qp_type, end.cq).depth(1, 1);
            let qp = end.device.create_qp(&init).unwrap();
            end.device.connect_qp(qp, &connect).unwrap();
            end.device.post_send(qp, &[SendWr::new(1, SendOp::Send, list)]).unwrap();
        }
        end.device.dereg_mr(keys.lkey).unwrap();
        end.device.progress(64);
        let completed = end.completions();
        assert_eq!(completed.len(), 500, "{qp_type:?}");
        assert!(completed.iter().all(|wc| wc.status == WcStatus::LocProtErr));
    }
}

fn reset_both(pair: &mut RcPair) {
    let mut connects = [(); 2].map(|()| Connect {
        dest: pair.ends[B].device.local_addr(),
        dest_qp_num: pair.qp(B),
        rq_psn: Psn::new(B_PSN),
        sq_psn: Psn::new(A_PSN),
        path_mtu: Mtu::Mtu256,
        source_port: 0,
        tclass: 0,
        rc: RcAttr { timeout: 0, ..RcAttr::default() },
    });
    (connects[B].dest, connects[B].dest_qp_num) = (pair.ends[A].device.local_addr(), pair.qp(A));
    (connects[B].rq_psn, connects[B].sq_psn) = (Psn::new(A_PSN), Psn::new(B_PSN));
    for side in [A, B] {
        let qp = pair.qp(side);
        pair.ends[side].device.modify_qp(qp, QpState::Reset).unwrap();
        pair.ends[side].device.modify_qp(qp, QpState::Init).unwrap();
        pair.ends[side].device.connect_qp(qp, &connects[side]).unwrap();
    }
}

#[test]
fn a_queue_pair_that_starts_anew_has_not_gone_back_yet() {
    let mut pair = RcPair::new();
    let remote = pair.remote(0);
    for life in 0..2 {
        pair.post(1, SendOp::Write { remote }, 0, 256 * 4);
        let mut packets = pair.take(A);
        packets.remove(0);
        pair.give(B, packets);
        let naks = pair.take(B);
        pair.give(A, naks);
        assert_eq!(pair.take(A).len(), 4, "life {life}");
        reset_both(&mut pair);
    }
}

#[test]
fn a_queue_pair_that_starts_anew_has_nobody_to_wait_for() {
    let mut pair = RcPair::new();
    let remote = pair.remote(0);
    // A second RNR NAK for a request that is acknowledged right after it.
    pair.post(1, SendOp::Send, 0, 10);
    let request = pair.take(A);
    pair.give(B, request);
    let rnr_nak = pair.take(B);
    pair.give(A, rnr_nak.clone());
    pair.recv(B, 1, 0, 10);
    let due = pair.next_timeout();
    pair.advance_to(due);
    let again = pair.take(A);
    pair.give(B, again);
    let ack = pair.take(B);
    pair.give(A, rnr_nak);
    pair.give(A, ack);
    assert_eq!(pair.ends_of(A), [(1, OK)]);
    reset_both(&mut pair);
    pair.post(2, SendOp::Write { remote }, 0, 10);
    pair.run_now();
    assert_eq!(pair.ends_of(A), [(2, OK)]);
}
