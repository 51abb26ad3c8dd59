//! A stream over an ordinary wire that loses or reorders packets: how much of its rate is left.

use towpath_base::{Nanos, Prng, Time};
use towpath_lab::app::Planned;
use towpath_lab::pair::{Happening, Pair, PairConfig};
use towpath_sim::{FaultPlan, LinkConfig};
use towpath_transport::EndpointConfig;
use towpath_verbs::Mtu;

/// What a wire is like, and who sends over it.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    mtu: Mtu,
    paths: usize,
    mbit: u64,
    base_rtt: Nanos,
    /// Each host is away for up to this long at a time, a third of the time.
    away: Nanos,
    faults: FaultPlan,
}

const MESSAGE_BYTES: u32 = 64 << 10;
const DEPTH: usize = 32;

/// What a device declares that sends packets through the sockets of a kernel.
const DELAY_NOISE: Nanos = Nanos::from_millis(5);

/// What came in a second, as a share of the wire, payload only; and what is told of it.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Seen {
    of_wire: f64,
    again: f64,
    spurious: f64,
    rtos: u64,
    probes: u64,
    chunk_bytes: f64,
    windows_kb: Vec<u64>,
    moves: u64,
    carrier_falls: u64,
}

fn run(plan: &Plan) -> Seen {
    let wire = LinkConfig {
        rate_bits_per_s: plan.mbit * 1_000_000,
        delay: Nanos(plan.base_rtt.0 / 2),
        queue_bytes: 1 << 20,
        rx_buffer_bytes: 4 << 20,
        source_ports: 64,
        ..LinkConfig::default()
    };
    let endpoint = EndpointConfig::new()
        .mtu_max(plan.mtu)
        .links_max(1)
        .paths(plan.paths)
        .send_pools(&[(MESSAGE_BYTES as usize, DEPTH + 1)])
        .tune_links(|link| link.delay_noise(DELAY_NOISE));
    let (seed, pause) = (plan.seed, Nanos::from_micros(5));
    let mut pair = Pair::new(PairConfig { seed, wire, spines: 0, endpoint, pause }).unwrap();
    pair.join().unwrap();
    let link = pair.link(0).unwrap();
    pair.host_mut(0).endpoint.open_channel(link, false).unwrap();
    pair.run_until("open", |pair| (0..2).all(|h| pair.host(h).app.channels().len() == 1)).unwrap();
    for host in 0..2 {
        pair.host(host).control.set_receive(plan.faults.clone());
    }
    let planned = Planned {
        at: Time::ZERO,
        channel: 0,
        len: MESSAGE_BYTES,
        segments: 1,
        cancel_after: None,
        deadline_after: None,
    };
    let all = plan.mbit * 1_500_000 / 8 / u64::from(MESSAGE_BYTES);
    pair.host_mut(0).app.perform(core::iter::repeat_n(planned, all as usize), DEPTH);
    stall(plan, &mut pair);
    pair.run_for(Nanos::from_millis(100)).unwrap();
    let stats = |pair: &Pair| pair.host(0).endpoint.stats(link).unwrap();
    let begin = (pair.oracle.bytes_delivered(), stats(&pair));
    let mut windows_kb = Vec::new();
    for _ in 0..10 {
        pair.run_for(Nanos::from_millis(50)).unwrap();
        windows_kb.push(pair.host(0).endpoint.congestion_window_bytes(link).unwrap_or(0) / 1_000);
    }
    let (bytes, after) = (pair.oracle.bytes_delivered() - begin.0, stats(&pair));
    let sent = (after.chunks_sent - begin.1.chunks_sent) as f64;
    let again = (after.chunks_retransmitted - begin.1.chunks_retransmitted) as f64;
    Seen {
        of_wire: bytes as f64 * 8.0 / 0.5 / (plan.mbit as f64 * 1e6),
        again: again / sent,
        spurious: (after.losses_spurious - begin.1.losses_spurious) as f64 / sent,
        rtos: after.rtos - begin.1.rtos,
        probes: after.tail_probes - begin.1.tail_probes,
        chunk_bytes: (after.bytes_sent - begin.1.bytes_sent) as f64 / sent,
        windows_kb,
        moves: after.path_moves,
        carrier_falls: after.carrier_falls,
    }
}

/// Lets hosts be away for a second.
fn stall(plan: &Plan, pair: &mut Pair) {
    let mut prng = Prng::new(plan.seed);
    for host in 0..2 {
        let mut at = pair.world().now();
        let end = at + Nanos::from_secs(1);
        while plan.away > Nanos::ZERO && at < end {
            let span = Nanos(prng.between(plan.away.0 / 10, plan.away.0));
            at += Nanos(span.0 * prng.between(10, 30) / 10);
            pair.schedule(at, host, Happening::Stall(at + span));
            at += span;
        }
    }
}

/// A wire of 1 Gb/s with an ordinary MTU.
fn plan(seed: u64, paths: usize, base_rtt: Nanos, faults: FaultPlan) -> Plan {
    let (mtu, mbit, away) = (Mtu::Mtu1024, 1_000, Nanos::ZERO);
    Plan { seed, mtu, paths, mbit, base_rtt, away, faults }
}

/// Of frames, each way, as `towpath-lossy --reorder` does it.
fn reordered(share: f64) -> FaultPlan {
    FaultPlan::none().reorder(share, 5, Nanos::from_millis(10))
}

const NEAR: Nanos = Nanos::from_micros(100);
const FAR: Nanos = Nanos::from_millis(2);

/// Runs seeds on one path and on four, near and far; prints what was seen.
fn each(seeds: core::ops::Range<u64>, faults: &FaultPlan, check: impl Fn(&Seen)) {
    for seed in seeds {
        for (paths, base_rtt) in [(1, NEAR), (4, NEAR), (1, FAR), (4, FAR)] {
            let seen = run(&plan(seed, paths, base_rtt, faults.clone()));
            println!("seed {seed}, {paths} paths, {base_rtt:?}: {seen:?}");
            check(&seen);
        }
    }
}

#[test]
fn a_stream_over_a_wire_that_reorders_a_little_goes_in_chunks_of_one_packet_and_loses_none() {
    each(1..3, &reordered(0.05), |seen| {
        assert!(seen.of_wire > 0.8 && seen.again < 0.01 && seen.chunk_bytes < 1_024.0, "{seen:?}");
    });
}

#[test]
fn a_stream_keeps_most_of_any_wire_that_reorders() {
    let mut prng = Prng::new(7);
    for _ in 0..4 {
        // From a thousandth to a quarter.
        let share = 0.25 * 0.004f64.powf(prng.unit());
        println!("{share:.4} of packets");
        each(3..4, &reordered(share), |seen| assert!(seen.of_wire > 0.75, "{seen:?}"));
    }
}

#[test]
#[ignore = "a table to look at"]
fn table_of_bad_wires() {
    let none = FaultPlan::none;
    let late = Nanos::from_millis(10);
    let faults = [
        ("clean", none()),
        ("reorder 5 %", none().reorder(0.05, 5, late)),
        ("reorder 30 %", none().reorder(0.3, 5, late)),
        ("lost 1 %", none().drop(0.01)),
        ("lost 5 %", none().drop(0.05)),
        ("lost 15 %", none().drop(0.15)),
        ("lost 25 %", none().drop(0.25)),
    ];
    let far = Nanos::from_millis(2);
    let near = Nanos::from_micros(100);
    for (base_rtt, away) in [(near, Nanos::ZERO), (near, Nanos::from_millis(3)), (far, Nanos::ZERO)]
    {
        for paths in [1, 4] {
            for (name, faults) in &faults {
                let (seed, mtu, mbit) = (1, Mtu::Mtu1024, 1_000);
                let faults = faults.clone();
                let plan = Plan { seed, mtu, paths, mbit, base_rtt, away, faults };
                println!("{base_rtt:?}, away {away:?}, {paths} paths, {name}: {:?}", run(&plan));
            }
        }
    }
}
