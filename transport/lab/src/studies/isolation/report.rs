//! The study: beside what applications send, and how much of their goodput is left.

use super::Isolation;
use crate::cluster::Samples;
use crate::solo::{Beside, Lives, Queues};
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::wire::{BASE_RTT, RATE_BITS_PER_S, base_rtt_of};
use crate::studies::{
    Axis, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner, Series,
    Study, StudyError, Style, Table,
};
use towpath_base::{Nanos, Prng};

/// The study.
pub const STUDY: Study = Study {
    name: "isolation",
    what: "throughput of channels beside one that stalls, dies or floods",
    mirrors: "Avatar (APNet 2018), section 3: one application must not be felt by the others",
    clock: Clock::Virtual,
    params: &[
        Param {
            name: "channels",
            what: "Channels whose throughput counts; there is one more",
            unit: "channels",
            kind: Kind::Count(1..=1000),
            many: false,
            defaults: ["16"; 3],
        },
        Param {
            name: "applications",
            what: "Applications that post to them, each to its share of the channels in turn",
            unit: "applications",
            kind: Kind::Count(1..=256),
            many: false,
            defaults: ["4"; 3],
        },
        Param {
            name: "queues",
            what: "Channels of their own, or one for all: own, one; the first is held to the \
                   targets",
            unit: "",
            kind: Kind::Word(|word| queues_of(word).map(drop)),
            many: true,
            defaults: ["own,one"; 3],
        },
        Param {
            name: "bytes",
            what: "Bytes of a message",
            unit: "bytes",
            kind: Kind::Bytes(1..=1 << 20),
            many: false,
            defaults: ["4K"; 3],
        },
        Param {
            name: "depth",
            what: "Messages that each application has under way",
            unit: "messages",
            kind: Kind::Count(1..=4096),
            many: false,
            defaults: ["64"; 3],
        },
        Param {
            name: "flood",
            what: "Messages that the one that floods has under way",
            unit: "messages",
            kind: Kind::Count(1..=1 << 16),
            many: false,
            defaults: ["4096"; 3],
        },
        Param {
            name: "life-us",
            what: "How long one that dies has its channel",
            unit: "us",
            kind: Kind::Count(1..=1_000_000),
            many: false,
            defaults: ["200"; 3],
        },
        BASE_RTT,
        Param {
            name: "span-ms",
            what: "What is measured, after a fifth as long",
            unit: "ms",
            kind: Kind::Count(1..=10_000),
            many: false,
            defaults: ["2", "5", "50"],
        },
        Param {
            name: "rounds",
            what: "Rounds, each with a seed of its own; medians are shown",
            unit: "rounds",
            kind: Kind::Count(1..=1000),
            many: false,
            defaults: ["2", "5", "15"],
        },
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
    report.tables.push(Table {
        name: "isolation",
        title: "Goodput of the others beside one channel more; medians of rounds".to_owned(),
        columns: vec![
            Column::new("queues", "queues", "", Format::Plain),
            Column::new("beside", "beside", "", Format::Plain),
            Column::new("goodput_gbps", "goodput", "Gb/s", Format::Decimals(2)),
            Column::new("spread_gbps", "spread", "Gb/s", Format::Decimals(2)),
            Column::new("kept", "of the first", "%", Format::Percent(1)),
            Column::new("kept_spread", "spread", "%", Format::Percent(1)),
        ],
        rows: seen
            .iter()
            .map(|Seen { queues, beside, gbps, kept }| {
                let mut row = vec![name_of(*queues).into(), names_of(*beside).1.into()];
                let measured = [gbps.median(), gbps.spread(), kept.median(), kept.spread()];
                row.extend(measured.map(Into::into));
                row
            })
            .collect(),
    });
    let is_claimed = params.count("channels") >= CLAIMED_CHANNELS;
    let held_to = seen.iter().take(Beside::ALL.len()).skip(1).filter(|_| is_claimed);
    report.claims.extend(held_to.map(|seen| {
        let (what, name) = names_of(seen.beside);
        Claim {
            name: format!("kept_beside_{name}"),
            what: format!("goodput kept beside {what}"),
            demand: Demand::AtLeast(KEPT_MIN),
            measured: seen.kept.median() * 100.0,
            unit: "%",
            decimals: 1,
        }
    }));
    report.plots.push(plot(seen));
    report.notes.push(
        "A reader that stalls and applications that die leave the others more of the link; a \
         poster that floods gets the share of one channel."
            .to_owned(),
    );
}

fn plot(seen: &[Seen]) -> Plot {
    let places = || (1..).map(f64::from).zip(Beside::ALL);
    let cases = Beside::ALL.len();
    let of_queues = |seen: &[Seen]| Series {
        label: format!("kept, queues {}", name_of(seen[0].queues)),
        style: Style::Points,
        points: places().zip(seen).map(|((x, _), seen)| (x, seen.kept.median() * 100.0)).collect(),
    };
    let mut series: Vec<Series> = seen.chunks(cases).map(of_queues).collect();
    series.push(Series {
        label: "demanded".to_owned(),
        style: Style::Bound,
        points: vec![(0.5, KEPT_MIN), (cases as f64 + 0.5, KEPT_MIN)],
    });
    Plot {
        title: "Goodput of the others".to_owned(),
        x: Axis::linear("beside", "")
            .range(0.5, cases as f64 + 0.5)
            .ticks(places().map(|(x, beside)| (x, names_of(beside).0.to_owned()))),
        y: Axis::linear("of that beside one like them", "%").range(0.0, 150.0),
        series,
    }
}
