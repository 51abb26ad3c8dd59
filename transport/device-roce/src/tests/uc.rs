//! What a UC queue pair does when packets are lost, doubled or late.

use super::*;

const MTU: usize = 256;

/// Two messages of three packets and one of one packet; receives at 0, 1024, 2048, 3072.
fn three_messages(write: bool) -> (Pair, Vec<OnWire>) {
    let mut pair = Pair::uc(Mtu::Mtu256);
    let mut packets = Vec::new();
    for i in 0..4 {
        pair.b.recv(pair.b_qp, i, i as usize * 1024, 1024);
    }
    for (i, len) in [700, 600, 100].into_iter().enumerate() {
        let remote = pair.b.remote(8192 + i * 1024);
        let op = if write {
            SendOp::WriteWithImm { remote, imm_data: i as u32 }
        } else {
            SendOp::SendWithImm { imm_data: i as u32 }
        };
        packets.extend(pair.packets(op, len));
    }
    assert_eq!(packets.len(), 7);
    (pair, packets)
}

/// Immediates of the messages that arrived.
fn arrived(pair: &mut Pair) -> Vec<u32> {
    let completions = pair.b.completions();
    assert!(completions.iter().all(|wc| wc.status == WcStatus::Success));
    completions.iter().filter_map(|wc| wc.imm_data).collect()
}

#[test]
fn each_lost_packet_costs_exactly_its_message_and_the_queue_pair_goes_on() {
    for write in [false, true] {
        for lost in 0..7 {
            let (mut pair, mut packets) = three_messages(write);
            packets.remove(lost);
            pair.deliver(packets);
            let message = [0, 0, 0, 1, 1, 1, 2][lost];
            let expected: Vec<u32> = (0..3).filter(|&i| i != message).collect();
            assert_eq!(arrived(&mut pair), expected, "write {write}, packet {lost} lost");
            pair.deliver(Vec::new());
            let op = SendOp::SendWithImm { imm_data: 9 };
            let more = pair.packets(op, 1024);
            pair.deliver(more);
            assert_eq!(arrived(&mut pair), [9], "the queue pair still works");
        }
    }
}

#[test]
fn each_doubled_packet_costs_its_message_or_delivers_it_twice() {
    for write in [false, true] {
        for doubled in 0..7 {
            let (mut pair, mut packets) = three_messages(write);
            packets.insert(doubled, packets[doubled].clone());
            pair.deliver(packets);
            // Expect: a doubled FIRST starts over, ONLY arrives twice, LAST comes too late to hurt;
            // a doubled MIDDLE is out of order and takes its message along.
            let expected: &[u32] = match doubled {
                1 => &[1, 2],
                4 => &[0, 2],
                6 => &[0, 1, 2, 2],
                _ => &[0, 1, 2],
            };
            assert_eq!(arrived(&mut pair), expected, "write {write}, packet {doubled} doubled");
        }
    }
}

#[test]
fn each_pair_of_swapped_packets_costs_what_the_rules_say() {
    for swapped in 0..6 {
        let (mut pair, mut packets) = three_messages(false);
        packets.swap(swapped, swapped + 1);
        pair.deliver(packets);
        let expected: &[u32] = match swapped {
            0..=2 => &[1, 2],
            3 | 4 => &[0, 2],
            _ => &[0, 2],
        };
        // Swap 2 puts message 1's FIRST before message 0's LAST: both are broken by it.
        let expected = if swapped == 2 { &[2][..] } else { expected };
        assert_eq!(arrived(&mut pair), expected, "packets {swapped} and the next swapped");
    }
}

#[test]
fn a_lost_message_leaves_its_first_packets_in_memory_and_its_receive_for_the_next() {
    let (mut pair, mut packets) = three_messages(false);
    packets.remove(2);
    packets.truncate(2);
    pair.deliver(packets);
    assert_eq!(pair.b.completions(), []);
    assert_eq!(pair.b.bytes(0, 2 * MTU), pattern(2 * MTU), "partial writes really happen");
    let more = pair.packets(SendOp::Send, 10);
    pair.deliver(more);
    assert_eq!(pair.b.received(), [(0, 10)], "the first receive is used from its start");
    assert_eq!(pair.b.bytes(10, MTU), pattern(2 * MTU)[10..10 + MTU], "and not cleaned");
    let counters = pair.b.counters();
    assert_eq!((counters.messages_lost, counters.resyncs), (1, 1));
}

#[test]
fn a_late_packet_of_an_old_message_is_written_if_it_starts_one() {
    let (mut pair, packets) = three_messages(true);
    let first = packets[0].clone();
    pair.deliver(packets);
    assert_eq!(arrived(&mut pair), [0, 1, 2]);
    pair.b.memory.write(8192, &[0; 700]).unwrap();
    pair.deliver([first]);
    assert_eq!(pair.b.bytes(8192, MTU), pattern(MTU), "UC does not protect against it");
    assert_eq!(pair.b.bytes(8192 + MTU, 1), [0]);
    assert_eq!(arrived(&mut pair), []);
}

#[test]
fn without_a_receive_a_message_is_dropped_silently_and_the_next_one_served() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    let lost = pair.packets(SendOp::Send, 700);
    pair.deliver(lost);
    assert_eq!(pair.b.counters().no_recv_wqe, 1);
    assert_eq!(pair.b.counters().psn_mismatch, 2, "the rest of the message");
    let remote = pair.b.remote(8192);
    let written = pair.packets(SendOp::WriteWithImm { remote, imm_data: 1 }, 700);
    pair.deliver(written);
    assert_eq!(pair.b.counters().no_recv_wqe, 2);
    assert_eq!(pair.b.bytes(8192, 512), pattern(512), "what came before the immediate landed");
    assert_eq!(pair.b.bytes(8192 + 512, 1), [0], "the packet with the immediate did not");
    pair.b.recv(pair.b_qp, 5, 0, 100);
    let good = pair.packets(SendOp::Send, 100);
    pair.deliver(good);
    assert_eq!(pair.b.received(), [(5, 100)]);
    assert_eq!(pair.b.device.qp_state(pair.b_qp), Ok(QpState::Rts));
}

#[test]
fn a_shared_receive_queue_survives_a_lost_packet() {
    let (a, mut b) = (End::new("10.0.0.1:4791"), End::new("10.0.0.2:4791"));
    let srq = b.device.create_srq(8).unwrap();
    for wr_id in 0..2 {
        let sg_list = b.list(wr_id as usize * 1024, 1024);
        b.device.post_srq_recv(srq, &[RecvWr { wr_id, sg_list }]).unwrap();
    }
    let mut pair = Pair::between(a, b, Mtu::Mtu256, Some(srq));
    let mut packets = pair.packets(SendOp::Send, 700);
    packets.remove(1);
    packets.extend(pair.packets(SendOp::Send, 300));
    packets.extend(pair.packets(SendOp::Send, 20));
    packets.extend(pair.packets(SendOp::Send, 30));
    pair.deliver(packets);
    assert_eq!(pair.b.received(), [(1, 300), (0, 20)], "the newest first");
    assert_eq!(pair.b.counters().no_recv_wqe, 1, "the third found the queue empty");
    let own = pair.b.device.post_recv(pair.b_qp, &[RecvWr::default()]);
    assert_eq!(own.unwrap_err().error, VerbError::WrongState(Verb::PostRecv));
}

#[test]
fn a_message_longer_than_its_receive_completes_in_error_and_the_queue_pair_stays_up() {
    for (room, fits) in [(600, true), (599, false), (512, false), (511, false), (0, false)] {
        let mut pair = Pair::uc(Mtu::Mtu256);
        pair.b.memory.write(0, &[0; 1024]).unwrap();
        pair.b.recv(pair.b_qp, 1, 0, room);
        pair.b.recv(pair.b_qp, 2, 2048, 1024);
        let packets = pair.packets(SendOp::Send, 600);
        pair.deliver(packets);
        let status = if fits { WcStatus::Success } else { WcStatus::LocLenErr };
        let completions = pair.b.completions();
        assert_eq!((completions.len(), completions[0].status), (1, status), "room {room}");
        assert_eq!(pair.b.bytes(room, 600 - room + 10), vec![0; 600 - room + 10]);
        let packets = pair.packets(SendOp::Send, 600);
        pair.deliver(packets);
        assert_eq!(pair.b.received(), [(2, 600)]);
    }
}

#[test]
fn a_write_outside_what_was_opened_is_dropped_silently() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    let closed = Region::new(4096).unwrap();
    let closed_keys = pair.b.device.reg_mr(PdNum::DEFAULT, &closed, Access::LOCAL).unwrap();
    let end = pair.b.remote(MEMORY_BYTES - 600);
    let with = |addr, rkey| RemoteAddr { addr, rkey };
    let cases = [
        (end, 601, false),
        (end, 600, true),
        (with(end.addr, end.rkey ^ 1), 600, false),
        (with(end.addr, end.rkey + 256), 600, false),
        (with(closed.addr(), closed_keys.rkey), 10, false),
        (with(u64::MAX - 5, end.rkey), 10, false),
        (with(0, 0), 0, true),
    ];
    for (remote, len, good) in cases {
        pair.b.device.post_recv(pair.b_qp, &[RecvWr::default()]).unwrap();
        let packets = pair.packets(SendOp::WriteWithImm { remote, imm_data: 1 }, len);
        let before = pair.b.counters().bad_rkey;
        pair.deliver(packets);
        assert_eq!(pair.b.counters().bad_rkey, before + u64::from(!good), "{remote:x?}");
        assert_eq!(pair.b.received().len(), usize::from(good));
    }
    assert_eq!(pair.b.device.qp_state(pair.b_qp), Ok(QpState::Rts));
}

#[test]
fn only_the_peers_address_may_send_and_from_any_port() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    for source_port in [0, 3, 5] {
        pair.b.recv(pair.b_qp, 1, 0, 100);
        pair.a.device.set_source_port(pair.a_qp, source_port).unwrap();
        let packets = pair.packets(SendOp::Send, 10);
        assert_eq!(packets[0].source.port(), 4791 + source_port % 4);
        pair.deliver(packets);
        assert_eq!(pair.b.received(), [(1, 10)]);
    }

    pair.b.recv(pair.b_qp, 2, 0, 100);
    let mut stranger = End::new("10.0.0.3:4791");
    let qp = stranger
        .device
        .create_qp(&QpInit::new(QpType::Uc, stranger.cq).access(Access::REMOTE_ALL))
        .unwrap();
    let connect = connect_to(pair.b.device.local_addr(), pair.b_qp);
    stranger.device.connect_qp(qp, &connect).unwrap();
    stranger.device.post_send(qp, &[SendWr::new(1, SendOp::Send, stranger.list(0, 9))]).unwrap();
    stranger.device.progress(0);
    let packets = std::mem::take(&mut stranger.device.link_mut().sent);
    pair.deliver(packets);
    assert_eq!((pair.b.received(), pair.b.counters().wrong_source), (vec![], 1));
}

#[test]
fn queue_pairs_take_turns_on_a_link_that_takes_a_packet_at_every_second_offer() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    let other = pair
        .a
        .device
        .create_qp(&QpInit::new(QpType::Uc, pair.a.cq).access(Access::REMOTE_ALL))
        .unwrap();
    let dest = pair.b.device.local_addr();
    pair.a.device.connect_qp(other, &connect_to(dest, QpNum(77))).unwrap();
    let list = pair.a.list(0, 60 * 256);
    for qp in [pair.a_qp, other] {
        let wr = SendWr::new(0, SendOp::Send, list);
        pair.a.device.post_send(qp, &[wr]).unwrap();
    }
    for turn in 0..80 {
        pair.a.device.link_mut().room = turn % 2;
        pair.a.device.progress(0);
    }
    let sent = std::mem::take(&mut pair.a.device.link_mut().sent);
    let of_other = |packet: &&OnWire| packet.bytes[5..8] == [0, 0, 77];
    assert_eq!(sent.len(), 40);
    assert_eq!(sent.iter().filter(of_other).count(), 20);
}
