//! Queue pairs whose packets have no ICRC.

use super::*;
use crate::wire::BTH_BYTES;
use towpath_base::Prng;

const NONE: &[u8] = b"none";

fn pair(mtu: Mtu, omits_icrc: [bool; 2]) -> Pair {
    let (a, b) = (End::new("10.0.0.1:4791"), End::new("10.0.0.2:4791"));
    Pair::joined(a, b, mtu, None, omits_icrc)
}

#[test]
fn packets_are_as_long_as_others_and_end_with_a_mark_in_place_of_the_icrc() {
    for mtu in [Mtu::Mtu256, Mtu::Mtu1024] {
        // One packet, several, and so long ones that those in the middle leave together.
        for len in [0, 1, 255, 4000, 20_000] {
            let mut with = pair(mtu, [false; 2]);
            let mut without = pair(mtu, [true; 2]);
            let usual = with.packets(SendOp::Send, len);
            let bare = without.packets(SendOp::Send, len);
            assert_eq!(usual.len(), bare.len());
            for (usual, bare) in usual.iter().zip(&bare) {
                let (usual, _) = usual.bytes.split_last_chunk::<4>().unwrap();
                let (bare, mark) = bare.bytes.split_last_chunk::<4>().unwrap();
                assert_eq!((usual, NONE), (bare, &mark[..]));
            }
            without.b.recv(without.b_qp, 7, 0, 32 << 10);
            without.deliver(bare);
            assert_eq!(without.b.received(), [(7, len as u32)]);
            assert_eq!(without.b.bytes(0, len), pattern(len));
        }
    }
}

#[test]
fn a_queue_pair_takes_only_the_kind_of_packets_that_it_was_told_of() {
    for omits_icrc in [[true, false], [false, true]] {
        let mut pair = pair(Mtu::Mtu256, omits_icrc);
        pair.b.recv(pair.b_qp, 7, 0, 1024);
        let packets = pair.packets(SendOp::Send, 1000);
        pair.deliver(packets);
        assert_eq!(pair.b.completions(), []);
        assert_eq!(pair.b.counters().bad_icrc, 4);
    }
}

#[test]
fn a_packet_that_lost_its_end_or_has_a_false_one_is_dropped() {
    let mut pair = pair(Mtu::Mtu256, [true; 2]);
    pair.b.recv(pair.b_qp, 7, 0, 1024);
    let [whole] = &pair.packets(SendOp::Send, 100)[..] else { panic!("one packet") };
    let mut changed = Vec::new();
    for words in 1..=21 {
        let mut short = whole.clone();
        short.bytes.truncate(whole.bytes.len() - 4 * words);
        changed.push(short);
        let mut long = whole.clone();
        long.bytes.resize(whole.bytes.len() + 4 * words, 0);
        changed.push(long);
    }
    pair.deliver(changed);
    assert_eq!(pair.b.completions(), []);
    assert_eq!(pair.b.counters().bad_icrc, 42);
}

#[test]
fn damage_stays_within_what_was_posted_for_the_queue_pair() {
    let seed = 3;
    println!("seed {seed}");
    let mut rng = Prng::new(seed);
    let mut pair = pair(Mtu::Mtu256, [true; 2]);
    // As memory that links receive in: no peer reaches it by key.
    pair.b.device.dereg_mr(pair.b.keys.lkey).unwrap();
    let memory = pair.b.memory.clone();
    let whole = memory.whole();
    let device = &mut pair.b.device;
    pair.b.keys = device.reg_shared_mr(PdNum::DEFAULT, &memory, whole, Access::LOCAL).unwrap();
    pair.b.memory.write(0, &[0x5a; 8192]).unwrap();
    let (mut landed, mut is_posted) = (0, false);
    for round in 0..5_000u64 {
        if !is_posted {
            pair.b.recv(pair.b_qp, round, 1024, 1024);
        }
        let mut packets = pair.packets(SendOp::Send, rng.between(64, 1024) as usize);
        let which = rng.below(packets.len() as u64) as usize;
        let bytes = &mut packets[which].bytes;
        let all = bytes.len() as u64;
        let within = if rng.chance(0.5) { BTH_BYTES as u64 + 16 } else { all };
        bytes[rng.below(within.min(all)) as usize] = rng.next_u32() as u8;
        pair.deliver(packets);
        // Too much, too little or changed bytes: for whoever sent them to find out.
        assert_eq!(pair.a.completions().len(), 1);
        let done = pair.b.completions().len();
        is_posted = done == 0;
        landed += done;
        assert_eq!(pair.b.device.qp_state(pair.b_qp), Ok(QpState::Rts));
    }
    assert!(landed > 2_000, "{landed}");
    assert_eq!(pair.b.bytes(0, 1024), [0x5a; 1024]);
    assert_eq!(pair.b.bytes(2048, 6144), [0x5a; 6144]);
}

#[test]
fn it_is_for_uc_queue_pairs_in_init_and_devices_without_foreign_peers() {
    let verb = Verb::ModifyQp;
    let mut pair = pair(Mtu::Mtu256, [false; 2]);
    let device = &mut pair.a.device;
    assert!(device.caps().omits_icrc);
    assert_eq!(device.omit_icrc(pair.a_qp), Err(VerbError::WrongState(verb)));
    for qp_type in [QpType::Rc, QpType::Ud] {
        let other = device.create_qp(&QpInit::new(qp_type, pair.a.cq)).unwrap();
        assert_eq!(device.omit_icrc(other), Err(VerbError::BadArgument(verb)));
    }
    assert_eq!(device.omit_icrc(QpNum(0)), Err(VerbError::NoSuchObject(verb)));

    let mut link = TestLink::new("10.0.0.3:4791");
    link.foreign_peers = true;
    let mut foreign = End::on(link, RoceConfig::default());
    let qp = foreign.device.create_qp(&QpInit::new(QpType::Uc, foreign.cq)).unwrap();
    assert!(!foreign.device.caps().omits_icrc);
    assert_eq!(foreign.device.omit_icrc(qp), Err(VerbError::Unsupported(verb)));
}

#[test]
fn a_queue_pair_that_is_reset_has_icrcs_again() {
    let mut pair = pair(Mtu::Mtu256, [true; 2]);
    let device = &mut pair.a.device;
    device.modify_qp(pair.a_qp, QpState::Reset).unwrap();
    device.modify_qp(pair.a_qp, QpState::Init).unwrap();
    device.connect_qp(pair.a_qp, &connect_to(pair.b.device.local_addr(), pair.b_qp)).unwrap();
    let [packet] = &pair.packets(SendOp::Send, 10)[..] else { panic!("one packet") };
    assert_ne!(packet.bytes.last_chunk::<4>().unwrap(), NONE);
}
