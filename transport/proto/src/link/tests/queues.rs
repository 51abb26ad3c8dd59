//! Queues on paths: what a link keeps waiting there.

use super::paths::EACH;
use super::wire::{Faults, Wire};
use super::*;
use crate::config::Spreading;

const SPAN: Nanos = Nanos::from_millis(100);

/// What was seen in the second half of twice [`SPAN`].
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Seen {
    window_bytes: u64,
    mean_waits_us: Vec<u64>,
    chunks: Vec<u64>,
    mb_per_s: u64,
}

/// A link that always has something to send, on paths where a byte takes so many ns.
fn queues_of(seed: u64, noise: Nanos, spreading: Spreading, byte_ns: &[u64]) -> Seen {
    let tune = |config: LinkConfig| config.spreading(spreading).seed(seed).delay_noise(noise);
    let mut wire = Wire::with_paths(seed, Faults::default(), byte_ns.len() as u32, tune);
    wire.byte_ns[..byte_ns.len()].copy_from_slice(byte_ns);
    let channel = wire.open_channel(0, false);
    let (mut token, start) = (0, wire.now);
    for end in [start + SPAN, start + SPAN + SPAN] {
        wire.ends[1].received.clear();
        wire.queues.iter_mut().for_each(|queue| (queue.1, queue.2) = (0, 0));
        while wire.now < end {
            while wire.ends[0].sending.len() < 24 {
                wire.ends[0].send(channel, token, vec![1; 60_000], Time::NEVER);
                token += 1;
            }
            wire.run_until(|wire| wire.ends[0].sending.len() < 24);
        }
    }
    let queues = &wire.queues[..byte_ns.len()];
    let bytes: usize = wire.ends[1].received.iter().map(Vec::len).sum();
    Seen {
        window_bytes: wire.ends[0].link.window_bytes(),
        mean_waits_us: queues.iter().map(|queue| queue.1 / queue.2.max(1) / 1_000).collect(),
        chunks: queues.iter().map(|queue| queue.2).collect(),
        mb_per_s: bytes as u64 * 1_000 / SPAN.0,
    }
}

#[test]
#[ignore = "a table to look at"]
fn table_of_what_waits_on_two_paths_beside_what_waits_on_one() {
    let noise = Nanos::from_micros(200);
    for seed in 1..=3 {
        for spreading in [Spreading::default(), EACH, Spreading::Message] {
            for byte_ns in [&[1][..], &[1, 1], &[1, 2], &[1, 8]] {
                let seen = queues_of(seed, noise, spreading, byte_ns);
                println!("seed {seed} {spreading:?} {byte_ns:?}: {seen:?}");
            }
        }
    }
}
