//! What loss, duplication and reordering must not change.

use super::*;

const SEEDS: u64 = 12;

pub(super) fn faulty(seed: u64, faults: Faults, window: u32) -> RcPair {
    let attr = RcAttr { max_rd_atomic: 4, max_dest_rd_atomic: 4, ..RcAttr::default() };
    let mut pair = RcPair::with(Setup { seed, window, attr, ..Setup::default() });
    pair.faults = faults;
    pair
}

/// What went wrong on the way, so that a test knows that it tested something.
#[derive(Default)]
struct Trouble {
    retransmitted: u64,
    duplicates: u64,
    gaps: u64,
}

impl Trouble {
    fn note(&mut self, pair: &RcPair) {
        self.retransmitted += pair.counters(A).retransmitted;
        self.duplicates += pair.counters(B).duplicates;
        self.gaps += pair.counters(B).psn_mismatch + pair.counters(A).go_backs;
    }

    fn assert_happened(&self) {
        let least = self.retransmitted.min(self.duplicates).min(self.gaps);
        assert!(least > 100, "{} {} {}", self.retransmitted, self.duplicates, self.gaps);
    }
}

/// Faults such that seven retries without progress are out of reach.
pub(super) fn some_faults() -> [Faults; 4] {
    let none = Faults::default();
    [
        Faults { loss: 0.05, ..none },
        Faults { duplication: 0.2, ..none },
        Faults { reorder: 0.1, ..none },
        Faults { loss: 0.03, duplication: 0.1, reorder: 0.05 },
    ]
}

#[test]
fn every_message_arrives_once_whole_and_in_order_whatever_the_wire_does() {
    let mut trouble = Trouble::default();
    for seed in 0..SEEDS {
        for faults in some_faults() {
            let mut pair = faulty(seed, faults, 16);
            let mut expected = Vec::new();
            for i in 0..40u64 {
                let len = pair.rng.below(1500) as usize;
                let at = i as usize * 1500;
                let bytes: Vec<u8> = (0..len).map(|_| pair.rng.next_u32() as u8).collect();
                pair.ends[A].memory.write(at, &bytes).unwrap();
                let op = match i % 3 {
                    0 => SendOp::SendWithImm { imm_data: i as u32 },
                    1 => SendOp::Send,
                    _ => {
                        let remote = pair.remote(100_000 + at);
                        SendOp::WriteWithImm { remote, imm_data: i as u32 }
                    }
                };
                pair.recv(B, i, at, 1500);
                pair.post(i, op, at, len);
                expected.push((i, len as u32, bytes));
            }
            pair.run();
            let received = pair.ends[B].received();
            let lengths: Vec<_> = expected.iter().map(|(id, len, _)| (*id, *len)).collect();
            assert_eq!(received, lengths);
            assert_eq!(pair.ends_of(A), (0..40).map(|id| (id, OK)).collect::<Vec<_>>());
            for (id, len, bytes) in expected {
                let shift = if id % 3 == 2 { 100_000 } else { 0 };
                let at = id as usize * 1500 + shift;
                assert_eq!(pair.bytes(B, at, len as usize), bytes, "message {id}");
            }
            trouble.note(&pair);
        }
    }
    trouble.assert_happened();
}

#[test]
fn reads_land_whole_under_loss_and_their_requests_go_back_only_as_far_as_needed() {
    let mut trouble = Trouble::default();
    for seed in 0..SEEDS {
        for faults in some_faults() {
            let mut pair = faulty(seed, faults, 32);
            pair.ends[B].memory.write(0, &pattern(120_000)).unwrap();
            let mut at = 0;
            for i in 0..20 {
                let len = pair.rng.below(6000) as usize;
                let remote = pair.remote(at);
                pair.post(i, SendOp::Read { remote }, at, len);
                at += len;
            }
            pair.run();
            assert_eq!(pair.ends_of(A), (0..20).map(|id| (id, OK)).collect::<Vec<_>>());
            assert_eq!(pair.bytes(A, 0, at), pattern(120_000)[..at]);
            trouble.note(&pair);
        }
    }
    trouble.assert_happened();
}

#[test]
fn atomics_are_done_exactly_once_under_duplicated_and_lost_packets() {
    let mut trouble = Trouble::default();
    for seed in 0..SEEDS {
        for faults in some_faults() {
            let mut pair = faulty(seed, faults, 16);
            let count = 200u64;
            for i in 0..count {
                let at = i as usize * 8;
                let remote = pair.remote(if i % 2 == 0 { 0 } else { 8 });
                let op = if i % 2 == 0 {
                    SendOp::FetchAdd { remote, add: 1 }
                } else {
                    // Each succeeds only if the one before it was done, and once.
                    SendOp::CmpSwap { remote, compare: i / 2, swap: i / 2 + 1 }
                };
                pair.post(i, op, at, 8);
            }
            pair.run();
            assert_eq!(pair.ends_of(A).len() as u64, count);
            let word = |side, at| u64::from_ne_bytes(pair.bytes(side, at, 8).try_into().unwrap());
            assert_eq!((word(B, 0), word(B, 8)), (count / 2, count / 2));
            for i in 0..count {
                assert_eq!(word(A, i as usize * 8), i / 2, "what atomic {i} fetched");
            }
            trouble.note(&pair);
        }
    }
    trouble.assert_happened();
}

#[test]
fn every_kind_of_request_mixed_with_every_fault_keeps_order_and_content() {
    for seed in 0..SEEDS * 2 {
        let faults = Faults { loss: 0.04, duplication: 0.1, reorder: 0.1 };
        let mut pair = faulty(seed, faults, [3, 8, 64][seed as usize % 3]);
        pair.fill(0, 60_000);
        pair.ends[B].memory.write(60_000, &pattern(4000)).unwrap();
        let mut sends = Vec::new();
        for i in 0..120u64 {
            let len = pair.rng.below(2000) as usize;
            match pair.rng.below(4) {
                0 => {
                    pair.recv(B, i, 70_000, 2000);
                    sends.push((i, len as u32));
                    pair.post(i, SendOp::Send, 0, len);
                }
                1 => pair.post(i, SendOp::Write { remote: pair.remote(80_000) }, 0, len),
                2 => pair.post(i, SendOp::Read { remote: pair.remote(60_000) }, 100_000, len),
                _ => {
                    let remote = pair.remote(90_000);
                    pair.post(i, SendOp::FetchAdd { remote, add: 1 << (i % 8) }, 110_000, 8);
                }
            }
        }
        pair.run();
        assert_eq!(pair.ends_of(A), (0..120).map(|id| (id, OK)).collect::<Vec<_>>());
        assert_eq!(pair.ends[B].received(), sends);
        assert_eq!([A, B].map(|side| pair.state(side)), [QpState::Rts; 2]);
        assert_eq!(pair.counters(A).bad_answers, 0);
    }
}

#[test]
fn both_directions_at_once_do_not_disturb_each_other() {
    for seed in 0..SEEDS {
        let mut pair = faulty(seed, Faults { loss: 0.05, duplication: 0.05, reorder: 0.0 }, 16);
        pair.fill(0, 4000);
        pair.ends[B].memory.write(0, &pattern(4000)).unwrap();
        for i in 0..30 {
            for side in [A, B] {
                let remote = pair.ends[1 - side].remote(10_000);
                let list = pair.ends[side].list(0, 3000);
                let write = SendWr::new(i, SendOp::Write { remote }, list);
                let from = pair.ends[1 - side].remote(0);
                let list = pair.ends[side].list(20_000, 3000);
                let read = SendWr::new(100 + i, SendOp::Read { remote: from }, list);
                let qp = pair.qps[side];
                pair.ends[side].device.post_send(qp, &[write, read]).unwrap();
            }
        }
        pair.run();
        for side in [A, B] {
            assert_eq!(pair.ends_of(side).len(), 60);
            assert_eq!(pair.bytes(side, 10_000, 3000), pattern(3000));
            assert_eq!(pair.bytes(side, 20_000, 3000), pattern(3000));
        }
    }
}

#[test]
fn a_link_that_takes_few_packets_at_a_time_loses_none_of_any_kind() {
    let mut pair = faulty(3, Faults::default(), 64);
    pair.ends[B].memory.write(0, &pattern(9000)).unwrap();
    for i in 0..60u64 {
        let remote = pair.remote(0);
        match i % 3 {
            0 => pair.post(i, SendOp::Read { remote }, 20_000, 9000),
            1 => pair.post(i, SendOp::Write { remote: pair.remote(30_000) }, 20_000, 5000),
            _ => pair.post(i, SendOp::FetchAdd { remote: pair.remote(50_000), add: 1 }, 0, 8),
        }
    }
    for _ in 0..100_000 {
        for side in [A, B] {
            pair.ends[side].device.link_mut().room = pair.rng.below(4) as usize;
            pair.ends[side].device.progress(64);
            let sent = std::mem::take(&mut pair.ends[side].device.link_mut().sent);
            pair.ends[1 - side].device.link_mut().coming.extend(sent);
        }
    }
    assert_eq!(pair.ends_of(A), (0..60).map(|id| (id, OK)).collect::<Vec<_>>());
    assert_eq!(pair.bytes(A, 20_000, 9000), pattern(9000));
    let word = u64::from_ne_bytes(pair.bytes(B, 50_000, 8).try_into().unwrap());
    assert_eq!(word, 20);
    assert_eq!(pair.counters(A).retransmitted + pair.counters(A).go_backs, 0);
}
