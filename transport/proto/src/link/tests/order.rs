//! Paths that bring chunks in another order than that in which they were sent.

use super::paths::{EACH, send};
use super::wire::{Faults, Wire};
use super::*;

fn run(seed: u64, paths: u32, jitter: u64, faults: Faults) -> Wire {
    println!("seed {seed}, {paths} paths, {jitter} ns");
    let tune = |config: LinkConfig| config.seed(seed).source_ports(16).spreading(EACH);
    let mut wire = Wire::with_paths(seed, faults, paths, tune);
    let channel = wire.open_channel(0, true);
    wire.jitter = jitter;
    send(&mut wire, channel, 0..64, 64 << 10);
    wire.run_until(Wire::settled);
    assert_eq!(wire.ends[1].received.len(), 64);
    wire.check_clean();
    wire
}

#[test]
fn disorder_alone_moves_no_path_and_costs_few_chunks() {
    for paths in [1, 4] {
        for jitter in [20_000, 200_000, 3_000_000] {
            for seed in 0..4 {
                let wire = run(seed, paths, jitter, Faults::default());
                for end in &wire.ends {
                    let stats = end.link.stats();
                    let moves = (stats.path_moves, stats.path_retirements);
                    assert_eq!(moves, (0, 0), "{stats:?}");
                }
                let stats = wire.ends[0].link.stats();
                let again = stats.bytes_retransmitted as f64 / stats.bytes_sent as f64;
                assert!(again < 0.25, "{again}: {stats:?}");
            }
        }
    }
}

#[test]
fn with_loss_beside_disorder_everything_arrives() {
    let faults = Faults { drop: 0.02, duplicate: 0.02, corrupt: 0.01, late: 0.05 };
    for seed in 0..12 {
        run(seed, 1 + seed as u32 % 3, [1_000_000, 20_000][seed as usize % 2], faults);
    }
}

#[test]
fn when_a_path_is_in_order_again_losses_are_found_by_gaps_at_once() {
    let mut wire = run(1, 1, 200_000, Faults::default());
    let channel = wire.ends[0].channels[0];
    wire.jitter = 0;
    send(&mut wire, channel, 100..2_500, 4_000);
    wire.run_until(Wire::settled);
    let before = wire.ends[0].link.stats();
    wire.faults.drop = 0.1;
    send(&mut wire, channel, 3_000..4_000, 4_000);
    wire.run_until(Wire::settled);
    let stats = wire.ends[0].link.stats();
    assert!(stats.losses_by_gap > before.losses_by_gap + 5);
    assert!(stats.rtos <= before.rtos + 4, "{stats:?}");
}
