//! Either end is killed in the middle of a transfer.

use crate::census::Census;
use crate::talker::Talker;
use crate::{open, pair};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use towpath_base::Nanos;
use towpath_transport::DownReason;

/// What the other process does: `listen`, or `dial ADDRESS`.
const PART: &str = "TOWPATH_PEER_PART";

/// What it prints before the address where it listens.
const ADDRESS: &str = "listening on ";

/// Messages received before the peer is killed: both directions are busy then.
const MESSAGES: u64 = 30;

/// This program once more, as the peer.
fn peer(part: &str) -> Child {
    let program = std::env::current_exe().expect("it runs");
    Command::new(program)
        .args(["--ignored", "--exact", "--nocapture", "killed::half"])
        .env(PART, part)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts again")
}

fn address_of(peer: &mut Child) -> SocketAddr {
    let stdout = peer.stdout.take().expect("it is piped");
    let lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let found = lines.filter_map(|line| Some(line.split_once(ADDRESS)?.1.to_owned())).next();
    found.expect("the peer says where it listens").parse().expect("an address")
}

/// Kills the peer that `start` starts, in the middle of a transfer.
fn survives(start: impl FnOnce(&mut Talker) -> Child) {
    let [near, far] = pair();
    let before = Census::take();
    let mut survivor = Talker::new(open(&near));
    let alone = Census::take();
    let buffers = survivor.endpoint.buffers();
    let mut peer = start(&mut survivor);
    survivor.run_until("messages come", |counts| counts.received >= MESSAGES);
    let busy = Census::take();
    assert!(busy.of(&near, "qp") > alone.of(&near, "qp"), "{busy:?}");
    assert!(busy.of(&far, "mr") > before.of(&far, "mr"), "{busy:?}");

    // Stopped first: what it has answered by then is taken in, and what is sent now waits for it.
    kill_process(Pid::from_child(&peer), Signal::STOP).expect("it runs");
    for _ in 0..20 {
        survivor.turn();
        survivor.endpoint.wait(Nanos::from_millis(1));
    }
    peer.kill().expect("it runs");
    peer.wait().expect("it ends");
    drop(peer);
    survivor.run_until("the link is down", |counts| counts.down.is_some());
    let counts = survivor.counts.clone();
    println!("{counts:?}");
    assert_eq!(counts.down, Some(DownReason::PeerGone));
    assert!(counts.delivered > 0 && counts.failed > 0, "it was in the middle: {counts:?}");
    assert_eq!(counts.sent, counts.delivered + counts.failed, "each has its outcome");
    // A few turns to take back what the queue pairs flushed.
    for _ in 0..10 {
        survivor.turn();
    }
    let left = survivor.endpoint.buffers();
    assert_eq!((left.send_free, left.recv_posted), (buffers.send_all, 0), "{left:?}");
    assert_eq!(left.recv_free, left.recv_all, "no link holds any: {left:?}");
    let after = Census::take();
    for kind in ["qp", "cq", "srq"] {
        assert_eq!(after.of(&near, kind), alone.of(&near, kind), "{kind}: {after:?}");
    }
    drop(survivor);
    before.comes_back();
}

#[test]
#[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
fn who_listened_survives_the_death_of_who_dialled() {
    survives(|survivor| {
        let addr = survivor.listen();
        peer(&format!("dial {addr}"))
    });
}

#[test]
#[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
fn who_dialled_survives_the_death_of_who_listened() {
    survives(|survivor| {
        let mut peer = peer("listen");
        survivor.dial(address_of(&mut peer));
        peer
    });
}

/// Not a test of its own: the process that is killed.
#[test]
#[ignore = "the other half of the tests here"]
fn half() {
    let part = std::env::var(PART).expect("another test starts this one");
    let [_, far] = pair();
    let mut talker = Talker::new(open(&far));
    match part.strip_prefix("dial ") {
        Some(addr) => talker.dial(addr.parse().expect("an address")),
        None => println!("{ADDRESS}{}", talker.listen()),
    }
    talker.run_until("it is killed", |counts| counts.down.is_some());
}
