//! What each of several channels gets of one link: equal shares, and shares by weight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Params, Plot, Report, Runner, Series, Study,
    StudyError, Style, Table,
};
use towpath_transport::ChannelId;

use super::rig::{Rig, config};
use super::rounds::in_turn;
use super::{ROUNDS, SPAN};
use towpath_lab::failure::PostError;
use towpath_lab::solo::Poster;

/// The study.
pub const STUDY: Study = Study {
    name: "shares",
    what: "what each of several channels gets of the link that they keep busy",
    mirrors: "Avatar (APNet 2018), section 3.2: weighted fair queueing",
    clock: Clock::Machine,
    params: &[SPAN, ROUNDS],
    run,
};

/// Several channels that want all they can get.
#[derive(Debug)]
struct Case {
    name: &'static str,
    what: &'static str,
    /// The weight of each channel, and bytes of its messages.
    channels: &'static [(u16, usize)],
}

const EQUAL: u16 = 16;

const CASES: [Case; 3] = [
    Case { name: "equal", what: "equal messages", channels: &[(EQUAL, 1 << 20); 4] },
    Case {
        name: "lengths",
        what: "unequal messages",
        channels: &[(EQUAL, 64 << 10), (EQUAL, 200 << 10), (EQUAL, 512 << 10), (EQUAL, 1 << 20)],
    },
    Case {
        name: "weights",
        what: "weights 1, 2 and 3",
        channels: &[(EQUAL, 512 << 10), (2 * EQUAL, 512 << 10), (3 * EQUAL, 512 << 10)],
    },
];

impl Case {
    /// What a channel is due.
    fn due(&self, place: usize) -> f64 {
        let all: u32 = self.channels.iter().map(|&(weight, _)| u32::from(weight)).sum();
        f64::from(self.channels[place].0) / f64::from(all)
    }
}

/// Bytes that each channel has under way: more than the link takes at a time, so that no channel
/// runs dry while its thread waits for a core.
const UNDER_WAY_BYTES: usize = 16 << 20;

/// Chunks of credit of each channel, so that what is ahead binds and credit does not: who waits
/// for credit is in no line.
const QUOTA_CHUNKS: u32 = 512;

/// What a link may have posted and not sent: a small part of what any channel has under way.
const AHEAD_BYTES: u64 = 256 << 10;

/// The shortest span of which something is claimed: in less time a chunk more or less, or a thread
/// that waited for a core, is too large a part of what came.
const CLAIMED_SPAN_MS: u64 = 500;

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let measured = in_turn(params, runner, &CASES, |case| measure(params, case))?;
    let shares: Vec<Vec<Samples>> = CASES
        .iter()
        .zip(&measured)
        .map(|(case, rounds)| {
            let of = |place: usize| rounds.iter().map(|shares| shares[place]).collect();
            (0..case.channels.len()).map(of).collect()
        })
        .collect();
    Ok(report(params, &shares))
}

/// The part of all that came which came on each channel.
fn measure(params: &Params, case: &Case) -> Result<Vec<f64>, StudyError> {
    let depth = |bytes: usize| UNDER_WAY_BYTES / bytes;
    let pools: Vec<(usize, usize)> =
        case.channels.iter().map(|&(_, bytes)| (bytes, depth(bytes) + 1)).collect();
    let count = case.channels.len();
    let config = config(count, &pools)
        .quota_chunks(QUOTA_CHUNKS)
        .credit_total(QUOTA_CHUNKS * count as u32)
        .ahead_bytes(AHEAD_BYTES);
    let rig = Rig::new(count, &config)?;
    for (channel, &(weight, _)) in rig.channels.iter().zip(case.channels) {
        channel.set_weight(weight);
    }
    let ids: Vec<ChannelId> = rig.channels.iter().map(|channel| channel.id()).collect();
    let span = Duration::from_millis(params.count("span-ms"));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        let mut posters = Vec::new();
        for (channel, &(_, bytes)) in rig.channels.iter().zip(case.channels) {
            posters.push(scope.spawn(move || -> Result<(), PostError> {
                let mut poster = Poster::new(bytes, depth(bytes));
                while !over.load(Ordering::Relaxed) {
                    poster.post(channel)?;
                }
                poster.finish()
            }));
        }
        let arrived = || ids.iter().map(|&id| rig.server.bytes_of(id)).collect::<Vec<_>>();
        thread::sleep(span / 5);
        let before = arrived();
        thread::sleep(span);
        let came: Vec<u64> = arrived().iter().zip(&before).map(|(now, then)| now - then).collect();
        over.store(true, Ordering::Relaxed);
        for poster in posters {
            let ended = poster.join().unwrap_or(Err(PostError::Stuck));
            ended.map_err(|error| StudyError::run("posting", error))?;
        }
        let all = came.iter().sum::<u64>().max(1) as f64;
        Ok(came.iter().map(|&bytes| bytes as f64 / all).collect())
    })
}

/// How far a share is from what is due, as a part of that.
fn off(case: &Case, place: usize, share: &Samples) -> f64 {
    share.median() / case.due(place) - 1.0
}

/// Adds the targets, or the reason why there are none.
fn judge(report: &mut Report, params: &Params, shares: &[Vec<Samples>]) {
    let worst = |case: &Case, shares: &[Samples]| {
        let off = shares.iter().enumerate().map(|(place, share)| off(case, place, share).abs());
        off.fold(0.0, f64::max) * 100.0
    };
    let is_claimed = params.count("span-ms") >= CLAIMED_SPAN_MS;
    if !is_claimed {
        report.notes.push(format!(
            "no targets: they are for spans of {CLAIMED_SPAN_MS} ms and more (--span-ms)"
        ));
    }
    for (case, shares) in CASES.iter().zip(shares).filter(|_| is_claimed) {
        report.claims.push(Claim {
            name: format!("off_{}", case.name),
            what: format!("furthest from what is due: {}", case.what),
            demand: Demand::AtMost(2.0),
            measured: worst(case, shares),
            unit: "%",
            decimals: 2,
        });
    }
}

fn report(params: &Params, shares: &[Vec<Samples>]) -> Report {
    let mut report = Report::new(STUDY.name, params);
    let rows = CASES.iter().zip(shares).flat_map(|(case, shares)| {
        shares.iter().enumerate().map(move |(place, share)| -> Vec<Cell> {
            let (weight, bytes) = case.channels[place];
            vec![
                case.name.into(),
                (bytes as u64).into(),
                u64::from(weight).into(),
                case.due(place).into(),
                share.median().into(),
                share.spread().into(),
                off(case, place, share).into(),
            ]
        })
    });
    report.tables.push(Table {
        name: "shares",
        title: "Part of the bytes that came; medians of rounds".to_owned(),
        columns: vec![
            Column::new("case", "case", "", Format::Plain),
            Column::new("bytes", "message", "", Format::Bytes),
            Column::new("weight", "weight", "", Format::Plain),
            Column::new("due", "due", "%", Format::Percent(2)),
            Column::new("share", "share", "%", Format::Percent(2)),
            Column::new("spread", "spread", "%", Format::Percent(2)),
            Column::new("off", "off", "%", Format::Percent(2)),
        ],
        rows: rows.collect(),
    });
    judge(&mut report, params, shares);
    let series = |label: &str, style, of: &dyn Fn(&Case, usize, &Samples) -> f64| Series {
        label: label.to_owned(),
        style,
        points: CASES
            .iter()
            .zip(shares)
            .flat_map(|(case, shares)| {
                shares.iter().enumerate().map(|(place, share)| of(case, place, share))
            })
            .zip(1..)
            .map(|(value, x)| (f64::from(x), value * 100.0))
            .collect(),
    };
    let places = CASES.iter().flat_map(|case| case.channels.iter().map(|_| case.name));
    report.plots.push(Plot {
        title: "Part of the bytes that came".to_owned(),
        x: Axis::linear("channel", "").ticks((1..).map(f64::from).zip(places.map(str::to_owned))),
        y: Axis::linear("share", "%").range(0.0, 60.0),
        series: vec![
            series("due", Style::Bound, &|case, place, _| case.due(place)),
            series("got", Style::Points, &|_, _, share| share.median()),
        ],
    });
    report
}
