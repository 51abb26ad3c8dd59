//! Interference control against a model of a server whose reads get slower as more is written, in
//! virtual time, over seeds.

use towpath_base::{Nanos, Prng, Time};
use towpath_qos::{Interference, InterferenceConfig, LEVELS};

const MIB: u64 = 1 << 20;

/// What the model's disk writes in a second.
const BANDWIDTH: u64 = 400 * MIB;

const TARGET: Nanos = Nanos::from_micros(200);

const P99: Nanos = Nanos::from_micros(900);

/// Reads take this long beside nothing.
const ALONE: u64 = 150_000;

/// A server in steps of a millisecond.
struct Model {
    control: Interference,
    prng: Prng,
    now: Time,
    /// Bytes written in the last 10 ms, by level.
    recent: [u64; LEVELS],
    written: [u64; LEVELS],
    latencies: Vec<u64>,
    rates: Vec<u64>,
}

impl Model {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let config = InterferenceConfig::new(TARGET, P99);
        Self {
            control: Interference::new(config, Time::ZERO),
            prng: Prng::new(seed),
            now: Time::ZERO,
            recent: [0; LEVELS],
            written: [0; LEVELS],
            latencies: Vec::new(),
            rates: Vec::new(),
        }
    }

    /// One millisecond, in which each level wants to write so many bytes, 16 KiB at a time, and
    /// `reads` reads of each level but the last are done.
    fn step(&mut self, wanted: [u64; LEVELS], reads: [u64; 2]) {
        self.now += Nanos::from_millis(1);
        self.control.turn(self.now);
        for (level, wanted) in wanted.into_iter().enumerate() {
            let mut bytes = 0;
            while bytes < wanted && self.control.may_write(level) {
                self.control.wrote(level, 16 << 10);
                bytes += 16 << 10;
            }
            self.recent[level] = self.recent[level] * 9 / 10 + bytes;
            self.written[level] += bytes;
        }
        for (level, count) in reads.into_iter().enumerate() {
            let below: u64 = self.recent[level + 1..].iter().sum();
            // Twice as slow beside all that the disk writes, and now and then by chance.
            let load = below * 100 * 1000 / BANDWIDTH;
            for _ in 0..count {
                let chance = self.prng.below(40_000) + u64::from(self.prng.chance(0.005)) * 500_000;
                let took = ALONE + ALONE * load / 1000 + chance;
                self.control.read(level, Nanos(took));
                self.latencies.push(took);
            }
        }
        self.rates.push(self.control.rate(2).unwrap_or(BANDWIDTH));
    }

    fn run(&mut self, ms: usize, wanted: [u64; LEVELS], reads: [u64; 2]) {
        self.latencies.clear();
        self.rates.clear();
        (0..ms).for_each(|_| self.step(wanted, reads));
    }

    fn mean(&self) -> u64 {
        self.latencies.iter().sum::<u64>() / self.latencies.len() as u64
    }
}

/// What the lowest level wants in a millisecond: all that the disk has.
const ALL: u64 = BANDWIDTH / 1000;

#[test]
fn reads_come_back_to_their_target_and_the_rate_stays_where_that_is() {
    for seed in 0..40 {
        let mut model = Model::new(seed);
        model.run(5_000, [0, 0, ALL], [2, 4]);
        model.run(20_000, [0, 0, ALL], [2, 4]);
        assert!(model.mean() <= TARGET.0 * 105 / 100, "seed {seed}: {}", model.mean());
        let rates = &model.rates;
        let (low, high) = (rates.iter().min().expect("some"), rates.iter().max().expect("some"));
        let mean = rates.iter().sum::<u64>() / rates.len() as u64;
        assert!(high - low <= mean * 45 / 100, "seed {seed}: from {low} to {high}, mean {mean}");
        // It is not bound more than that takes: some 80 MiB a second can be written.
        assert!(mean >= 40 * MIB, "seed {seed}: {mean}");
    }
}

#[test]
fn without_slow_reads_nobody_is_bound_and_what_was_taken_comes_back_little_by_little() {
    for seed in 100..120 {
        let mut model = Model::new(seed);
        model.run(5_000, [0, 0, ALL / 10], [2, 4]);
        assert_eq!(model.control.rate(2), None, "seed {seed}: there is room for both");
        assert_eq!(model.control.counts().taken, [0; LEVELS], "seed {seed}: nobody needed any");
        model.run(5_000, [0, 0, ALL], [2, 4]);
        let bound = model.control.rate(2).expect("reads were slow");
        // Nobody reads any more.
        let (taken, written) = (model.control.counts().taken, model.written[2]);
        model.run(1_000, [0, 0, ALL], [0, 0]);
        let more = model.control.counts().taken[2] - taken[2];
        assert_eq!(more, model.written[2] - written, "seed {seed}: each byte took one");
        let soon = model.control.rate(2).expect("not at once");
        assert!(soon > bound && soon < BANDWIDTH, "seed {seed}: {bound} to {soon}");
        model.run(20_000, [0, 0, ALL], [0, 0]);
        assert_eq!(model.control.rate(2), None, "seed {seed}: it is all given back");
    }
}

#[test]
fn no_level_ever_has_less_than_its_least_share() {
    for seed in 200..220 {
        let mut model = Model::new(seed);
        model.run(1_000, [0, 0, ALL], [0, 0]);
        let mut before = model.written[2];
        for second in 0..30 {
            for _ in 0..1_000 {
                model.step([0, 0, ALL], [0, 0]);
                // Far too slow even beside the least share, and slower the more is written.
                let took = 1_000_000 + model.recent[2] * 10;
                model.control.read(0, Nanos(took));
            }
            let written = model.written[2] - before;
            before = model.written[2];
            // The share is of the most that was ever written, which is forgotten slowly.
            assert!(written >= BANDWIDTH / 20 * 19 / 20 / 2, "seed {seed}: {written} in {second}");
        }
        let rate = model.control.rate(2).expect("reads are slow");
        assert!(rate <= BANDWIDTH / 10, "seed {seed}: {rate}");
    }
}

/// Reads that take as long as chance has it: most are short, and a hundredth takes 4.6 times the
/// mean or more.
fn by_chance(prng: &mut Prng, mean: u64) -> Nanos {
    let draw = (prng.below(1 << 20) + 1) as f64 / f64::from(1 << 20);
    Nanos((-draw.ln() * mean as f64) as u64)
}

/// A controller that keeps to 5 % more than reads take alone, and three reads of a higher level in
/// a millisecond, which take as many times as long as `slower` says of the bytes that the lowest
/// level writes in one. Gives what part of its offer that level writes, and the mean of reads, of
/// that alone.
fn beside(seed: u64, offered: u64, slower: impl Fn(u64, u64) -> f64) -> (f64, f64) {
    const MEAN: u64 = 300_000;
    const WRITE: u64 = 16 << 10;
    println!("seed {seed}");
    let target = |times: f64| Nanos((MEAN as f64 * times * 1.05) as u64);
    let config = InterferenceConfig::new(target(1.0), target(4.605));
    let mut control = Interference::new(config, Time::ZERO);
    let mut prng = Prng::new(seed);
    let (mut owed, mut recent, mut written, mut total, mut count) = (0, 0, 0, 0, 0);
    for ms in 1..=60_000 {
        control.turn(Time::ZERO + Nanos::from_millis(ms));
        let mut bytes = 0;
        // What is late by more than ten writes is given up.
        owed = (owed + offered).min(10 * WRITE + offered);
        while owed >= WRITE && control.may_write(2) {
            control.wrote(2, WRITE);
            (owed, bytes) = (owed - WRITE, bytes + WRITE);
        }
        written += bytes;
        recent = recent * 9 / 10 + bytes;
        for _ in 0..3 {
            let took = by_chance(&mut prng, (MEAN as f64 * slower(recent / 10, ms)) as u64);
            control.read(prng.below(2) as usize, took);
            (total, count) = (total + took.0, count + 1);
        }
    }
    let kept = written as f64 / (offered * 60_000) as f64;
    (kept, total as f64 / count as f64 / MEAN as f64)
}

#[test]
fn chance_takes_nothing_from_a_level_that_slows_reads_by_less_than_they_may_be_slower() {
    for seed in 400..410 {
        // 39 % of what the disk writes makes reads 4 % slower.
        let (kept, mean) = beside(seed, ALL * 39 / 100, |_, _| 1.04);
        assert!(kept >= 0.98, "seed {seed}: {kept}");
        assert!(mean <= 1.05, "seed {seed}: {mean}");
    }
}

#[test]
fn a_level_keeps_what_it_writes_while_others_make_reads_slow() {
    for seed in 500..505 {
        for times in [1.2, 1.5, 3.0] {
            let (kept, _) = beside(seed, ALL * 39 / 100, |_, _| times);
            assert!(kept >= 0.9, "seed {seed}, {times} times: {kept}");
        }
    }
}

#[test]
fn the_lowest_level_gives_first_and_the_one_above_only_to_the_highest() {
    for seed in 300..320 {
        let mut model = Model::new(seed);
        // Both write; only the middle one reads: it is not bound for its own reads' sake.
        model.run(10_000, [0, ALL / 2, ALL / 2], [0, 6]);
        assert_eq!(model.control.rate(1), None, "seed {seed}");
        assert!(model.control.rate(2).is_some(), "seed {seed}");
        // The highest reads beside a middle one that writes all that it can.
        model.run(20_000, [0, ALL, ALL], [6, 0]);
        let (middle, lowest) = (model.control.rate(1), model.control.rate(2));
        assert!(lowest.expect("bound") <= 40 * MIB, "seed {seed}: {lowest:?}");
        assert!(middle.is_some_and(|rate| rate < BANDWIDTH), "seed {seed}: {middle:?}");
        assert!(model.mean() <= TARGET.0 * 110 / 100, "seed {seed}: {}", model.mean());
    }
}

#[test]
fn the_same_history_gives_the_same_decisions() {
    let run = |seed| {
        let mut model = Model::new(seed);
        model.run(5_000, [0, 0, ALL], [3, 3]);
        model.run(1_000, [0, 0, ALL], [0, 0]);
        (model.rates.clone(), model.control.counts())
    };
    assert_eq!(run(9), run(9));
    let counts = run(9).1;
    assert!(counts.cuts > 0 && counts.gives > 0 && counts.waits > 0, "{counts:?}");
    assert_eq!(counts.windows, 60);
}
