//! What is left to the others beside a channel whose reader stalls, a thread that dies holding a
//! handle, and a poster that floods.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Claim, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner, Series, Study,
    StudyError, Style, Table,
};
use towpath_transport::{ChannelError, ChannelHandle, CloseReason, LinkHandle, OpenError};

use super::connections::DEPTH;
use super::poster::{PostError, Poster};
use super::rig::{Counted, Rig, config, post_in_turn};
use super::rounds::in_turn;
use super::{BYTES, ROUNDS, SPAN};

/// The study.
pub const STUDY: Study = Study {
    name: "isolation",
    what: "throughput of channels beside one that stalls, dies or floods",
    mirrors: "Avatar (APNet 2018), section 3: one application must not be felt by the others",
    params: &[CHANNELS, THREADS, FLOOD, BYTES, DEPTH, SPAN, ROUNDS],
    run,
};

const CHANNELS: Param = Param {
    name: "channels",
    what: "Channels whose throughput counts; there is one more",
    unit: "channels",
    kind: Kind::Count(1..=1000),
    many: false,
    defaults: ["16", "16", "16"],
};

const THREADS: Param = Param {
    name: "threads",
    what: "Threads that post to them, each to its share of the channels in turn",
    unit: "threads",
    kind: Kind::Count(1..=256),
    many: false,
    defaults: ["4", "4", "4"],
};

const FLOOD: Param = Param {
    name: "flood",
    what: "Messages that the poster that floods has under way",
    unit: "messages",
    kind: Kind::Count(1..=1 << 16),
    many: false,
    defaults: ["4096", "4096", "4096"],
};

/// How long a thread that dies has a channel.
const LIFE: Duration = Duration::from_millis(5);

/// The fewest channels of which something is claimed.
const CLAIMED_CHANNELS: u64 = 16;

/// How many lives to wait for room at most: ten seconds, as for any outcome.
const WAITS_MAX: u32 = 2000;

/// What happens on the one channel more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// The same as on the others: what the rest is compared with.
    Same,
    /// Its reader gives nothing back.
    Stall,
    /// Thread after thread dies that has opened a channel and posted to it.
    Death,
    /// Its poster has as many messages under way as its channel takes.
    Flood,
}

const CASES: [Beside; 4] = [Beside::Same, Beside::Stall, Beside::Death, Beside::Flood];

impl Beside {
    /// In a table, and as a field.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Same => ("one like the others", "same"),
            Self::Stall => ("a reader that stalls", "stall"),
            Self::Death => ("threads that die", "death"),
            Self::Flood => ("a poster that floods", "flood"),
        }
    }
}

/// What was seen in one case, a value for each round.
struct Seen {
    gbps: Samples,
    /// Of the first case in the same round: what the machine does beside meets both.
    kept: Samples,
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let measured = in_turn(params, runner, &CASES, |&beside| measure(params, beside))?;
    let first = measured[0].clone();
    let seen: Vec<Seen> = measured
        .into_iter()
        .map(|rounds| Seen {
            kept: rounds.iter().zip(&first).map(|(gbps, of_first)| gbps / of_first).collect(),
            gbps: rounds.into_iter().collect(),
        })
        .collect();
    Ok(report(params, &seen))
}

/// Goodput of the channels that count, in Gb/s.
fn measure(params: &Params, beside: Beside) -> Result<f64, StudyError> {
    let count = |name| params.count(name) as usize;
    let (channels, bytes, depth, flood) =
        (count("channels"), count("bytes"), count("depth"), count("flood"));
    let threads = count("threads").min(channels);
    // A thread that waits for a place has one more buffer in its hands.
    let buffers = threads * (depth + 1) + 2 * depth.max(flood);
    // One more, and room for some that are being closed.
    let most = channels + 9;
    let mut rig = Rig::with(channels + 1, most, &config(most, &[(bytes, buffers)]))?;
    let extra = rig.channels.pop().ok_or_else(|| StudyError::run("set-up", "no channel"))?;
    let extra_id = extra.id();
    if beside == Beside::Stall {
        rig.server.stall(extra_id);
    }
    let counted: Vec<_> = rig.channels.iter().map(ChannelHandle::id).collect();
    let bytes_of_others =
        |server: &Counted| counted.iter().map(|&channel| server.bytes_of(channel)).sum();
    let span = Duration::from_millis(params.count("span-ms"));
    let over = AtomicBool::new(false);
    let failed = |error| StudyError::run("posting", error);
    thread::scope(|scope| {
        let (over, link) = (&over, &rig.link);
        let disturbs = scope.spawn(move || match beside {
            Beside::Same => keep_posting(&extra, bytes, depth, over),
            Beside::Flood => keep_posting(&extra, bytes, flood, over),
            Beside::Stall => post_in_vain(&extra, bytes, depth, over),
            Beside::Death => keep_dying(link, bytes, depth, over),
        });
        let posters = post_in_turn(scope, &rig.channels, threads, bytes, depth, over);
        let bits_per_s = rig.server.rate(span, bytes_of_others);
        over.store(true, Ordering::Relaxed);
        for ended in posters.into_iter().chain([disturbs]) {
            ended.join().unwrap_or(Err(PostError::Stuck)).map_err(failed)?;
        }
        Ok(bits_per_s / 1e9)
    })
}

fn keep_posting(
    channel: &ChannelHandle,
    bytes: usize,
    depth: usize,
    over: &AtomicBool,
) -> Result<(), PostError> {
    let mut poster = Poster::new(bytes, depth);
    while !over.load(Ordering::Relaxed) {
        poster.post(channel)?;
    }
    poster.finish()
}

/// To a channel that takes nothing more after its credit.
fn post_in_vain(
    channel: &ChannelHandle,
    bytes: usize,
    depth: usize,
    over: &AtomicBool,
) -> Result<(), PostError> {
    let mut poster = Poster::new(bytes, depth);
    while !over.load(Ordering::Relaxed) {
        if !poster.try_post(channel)? {
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Thread after thread opens a channel, posts to it and dies; nobody closes what it had.
fn keep_dying(
    link: &LinkHandle,
    bytes: usize,
    depth: usize,
    over: &AtomicBool,
) -> Result<(), PostError> {
    let mut waits = 0;
    while !over.load(Ordering::Relaxed) {
        let channel = match link.open_channel(true) {
            Ok(channel) => channel,
            // Those of the dead are closed when what they posted has arrived.
            Err(
                ChannelError::Link(OpenError::TooMany | OpenError::NoCredit)
                | ChannelError::Closed(CloseReason::Refused(_)),
            ) if waits < WAITS_MAX => {
                waits += 1;
                thread::sleep(LIFE);
                continue;
            }
            Err(error) => return Err(PostError::Open(error)),
        };
        waits = 0;
        let died = thread::scope(|scope| {
            let dies = move || -> Result<(), PostError> {
                let mut poster = Poster::new(bytes, depth);
                while poster.try_post(&channel)? {}
                thread::sleep(LIFE);
                resume_unwind(Box::new("on purpose"))
            };
            scope.spawn(dies).join()
        });
        // One that did not die has something to say.
        died.unwrap_or(Ok(()))?;
    }
    Ok(())
}

fn report(params: &Params, seen: &[Seen]) -> Report {
    let mut report = Report::new(STUDY.name, params);
    report.tables.push(Table {
        name: "isolation",
        title: "Goodput of the others beside one channel more; medians of rounds".to_owned(),
        columns: vec![
            Column::new("beside", "beside", "", Format::Plain),
            Column::new("goodput_gbps", "goodput", "Gb/s", Format::Decimals(2)),
            Column::new("spread_gbps", "spread", "Gb/s", Format::Decimals(2)),
            Column::new("kept", "of the first", "%", Format::Percent(1)),
            Column::new("kept_spread", "spread", "%", Format::Percent(1)),
        ],
        rows: CASES
            .iter()
            .zip(seen)
            .map(|(case, Seen { gbps, kept })| {
                let measured = [gbps.median(), gbps.spread(), kept.median(), kept.spread()];
                let mut row = vec![case.names().1.into()];
                row.extend(measured.map(Into::into));
                row
            })
            .collect(),
    });
    // Beside fewer, one more is too large a part of the link to be compared so closely.
    let is_claimed = params.count("channels") >= CLAIMED_CHANNELS;
    for (case, seen) in CASES.iter().zip(seen).skip(1).filter(|_| is_claimed) {
        let (what, name) = case.names();
        report.claims.push(Claim {
            name: format!("kept_beside_{name}"),
            what: format!("goodput kept beside {what}"),
            demand: Demand::AtLeast(95.0),
            measured: seen.kept.median() * 100.0,
            unit: "%",
            decimals: 1,
        });
    }
    let places = || (1..).map(f64::from).zip(CASES).zip(seen);
    report.plots.push(Plot {
        title: "Goodput of the others".to_owned(),
        x: Axis::linear("beside", "")
            .range(0.5, CASES.len() as f64 + 0.5)
            .ticks(places().map(|((x, case), _)| (x, case.names().0.to_owned()))),
        y: Axis::linear("of that beside one like them", "%").range(0.0, 150.0),
        series: vec![
            Series {
                label: "kept".to_owned(),
                style: Style::Points,
                points: places().map(|((x, _), seen)| (x, seen.kept.median() * 100.0)).collect(),
            },
            Series {
                label: "demanded".to_owned(),
                style: Style::Bound,
                points: vec![(0.5, 95.0), (CASES.len() as f64 + 0.5, 95.0)],
            },
        ],
    });
    report.notes.push(
        "A reader that stalls and threads that die leave the others more of the link; a poster \
         that floods gets the share of one channel."
            .to_owned(),
    );
    report
}
