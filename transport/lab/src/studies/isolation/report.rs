//! The study: beside what applications send, and how much of their goodput is left.

use super::Isolation;
use crate::cluster::Samples;
use crate::solo::{Beside, Lives, Queues};
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::wire::{BASE_RTT, RATE_BITS_PER_S, base_rtt_of};
use crate::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use towpath_base::{Nanos, Prng};

/// The study.
pub const STUDY: Study = Study {
    name: "isolation",
    what: "throughput of channels beside one that stalls, dies or floods",
    mirrors: "Avatar (APNet 2018), section 3: one application must not be felt by the others",
    clock: Clock::Virtual,
    params: &[
        Param::count("channels", "channels", 1..=1000, ["16"; 3])
            .what("Channels whose throughput counts; there is one more"),
        Param::count("applications", "applications", 1..=256, ["4"; 3])
            .what("Applications that post to them, each to its share of the channels in turn"),
        Param::words("queues", |word| queues_of(word).map(drop), ["own,one"; 3]).what(
            "Channels of their own, or one for all: own, one; the first is held to the \
                   targets",
        ),
        Param::size("bytes", 1..=1 << 20, ["4K"; 3]).what("Bytes of a message"),
        Param::count("depth", "messages", 1..=4096, ["64"; 3])
            .what("Messages that each application has under way"),
        Param::count("flood", "messages", 1..=1 << 16, ["4096"; 3])
            .what("Messages that the one that floods has under way"),
        Param::count("life-us", "us", 1..=1_000_000, ["200"; 3])
            .what("How long one that dies has its channel"),
        BASE_RTT,
        Param::count("span-ms", "ms", 1..=10_000, ["2", "5", "50"])
            .what("What is measured, after a fifth as long"),
        Param::count("rounds", "rounds", 1..=1000, ["2", "5", "15"])
            .what("Rounds, each with a seed of its own; medians are shown"),
        CONTROLLER,
    ],
    run,
};

/// The fewest channels of which something is claimed: beside fewer, one more is too large a part
/// of the link to be compared so closely.
const CLAIMED_CHANNELS: u64 = 16;

/// What is to be left at least, in percent.
const KEPT_MIN: f64 = 95.0;

fn queues_of(word: &str) -> Result<Queues, &'static str> {
    match word {
        "own" => Ok(Queues::Own),
        "one" => Ok(Queues::One),
        _ => Err("own or one"),
    }
}

const fn name_of(queues: Queues) -> &'static str {
    match queues {
        Queues::Own => "own",
        Queues::One => "one",
    }
}

/// In a table, and as a field.
const fn names_of(beside: Beside) -> (&'static str, &'static str) {
    match beside {
        Beside::Same => ("one like the others", "same"),
        Beside::Stall => ("a reader that stalls", "stall"),
        Beside::Death => ("applications that die", "death"),
        Beside::Flood => ("a poster that floods", "flood"),
    }
}

/// What was seen in one case.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Where the applications posted to.
    pub queues: Queues,
    /// What happened beside.
    pub beside: Beside,
    /// Goodput of the others, a value for each round.
    pub gbps: Samples,
    /// The share of that beside one like the others in the same round, and on the same queues.
    pub kept: Samples,
}

impl Seen {
    /// Of rounds of all cases, in their order, on one sort of queues.
    #[must_use]
    pub fn of(queues: Queues, cases: &[Vec<f64>]) -> Vec<Self> {
        let same = &cases[0];
        let seen = |(&beside, rounds): (&Beside, &Vec<f64>)| Self {
            queues,
            beside,
            gbps: rounds.iter().copied().collect(),
            kept: rounds.iter().zip(same).map(|(gbps, same)| gbps / same).collect(),
        };
        Beside::ALL.iter().zip(cases).map(seen).collect()
    }
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut prng = Prng::new(params.seed);
    let seeds: Vec<u64> = (0..params.count("rounds")).map(|_| prng.next_u64()).collect();
    let queues: Vec<Queues> =
        params.words("queues").iter().filter_map(|word| queues_of(word).ok()).collect();
    let mut points = Vec::new();
    for &queues in &queues {
        for &beside in &Beside::ALL {
            points.extend(seeds.iter().map(|&seed| isolation(params, seed, queues, beside)));
        }
    }
    let label = |point: &Isolation| {
        let (queues, beside) = (name_of(point.lives.queues), names_of(point.beside).1);
        let round = seeds.iter().position(|&seed| seed == point.lives.seed).unwrap_or_default();
        format!("queues {queues}, {beside}, round {}", round + 1)
    };
    let mut report = Report::new(STUDY.name, params);
    let results = report.run(runner, points, label, Isolation::run, |result| &result.end)?;
    let gbps: Vec<f64> = results.into_iter().map(|(_, result)| result.gbps).collect();
    let cases: Vec<Vec<f64>> = gbps.chunks(seeds.len()).map(<[f64]>::to_vec).collect();
    let of_queues = queues.iter().zip(cases.chunks(Beside::ALL.len()));
    let seen: Vec<Seen> = of_queues.flat_map(|(&queues, cases)| Seen::of(queues, cases)).collect();
    fill(&mut report, params, &seen);
    Ok(report)
}

fn isolation(params: &Params, seed: u64, queues: Queues, beside: Beside) -> Isolation {
    let count = |name| params.count(name) as usize;
    let lives = Lives {
        seed,
        channels: count("channels"),
        applications: count("applications"),
        bytes: count("bytes"),
        depth: count("depth"),
        flood: count("flood"),
        life: Nanos::from_micros(params.count("life-us")),
        queues,
    };
    Isolation {
        lives,
        beside,
        controller: controller_of(params.word("controller")).unwrap_or_default(),
        rate_bits_per_s: RATE_BITS_PER_S,
        base_rtt: base_rtt_of(params),
        span: Nanos::from_millis(params.count("span-ms")),
    }
}

/// Adds the table, the plot and the targets: also for who measures the same in real time.
pub fn fill(report: &mut Report, params: &Params, seen: &[Seen]) {
    let title = "Goodput of the others beside one channel more; medians of rounds";
    let table = Table::of("isolation", title, seen)
        .plain("queues", "queues", "", |seen| name_of(seen.queues))
        .plain("beside", "beside", "", |seen| names_of(seen.beside).1)
        .decimals(2, "goodput_gbps", "goodput", "Gb/s", |seen| seen.gbps.median())
        .decimals(2, "spread_gbps", "spread", "Gb/s", |seen| seen.gbps.spread())
        .percent(1, "kept", "of the first", |seen| seen.kept.median())
        .percent(1, "kept_spread", "spread", |seen| seen.kept.spread());
    report.tables.push(table.done());
    let is_claimed = params.count("channels") >= CLAIMED_CHANNELS;
    let held_to = seen.iter().take(Beside::ALL.len()).skip(1).filter(|_| is_claimed);
    report.claims.extend(held_to.map(|seen| {
        let (what, name) = names_of(seen.beside);
        let (name, what) = (format!("kept_beside_{name}"), format!("goodput kept beside {what}"));
        Claim::percent(name, what, Demand::AtLeast(KEPT_MIN), seen.kept.median())
    }));
    report.plots.push(plot(seen));
    report.note(&[
        "A reader that stalls and applications that die leave the others more of the link; a \
         poster that floods gets the share of one channel.",
    ]);
}

fn plot(seen: &[Seen]) -> Plot {
    let places = || (1..).map(f64::from).zip(Beside::ALL);
    let cases = Beside::ALL.len();
    let of_queues = |seen: &[Seen]| {
        let points = places().zip(seen).map(|((x, _), seen)| (x, seen.kept.median() * 100.0));
        Series::new(format!("kept, queues {}", name_of(seen[0].queues)), Style::Points, points)
    };
    let mut series: Vec<Series> = seen.chunks(cases).map(of_queues).collect();
    let ends = [(0.5, KEPT_MIN), (cases as f64 + 0.5, KEPT_MIN)];
    series.push(Series::new("demanded", Style::Bound, ends));
    Plot {
        title: "Goodput of the others".to_owned(),
        x: Axis::linear("beside", "")
            .range(0.5, cases as f64 + 0.5)
            .ticks(places().map(|(x, beside)| (x, names_of(beside).0.to_owned()))),
        y: Axis::linear("of that beside one like them", "%").range(0.0, 150.0),
        series,
    }
}
