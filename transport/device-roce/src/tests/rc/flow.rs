//! Window, acknowledgement requests, going back, timers, and giving up.

use super::*;

fn seqs(packets: &[OnWire]) -> Vec<u32> {
    let seq =
        |p: &OnWire| PacketRepr::parse(&p.bytes).unwrap().bth.psn.distance(Psn::new(A_PSN)) as u32;
    packets.iter().map(seq).collect()
}

fn with_attr(attr: RcAttr) -> RcPair {
    RcPair::with(Setup { attr, ..Setup::default() })
}

#[test]
fn the_window_bounds_what_is_under_way_and_opens_with_each_acknowledgement() {
    let mut pair = RcPair::with(Setup { window: 16, ..Setup::default() });
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 256 * 40);
    let first = pair.take(A);
    assert_eq!(seqs(&first), (0..16).collect::<Vec<_>>());
    let asks: Vec<_> =
        first.iter().filter(|p| PacketRepr::parse(&p.bytes).unwrap().bth.ack_req).collect();
    assert_eq!(asks.len(), 4, "every fourth packet of the window asks for an acknowledgement");
    pair.give(B, first[..4].to_vec());
    let acks = pair.take(B);
    pair.give(A, acks);
    assert_eq!(seqs(&pair.take(A)), [16, 17, 18, 19]);
}

#[test]
fn one_acknowledgement_stands_for_all_packets_of_one_batch() {
    let mut pair = RcPair::new();
    for id in 0..20 {
        pair.post(id, SendOp::Write { remote: pair.remote(0) }, 0, 10);
    }
    let packets = pair.take(A);
    assert_eq!(packets.len(), 20);
    pair.ends[B].device.link_mut().coming.extend(packets);
    pair.ends[B].device.progress(64);
    let acks = pair.take(B);
    assert_eq!(seqs(&acks), [19]);
    pair.give(A, acks);
    assert_eq!(pair.completions(A).len(), 20);
}

#[test]
fn a_gap_is_told_once_and_the_requester_goes_back_to_it_at_once() {
    let mut pair = RcPair::new();
    pair.fill(0, 4000);
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 256 * 10);
    let mut packets = pair.take(A);
    packets.remove(3);
    pair.give(B, packets);
    let naks = pair.take(B);
    assert_eq!(seqs(&naks), [3], "one NAK though six packets came too early");
    pair.give(A, naks.clone());
    let again = pair.take(A);
    assert_eq!(seqs(&again), (3..10).collect::<Vec<_>>());
    pair.give(A, naks);
    assert_eq!(seqs(&pair.take(A)), [] as [u32; 0], "a doubled NAK changes nothing");
    pair.give(B, again);
    let acks = pair.take(B);
    pair.give(A, acks);
    assert_eq!(pair.ends_of(A), [(1, OK)]);
    assert_eq!(pair.bytes(B, 0, 2560), pattern(2560));
    let counters = (pair.counters(A), pair.counters(B));
    assert_eq!(
        (counters.0.go_backs, counters.0.retransmitted, counters.0.naks_received),
        (1, 7, 2)
    );
    assert_eq!((counters.1.naks_sent, counters.1.psn_mismatch), (1, 6));
}

#[test]
fn each_gap_has_a_nak_of_its_own_and_needs_no_timeout() {
    let mut pair = RcPair::new();
    for gap in 1..=5 {
        pair.post(gap, SendOp::Write { remote: pair.remote(0) }, 0, 256 * 4);
        let mut packets = pair.take(A);
        packets.remove(gap as usize % 3);
        pair.give(B, packets);
        assert_eq!(pair.counters(B).naks_sent, gap);
        pair.run_now();
        assert_eq!(pair.ends_of(A), [(gap, OK)], "without a timer");
    }
    assert_eq!((pair.counters(A).go_backs, pair.counters(A).ack_timeouts), (5, 0));
}

#[test]
fn silence_makes_the_requester_go_back_after_the_timeout_and_no_sooner() {
    let mut pair = with_attr(RcAttr { timeout: 3, ..RcAttr::default() });
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 600);
    let start = pair.now();
    assert_eq!(pair.next_timeout(), Time::NEVER);
    assert_eq!(pair.take(A).len(), 3);
    let due = start + Nanos(4_096 * 8);
    assert_eq!(pair.next_timeout(), due);
    pair.advance_to(Time(due.0 - 1));
    assert_eq!(pair.take(A).len(), 0);
    pair.advance_to(due);
    assert_eq!(seqs(&pair.take(A)), [0, 1, 2]);
    assert_eq!(pair.counters(A).ack_timeouts, 1);
    pair.run();
    assert_eq!(pair.ends_of(A), [(1, OK)]);
    assert_eq!(pair.next_timeout(), Time::NEVER);
}

#[test]
fn a_timeout_of_zero_waits_for_ever() {
    let mut pair = with_attr(RcAttr { timeout: 0, ..RcAttr::default() });
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 600);
    assert_eq!(pair.take(A).len(), 3);
    assert_eq!(pair.next_timeout(), Time::NEVER);
}

#[test]
fn retries_end_after_their_count_and_flush_the_queues_in_order() {
    for retry_cnt in [0, 1, 7] {
        let mut pair = with_attr(RcAttr { retry_cnt, ..RcAttr::default() });
        pair.faults.loss = 1.0;
        pair.recv(A, 50, 0, 10);
        pair.recv(A, 51, 0, 10);
        for id in 0..3 {
            let list = pair.ends[A].list(0, 300);
            let wr = SendWr::new(id, SendOp::Send, list).unsignaled();
            pair.ends[A].device.post_send(pair.qp(A), &[wr]).unwrap();
        }
        pair.run();
        let flushed = WcStatus::WrFlushErr;
        let expected =
            [(0, WcStatus::RetryExcErr), (1, flushed), (2, flushed), (50, flushed), (51, flushed)];
        assert_eq!(pair.ends_of(A), expected);
        assert_eq!(pair.state(A), QpState::Err);
        assert_eq!(pair.counters(A).ack_timeouts, u64::from(retry_cnt) + 1);
        assert_eq!(pair.counters(A).retransmitted, u64::from(retry_cnt) * 6);
        let event = pair.ends[A].device.poll_async_event();
        assert_eq!(event, Some(AsyncEvent::QpFatal(pair.qp(A))));
        let list = pair.ends[A].list(0, 1);
        let refused =
            pair.ends[A].device.post_send(pair.qp(A), &[SendWr::new(9, SendOp::Send, list)]);
        assert_eq!(refused.unwrap_err().error, VerbError::WrongState(Verb::PostSend));
    }
}

#[test]
fn progress_fills_the_retry_counter_again() {
    let attr = RcAttr { retry_cnt: 1, timeout: 1, ..RcAttr::default() };
    let mut pair = RcPair::with(Setup { attr, window: 4, ..Setup::default() });
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 256 * 12);
    for round in 1..=6 {
        pair.take(A);
        let due = pair.next_timeout();
        pair.advance_to(due);
        let again = pair.take(A);
        pair.give(B, again[..1].to_vec());
        let acks = pair.take(B);
        pair.give(A, acks);
        assert_eq!(pair.counters(A).ack_timeouts, round);
    }
    pair.run();
    assert_eq!(pair.ends_of(A), [(1, OK)]);
}

#[test]
fn a_peer_without_a_receive_is_left_alone_for_as_long_as_it_says() {
    let mut pair = with_attr(RcAttr { min_rnr_timer: 14, ..RcAttr::default() });
    pair.fill(0, 700);
    pair.post(1, SendOp::Send, 0, 700);
    pair.post(2, SendOp::Write { remote: pair.remote(5000) }, 0, 10);
    let start = pair.now();
    pair.run_now();
    assert_eq!(pair.next_timeout(), start + Nanos(1_280_000));
    assert_eq!(pair.completions(A), []);
    assert_eq!(pair.counters(B).naks_sent, 0, "what follows is dropped without another NAK");
    pair.recv(B, 7, 0, 700);
    pair.run_now();
    assert_eq!(pair.ends[B].received(), [], "not before its time");
    pair.run();
    assert_eq!(pair.ends[B].received(), [(7, 700)]);
    assert_eq!(pair.ends_of(A), [(1, OK), (2, OK)]);
    let counters = (pair.counters(A), pair.counters(B));
    assert_eq!((counters.0.rnr_naks_received, counters.1.rnr_naks_sent), (1, 1));
    assert_eq!(counters.0.ack_timeouts, 0);
}

#[test]
fn a_write_with_immediate_waits_for_a_receive_at_its_last_packet() {
    let mut pair = RcPair::new();
    pair.fill(0, 700);
    let remote = pair.remote(5000);
    pair.post(1, SendOp::WriteWithImm { remote, imm_data: 3 }, 0, 700);
    pair.run_now();
    assert_eq!(pair.bytes(B, 5000, 512), pattern(512));
    assert_eq!(pair.bytes(B, 5512, 1), [0], "the refused packet did not land");
    pair.recv(B, 7, 0, 0);
    pair.run();
    assert_eq!(pair.ends[B].received(), [(7, 700)]);
    assert_eq!(pair.bytes(B, 5000, 700), pattern(700));
    let again = pair.log.iter().filter(|p| p.bth.opcode == 0x09).count();
    assert_eq!((again, pair.counters(A).retransmitted), (2, 1), "only the last packet went again");
}

#[test]
fn rnr_retries_end_after_their_count_and_seven_means_for_ever() {
    for rnr_retry in [0, 3] {
        let mut pair = with_attr(RcAttr { rnr_retry, min_rnr_timer: 1, ..RcAttr::default() });
        pair.post(1, SendOp::Send, 0, 10);
        pair.post(2, SendOp::Send, 0, 10);
        pair.run();
        let expected = [(1, WcStatus::RnrRetryExcErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(pair.ends_of(A), expected);
        assert_eq!(pair.counters(A).rnr_naks_received, u64::from(rnr_retry) + 1);
    }
    let mut pair = with_attr(RcAttr { rnr_retry: 7, min_rnr_timer: 1, ..RcAttr::default() });
    pair.post(1, SendOp::Send, 0, 10);
    for _ in 0..50 {
        pair.run_now();
        let due = pair.next_timeout();
        pair.advance_to(due);
    }
    pair.recv(B, 1, 0, 10);
    pair.run();
    assert_eq!(pair.ends_of(A), [(1, OK)]);
}

#[test]
fn reads_and_atomics_outstanding_stay_within_their_limit() {
    let mut pair = with_attr(RcAttr { max_rd_atomic: 2, ..RcAttr::default() });
    let remote = pair.remote(0);
    for id in 0..5 {
        pair.post(id, SendOp::FetchAdd { remote, add: 1 }, 0, 8);
    }
    pair.post(9, SendOp::Write { remote }, 0, 8);
    let packets = pair.take(A);
    assert_eq!(seqs(&packets), [0, 1], "the rest, and what is behind it, waits");
    pair.give(B, packets);
    let answers = pair.take(B);
    pair.give(A, answers[..1].to_vec());
    assert_eq!(seqs(&pair.take(A)), [2]);
    pair.give(A, answers[1..].to_vec());
    pair.run();
    assert_eq!(pair.completions(A).len(), 6);
}

#[test]
fn a_fence_holds_until_reads_and_atomics_are_done() {
    let mut pair = RcPair::new();
    let remote = pair.remote(0);
    pair.post(1, SendOp::Read { remote }, 0, 300);
    pair.post(2, SendOp::Write { remote }, 0, 8);
    let list = pair.ends[A].list(0, 600);
    let wr = SendWr::new(3, SendOp::Write { remote }, list).fenced();
    pair.ends[A].device.post_send(pair.qp(A), &[wr]).unwrap();
    let packets = pair.take(A);
    assert_eq!(seqs(&packets), [0, 2], "what is not fenced goes ahead");
    pair.give(B, packets);
    let answers = pair.take(B);
    pair.give(A, answers[..1].to_vec());
    assert_eq!(seqs(&pair.take(A)), [] as [u32; 0], "half of the response");
    pair.give(A, answers[1..].to_vec());
    assert_eq!(seqs(&pair.take(A)), [3, 4, 5]);
    pair.run();
    assert_eq!(pair.completions(A).len(), 3);
}

#[test]
fn a_lost_response_is_asked_for_again_from_where_it_broke() {
    let mut pair = RcPair::new();
    pair.ends[B].memory.write(0, &pattern(2560)).unwrap();
    pair.post(1, SendOp::Read { remote: pair.remote(0) }, 0, 2560);
    let request = pair.take(A);
    pair.give(B, request);
    let mut responses = pair.take(B);
    assert_eq!(seqs(&responses), (0..10).collect::<Vec<_>>());
    responses.remove(4);
    pair.give(A, responses);
    let again = pair.take(A);
    assert_eq!(again.len(), 1, "an implied NAK, once");
    let reth = PacketRepr::parse(&again[0].bytes).unwrap().ext.reth.unwrap();
    assert_eq!((seqs(&again), reth.dma_len, reth.va), (vec![4], 1536, pair.remote(1024).addr));
    pair.give(B, again);
    let rest = pair.take(B);
    assert_eq!(seqs(&rest), (4..10).collect::<Vec<_>>());
    assert_eq!(PacketRepr::parse(&rest[0].bytes).unwrap().bth.opcode, 0x0d, "it starts anew");
    pair.give(A, rest);
    assert_eq!(pair.ends_of(A), [(1, OK)]);
    assert_eq!(pair.bytes(A, 0, 2560), pattern(2560));
    assert_eq!(pair.counters(A).ack_timeouts, 0);
}

#[test]
fn an_acknowledgement_that_passes_over_a_read_is_an_implied_nak() {
    let mut pair = RcPair::new();
    pair.post(1, SendOp::Read { remote: pair.remote(0) }, 0, 300);
    pair.post(2, SendOp::Write { remote: pair.remote(0) }, 0, 10);
    let requests = pair.take(A);
    pair.give(B, requests);
    let answers = pair.take(B);
    assert_eq!(of(&answers, Operation::ReadResponse), 2);
    pair.give(A, answers[2..].to_vec());
    assert_eq!(pair.completions(A), [], "the READ is not answered");
    assert_eq!(seqs(&pair.take(A)), [0, 2]);
    assert_eq!(pair.counters(A).go_backs, 1);
}

#[test]
fn psns_wrap_within_a_message_a_read_and_an_atomic() {
    // The connection starts two packets before the wrap.
    for first in 0..4 {
        let mut pair = RcPair::new();
        pair.ends[B].memory.write(0, &pattern(2000)).unwrap();
        for id in 0..first {
            pair.post(id, SendOp::Write { remote: pair.remote(9000) }, 0, 1);
        }
        pair.post(10, SendOp::Read { remote: pair.remote(0) }, 4000, 1000);
        pair.post(11, SendOp::FetchAdd { remote: pair.remote(8000), add: 3 }, 0, 8);
        pair.fill(20_000, 1000);
        pair.post(12, SendOp::Write { remote: pair.remote(10_000) }, 20_000, 1000);
        pair.faults = Faults { loss: 0.1, duplication: 0.1, reorder: 0.0 };
        pair.run();
        assert_eq!(pair.ends_of(A).len(), first as usize + 3);
        assert_eq!(pair.bytes(A, 4000, 1000), pattern(1000));
        assert_eq!(pair.bytes(B, 10_000, 1000), pattern(1000));
        assert_eq!(pair.bytes(B, 8000, 8), 3u64.to_ne_bytes());
    }
}

#[test]
fn bytes_are_read_again_for_every_transmission() {
    let mut pair = RcPair::new();
    pair.fill(0, 300);
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 300);
    pair.take(A);
    // The owner may not do this; it shows that no copy was kept.
    pair.ends[A].memory.write(0, &[9; 300]).unwrap();
    pair.run();
    assert_eq!(pair.bytes(B, 0, 300), [9; 300]);
}

#[test]
fn throughput_is_not_bound_by_the_round_trip_while_the_window_covers_it() {
    // A wire that carries four packets per step and takes eight steps each way.
    const RATE: usize = 4;
    const DELAY: usize = 8;
    let mut pair = RcPair::with(Setup { window: 80, mtu: Mtu::Mtu256, ..Setup::default() });
    let messages = 30;
    for id in 0..messages {
        pair.post(id, SendOp::Write { remote: pair.remote(0) }, 0, 256 * 64);
    }
    let mut wires = [(); 2].map(|()| VecDeque::from(vec![Vec::new(); DELAY]));
    let (mut done, mut steps) = (0, 0);
    while done < messages as usize {
        for side in [A, B] {
            pair.ends[side].device.link_mut().room = RATE;
            pair.ends[side].device.progress(64);
            let sent = std::mem::take(&mut pair.ends[side].device.link_mut().sent);
            wires[side].push_back(sent);
            let arrived = wires[side].pop_front().unwrap();
            pair.ends[1 - side].device.link_mut().coming.extend(arrived);
        }
        done += pair.completions(A).len();
        steps += 1;
        assert!(steps < 100_000);
    }
    let least = messages as usize * 64 / RATE;
    assert!(steps <= least + 2 * DELAY + 4, "{steps} steps where the wire alone needs {least}");
}

#[test]
fn two_that_are_read_from_take_turns() {
    let mut pair = RcPair::new();
    let [a, b] = &mut pair.ends;
    let make = |end: &mut End| {
        let init = QpInit::new(QpType::Rc, end.cq).access(Access::REMOTE_ALL);
        end.device.create_qp(&init).unwrap()
    };
    let (a_qp, b_qp) = (make(a), make(b));
    let join = |end: &mut End, qp, dest, dest_qp_num| {
        end.device.connect_qp(qp, &connect_to(dest, dest_qp_num)).unwrap();
    };
    let (to_a, to_b) = (a.device.local_addr(), b.device.local_addr());
    join(a, a_qp, to_b, b_qp);
    join(b, b_qp, to_a, a_qp);
    for qp in [pair.qps[A], a_qp] {
        for id in 0..4 {
            let list = pair.ends[A].list(0, 2560);
            let wr = SendWr::new(id, SendOp::Read { remote: pair.remote(0) }, list);
            pair.ends[A].device.post_send(qp, &[wr]).unwrap();
        }
    }
    let requests = pair.take(A);
    pair.ends[B].device.link_mut().coming.extend(requests);
    pair.ends[B].device.progress(64);
    let sent = std::mem::take(&mut pair.ends[B].device.link_mut().sent);
    let to = |qp: QpNum| {
        let is = |p: &&OnWire| PacketRepr::parse(&p.bytes).unwrap().bth.dest_qp == qp.0;
        sent.iter().filter(is).count()
    };
    // READs of ten packets each, one in a batch.
    assert_eq!([to(pair.qps[A]), to(a_qp)], [20, 20]);
}
