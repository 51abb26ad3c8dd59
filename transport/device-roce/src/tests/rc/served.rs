//! What the peer of a queue pair did to memory here is counted, whatever the wire does.

use super::loss::{faulty, some_faults};
use super::*;

fn counted(pair: &RcPair, side: usize) -> Served {
    pair.ends[side].device.served(pair.qp(side)).expect("an RC queue pair")
}

/// What READs, WRITEs and atomics should come to.
#[derive(Default)]
struct Asked {
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    atomics: u64,
}

impl Asked {
    /// Posts anything on A.
    fn post(&mut self, pair: &mut RcPair, wr_id: u64) {
        let len = pair.rng.below(6000) as usize;
        let (at, remote) = (wr_id as usize % 8 * 8192, pair.remote(64));
        let word = SendOp::FetchAdd { remote, add: 1 };
        let (op, len) = match pair.rng.below(5) {
            0 => (SendOp::Read { remote }, len),
            1 => (SendOp::Write { remote }, len),
            2 => (word, 8),
            3 => (SendOp::CmpSwap { remote, compare: 1, swap: 2 }, 8),
            _ => (SendOp::Send, len),
        };
        match op {
            SendOp::Read { .. } => self.read_bytes += len as u64,
            SendOp::Write { .. } => {
                self.writes += 1;
                self.write_bytes += len as u64;
            }
            SendOp::Send => pair.recv(B, wr_id, 100_000, 6000),
            _ => self.atomics += 1,
        }
        pair.post(wr_id, op, at, len);
    }
}

#[test]
fn what_is_done_is_counted_once_and_reads_as_often_as_they_are_answered() {
    let mut again = 0;
    for seed in 0..12 {
        for faults in some_faults() {
            let mut pair = faulty(seed, faults, 32);
            let mut asked = Asked::default();
            for wr_id in 0..60 {
                asked.post(&mut pair, wr_id);
            }
            pair.run();
            assert!(pair.ends_of(A).iter().all(|end| end.1 == OK));
            let served = counted(&pair, B);
            assert_eq!(served.read_bytes - served.read_again_bytes, asked.read_bytes);
            let writes = (served.writes, served.write_bytes, served.atomics);
            assert_eq!(writes, (asked.writes, asked.write_bytes, asked.atomics));
            // What was counted is what went out.
            let answers = pair.log.iter().filter(|packet| is_read_response(packet));
            let sent: usize = answers.map(|packet| packet.payload.len()).sum();
            assert_eq!(served.read_bytes, sent as u64, "seed {seed}");
            assert_eq!(counted(&pair, A), Served::default(), "nobody asked of A");
            again += served.reads_again;
        }
    }
    assert!(again > 100, "{again} READs were answered again");
}

fn is_read_response(packet: &PacketRepr) -> bool {
    // RC RDMA READ response: First, Middle, Last, Only.
    (0x0d..=0x10).contains(&packet.bth.opcode)
}

#[test]
fn duplicates_are_counted_where_they_are_served_again() {
    let mut pair = RcPair::new();
    pair.post(1, SendOp::Write { remote: pair.remote(0) }, 2000, 300);
    pair.post(2, SendOp::FetchAdd { remote: pair.remote(64), add: 5 }, 0, 8);
    pair.post(3, SendOp::Read { remote: pair.remote(0) }, 8, 600);
    let requests = pair.take(A);
    pair.give(B, requests.clone());
    pair.take(B);
    let once = Served {
        reads: 1,
        read_bytes: 600,
        writes: 1,
        write_bytes: 300,
        atomics: 1,
        ..Served::default()
    };
    assert_eq!(counted(&pair, B), once);
    pair.give(B, requests.clone());
    pair.take(B);
    let twice =
        Served { reads: 2, read_bytes: 1200, reads_again: 1, read_again_bytes: 600, ..once };
    assert_eq!(counted(&pair, B), twice);
    // Nothing of the answer has gone out when it is asked for again: it is given once.
    let mut pair = RcPair::new();
    pair.post(1, SendOp::Read { remote: pair.remote(0) }, 8, 600);
    let request = pair.take(A).remove(0);
    let link = pair.ends[B].device.link_mut();
    link.coming.extend([request.clone(), request]);
    pair.ends[B].device.progress(64);
    pair.take(B);
    let once = Served { reads: 1, read_bytes: 600, ..Served::default() };
    assert_eq!(counted(&pair, B), once);
}

#[test]
fn what_is_refused_is_not_counted() {
    let closed = [
        |remote| SendOp::Read { remote },
        |remote| SendOp::Write { remote },
        |remote| SendOp::FetchAdd { remote, add: 1 },
    ];
    for op in closed {
        let mut pair = RcPair::new();
        let wrong = RemoteAddr { rkey: pair.remote(0).rkey ^ 1, ..pair.remote(0) };
        pair.post(1, op(wrong), 0, 8);
        pair.run();
        assert_eq!(pair.ends_of(A), [(1, WcStatus::RemAccessErr)]);
        assert_eq!(counted(&pair, B), Served::default());
    }
}

#[test]
fn counts_outlive_errors_and_connections_and_go_with_the_queue_pair() {
    let mut pair = RcPair::new();
    let write = |pair: &mut RcPair| {
        pair.post(1, SendOp::Write { remote: pair.remote(0) }, 0, 1000);
        let packets = pair.take(A);
        // The end of the message is lost.
        pair.give(B, packets.into_iter().take(3));
    };
    write(&mut pair);
    let half = Served { write_bytes: 3 * 256, ..Served::default() };
    assert_eq!(counted(&pair, B), half, "bytes that landed");
    let qp = pair.qp(B);
    pair.ends[B].device.modify_qp(qp, QpState::Err).unwrap();
    assert_eq!(counted(&pair, B), half);
    lives::reset_both(&mut pair, RcAttr::default());
    assert_eq!(counted(&pair, B), half);
    write(&mut pair);
    assert_eq!(counted(&pair, B), Served { write_bytes: 6 * 256, ..Served::default() });
    pair.ends[B].device.destroy_qp(qp).unwrap();
    assert_eq!(pair.ends[B].device.served(qp), None);
}
