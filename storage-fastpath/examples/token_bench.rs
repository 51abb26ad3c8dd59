//! What a token costs: nanoseconds of the engine for each I/O, and of the ledger for each request.
//!
//! All cases take turns in each round, and the first round is thrown away. A busy machine shows in
//! the spread, and less in the least of the rounds. `--json` prints one object a line.

use std::hint::black_box;
use std::time::{Duration, Instant};
use towpath_base::{Nanos, Prng, Time};
use towpath_qos::{
    Action, Engine, Epoch, Ledger, PeriodStart, PoolWord, Rules, Slot, Taken, Verdict,
};

const USAGE: &str = "\
usage: token_bench [--json] [--rounds N] [--ios N] [--seed N]
  --rounds N   rounds that count, each of every case (15)
  --ios N      I/Os of a case in a round, at most 1,000,000 (1000000)
  --seed N     in which order clients come to the ledger (1)
  --json       one object a line";

/// Virtual time from one I/O to the next: 1,570,000 a second, the capacity of the paper's server.
const STEP: Nanos = Nanos(637);
/// I/Os that are under way.
const DEPTH: usize = 64;
const PERIOD: Nanos = Nanos::from_secs(1);
/// Tokens at a time: what each of ten clients takes in a tick.
const BATCH: u32 = 157;

#[derive(Clone, Copy)]
struct Args {
    rounds: usize,
    ios: u32,
    seed: u64,
    json: bool,
}

impl Args {
    fn parse() -> Option<Self> {
        let mut args = Self { rounds: 15, ios: 1_000_000, seed: 1, json: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || words.next()?.parse::<u64>().ok();
            match word.as_str() {
                "--json" => args.json = true,
                "--rounds" => args.rounds = number()?.clamp(1, 10_000) as usize,
                "--ios" => args.ios = number()?.clamp(1, 1_000_000) as u32,
                "--seed" => args.seed = number()?,
                _ => return None,
            }
        }
        Some(args)
    }
}

/// Where the engine's tokens come from.
#[derive(Clone, Copy)]
enum Source {
    Reservation,
    /// And the engine keeps to an even use of it.
    CarefulReservation,
    Pool,
}

/// I/Os of one client, each of 4 KiB, with [`DEPTH`] under way; the engine reports once a tick.
fn engine(source: Source, ios: u32) -> Duration {
    let is_pool = matches!(source, Source::Pool);
    let mut engine = Engine::new(Rules::OURS).depth(DEPTH as u32);
    let epoch = Epoch(1);
    let start = PeriodStart {
        epoch,
        period: PERIOD,
        elapsed: Nanos::ZERO,
        // Twice what is used: an even use leaves room, and nothing is given up.
        reservation: if is_pool { 0 } else { 4_000_000 },
        limit: None,
        batch: BATCH,
        goal: 0,
        expected: 0,
        window: towpath_qos::WINDOW_ALL,
        report_every: Nanos::from_millis(1),
        unit_shift: 8,
        reports: true,
        is_careful: matches!(source, Source::CarefulReservation),
    };
    let mut at = Time(1);
    engine.start(at, &start);
    let mut pool = PoolWord { epoch, tokens: 1 << 40 }.pack();
    let mut under_way: [_; DEPTH] = std::array::from_fn(|_| None);
    let began = Instant::now();
    for number in 0..ios as usize {
        at += STEP;
        if let Some(ticket) = under_way[number % DEPTH].take() {
            engine.done(at, ticket);
        }
        engine.arrived(at, 1, 1);
        let mut admitted = engine.admit(at, black_box(1));
        while let Some(action) = engine.poll(at) {
            match action {
                Action::Fetch { operand } => {
                    engine.fetched(at, pool);
                    pool = pool.wrapping_add(operand);
                }
                Action::Report { word } => _ = black_box(word),
            }
        }
        if admitted.is_err() {
            admitted = engine.admit(at, 1);
        }
        under_way[number % DEPTH] = Some(admitted.expect("there are tokens for it"));
    }
    let took = began.elapsed();
    let taken = PoolWord::taken(pool, epoch, 1);
    assert!(matches!(taken, Taken::Tokens(1)), "the pool has not run dry");
    took
}

/// Requests of so many clients in any order, of 4 KiB each, all within what they may use or not.
fn ledger(clients: u16, is_over: bool, args: &Args) -> Duration {
    let mut prng = Prng::new(args.seed);
    let order: Vec<Slot> =
        (0..args.ios).map(|_| Slot(prng.below(u64::from(clients)) as u16)).collect();
    let mut ledger = Ledger::default();
    let may_use = if is_over { 0 } else { u64::from(args.ios) };
    ledger.begin(Epoch(1), usize::from(clients), |_| may_use);
    let mut overruns = 0;
    let began = Instant::now();
    for &slot in &order {
        let verdict = ledger.charge(slot, black_box(1));
        overruns += u32::from(verdict != Verdict::Within);
    }
    let took = began.elapsed();
    assert_eq!(overruns, if is_over { args.ios } else { 0 });
    took
}

struct Case {
    name: &'static str,
    run: fn(&Args) -> Duration,
    /// Nanoseconds for each I/O, of each round.
    times: Vec<f64>,
}

fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, run, times: Vec::new() };
    vec![
        case("engine: a token of the reservation", |a| engine(Source::Reservation, a.ios)),
        case("engine: the same, careful", |a| engine(Source::CarefulReservation, a.ios)),
        case("engine: a token of the pool", |a| engine(Source::Pool, a.ios)),
        case("ledger: one client", |a| ledger(1, false, a)),
        case("ledger: 1,000 clients", |a| ledger(1_000, false, a)),
        case("ledger: 1,000 clients, all over", |a| ledger(1_000, true, a)),
    ]
}

/// The median of some numbers.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let half = numbers.len() / 2;
    if numbers.len() % 2 == 1 { numbers[half] } else { (numbers[half - 1] + numbers[half]) / 2.0 }
}

fn main() {
    let Some(args) = Args::parse() else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    let mut cases = cases();
    for round in 0..=args.rounds {
        for case in &mut cases {
            let ns = (case.run)(&args).as_nanos() as f64 / f64::from(args.ios);
            if round > 0 {
                case.times.push(ns);
            }
        }
    }
    if !args.json {
        let Args { rounds, ios, seed, .. } = args;
        println!("{rounds} rounds of {ios} I/Os, seed {seed}; ns for each I/O\n");
        println!("{:<36} {:>7} {:>7} {:>7}", "case", "median", "spread", "least");
    }
    for Case { name, mut times, .. } in cases {
        let middle = median(&mut times);
        let least = times[0];
        let spread = median(&mut times.iter().map(|ns| (ns - middle).abs()).collect::<Vec<_>>());
        if args.json {
            let (case, median) = (format!(r#""case":"{name}""#), format!("{middle:.2}"));
            let rest = format!(r#""spread_ns":{spread:.2},"least_ns":{least:.2}"#);
            println!(r#"{{{case},"median_ns":{median},{rest}}}"#);
        } else {
            println!("{name:<36} {middle:>7.1} {spread:>7.1} {least:>7.1}");
        }
    }
}
