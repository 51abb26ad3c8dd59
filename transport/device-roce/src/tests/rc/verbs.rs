//! Every verb of RC on a wire without faults.

use super::*;

#[test]
fn sends_and_writes_of_all_lengths_arrive_and_complete_when_acknowledged() {
    let lengths = [0, 1, 3, 255, 256, 257, 512, 700, 4096, 20_000];
    for mtu in [Mtu::Mtu256, Mtu::Mtu4096] {
        let mut pair = RcPair::with(Setup { mtu, ..Setup::default() });
        pair.fill(0, 20_000);
        for (i, len) in lengths.into_iter().enumerate() {
            let id = i as u64 * 10;
            let (remote, at) = (pair.remote(100_000), 40_000);
            pair.recv(B, id, at, 20_000);
            pair.recv(B, id + 1, at, 20_000);
            pair.post(id, SendOp::SendWithImm { imm_data: 5 }, 0, len);
            assert_eq!(pair.completions(A), []);
            pair.run();
            assert_eq!(pair.bytes(B, at, len), pattern(len));
            pair.ends[B].memory.write(at, &[0; 20_000]).unwrap();
            pair.ends[B].memory.write(100_000, &[0; 20_000]).unwrap();
            pair.post(id + 1, SendOp::WriteWithImm { remote, imm_data: 6 }, 0, len);
            pair.post(id + 2, SendOp::Write { remote }, 0, len);
            pair.run();
            assert_eq!(pair.bytes(B, 100_000, len), pattern(len));
            assert_eq!(pair.bytes(B, 100_000 + len, 8), [0; 8]);
            assert_eq!(pair.ends_of(A), [(id, OK), (id + 1, OK), (id + 2, OK)]);
            let received = pair.completions(B);
            let seen: Vec<_> = received.iter().map(|wc| (wc.wr_id, wc.imm_data)).collect();
            assert_eq!(seen, [(id, Some(5)), (id + 1, Some(6))]);
            assert!(received.iter().all(|wc| wc.byte_len as usize == len));
        }
        assert_eq!(pair.counters(A).retransmitted + pair.counters(B).duplicates, 0);
        assert_eq!(pair.counters(A).packets_dropped() + pair.counters(B).packets_dropped(), 0);
        assert_eq!(pair.next_timeout(), Time::NEVER);
    }
}

#[test]
fn nothing_completes_before_its_acknowledgement() {
    let mut pair = RcPair::new();
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 700);
    let packets = pair.take(A);
    assert_eq!((packets.len(), pair.completions(A).len()), (3, 0));
    pair.give(B, packets);
    let acks = pair.take(B);
    assert_eq!(acks.len(), 1, "one acknowledgement for the message");
    assert_eq!(pair.completions(A), []);
    pair.ends[A].device.link_mut().now = Time(5_000);
    pair.give(A, acks);
    let done = pair.completions(A);
    assert_eq!((done.len(), done[0].timestamp), (1, Some(Time(5_000))));
}

#[test]
fn reads_of_all_lengths_land_where_they_should() {
    let lengths = [0, 1, 255, 256, 257, 4096, 33_000, 100_000];
    for (mtu, window) in [(Mtu::Mtu256, 128), (Mtu::Mtu4096, 128), (Mtu::Mtu256, 4)] {
        let mut pair = RcPair::with(Setup { mtu, window, ..Setup::default() });
        pair.ends[B].memory.write(7, &pattern(100_000)).unwrap();
        for len in lengths {
            pair.ends[A].memory.write(0, &vec![0; 110_000]).unwrap();
            let list = SgList::two(
                pair.ends[A].sge(3, len / 3),
                pair.ends[A].sge(5 + len / 3, len - len / 3),
            );
            let wr = SendWr::new(9, SendOp::Read { remote: pair.remote(7) }, list);
            pair.ends[A].device.post_send(pair.qp(A), &[wr]).unwrap();
            pair.run();
            let done = pair.completions(A);
            assert_eq!((done.len(), done[0].status, done[0].opcode), (1, OK, WcOpcode::RdmaRead));
            assert_eq!(done[0].byte_len as usize, len);
            let expected = pattern(100_000);
            assert_eq!(pair.bytes(A, 3, len / 3), expected[..len / 3]);
            assert_eq!(pair.bytes(A, 5 + len / 3, len - len / 3), expected[len / 3..len]);
            assert_eq!(pair.bytes(A, 3 + len / 3, 2), [0; 2], "between the pieces");
            assert_eq!(pair.bytes(A, 5 + len, 8), [0; 8]);
        }
        assert_eq!(pair.completions(B), [], "the peer's application is not told");
        assert_eq!(pair.counters(A).go_backs + pair.counters(A).ack_timeouts, 0);
    }
}

fn word(pair: &RcPair, side: usize, at: usize) -> u64 {
    u64::from_ne_bytes(pair.bytes(side, at, 8).try_into().unwrap())
}

#[test]
fn atomics_change_eight_bytes_and_fetch_what_they_were() {
    let mut pair = RcPair::new();
    pair.ends[B].memory.write(64, &41u64.to_ne_bytes()).unwrap();
    let remote = pair.remote(64);
    pair.post(1, SendOp::FetchAdd { remote, add: u64::MAX }, 0, 8);
    pair.post(2, SendOp::CmpSwap { remote, compare: 40, swap: 7 }, 8, 8);
    pair.post(3, SendOp::CmpSwap { remote, compare: 40, swap: 9 }, 16, 8);
    pair.run();
    assert_eq!([0, 8, 16].map(|at| word(&pair, A, at)), [41, 40, 7]);
    assert_eq!(word(&pair, B, 64), 7);
    let done = pair.completions(A);
    let opcodes: Vec<_> = done.iter().map(|wc| (wc.opcode, wc.byte_len)).collect();
    let expected = [WcOpcode::FetchAdd, WcOpcode::CompSwap, WcOpcode::CompSwap];
    assert_eq!(opcodes, expected.map(|opcode| (opcode, 8)));
}

#[test]
fn completions_come_in_order_whatever_answers_first_and_unsignaled_ones_not_at_all() {
    let mut pair = RcPair::new();
    let remote = pair.remote(1024);
    pair.recv(B, 100, 0, 4096);
    let list = |pair: &RcPair, at, len| pair.ends[A].list(at, len);
    let wrs = [
        SendWr::new(1, SendOp::Read { remote }, list(&pair, 0, 3000)),
        SendWr::new(2, SendOp::Write { remote }, list(&pair, 0, 10)).unsignaled(),
        SendWr::new(3, SendOp::Send, list(&pair, 0, 10)),
        SendWr::new(4, SendOp::FetchAdd { remote, add: 1 }, list(&pair, 4096, 8)).unsignaled(),
        SendWr::new(5, SendOp::Write { remote }, list(&pair, 0, 10)),
    ];
    pair.ends[A].device.post_send(pair.qp(A), &wrs).unwrap();
    pair.run();
    assert_eq!(pair.ends_of(A), [(1, OK), (3, OK), (5, OK)]);
    assert_eq!(pair.counters(A).messages_sent, 5);
}

#[test]
fn a_shared_receive_queue_serves_an_rc_queue_pair() {
    let mut pair = RcPair::with(Setup { srq: true, ..Setup::default() });
    let list = pair.ends[B].list(0, 1000);
    let wrs = [RecvWr { wr_id: 8, sg_list: list }, RecvWr { wr_id: 9, sg_list: list }];
    pair.ends[B].device.post_srq_recv(SrqNum(0), &wrs).unwrap();
    pair.post(1, SendOp::Send, 0, 1000);
    pair.post(2, SendOp::Send, 0, 5);
    pair.run();
    assert_eq!(pair.ends[B].received(), [(9, 1000), (8, 5)], "the newest first");
}

#[test]
fn what_cannot_be_posted_is_refused_at_once() {
    let mut pair = RcPair::new();
    let (qp, remote) = (pair.qp(A), pair.remote(0));
    let bad = |pair: &mut RcPair, op, list| {
        let posted = pair.ends[A].device.post_send(qp, &[SendWr::new(1, op, list)]);
        posted.unwrap_err().error
    };
    for len in [0, 7, 9, 16] {
        let list = pair.ends[A].list(0, len);
        let error = bad(&mut pair, SendOp::FetchAdd { remote, add: 1 }, list);
        assert_eq!(error, VerbError::BadArgument(Verb::PostSend), "an atomic into {len} bytes");
    }
    let dark = Region::new(4096).unwrap();
    let keys = pair.ends[A].device.reg_mr(PdNum::DEFAULT, &dark, Access::default()).unwrap();
    let list = SgList::one(Sge { addr: dark.addr(), length: 8, lkey: keys.lkey });
    for op in [SendOp::Read { remote }, SendOp::FetchAdd { remote, add: 1 }] {
        assert_eq!(bad(&mut pair, op, list), VerbError::BadMemory(Verb::PostSend));
    }
    let attr = RcAttr { max_rd_atomic: 0, ..RcAttr::default() };
    let mut none = RcPair::with(Setup { attr, ..Setup::default() });
    let list = none.ends[A].list(0, 8);
    let error =
        none.ends[A].device.post_send(none.qp(A), &[SendWr::new(1, SendOp::Read { remote }, list)]);
    assert_eq!(error.unwrap_err().error, VerbError::BadArgument(Verb::PostSend));
}

#[test]
fn attributes_out_of_range_do_not_connect() {
    let good = RcAttr::default();
    let cases = [
        RcAttr { timeout: 32, ..good },
        RcAttr { retry_cnt: 8, ..good },
        RcAttr { rnr_retry: 8, ..good },
        RcAttr { min_rnr_timer: 32, ..good },
        RcAttr { max_rd_atomic: 129, ..good },
        RcAttr { max_dest_rd_atomic: 129, ..good },
    ];
    for rc in cases {
        let mut end = End::new("10.0.0.1:4791");
        let qp = end
            .device
            .create_qp(&QpInit::new(QpType::Rc, end.cq).access(Access::REMOTE_ALL))
            .unwrap();
        let connect = Connect { rc, ..connect_to(end.device.local_addr(), qp) };
        let refused = Err(VerbError::BadArgument(Verb::ModifyQp));
        assert_eq!(end.device.connect_qp(qp, &connect), refused, "{rc:?}");
        assert_eq!(end.device.connect_qp(qp, &Connect { rc: good, ..connect }), Ok(()));
    }
}
