//! What every controller must keep, whatever the samples: random operations from a seed.

use std::vec::Vec;

use towpath_base::{Nanos, Prng, Time};

use crate::limits::{WINDOW_BYTES_MAX, WINDOW_BYTES_MIN};
use crate::{AckSample, Controller, ControllerConfig, LossSample, PathFacts, Rate};

/// Seeds per algorithm and operations per seed; together they run well below a second.
const SEEDS: u64 = 300;
const OPERATIONS: usize = 400;

/// Swift at the far end of every setting.
const HASTY: &str = "swift:base=1us,endpoint=1us,scaling=1s,hops=64,hop=1s,increase=1600%";

/// One call of a [`Controller`].
#[derive(Clone, Copy, Debug)]
enum Operation {
    Ack(AckSample),
    Loss(LossSample),
    Rto(Time),
    Away(Nanos),
    PacketBytes(u32),
}

/// What a controller did that none may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Violation {
    GrewOnLoss,
    GrewOnRto,
    GrewOnAway,
    GrewWhileNotTheLimit,
    WindowAboveBound,
    WindowBelowBound,
    RateZero,
}

/// A number of any magnitude, with both ends of the range more often than chance would have it.
fn any_size(prng: &mut Prng) -> u64 {
    match prng.below(16) {
        0 => 0,
        1 => u64::MAX,
        2..=5 => prng.next_u64() >> prng.below(64),
        _ => prng.below(1 << 20),
    }
}

fn any_count(prng: &mut Prng) -> u32 {
    u32::try_from(any_size(prng)).unwrap_or(u32::MAX)
}

fn any_operation(prng: &mut Prng, now: Time) -> Operation {
    match prng.below(16) {
        0 => Operation::Rto(now),
        4 => Operation::Away(Nanos(any_size(prng))),
        5 => Operation::PacketBytes(any_count(prng)),
        1..=3 => Operation::Loss(LossSample {
            now,
            lost_bytes: any_size(prng),
            lost_chunks: any_count(prng),
            in_flight_bytes: any_size(prng),
        }),
        _ => Operation::Ack(AckSample {
            now,
            rtt: prng.chance(0.9).then(|| Nanos(any_size(prng))),
            endpoint: Nanos(any_size(prng)),
            acked_bytes: any_size(prng),
            acked_chunks: any_count(prng),
            in_flight_bytes: any_size(prng),
            window_limited: prng.chance(0.5),
            chunk_bytes: any_count(prng),
        }),
    }
}

/// The times stand still, creep, and leap to the end of the clock.
fn operations(seed: u64) -> Vec<Operation> {
    let mut prng = Prng::new(seed);
    let mut now = Time::ZERO;
    let next = |_| {
        now += match prng.below(64) {
            0 => Nanos(any_size(&mut prng)),
            1..=8 => Nanos::ZERO,
            _ => Nanos(prng.below(100_000)),
        };
        any_operation(&mut prng, now)
    };
    (0..OPERATIONS).map(next).collect()
}

fn apply(controller: &mut impl Controller, operation: Operation) -> Result<(), Violation> {
    let before = controller.window_bytes();
    let unlike_growth = match operation {
        Operation::Ack(sample) => {
            controller.on_ack(&sample);
            (!sample.window_limited).then_some(Violation::GrewWhileNotTheLimit)
        }
        Operation::Loss(sample) => {
            controller.on_loss(&sample);
            Some(Violation::GrewOnLoss)
        }
        Operation::Rto(now) => {
            controller.on_rto(now);
            Some(Violation::GrewOnRto)
        }
        Operation::Away(away) => {
            controller.set_away(away);
            Some(Violation::GrewOnAway)
        }
        Operation::PacketBytes(packet_bytes) => {
            controller.set_packet_bytes(packet_bytes);
            // A window that never falls below a packet may have to grow to one.
            None
        }
    };
    let after = controller.window_bytes();
    match unlike_growth {
        Some(violation) if after > before => Err(violation),
        _ if after < WINDOW_BYTES_MIN => Err(Violation::WindowBelowBound),
        _ if after > WINDOW_BYTES_MAX => Err(Violation::WindowAboveBound),
        _ if controller.pacing_rate() == Some(Rate(0)) => Err(Violation::RateZero),
        _ => Ok(()),
    }
}

fn run(controller: &mut impl Controller, seed: u64) -> Result<(), Violation> {
    operations(seed).into_iter().try_for_each(|operation| apply(controller, operation))
}

#[test]
fn no_algorithm_breaks_the_rules_under_random_samples() {
    let words = ControllerConfig::NAMES.into_iter();
    for word in words.chain(["fixed:1B", "fixed:1GiB@400Gbps", "fixed:100KiB@8bps", HASTY]) {
        let config: ControllerConfig = word.parse().unwrap();
        for seed in 0..SEEDS {
            for delay_noise in [Nanos::ZERO, Nanos::from_millis(5)] {
                let path = PathFacts { delay_noise, ..PathFacts::default() };
                let outcome = run(&mut config.build(Time::ZERO, &path), seed);
                assert_eq!(outcome, Ok(()), "{word}, seed {seed}, noise {delay_noise}");
            }
        }
    }
}

#[test]
fn the_same_samples_give_the_same_windows() {
    for word in ControllerConfig::NAMES {
        let config: ControllerConfig = word.parse().unwrap();
        let windows = || -> Vec<(u64, Option<Rate>)> {
            let mut controller = config.build(Time::ZERO, &PathFacts::default());
            let step = |operation| {
                apply(&mut controller, operation).unwrap();
                (controller.window_bytes(), controller.pacing_rate())
            };
            operations(1).into_iter().map(step).collect()
        };
        assert_eq!(windows(), windows(), "{word}");
    }
}

/// A controller with one fault: a window that each kind of call moves by a fixed step.
#[derive(Clone, Copy, Default)]
struct Faulty {
    window_bytes: u64,
    on_idle_ack: i64,
    on_limited_ack: i64,
    on_loss: i64,
    on_rto: i64,
    rate: Option<Rate>,
}

impl Faulty {
    fn step(&mut self, by: i64) {
        self.window_bytes = self.window_bytes.saturating_add_signed(by);
    }
}

impl Controller for Faulty {
    fn on_ack(&mut self, sample: &AckSample) {
        let by = if sample.window_limited { self.on_limited_ack } else { self.on_idle_ack };
        self.step(by);
    }

    fn on_loss(&mut self, _sample: &LossSample) {
        self.step(self.on_loss);
    }

    fn on_rto(&mut self, _now: Time) {
        self.step(self.on_rto);
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.rate
    }

    fn name(&self) -> &'static str {
        "faulty"
    }
}

#[test]
fn the_model_finds_each_fault() {
    let sound = Faulty { window_bytes: 1 << 20, ..Faulty::default() };
    let step = 1 << 20;
    for (mut faulty, outcome) in [
        (sound, Ok(())),
        (Faulty { on_idle_ack: 1, ..sound }, Err(Violation::GrewWhileNotTheLimit)),
        (Faulty { on_loss: 1, ..sound }, Err(Violation::GrewOnLoss)),
        (Faulty { on_rto: 1, ..sound }, Err(Violation::GrewOnRto)),
        (Faulty { on_limited_ack: 8 * step, ..sound }, Err(Violation::WindowAboveBound)),
        (Faulty { on_loss: -step, ..sound }, Err(Violation::WindowBelowBound)),
        (Faulty { rate: Some(Rate(0)), ..sound }, Err(Violation::RateZero)),
    ] {
        assert_eq!(run(&mut faulty, 1), outcome);
    }
}
