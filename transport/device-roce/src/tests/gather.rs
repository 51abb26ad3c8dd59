//! Sends that are gathered from many places.

use super::rc::{A, B, Faults, RcPair, Setup};
use super::*;
use towpath_base::Prng;

type LongList = SgList<SEND_SGE_MAX>;

/// Fills the memory of `end` and takes pieces of it at random; the list and its bytes.
fn gathered(end: &mut End, prng: &mut Prng) -> (LongList, Vec<u8>) {
    let whole = pattern(MEMORY_BYTES);
    end.memory.write(0, &whole).unwrap();
    let count = 1 + prng.below(SEND_SGE_MAX as u64);
    let kind = prng.below(4);
    let (mut list, mut bytes) = (LongList::default(), Vec::new());
    for _ in 0..count {
        let len = match kind {
            0 => 8,
            1 => prng.below(16),
            2 => prng.between(513, 2_000),
            _ => prng.below(2) * prng.below(6_000) + prng.below(9),
        } as usize;
        let at = prng.below((MEMORY_BYTES - len) as u64) as usize;
        assert!(list.push(end.sge(at, len)));
        bytes.extend_from_slice(&whole[at..at + len]);
    }
    (list, bytes)
}

#[test]
fn a_gathered_message_is_on_the_wire_as_if_it_lay_in_one_piece() {
    for (seed, mtu) in (0..60).flat_map(|seed| Mtu::ALL.map(|mtu| (seed, mtu))) {
        let what = format!("seed {seed}, MTU {mtu}");
        let mut prng = Prng::new(seed);
        let (mut pair, mut flat) = (Pair::uc(mtu), Pair::uc(mtu));
        let (mut list, mut bytes) = gathered(&mut pair.a, &mut prng);
        if seed == 0 {
            // All of the list in one packet, none of it in a part of its own.
            let all: Vec<Sge> = (0..SEND_SGE_MAX).map(|i| pair.a.sge(i * 100, 8)).collect();
            list = LongList::with_room(&all).unwrap();
            let whole = pattern(MEMORY_BYTES);
            bytes = (0..SEND_SGE_MAX).flat_map(|i| whole[i * 100..i * 100 + 8].to_vec()).collect();
        }
        flat.a.memory.write(0, &bytes).unwrap();
        let op = SendOp::SendWithImm { imm_data: 5 };
        let in_one = SendWr::new(1, op, flat.a.list(0, bytes.len()));
        flat.a.device.post_send(flat.a_qp, &[in_one]).unwrap();
        pair.a.device.post_send(pair.a_qp, &[SendWr::new(1, op, list)]).unwrap();
        let sent = [&mut flat, &mut pair].map(|pair| {
            while pair.a.device.progress(0) > 0 {}
            std::mem::take(&mut pair.a.device.link_mut().sent)
        });
        assert!(sent[0] == sent[1], "{what}");
        pair.b.recv(pair.b_qp, 1, 0, bytes.len());
        pair.deliver(sent[1].clone());
        assert_eq!(pair.b.received(), [(1, bytes.len() as u32)], "{what}");
        assert!(pair.b.bytes(0, bytes.len()) == bytes, "{what}");
    }
}

#[test]
fn gathered_messages_wait_in_the_queue_and_go_out_in_turns_as_they_were_posted() {
    for seed in 0..30 {
        let mut prng = Prng::new(seed);
        let mut pair = Pair::uc(Mtu::Mtu4096);
        let mut expected = Vec::new();
        for round in 0..6 {
            // Some wait while others are posted, so that their lists lie all over the queue.
            for wr_id in 0..prng.below(20) {
                let (list, bytes) = gathered(&mut pair.a, &mut prng);
                let wr = SendWr::new(round * 100 + wr_id, SendOp::Send, list);
                pair.a.device.post_send(pair.a_qp, &[wr]).unwrap();
                expected.push(bytes);
            }
            pair.a.device.link_mut().room = prng.below(60) as usize;
            while pair.a.device.progress(0) > 0 {}
        }
        pair.a.device.link_mut().room = usize::MAX;
        while pair.a.device.progress(0) > 0 {}
        let mut sent = std::mem::take(&mut pair.a.device.link_mut().sent).into_iter();
        for bytes in &expected {
            pair.b.recv(pair.b_qp, 1, 0, bytes.len());
            let packets = bytes.len().div_ceil(4096).max(1);
            pair.deliver(sent.by_ref().take(packets));
            assert_eq!(pair.b.received(), [(1, bytes.len() as u32)], "seed {seed}");
            assert!(pair.b.bytes(0, bytes.len()) == *bytes, "seed {seed}");
        }
        assert!(sent.next().is_none(), "seed {seed}");
    }
}

#[test]
fn on_rc_what_is_lost_of_a_gathered_message_is_gathered_again() {
    for (seed, mtu) in (0..8).flat_map(|seed| Mtu::ALL.map(|mtu| (seed, mtu))) {
        let mut pair = RcPair::with(Setup { mtu, seed, ..Setup::default() });
        pair.faults = Faults { loss: 0.03, duplication: 0.02, reorder: 0.02 };
        let mut prng = Prng::new(seed);
        for wr_id in 0..6 {
            let (list, bytes) = gathered(&mut pair.ends[A], &mut prng);
            pair.recv(B, wr_id, 0, bytes.len());
            let wr = SendWr::new(wr_id, SendOp::Send, list);
            pair.ends[A].device.post_send(pair.qp(A), &[wr]).unwrap();
            pair.run();
            let done = pair.completions(B);
            assert_eq!(done.len(), 1, "seed {seed}, MTU {mtu}");
            assert_eq!(done[0].byte_len as usize, bytes.len(), "seed {seed}, MTU {mtu}");
            assert!(pair.bytes(B, 0, bytes.len()) == bytes, "seed {seed}, MTU {mtu}");
        }
        assert_eq!(pair.completions(A).len(), 6, "seed {seed}, MTU {mtu}");
    }
}
