//! Messages of every size at every MTU arrive whole.

use super::*;
use crate::limits::TX_TURN_PACKETS;
use crate::wire::opcode::RETH_BYTES;
use crate::wire::{BTH_BYTES, ICRC_BYTES, Opcode, Position, Service};

fn sizes(mtu: usize) -> [usize; 12] {
    [0, 1, 2, 3, 4, 511, 512, 513, mtu - 1, mtu, mtu + 1, 3 * mtu + 5]
}

fn pairs(mtu: Mtu) -> [Pair; 2] {
    let v6 = Pair::between(End::new("[fd00::1]:4791"), End::new("[fd00::2]:700"), mtu, None);
    [Pair::uc(mtu), v6]
}

#[test]
fn sends_arrive_whole_at_every_size_mtu_and_address_family() {
    for mtu in Mtu::ALL {
        for mut pair in pairs(mtu) {
            for len in sizes(mtu.bytes() as usize) {
                let room = len.max(1);
                pair.b.memory.write(0, &vec![0; len + 1]).unwrap();
                pair.b.recv(pair.b_qp, len as u64, 0, room);
                pair.post(9, SendOp::SendWithImm { imm_data: 77 }, len);
                pair.run();
                let wc = pair.b.completions()[0];
                assert_eq!((wc.wr_id, wc.status), (len as u64, WcStatus::Success));
                assert_eq!((wc.byte_len, wc.imm_data), (len as u32, Some(77)), "MTU {mtu}");
                assert_eq!(wc.timestamp, Some(Time(1_000)));
                assert_eq!(pair.b.bytes(0, len), pattern(len), "MTU {mtu}");
                assert_eq!(pair.b.bytes(len, 1), [0], "nothing beyond the message");
                let sent = pair.a.completions();
                assert_eq!((sent.len(), sent[0].wr_id, sent[0].opcode), (1, 9, WcOpcode::Send));
            }
            assert_eq!(pair.b.counters().packets_dropped(), 0);
        }
    }
}

#[test]
fn writes_land_at_their_address_and_only_the_immediate_takes_a_receive() {
    for mtu in Mtu::ALL {
        for mut pair in pairs(mtu) {
            for len in sizes(mtu.bytes() as usize) {
                let remote = pair.b.remote(5000);
                pair.b.memory.write(4999, &vec![0; len + 2]).unwrap();
                pair.post(1, SendOp::Write { remote }, len);
                pair.run();
                assert_eq!(pair.b.completions(), [], "a WRITE is not told");
                assert_eq!(pair.b.bytes(5000, len), pattern(len));
                let edges = (pair.b.bytes(4999, 1), pair.b.bytes(5000 + len, 1));
                assert_eq!(edges, (vec![0], vec![0]));

                pair.b.memory.write(5000, &vec![0; len]).unwrap();
                pair.b.device.post_recv(pair.b_qp, &[RecvWr::default()]).unwrap();
                pair.post(2, SendOp::WriteWithImm { remote, imm_data: 5 }, len);
                pair.run();
                let wc = pair.b.completions()[0];
                assert_eq!((wc.opcode, wc.imm_data), (WcOpcode::RecvRdmaWithImm, Some(5)));
                assert_eq!(wc.byte_len, len as u32);
                assert_eq!(pair.b.bytes(5000, len), pattern(len));
            }
            assert_eq!(pair.b.counters().packets_dropped(), 0);
        }
    }
}

#[test]
fn a_chunk_goes_from_two_entries_to_two_entries_header_apart() {
    let (header, payload) = (64, 56 << 10);
    let mut pair = Pair::uc(Mtu::Mtu4096);
    let bytes = pattern(header + payload);
    pair.a.memory.write(8192 - 64, &bytes[..header]).unwrap();
    pair.a.memory.write(65536, &bytes[header..]).unwrap();
    let gather = SgList::two(pair.a.sge(8192 - 64, header), pair.a.sge(65536, payload));
    let scatter = SgList::two(pair.b.sge(100, header), pair.b.sge(4096, payload));
    pair.b.device.post_recv(pair.b_qp, &[RecvWr { wr_id: 3, sg_list: scatter }]).unwrap();
    let wr = SendWr::new(1, SendOp::Send, gather);
    pair.a.device.post_send(pair.a_qp, &[wr]).unwrap();
    pair.a.device.progress(0);
    let packets = std::mem::take(&mut pair.a.device.link_mut().sent);
    assert_eq!(packets.len(), 15, "what one offloaded send can hold");
    assert!(packets[..14].iter().all(|p| p.bytes.len() == 12 + 4096 + 4 && p.tclass == 0x28));
    pair.deliver(packets);
    assert_eq!(pair.b.received(), [(3, 64 + (56 << 10))]);
    assert_eq!(pair.b.bytes(100, header), bytes[..header]);
    assert_eq!(pair.b.bytes(4096, payload), bytes[header..]);
}

#[test]
fn a_message_resumes_in_its_middle_when_the_link_takes_less() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    pair.a.device.link_mut().room = 0;
    for wr_id in 0..3 {
        pair.b.recv(pair.b_qp, wr_id, wr_id as usize * 2048, 2048);
        pair.post(wr_id, SendOp::Send, 1000);
    }
    let mut taken = 0;
    for room in [0, 1, 0, 2, 3, 5, 100] {
        pair.a.device.link_mut().room = room;
        taken += pair.a.device.progress(0);
        let done = taken / 4;
        assert_eq!(pair.a.counters().messages_sent, done as u64, "after {taken} packets");
    }
    assert_eq!(taken, 12, "four packets for each message, none twice");
    pair.run();
    assert_eq!(pair.b.received(), [(0, 1000), (1, 1000), (2, 1000)]);
    assert_eq!(pair.b.bytes(4096, 1000), pattern(1000));
    assert_eq!(pair.b.counters().resyncs, 0, "the PSNs are in order");
}

#[test]
fn queue_pairs_take_turns_and_each_keeps_its_order() {
    let mut pair = Pair::uc(Mtu::Mtu256);
    let second = pair
        .a
        .device
        .create_qp(&QpInit::new(QpType::Uc, pair.a.cq).access(Access::REMOTE_ALL))
        .unwrap();
    let connect = Connect { source_port: 6, ..connect_to(pair.b.device.local_addr(), QpNum(0x77)) };
    pair.a.device.connect_qp(second, &connect).unwrap();
    pair.post(1, SendOp::Send, 256 * 100);
    let small = SendWr::new(2, SendOp::Send, pair.a.list(0, 10));
    pair.a.device.post_send(second, &[small]).unwrap();
    pair.a.device.progress(0);
    let done: Vec<u64> = pair.a.completions().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(done, [2, 1], "the short message does not wait for the long one");
    let ports: Vec<u16> = pair.a.device.link().sent.iter().map(|p| p.source.port()).collect();
    assert_eq!((ports[0], ports[TX_TURN_PACKETS]), (4791, 4791 + 2), "source port 6 modulo 4");
}

/// A list of 60,000 bytes in two pieces, the first of which ends within a packet.
fn two_pieces(end: &End) -> SgList {
    SgList::two(end.sge(0, 64), end.sge(64, 59_936))
}

#[test]
fn a_send_may_be_cut_at_each_smaller_size_and_the_peer_takes_it() {
    for (mtu, cut_at) in Mtu::ALL.into_iter().flat_map(|mtu| Mtu::ALL.map(|size| (mtu, size))) {
        let mut pair = Pair::uc(mtu);
        pair.a.memory.write(0, &pattern(60_000)).unwrap();
        let remote = pair.b.remote(100_000);
        let send = SendWr::new(1, SendOp::Send, two_pieces(&pair.a)).cut_at(cut_at);
        let write = SendWr { op: SendOp::Write { remote }, ..send };
        pair.b.recv(pair.b_qp, 1, 0, 60_000);
        pair.a.device.post_send(pair.a_qp, &[send, write]).unwrap();
        while pair.a.device.progress(64) > 0 {}
        let packets = std::mem::take(&mut pair.a.device.link_mut().sent);
        let packet_bytes = cut_at.min(mtu).bytes();
        assert_eq!(packets.len() as u32, 2 * 60_000u32.div_ceil(packet_bytes), "{mtu} {cut_at}");
        let longest = packets.iter().map(|packet| packet.bytes.len()).max();
        assert_eq!(longest, Some(BTH_BYTES + RETH_BYTES + packet_bytes as usize + ICRC_BYTES));
        pair.deliver(packets);
        assert_eq!(pair.b.received(), [(1, 60_000)], "MTU {mtu}, cut at {cut_at}");
        assert!(pair.b.bytes(0, 60_000) == pattern(60_000), "MTU {mtu}, cut at {cut_at}");
        assert!(pair.b.bytes(100_000, 60_000) == pattern(60_000), "MTU {mtu}, cut at {cut_at}");
        assert_eq!(pair.b.counters().packets_dropped(), 0, "MTU {mtu}, cut at {cut_at}");
    }
}

#[test]
fn the_packets_of_a_message_are_of_one_size_that_roce_knows() {
    let lengths = |first, middle, last| {
        [(Position::First, first), (Position::Middle, middle), (Position::Last, last)]
    };
    let cases = [
        (lengths(512, 512, 512), true),
        (lengths(512, 512, 4), true),
        (lengths(512, 512, 516), false),
        (lengths(512, 512, 0), false),
        (lengths(512, 256, 256), false),
        (lengths(512, 1024, 512), false),
        (lengths(1024, 1024, 1024), true),
        (lengths(2048, 2048, 2048), false),
        (lengths(128, 128, 128), false),
        (lengths(768, 768, 768), false),
        (lengths(0, 0, 4), false),
    ];
    for (packets, is_taken) in cases {
        let mut pair = Pair::uc(Mtu::Mtu1024);
        pair.b.recv(pair.b_qp, 1, 0, 8_192);
        let model = pair.packets(SendOp::Send, 3_000).swap_remove(0);
        let forged = packets.iter().zip(0..).map(|(&(position, len), step)| {
            let mut packet = model.clone();
            packet.bytes.truncate(BTH_BYTES);
            packet.bytes[0] = Opcode::request(Service::Uc, false, position, false);
            packet.bytes[9..12]
                .copy_from_slice(&Psn::new(A_PSN).plus(step).value().to_be_bytes()[1..]);
            packet.bytes.extend(vec![7; len + ICRC_BYTES]);
            hostile::forge(&mut packet, pair.b.device.local_addr());
            packet
        });
        let forged: Vec<_> = forged.collect();
        pair.deliver(forged);
        let bytes: usize = packets.iter().map(|&(_, len)| len).sum();
        let expected = if is_taken { vec![(1, bytes as u32)] } else { vec![] };
        assert_eq!(pair.b.received(), expected, "{packets:?}");
        assert_eq!(pair.b.counters().length_error == 0, is_taken, "{packets:?}");
        // The queue pair goes on.
        let more = pair.packets(SendOp::Send, 100);
        pair.b.recv(pair.b_qp, 2, 0, 100);
        pair.deliver(more);
        assert_eq!(pair.b.received().len(), 1, "{packets:?}");
    }
}
