//! The packets in the middle of messages, which take a shorter way in and out.

use super::forged::forged;
use super::*;
use crate::engine::Engine;
use crate::wire::{Position, Service};
use towpath_base::Prng;

/// Sent packets as another NIC would: with the migration bit, which makes no difference but that
/// none of them takes the shorter way.
fn with_migration_bit(packets: &[OnWire]) -> Vec<OnWire> {
    packets.iter().map(|packet| forged(packet, |repr| repr.bth.mig_req = true)).collect()
}

/// Loses, doubles, moves and spoils some of `packets`, and gives some another sender.
fn disturb(packets: &mut Vec<OnWire>, prng: &mut Prng) {
    for _ in 0..prng.below(4) {
        let at = prng.below(packets.len() as u64) as usize;
        let to = prng.below(packets.len() as u64) as usize;
        match prng.below(6) {
            0 => drop(packets.remove(at)),
            1 => packets.insert(at, packets[to].clone()),
            2 => packets.swap(at, to),
            3 => packets[at].source = "10.0.0.9:4791".parse().unwrap(),
            4 => {
                let len = packets[at].bytes.len();
                packets[at].bytes.truncate(prng.below(len as u64) as usize);
            }
            _ => {
                let byte = prng.below(packets[at].bytes.len() as u64) as usize;
                packets[at].bytes[byte] ^= 1 << prng.below(8);
            }
        }
    }
}

#[test]
fn the_shorter_way_in_comes_to_what_the_rules_come_to() {
    for seed in 0..400 {
        let ends: [_; 2] = [false, true].map(|is_long_way| {
            let mut prng = Prng::new(seed);
            let mut pair = Pair::uc(Mtu::Mtu256);
            for i in 0..6 {
                let split = 1 + prng.below(1500) as usize;
                let at = i * 2000;
                let list = SgList::two(pair.b.sge(at, split), pair.b.sge(at + split, 1800 - split));
                let wr = RecvWr { wr_id: i as u64, sg_list: list };
                pair.b.device.post_recv(pair.b_qp, &[wr]).unwrap();
            }
            let mut packets = Vec::new();
            for _ in 0..6 {
                packets.extend(pair.packets(SendOp::Send, 1 + prng.below(2000) as usize));
            }
            let in_middle = packets.iter().filter(|p| {
                let opcode = crate::wire::Packet::parse(&p.bytes).unwrap().opcode;
                (opcode.service, opcode.position) == (Service::Uc, Position::Middle)
            });
            assert!(in_middle.count() > 0, "seed {seed}");
            if is_long_way {
                packets = with_migration_bit(&packets);
            }
            disturb(&mut packets, &mut prng);
            pair.deliver(packets);
            (pair.b.completions(), pair.b.counters(), pair.b.bytes(0, 12_000))
        });
        assert_eq!(ends[0], ends[1], "seed {seed}");
    }
}

/// Whether the queue pair of B takes `packet` in by the shorter way.
fn takes(pair: &mut Pair, packet: &OnWire) -> bool {
    let Engine { qps, mrs, .. } = pair.b.device.engine_mut();
    let (source, timestamp) = (packet.source, Time(1_000));
    let (dest, tclass, bytes) = (packet.dest, Some(packet.tclass), packet.bytes.as_slice());
    let rx = RxPacket { source, dest, tclass, bytes, timestamp };
    qps.find_mut(pair.b_qp).unwrap().on_middle(&rx, mrs)
}

/// A pair over whose wire the first packet of a message of five has gone, and the others.
fn one_packet_in() -> (Pair, Vec<OnWire>) {
    let mut pair = Pair::uc(Mtu::Mtu256);
    pair.b.recv(pair.b_qp, 1, 0, 2048);
    let mut packets = pair.packets(SendOp::Send, 4 * 256 + 1);
    pair.deliver([packets.remove(0)]);
    (pair, packets)
}

#[test]
fn the_next_packet_in_the_middle_takes_the_shorter_way_in_and_no_other_does() {
    let (mut pair, packets) = one_packet_in();
    let mut of_another = packets[0].clone();
    of_another.source = "10.0.0.9:4791".parse().unwrap();
    let mut spoilt = packets[0].clone();
    spoilt.bytes[100] ^= 1;
    let odd = with_migration_bit(&packets[..1]).remove(0);
    for packet in [&packets[1], &packets[3], &of_another, &spoilt, &odd] {
        assert!(!takes(&mut pair, packet), "{packet:?}");
    }
    for packet in &packets[..3] {
        assert!(takes(&mut pair, packet));
        assert!(!takes(&mut pair, packet), "twice");
    }
    assert!(!takes(&mut pair, &packets[3]), "the last completes the message");
    pair.deliver(packets[3..].to_vec());
    assert_eq!(pair.b.received(), [(1, 1025)]);
    assert_eq!(pair.b.bytes(0, 1025), pattern(1025));
}

#[test]
fn the_shorter_way_in_ends_with_the_state_of_the_queue_pair() {
    let (mut pair, packets) = one_packet_in();
    pair.b.device.modify_qp(pair.b_qp, QpState::Err).unwrap();
    assert!(!takes(&mut pair, &packets[0]));

    let (mut pair, packets) = one_packet_in();
    pair.b.device.modify_qp(pair.b_qp, QpState::Reset).unwrap();
    assert!(!takes(&mut pair, &packets[0]));
    pair.b.device.modify_qp(pair.b_qp, QpState::Init).unwrap();
    // It comes up again and expects just this packet's number, but no message is under way.
    let psn = crate::wire::Packet::parse(&packets[0].bytes).unwrap().bth.psn();
    let connect = connect_to(pair.a.device.local_addr(), pair.a_qp);
    pair.b.device.connect_qp(pair.b_qp, &Connect { rq_psn: psn, ..connect }).unwrap();
    assert!(!takes(&mut pair, &packets[0]));
    pair.deliver(packets);
    assert_eq!((pair.b.counters().psn_mismatch, pair.b.received()), (4, vec![]));
}

#[test]
fn memory_that_goes_away_under_the_middle_of_a_message_fails_what_names_it() {
    let mut pair = Pair::uc(Mtu::Mtu4096);
    let other = Region::new(20_000).unwrap();
    let keys = pair.a.device.reg_mr(PdNum::DEFAULT, &other, Access::LOCAL).unwrap();
    let gone = Sge { addr: other.addr(), length: 20_000, lkey: keys.lkey };
    let bad = SendWr::new(2, SendOp::Send, SgList::two(pair.a.sge(0, 9_000), gone));
    let good = |wr_id| SendWr { wr_id, sg_list: pair.a.list(0, 20_000), ..bad };
    pair.a.device.post_send(pair.a_qp, &[good(1), bad, good(3)]).unwrap();
    pair.a.device.dereg_mr(keys.lkey).unwrap();
    while pair.a.device.progress(0) > 0 {}
    let ends: Vec<_> = pair.a.completions().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    let expected = [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)];
    assert_eq!(ends, expected);
    let sent = &pair.a.device.link().sent;
    assert_eq!(sent.len(), 5 + 2, "the first, and of the second what lies in memory that is there");

    let mut pair = Pair::uc(Mtu::Mtu256);
    let keys = pair.b.device.reg_mr(PdNum::DEFAULT, &other, Access::LOCAL).unwrap();
    let gone = SgList::one(Sge { addr: other.addr(), length: 2_000, lkey: keys.lkey });
    pair.b.device.post_recv(pair.b_qp, &[RecvWr { wr_id: 9, sg_list: gone }]).unwrap();
    let mut packets = pair.packets(SendOp::Send, 1_500);
    let rest = packets.split_off(3);
    pair.deliver(packets);
    pair.b.device.dereg_mr(keys.lkey).unwrap();
    assert!(!takes(&mut pair, &rest[0]));
    pair.deliver(rest);
    assert_eq!(pair.b.completions()[0].status, WcStatus::LocProtErr);
}

#[test]
fn a_long_message_is_whole_wherever_its_pieces_and_its_batches_end() {
    for seed in 0..200 {
        let mut prng = Prng::new(seed);
        let mtu = if prng.below(2) == 0 { Mtu::Mtu2048 } else { Mtu::Mtu4096 };
        let mut pair = Pair::uc(mtu);
        let whole = pattern(120_000);
        pair.a.memory.write(0, &whole).unwrap();
        let (mut list, mut expected) = (<SgList>::default(), Vec::new());
        for _ in 0..=prng.below(4) {
            let (at, len) = (prng.below(80_000) as usize, prng.below(30_000) as usize);
            // Every other piece ends where a packet does.
            let len = if prng.below(2) == 0 {
                len / mtu.bytes() as usize * mtu.bytes() as usize
            } else {
                len
            };
            assert!(list.push(pair.a.sge(at, len)));
            expected.extend_from_slice(&whole[at..at + len]);
        }
        pair.b.recv(pair.b_qp, 1, 0, expected.len().max(1));
        let is_write = prng.below(4) == 0;
        let remote = pair.b.remote(0);
        let op = if is_write { SendOp::Write { remote } } else { SendOp::Send };
        pair.a.device.post_send(pair.a_qp, &[SendWr::new(1, op, list)]).unwrap();
        for _ in 0..100 {
            pair.a.device.link_mut().room = prng.below(9) as usize;
            pair.a.device.progress(0);
        }
        let packets = std::mem::take(&mut pair.a.device.link_mut().sent);
        let mtu_bytes = mtu.bytes() as usize;
        assert_eq!(packets.len(), expected.len().div_ceil(mtu_bytes).max(1), "seed {seed}");
        pair.deliver(packets);
        let told = if is_write { vec![] } else { vec![(1, expected.len() as u32)] };
        assert_eq!(pair.b.received(), told, "seed {seed}");
        assert!(pair.b.bytes(0, expected.len()) == expected, "seed {seed}");
        assert_eq!(pair.b.counters().packets_dropped(), 0, "seed {seed}");
    }
}
