//! The packets in the middle of messages, which take a shorter way in and out.

use super::forged::forged;
use super::*;
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

#[test]
fn a_long_message_is_whole_wherever_its_pieces_and_its_batches_end() {
    for seed in 0..200 {
        let mut prng = Prng::new(seed);
        let mtu = if prng.below(2) == 0 { Mtu::Mtu2048 } else { Mtu::Mtu4096 };
        let mut pair = Pair::uc(mtu);
        let whole = pattern(120_000);
        pair.a.memory.write(0, &whole).unwrap();
        let (mut list, mut expected) = (SgList::default(), Vec::new());
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
        pair.a.device.post_send(pair.a_qp, &[SendWr::new(1, SendOp::Send, list)]).unwrap();
        for _ in 0..100 {
            pair.a.device.link_mut().room = prng.below(9) as usize;
            pair.a.device.progress(0);
        }
        let packets = std::mem::take(&mut pair.a.device.link_mut().sent);
        let mtu_bytes = mtu.bytes() as usize;
        assert_eq!(packets.len(), expected.len().div_ceil(mtu_bytes).max(1), "seed {seed}");
        pair.deliver(packets);
        assert_eq!(pair.b.received(), [(1, expected.len() as u32)], "seed {seed}");
        assert!(pair.b.bytes(0, expected.len()) == expected, "seed {seed}");
        assert_eq!(pair.b.counters().packets_dropped(), 0, "seed {seed}");
    }
}
