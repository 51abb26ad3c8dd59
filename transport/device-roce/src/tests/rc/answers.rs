//! Requests that are refused, and answers that break the rules.

use super::*;
use crate::wire::{Aeth, ExtHeaders};

fn changed(packet: &OnWire, change: impl FnOnce(&mut PacketRepr)) -> OnWire {
    let mut repr = PacketRepr::parse(&packet.bytes).unwrap();
    change(&mut repr);
    OnWire { bytes: repr.emit(packet.source, packet.dest), ..packet.clone() }
}

/// Both ends in error: A's first work request as given, the second flushed, B's receives flushed.
fn assert_refused(pair: &mut RcPair, status: WcStatus, what: &str) {
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(pair.ends_of(A), [(1, status), (2, flushed)], "{what}");
    assert_eq!([A, B].map(|side| pair.state(side)), [QpState::Err; 2], "{what}");
    assert_eq!(pair.counters(B).naks_sent, 1, "{what}");
    assert_eq!(pair.counters(A).ack_timeouts, 0, "{what}");
    let event = Some(AsyncEvent::QpFatal(pair.qp(B)));
    assert_eq!(pair.ends[B].device.poll_async_event(), event, "{what}");
}

/// Posts `op` over `len` bytes and a WRITE behind it, and runs.
fn refuse(pair: &mut RcPair, op: SendOp, len: usize) {
    let remote = pair.remote(0);
    pair.post(1, op, 1000, len);
    pair.post(2, SendOp::Write { remote }, 0, 10);
    pair.run();
}

#[test]
fn memory_that_is_not_open_is_a_remote_access_error_and_stays_untouched() {
    let beyond = |pair: &RcPair| pair.remote(MEMORY_BYTES - 299);
    let wrong_key = |pair: &RcPair| RemoteAddr { rkey: pair.remote(0).rkey ^ 1, ..pair.remote(0) };
    let read = |remote| SendOp::Read { remote };
    let write = |remote| SendOp::Write { remote };
    for op in [read, write] {
        for place in [beyond, wrong_key] {
            let mut pair = RcPair::new();
            pair.fill(1000, 300);
            let remote = place(&pair);
            refuse(&mut pair, op(remote), 300);
            assert_refused(&mut pair, WcStatus::RemAccessErr, "READ or WRITE");
            assert_eq!(pair.bytes(B, MEMORY_BYTES - 299, 299), [0; 299]);
        }
    }
    let mut pair = RcPair::new();
    let remote = pair.remote(MEMORY_BYTES - 4);
    refuse(&mut pair, SendOp::FetchAdd { remote, add: 1 }, 8);
    assert_refused(&mut pair, WcStatus::RemAccessErr, "atomic");
}

#[test]
fn what_a_region_does_not_grant_is_an_access_error_what_a_queue_pair_does_not_invalid() {
    let all = Access::REMOTE_ALL;
    let cases = [
        (Access { remote_read: false, ..all }, 0),
        (Access { remote_write: false, ..all }, 1),
        (Access { remote_atomic: false, ..all }, 2),
    ];
    for (access, kind) in cases {
        for by_queue_pair in [false, true] {
            let granted = if by_queue_pair { access } else { all };
            let mut pair = RcPair::with(Setup { access: granted, ..Setup::default() });
            if !by_queue_pair {
                let memory = pair.ends[B].memory.clone();
                let old = pair.ends[B].keys.lkey;
                pair.ends[B].device.dereg_mr(old).unwrap();
                pair.ends[B].keys = pair.ends[B]
                    .device
                    .reg_shared_mr(PdNum::DEFAULT, &memory, memory.whole(), access)
                    .unwrap();
            }
            let remote = pair.remote(64);
            let op = [
                SendOp::Read { remote },
                SendOp::Write { remote },
                SendOp::CmpSwap { remote, compare: 0, swap: 1 },
            ][kind];
            pair.fill(1000, 8);
            refuse(&mut pair, op, 8);
            let status =
                if by_queue_pair { WcStatus::RemInvReqErr } else { WcStatus::RemAccessErr };
            assert_refused(&mut pair, status, "not granted");
            assert_eq!(pair.bytes(B, 64, 8), [0; 8]);
        }
    }
}

#[test]
fn a_misaligned_atomic_is_an_invalid_request() {
    let mut pair = RcPair::new();
    let remote = pair.remote(68);
    refuse(&mut pair, SendOp::FetchAdd { remote, add: 1 }, 8);
    assert_refused(&mut pair, WcStatus::RemInvReqErr, "misaligned");
    assert_eq!(pair.bytes(B, 64, 16), [0; 16]);
}

#[test]
fn a_message_longer_than_its_receive_fails_at_both_ends() {
    for len in [101, 256, 700] {
        let mut pair = RcPair::new();
        pair.recv(B, 7, 0, 100);
        pair.recv(B, 8, 0, 100);
        refuse(&mut pair, SendOp::Send, len);
        assert_refused(&mut pair, WcStatus::RemInvReqErr, "too long");
        assert_eq!(pair.ends_of(B), [(7, WcStatus::LocLenErr), (8, WcStatus::WrFlushErr)]);
        assert_eq!(pair.bytes(B, 100, 10), [0; 10]);
    }
}

#[test]
fn a_receive_whose_memory_is_gone_is_a_remote_operational_error() {
    let mut pair = RcPair::new();
    let other = Region::new(4096).unwrap();
    let keys = pair.ends[B].device.reg_mr(PdNum::DEFAULT, &other, Access::LOCAL).unwrap();
    let sg_list = SgList::one(Sge { addr: other.addr(), length: 600, lkey: keys.lkey });
    pair.ends[B].device.post_recv(pair.qp(B), &[RecvWr { wr_id: 9, sg_list }]).unwrap();
    pair.ends[B].device.dereg_mr(keys.lkey).unwrap();
    refuse(&mut pair, SendOp::Send, 300);
    assert_refused(&mut pair, WcStatus::RemOpErr, "receive memory");
    assert_eq!(pair.ends_of(B), [(9, WcStatus::LocProtErr)]);
}

#[test]
fn memory_that_is_gone_while_it_is_read_is_a_remote_access_error() {
    let mut pair = RcPair::new();
    pair.post(1, SendOp::Read { remote: pair.remote(0) }, 0, 2560);
    pair.post(2, SendOp::Read { remote: pair.remote(0) }, 0, 2560);
    let requests = pair.take(A);
    pair.ends[B].device.link_mut().room = 4;
    pair.give(B, requests);
    let lkey = pair.ends[B].keys.lkey;
    pair.ends[B].device.dereg_mr(lkey).unwrap();
    pair.ends[B].device.link_mut().room = usize::MAX;
    pair.run();
    assert_refused(&mut pair, WcStatus::RemAccessErr, "read memory");
}

#[test]
fn memory_of_our_own_that_is_gone_fails_its_work_request_in_its_turn() {
    let mut pair = RcPair::new();
    let other = Region::new(4096).unwrap();
    let keys = pair.ends[A].device.reg_mr(PdNum::DEFAULT, &other, Access::LOCAL).unwrap();
    let gone = SgList::one(Sge { addr: other.addr(), length: 600, lkey: keys.lkey });
    let (good, write) = (pair.ends[A].list(0, 600), SendOp::Write { remote: pair.remote(0) });
    let wrs = [(1, good), (2, gone), (3, good)].map(|(id, list)| SendWr::new(id, write, list));
    pair.ends[A].device.post_send(pair.qp(A), &wrs).unwrap();
    pair.ends[A].device.dereg_mr(keys.lkey).unwrap();
    pair.run();
    let expected = [(1, OK), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)];
    assert_eq!(pair.ends_of(A), expected);
    // Where a READ was to land.
    let mut pair = RcPair::new();
    let keys = pair.ends[A].device.reg_mr(PdNum::DEFAULT, &other, Access::LOCAL).unwrap();
    let gone = SgList::one(Sge { addr: other.addr(), length: 600, lkey: keys.lkey });
    let wr = SendWr::new(1, SendOp::Read { remote: pair.remote(0) }, gone);
    pair.ends[A].device.post_send(pair.qp(A), &[wr]).unwrap();
    pair.take(A);
    pair.ends[A].device.dereg_mr(keys.lkey).unwrap();
    pair.run();
    assert_eq!(pair.ends_of(A), [(1, WcStatus::LocProtErr)]);
}

#[test]
fn opcodes_that_do_not_go_on_with_the_message_are_invalid_requests() {
    // What stands in the place of the second packet of a three-packet message, of (send, write).
    let reth = Some(crate::wire::Reth::default());
    let atomic = Some(crate::wire::AtomicEth::default());
    let none = ExtHeaders::default();
    let cases = [
        ("FIRST again", 0x00, none),
        ("ONLY", 0x04, none),
        ("FIRST of a WRITE", 0x06, ExtHeaders { reth, ..none }),
        ("READ", 0x0c, ExtHeaders { reth, ..none }),
        ("atomic", 0x14, ExtHeaders { atomic, ..none }),
    ];
    for write in [false, true] {
        for (what, opcode, ext) in cases {
            let mut pair = RcPair::new();
            pair.recv(B, 7, 0, 1000);
            let remote = pair.remote(5000);
            pair.post(1, if write { SendOp::Write { remote } } else { SendOp::Send }, 0, 700);
            pair.post(2, SendOp::Send, 0, 1);
            let mut packets = pair.take(A);
            packets[1] = changed(&packets[1], |repr| {
                (repr.bth.opcode, repr.ext) = (opcode, ext);
                let no_payload = matches!(opcode, 0x0c | 0x14);
                repr.payload.truncate(if no_payload { 0 } else { 256 });
            });
            pair.give(B, packets);
            pair.run();
            assert_refused(&mut pair, WcStatus::RemInvReqErr, what);
            let held = if write { WcStatus::WrFlushErr } else { WcStatus::RemInvReqErr };
            assert_eq!(pair.ends_of(B), [(7, held)], "{what}");
        }
    }
    // MIDDLE and LAST without a FIRST, the other kind's, and SEND with invalidate.
    let ieth = Some(crate::wire::Ieth::default());
    let starts = [
        (0x01, none),
        (0x02, none),
        (0x07, none),
        (0x08, none),
        (0x17, ExtHeaders { ieth, ..none }),
    ];
    for (opcode, ext) in starts {
        let mut pair = RcPair::new();
        pair.recv(B, 7, 0, 1000);
        pair.post(1, SendOp::Send, 0, 256);
        pair.post(2, SendOp::Send, 0, 1);
        let mut packets = pair.take(A);
        packets[0] = changed(&packets[0], |repr| (repr.bth.opcode, repr.ext) = (opcode, ext));
        pair.give(B, packets);
        pair.run();
        assert_refused(&mut pair, WcStatus::RemInvReqErr, "a start");
    }
    let mut pair = RcPair::new();
    pair.recv(B, 7, 0, 1000);
    pair.post(1, SendOp::Send, 0, 700);
    pair.post(2, SendOp::Send, 0, 1);
    let mut packets = pair.take(A);
    packets[1] = changed(&packets[1], |repr| repr.bth.opcode = 0x07);
    pair.give(B, packets);
    pair.run();
    assert_refused(&mut pair, WcStatus::RemInvReqErr, "MIDDLE of a WRITE within a SEND");
}

#[test]
fn lengths_that_do_not_fit_are_invalid_requests() {
    // (which packet of three, its length)
    for (at, len) in [(0, 252), (0, 260), (1, 252), (1, 260), (2, 0), (2, 260)] {
        for write in [false, true] {
            let mut pair = RcPair::new();
            pair.recv(B, 7, 0, 1000);
            let remote = pair.remote(5000);
            pair.post(1, if write { SendOp::Write { remote } } else { SendOp::Send }, 0, 700);
            pair.post(2, SendOp::Send, 0, 1);
            let mut packets = pair.take(A);
            packets[at] = changed(&packets[at], |repr| repr.payload.resize(len, 7));
            pair.give(B, packets);
            pair.run();
            assert_refused(&mut pair, WcStatus::RemInvReqErr, "length");
        }
    }
    for dma_len in [699, 701, 511, 0, u32::MAX] {
        let mut pair = RcPair::new();
        let remote = pair.remote(5000);
        pair.post(1, SendOp::Write { remote }, 0, 700);
        pair.post(2, SendOp::Send, 0, 1);
        let mut packets = pair.take(A);
        packets[0] = changed(&packets[0], |repr| repr.ext.reth.as_mut().unwrap().dma_len = dma_len);
        pair.give(B, packets);
        pair.run();
        let access = dma_len == u32::MAX;
        let status = if access { WcStatus::RemAccessErr } else { WcStatus::RemInvReqErr };
        assert_refused(&mut pair, status, "dma_len");
    }
}

#[test]
fn more_reads_and_atomics_than_were_agreed_are_an_invalid_request() {
    let attr = RcAttr { max_rd_atomic: 3, max_dest_rd_atomic: 2, ..RcAttr::default() };
    let mut pair = RcPair::with(Setup { attr, ..Setup::default() });
    for id in 1..=3 {
        pair.post(id, SendOp::Read { remote: pair.remote(0) }, 0, 100);
    }
    let requests = pair.take(A);
    pair.ends[B].device.link_mut().coming.extend(requests);
    pair.ends[B].device.progress(64);
    pair.run();
    let expected = [(1, OK), (2, OK), (3, WcStatus::RemInvReqErr)];
    assert_eq!(pair.ends_of(A), expected, "what came before the refusal is answered");
    let attr = RcAttr { max_dest_rd_atomic: 0, ..RcAttr::default() };
    let mut pair = RcPair::with(Setup { attr, ..Setup::default() });
    let remote = pair.remote(0);
    refuse(&mut pair, SendOp::FetchAdd { remote, add: 1 }, 8);
    assert_refused(&mut pair, WcStatus::RemInvReqErr, "none agreed");
}

#[test]
fn a_lost_refusal_ends_in_exhausted_retries() {
    let mut pair = RcPair::new();
    let remote = RemoteAddr { rkey: 0, ..pair.remote(0) };
    pair.post(1, SendOp::Write { remote }, 0, 10);
    let packets = pair.take(A);
    pair.give(B, packets);
    assert_eq!(pair.take(B).len(), 1);
    pair.run();
    assert_eq!(pair.ends_of(A), [(1, WcStatus::RetryExcErr)]);
    assert_eq!(pair.counters(B).not_rtr, 7, "a queue pair in error is silent");
}

#[test]
fn duplicates_are_answered_again_and_done_once() {
    let mut pair = RcPair::new();
    pair.recv(B, 7, 1000, 1000);
    pair.fill(2000, 300);
    pair.post(1, SendOp::Send, 2000, 300);
    pair.post(2, SendOp::FetchAdd { remote: pair.remote(64), add: 5 }, 0, 8);
    pair.post(3, SendOp::Read { remote: pair.remote(64) }, 8, 8);
    let requests = pair.take(A);
    pair.give(B, requests.clone());
    let first = pair.take(B);
    pair.ends[B].memory.write(64, &77u64.to_ne_bytes()).unwrap();
    pair.give(B, requests);
    let second = pair.take(B);
    assert_eq!(pair.ends[B].received(), [(7, 300)], "one receive");
    assert_eq!(pair.bytes(B, 64, 8), 77u64.to_ne_bytes(), "one addition");
    assert_eq!(of(&first, Operation::AtomicAcknowledge), 1);
    let atomic = |packets: &[OnWire]| {
        let all = packets.iter().map(|p| PacketRepr::parse(&p.bytes).unwrap());
        all.filter_map(|p| p.ext.atomic_ack).map(|ack| ack.original).collect::<Vec<_>>()
    };
    assert_eq!((atomic(&first), atomic(&second)), (vec![0], vec![0]), "answered as before");
    let response = PacketRepr::parse(&second.last().unwrap().bytes);
    assert_eq!(of(&second, Operation::Acknowledge), 2, "{response:?}");
    let read: Vec<_> = second
        .iter()
        .map(|p| PacketRepr::parse(&p.bytes).unwrap())
        .filter(|p| p.bth.opcode == 0x10)
        .map(|p| p.payload)
        .collect();
    assert_eq!(read, [77u64.to_ne_bytes()], "a READ is read again");
    pair.give(A, second);
    assert_eq!(pair.ends_of(A), [(1, OK), (2, OK), (3, OK)]);
    assert_eq!(pair.counters(B).duplicates, 4);
}

#[test]
fn an_old_read_request_shows_nothing_that_is_not_open() {
    let access = Access { remote_read: false, ..Access::REMOTE_ALL };
    let mut pair = RcPair::with(Setup { access, ..Setup::default() });
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 10);
    let packets = pair.take(A);
    let forged = changed(&packets[0], |repr| {
        repr.bth.opcode = 0x0c;
        repr.payload.clear();
    });
    pair.give(B, packets);
    pair.take(B);
    pair.give(B, [forged]);
    assert_eq!(pair.take(B), [], "a duplicate by its number, and refused by the access flags");
    assert_eq!(pair.state(B), QpState::Rts);
    assert_eq!(pair.counters(B).repeats_refused, 1);
}

#[test]
fn answers_that_do_not_fit_their_request_end_it_and_stale_ones_are_dropped() {
    let read_of = |change: fn(&mut PacketRepr)| {
        let mut pair = RcPair::new();
        pair.post(1, SendOp::Read { remote: pair.remote(0) }, 0, 600);
        let requests = pair.take(A);
        pair.give(B, requests);
        let mut responses = pair.take(B);
        responses[1] = changed(&responses[1], change);
        pair.give(A, responses);
        (pair.ends_of(A), pair.counters(A).bad_answers)
    };
    let bad = (vec![(1, WcStatus::BadRespErr)], 1);
    assert_eq!(read_of(|p| p.payload.truncate(252)), bad);
    assert_eq!(read_of(|p| p.payload.push(1)), bad);
    let aeth = Some(Aeth { syndrome: 0x1f, msn: 1 });
    assert_eq!(read_of(|p| (p.bth.opcode, p.ext.aeth) = (0x0f, Some(Aeth::default()))), bad);
    assert!(aeth.is_some());

    let mut pair = RcPair::new();
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 600);
    pair.post(2, SendOp::Write { remote: pair.remote(0) }, 0, 600);
    let requests = pair.take(A);
    pair.give(B, requests);
    let acks = pair.take(B);
    let ack = acks.last().unwrap().clone();
    let never_sent = changed(&ack, |repr| repr.bth.psn = repr.bth.psn.plus(1));
    let reserved = changed(&ack, |repr| repr.ext.aeth.as_mut().unwrap().syndrome = 0x40);
    pair.give(A, [never_sent, reserved]);
    assert_eq!(pair.completions(A), []);
    assert_eq!((pair.counters(A).stale_answers, pair.counters(A).bad_answers), (1, 1));
    pair.give(A, [ack.clone()]);
    assert_eq!(pair.ends_of(A), [(1, OK), (2, OK)]);
    pair.give(A, [ack]);
    assert_eq!(pair.counters(A).stale_answers, 2);
    // A READ response where a WRITE was.
    pair.post(3, SendOp::Write { remote: pair.remote(0) }, 0, 0);
    let requests = pair.take(A);
    pair.give(B, requests);
    let acks = pair.take(B);
    let odd = changed(&acks[0], |repr| repr.bth.opcode = 0x10);
    pair.give(A, [odd]);
    assert_eq!(pair.ends_of(A), [(3, WcStatus::BadRespErr)]);
}

#[test]
fn nobody_but_the_peer_is_listened_to() {
    let mut pair = RcPair::new();
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 10);
    let mut packets = pair.take(A);
    let from = SocketAddr::new("10.0.0.9".parse().unwrap(), packets[0].source.port());
    let bytes = PacketRepr::parse(&packets[0].bytes).unwrap().emit(from, packets[0].dest);
    packets[0] = OnWire { source: from, bytes, ..packets[0].clone() };
    pair.give(B, packets);
    assert_eq!(pair.counters(B).wrong_source, 1);
    assert_eq!(pair.take(B), []);
}

#[test]
fn acknowledgements_count_messages_and_give_no_credits() {
    let mut pair = RcPair::new();
    for id in 0..3 {
        pair.post(id, SendOp::Write { remote: pair.remote(0) }, 0, 300);
    }
    pair.post(3, SendOp::FetchAdd { remote: pair.remote(0), add: 0 }, 0, 8);
    let requests = pair.take(A);
    pair.give(B, requests);
    let answers = pair.take(B);
    let aeths: Vec<_> = answers
        .iter()
        .filter_map(|p| PacketRepr::parse(&p.bytes).unwrap().ext.aeth)
        .map(|aeth| (aeth.syndrome, aeth.msn))
        .collect();
    assert_eq!(aeths, [(0x1f, 1), (0x1f, 2), (0x1f, 3), (0x1f, 4)]);
}

#[test]
fn a_queue_pair_can_be_reset_and_used_again_after_an_error() {
    let mut pair = RcPair::new();
    let remote = RemoteAddr { rkey: 0, ..pair.remote(0) };
    refuse(&mut pair, SendOp::Write { remote }, 10);
    pair.completions(A);
    let connect = |pair: &RcPair, side: usize, rq, sq| Connect {
        dest: pair.ends[1 - side].device.local_addr(),
        dest_qp_num: pair.qps[1 - side],
        rq_psn: Psn::new(rq),
        sq_psn: Psn::new(sq),
        path_mtu: Mtu::Mtu1024,
        source_port: 0,
        tclass: 0,
        rc: RcAttr::default(),
    };
    for (side, rq, sq) in [(A, 5, 9), (B, 9, 5)] {
        let qp = pair.qps[side];
        let connect = connect(&pair, side, rq, sq);
        let device = &mut pair.ends[side].device;
        device.modify_qp(qp, QpState::Reset).unwrap();
        device.modify_qp(qp, QpState::Init).unwrap();
        device.connect_qp(qp, &connect).unwrap();
    }
    pair.recv(B, 7, 0, 3000);
    pair.post(5, SendOp::Send, 0, 3000);
    pair.run();
    assert_eq!(pair.ends_of(A), [(5, OK)]);
    assert_eq!(pair.ends[B].received(), [(7, 3000)]);
}
