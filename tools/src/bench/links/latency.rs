//! What handing messages over to a worker adds to their latency (Avatar, figure 10a).

use std::time::{Duration, Instant};

use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner, Series,
    Study, StudyError, Style, Table, show_bytes,
};
use towpath_transport::{Event, SendOptions};

use super::ROUNDS;
use super::rig::{OwnLoop, Rig, config};
use super::rounds::in_turn;
use towpath_lab::solo::Poster;

/// The study.
pub const STUDY: Study = Study {
    name: "latency",
    what: "completion time of a message with a worker between, beside a loop of one's own",
    mirrors: "Avatar (APNet 2018), figure 10a: 64 B to 256 KB, one thread, one connection",
    clock: Clock::Machine,
    params: &[SIZES, MESSAGES, ROUNDS],
    run,
};

const SIZES: Param = Param {
    name: "sizes",
    what: "Bytes of a message",
    unit: "bytes",
    kind: Kind::Bytes(1..=1 << 20),
    many: true,
    defaults: ["64,4K", "64,1K,4K,16K,64K,256K", "64,256,1K,4K,16K,64K,256K"],
};

const MESSAGES: Param = Param {
    name: "messages",
    what: "Messages of each round, one after the other; a tenth as many go before",
    unit: "messages",
    kind: Kind::Count(10..=10_000_000),
    many: false,
    defaults: ["500", "2000", "20000"],
};

/// Cores that it takes for client, worker and server each to have one, and one for the rest.
const CORES: usize = 4;

struct Point {
    bytes: u64,
    own: Samples,
    worker: Samples,
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let sizes = params.counts("sizes");
    let measured = in_turn(params, runner, sizes, |&bytes| {
        let (bytes, messages) = (bytes as usize, params.count("messages") as usize);
        Ok((own_loop(bytes, messages)?, worker(bytes, messages)?))
    })?;
    let points: Vec<Point> = sizes
        .iter()
        .zip(&measured)
        .map(|(&bytes, rounds)| Point {
            bytes,
            own: rounds.iter().flat_map(|run| run.0.iter().copied()).collect(),
            worker: rounds.iter().flat_map(|run| run.1.iter().copied()).collect(),
        })
        .collect();
    Ok(report(params, &points))
}

/// Times `messages` of what `one` does, after a tenth as many, in microseconds.
fn times(
    messages: usize,
    mut one: impl FnMut() -> Result<(), StudyError>,
) -> Result<Vec<f64>, StudyError> {
    for _ in 0..messages / 10 {
        one()?;
    }
    let mut times = Vec::with_capacity(messages);
    for _ in 0..messages {
        let posted = Instant::now();
        one()?;
        times.push(posted.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

fn own_loop(bytes: usize, messages: usize) -> Result<Vec<f64>, StudyError> {
    let mut client = OwnLoop::new(1, &config(1, &[(bytes, 4)]).quota_chunks(64))?;
    let (link, channel) = (client.link, client.channels[0]);
    times(messages, || {
        let failed = |cause: &str| StudyError::run("posting", cause);
        let buf = client.endpoint.alloc(bytes);
        let mut buf = buf.map_err(|error| StudyError::run("posting", error))?;
        buf.set_len(bytes).map_err(|error| StudyError::run("posting", error))?;
        let sent = client.endpoint.send(link, channel, buf, SendOptions::new());
        sent.map_err(|rejected| StudyError::run("posting", rejected.error))?;
        client.endpoint.flush();
        let (mut done, until) = (false, Instant::now() + Duration::from_secs(10));
        while !done {
            client.endpoint.turn(|_, event| done |= matches!(event, Event::Sent { .. }));
            if Instant::now() > until {
                return Err(failed("no acknowledgement"));
            }
        }
        Ok(())
    })
}

fn worker(bytes: usize, messages: usize) -> Result<Vec<f64>, StudyError> {
    let rig = Rig::new(1, &config(1, &[(bytes, 4)]).quota_chunks(64))?;
    let mut poster = Poster::new(bytes, 1);
    times(messages, || {
        let posted = poster.post(&rig.channels[0]).and_then(|()| poster.wait());
        posted.map_err(|error| StudyError::run("posting", error))
    })
}

fn report(params: &Params, points: &[Point]) -> Report {
    let mut report = Report::new(STUDY.name, params);
    let added = |point: &Point| point.worker.median() - point.own.median();
    report.tables.push(Table {
        name: "latency",
        title: "From the post to the outcome; all rounds together".to_owned(),
        columns: vec![
            Column::new("bytes", "message", "", Format::Bytes),
            Column::new("own_median_us", "own loop: median", "us", Format::Decimals(2)),
            Column::new("own_p99_us", "p99", "us", Format::Decimals(2)),
            Column::new("worker_median_us", "worker: median", "us", Format::Decimals(2)),
            Column::new("worker_p99_us", "p99", "us", Format::Decimals(2)),
            Column::new("added_us", "added", "us", Format::Decimals(2)),
        ],
        rows: points
            .iter()
            .map(|point| {
                vec![
                    point.bytes.into(),
                    point.own.median().into(),
                    point.own.percentile(0.99).into(),
                    point.worker.median().into(),
                    point.worker.percentile(0.99).into(),
                    added(point).into(),
                ]
            })
            .collect(),
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let short = points.iter().filter(|point| point.bytes <= 16 << 10);
    if cores >= CORES {
        if let Some(most) = short.map(added).reduce(f64::max) {
            report.claims.push(Claim {
                name: "added_us_up_to_16k".to_owned(),
                what: "what the worker adds, up to 16 KiB".to_owned(),
                demand: Demand::AtMost(3.0),
                measured: most,
                unit: "us",
                decimals: 1,
            });
        }
    } else {
        report.notes.push(format!(
            "Client, worker and server want a core each: with {cores} the figures are those of \
             the scheduler, and nothing is claimed."
        ));
    }
    let series = |label: &str, of: fn(&Point) -> &Samples| Series {
        label: label.to_owned(),
        style: Style::Line,
        points: points.iter().map(|point| (point.bytes as f64, of(point).median())).collect(),
    };
    let ticks = points.iter().map(|point| (point.bytes as f64, show_bytes(point.bytes)));
    report.plots.push(Plot {
        title: "From the post to the outcome, median".to_owned(),
        x: Axis::log("message", "").ticks(ticks),
        y: Axis::linear("time", "us"),
        series: vec![
            series("own loop", |point| &point.own),
            series("worker", |point| &point.worker),
        ],
    });
    report.notes.push(
        "Avatar adds 1 to 3 us below 16 KB, nothing at 64 KB, and saves 37 % at 256 KB.".to_owned(),
    );
    report
}
