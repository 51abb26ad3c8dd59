//! Memory that goes, links that stall and queue pairs that start anew, at the worst moment.

use super::*;

/// Gives A memory of its own for one work request: its keys, and the list of it.
fn lend(pair: &mut RcPair, len: u32) -> (MrKeys, SgList, Region) {
    let memory = Region::new(4096).unwrap();
    let keys = pair.ends[A].device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL).unwrap();
    let list = SgList::one(Sge { addr: memory.addr(), length: len, lkey: keys.lkey });
    (keys, list, memory)
}

#[test]
fn memory_that_is_gone_holds_nothing_up_that_the_link_did_not_take_at_first() {
    let mut pair = RcPair::new();
    let remote = pair.remote(0);
    let (keys, list, _memory) = lend(&mut pair, 300);
    pair.post(1, SendOp::Write { remote }, 0, 300);
    let wr = SendWr::new(2, SendOp::Write { remote }, list);
    pair.ends[A].device.post_send(pair.qp(A), &[wr]).unwrap();
    pair.ends[A].device.dereg_mr(keys.lkey).unwrap();
    pair.ends[A].device.link_mut().room = 1;
    pair.take(A);
    pair.ends[A].device.link_mut().room = usize::MAX;
    pair.run();
    assert_eq!(pair.ends_of(A), [(1, OK), (2, WcStatus::LocProtErr)]);
    assert_eq!(pair.counters(A).ack_timeouts, 0, "nobody waited for what was not sent");
}

#[test]
fn any_number_of_queue_pairs_may_lose_their_memory_at_once() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut end = End::new("10.0.0.1:4791");
        let memory = Region::new(4096).unwrap();
        let keys = end.device.reg_mr(PdNum::DEFAULT, &memory, Access::LOCAL).unwrap();
        let list = SgList::one(Sge { addr: memory.addr(), length: 500, lkey: keys.lkey });
        let connect = Connect {
            path_mtu: Mtu::Mtu1024,
            ..connect_to("10.0.0.2:4791".parse().unwrap(), QpNum(17))
        };
        for _ in 0..500 {
            let init = QpInit::new(qp_type, end.cq).access(Access::REMOTE_ALL).depth(1, 1);
            let qp = end.device.create_qp(&init).unwrap();
            end.device.connect_qp(qp, &connect).unwrap();
            end.device.post_send(qp, &[SendWr::new(1, SendOp::Send, list)]).unwrap();
        }
        end.device.dereg_mr(keys.lkey).unwrap();
        end.device.progress(64);
        let completed = end.completions();
        assert_eq!(completed.len(), 500, "{qp_type:?}");
        assert!(completed.iter().all(|wc| wc.status == WcStatus::LocProtErr));
    }
}

/// A new life for both, on a wire where nothing of the former one is left.
pub(super) fn reset_both(pair: &mut RcPair, rc: RcAttr) {
    let mut connects = [(); 2].map(|()| Connect {
        dest: pair.ends[B].device.local_addr(),
        dest_qp_num: pair.qp(B),
        rq_psn: Psn::new(B_PSN),
        sq_psn: Psn::new(A_PSN),
        path_mtu: Mtu::Mtu256,
        source_port: 0,
        tclass: 0,
        rc,
    });
    (connects[B].dest, connects[B].dest_qp_num) = (pair.ends[A].device.local_addr(), pair.qp(A));
    (connects[B].rq_psn, connects[B].sq_psn) = (Psn::new(A_PSN), Psn::new(B_PSN));
    for side in [A, B] {
        let qp = pair.qp(side);
        pair.ends[side].device.modify_qp(qp, QpState::Reset).unwrap();
        pair.ends[side].device.modify_qp(qp, QpState::Init).unwrap();
        pair.ends[side].device.connect_qp(qp, &connects[side]).unwrap();
        pair.ends[side].device.link_mut().sent.clear();
        pair.ends[side].device.link_mut().coming.clear();
    }
}

/// An RC queue pair that no timer helps.
const PATIENT: RcAttr = RcAttr {
    timeout: 0,
    retry_cnt: 7,
    rnr_retry: 7,
    min_rnr_timer: 12,
    max_rd_atomic: 16,
    max_dest_rd_atomic: 16,
};

#[test]
fn a_queue_pair_that_starts_anew_has_not_gone_back_yet() {
    let mut pair = RcPair::new();
    let remote = pair.remote(0);
    for life in 0..2 {
        pair.post(1, SendOp::Write { remote }, 0, 256 * 4);
        let mut packets = pair.take(A);
        packets.remove(0);
        pair.give(B, packets);
        let naks = pair.take(B);
        pair.give(A, naks);
        assert_eq!(pair.take(A).len(), 4, "life {life}");
        reset_both(&mut pair, PATIENT);
    }
}

#[test]
fn a_queue_pair_that_starts_anew_has_nobody_to_wait_for() {
    let mut pair = RcPair::new();
    let remote = pair.remote(0);
    // A second RNR NAK for a request that is acknowledged right after it.
    pair.post(1, SendOp::Send, 0, 10);
    let request = pair.take(A);
    pair.give(B, request);
    let rnr_nak = pair.take(B);
    pair.give(A, rnr_nak.clone());
    pair.recv(B, 1, 0, 10);
    let due = pair.next_timeout();
    pair.advance_to(due);
    let again = pair.take(A);
    pair.give(B, again);
    let ack = pair.take(B);
    pair.give(A, rnr_nak);
    pair.give(A, ack);
    assert_eq!(pair.ends_of(A), [(1, OK)]);
    reset_both(&mut pair, PATIENT);
    pair.post(2, SendOp::Write { remote }, 0, 10);
    pair.run_now();
    assert_eq!(pair.ends_of(A), [(2, OK)]);
}

/// A pair to which anything happens, and what its present life has posted.
struct Chaos {
    pair: RcPair,
    rng: Prng,
    attr: RcAttr,
    next_wr_id: u64,
    posted: VecDeque<u64>,
    adds: u64,
    failed: bool,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut rng = Prng::new(seed);
        let attr = RcAttr {
            timeout: 3,
            retry_cnt: rng.below(8) as u8,
            min_rnr_timer: 1,
            max_rd_atomic: 1 + rng.below(4) as u8,
            max_dest_rd_atomic: 4,
            ..RcAttr::default()
        };
        let window = 1 + rng.below(20) as u32;
        let pair = RcPair::with(Setup { seed, attr, window, ..Setup::default() });
        let posted = VecDeque::new();
        Self { pair, rng, attr, next_wr_id: 0, posted, adds: 0, failed: false }
    }

    fn step(&mut self) {
        let faults = Faults { loss: 0.05, duplication: 0.05, reorder: 0.05 };
        self.pair.faults = if self.rng.chance(0.5) { faults } else { Faults::default() };
        match self.rng.below(12) {
            0..=4 => self.post(),
            5..=6 => self.post_recv(),
            7..=9 => {
                for side in [A, B] {
                    self.pair.ends[side].device.link_mut().room = self.rng.below(12) as usize;
                }
                self.pair.cross();
            }
            10 => {
                let due = self.pair.next_timeout();
                if due != Time::NEVER {
                    self.pair.advance_to(due);
                }
            }
            _ if self.rng.chance(0.1) => {
                reset_both(&mut self.pair, self.attr);
                self.pair.completions(A);
                self.pair.ends[B].memory.write(20_000, &[0; 8]).unwrap();
                self.posted.clear();
                (self.adds, self.failed) = (0, false);
            }
            _ => {}
        }
        self.settle();
    }

    fn post(&mut self) {
        let kind = self.rng.below(4);
        let op = match kind {
            0 => SendOp::Send,
            1 => SendOp::Write { remote: self.pair.remote(10_000) },
            2 => SendOp::Read { remote: self.pair.remote(0) },
            _ => SendOp::FetchAdd { remote: self.pair.remote(20_000), add: 1 },
        };
        let len = if kind == 3 { 8 } else { self.rng.below(1500) as usize };
        let mut wr = SendWr::new(self.next_wr_id, op, self.pair.ends[A].list(0, len));
        wr.flags.fence = self.rng.chance(0.1);
        let qp = self.pair.qp(A);
        if self.pair.ends[A].device.post_send(qp, &[wr]).is_ok() {
            self.posted.push_back(self.next_wr_id);
            self.adds += u64::from(kind == 3);
            self.next_wr_id += 1;
        }
    }

    fn post_recv(&mut self) {
        if self.pair.state(B) == QpState::Rts {
            self.pair.recv(B, 0, 30_000, 1500);
        }
    }

    fn settle(&mut self) {
        for wc in self.pair.completions(A) {
            assert_eq!(Some(wc.wr_id), self.posted.pop_front(), "once each, and in order");
            self.failed |= wc.status != OK;
            assert!(!self.failed || wc.status != OK, "nothing succeeds behind a failure");
        }
    }

    /// A good wire and receives enough, until nothing moves any more.
    fn finish(&mut self) {
        self.pair.faults = Faults::default();
        for side in [A, B] {
            self.pair.ends[side].device.link_mut().room = usize::MAX;
        }
        for _ in 0..200 {
            self.post_recv();
        }
        self.pair.run();
        self.settle();
    }
}

#[test]
fn whatever_happens_each_work_request_ends_once_in_order_and_atomics_are_done_once() {
    let (mut clean, mut failed) = (0, 0);
    for seed in 0..150 {
        let mut chaos = Chaos::new(seed);
        for _ in 0..200 {
            chaos.step();
        }
        chaos.finish();
        assert_eq!(chaos.posted, [], "everything ends");
        let word = u64::from_ne_bytes(chaos.pair.bytes(B, 20_000, 8).try_into().unwrap());
        if chaos.failed {
            failed += 1;
            assert!(word <= chaos.adds);
        } else {
            clean += 1;
            assert_eq!(word, chaos.adds);
        }
    }
    assert!(clean.min(failed) > 15, "{clean} without failure, {failed} with");
}
