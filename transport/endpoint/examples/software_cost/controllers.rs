//! What a congestion controller's decision costs.

use std::hint::black_box;
use std::time::Instant;
use towpath_base::{Nanos, Time};
use towpath_cc::{AckSample, Controller, ControllerConfig, PathFacts};

const DECISIONS: u64 = 100_000;

/// For each algorithm at its defaults: nanoseconds from an ack's sample to a window and a rate,
/// round by round.
pub(crate) fn decisions(rounds: usize) -> Vec<(&'static str, Vec<f64>)> {
    let of = |name: &'static str| {
        let config: ControllerConfig = name.parse().expect("its own name");
        (name, (0..rounds).map(|_| round(&config)).collect())
    };
    ControllerConfig::NAMES.into_iter().map(of).collect()
}

fn round(config: &ControllerConfig) -> f64 {
    let mut controller = config.build(Time::ZERO, &PathFacts::default());
    let start = Instant::now();
    for step in 0..DECISIONS {
        // Delays that wander about a target of tens of microseconds, so that windows move.
        let rtt = Nanos(20_000 + step * 7_919 % 40_000);
        controller.on_ack(black_box(&AckSample {
            now: Time(step * 5_000),
            rtt: Some(rtt),
            endpoint: Nanos(500),
            acked_bytes: 57_344,
            acked_chunks: 1,
            in_flight_bytes: controller.window_bytes(),
            window_limited: true,
            chunk_bytes: 57_344,
        }));
        black_box((controller.window_bytes(), controller.pacing_rate()));
    }
    start.elapsed().as_nanos() as f64 / DECISIONS as f64
}
