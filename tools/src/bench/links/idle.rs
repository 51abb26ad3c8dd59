//! What idle channels cost, and the first message after a pause.

use std::thread;
use std::time::{Duration, Instant};

use towpath_handle::{EndpointHandle, Incoming, LinkHandle};
use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Report, Runner, Study,
    StudyError, Table,
};
use towpath_transport::SendOptions;

use super::rig::{config, two_handles};

/// The study.
pub const STUDY: Study = Study {
    name: "idle",
    what: "CPU time of idle channels, and the first message after a pause",
    mirrors: "Avatar (APNet 2018), section 3.4 and figure 10b to d: poll, then block",
    clock: Clock::Machine,
    params: &[CHANNELS, SECONDS, PAUSES],
    run,
};

const CHANNELS: Param = Param {
    name: "channels",
    what: "Open channels on which nothing is sent",
    unit: "channels",
    kind: Kind::Count(0..=10_000),
    many: true,
    defaults: ["1000", "0,1000", "0,1000,10000"],
};

const SECONDS: Param = Param {
    name: "seconds",
    what: "How long nothing is sent",
    unit: "s",
    kind: Kind::Count(1..=3600),
    many: false,
    defaults: ["2", "8", "60"],
};

const PAUSES: Param = Param {
    name: "pauses",
    what: "Messages that are sent with a pause of 20 ms before each, and as many without",
    unit: "messages",
    kind: Kind::Count(1..=100_000),
    many: false,
    defaults: ["20", "200", "2000"],
};

/// Longer than a worker polls in vain.
const PAUSE: Duration = Duration::from_millis(20);

struct Point {
    channels: u64,
    /// Of one core, all threads of both ends; unknown where the system does not tell.
    cpu: Option<f64>,
    hot_us: Samples,
    cold_us: Samples,
}

/// Nanoseconds that the threads of this process have had the CPU for.
fn cpu_ns() -> Option<u64> {
    let mut total = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        // A thread may end in between.
        let Ok(text) = std::fs::read_to_string(task.ok()?.path().join("schedstat")) else {
            continue;
        };
        total += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(total)
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let points = runner.one_at_a_time().map(params.counts("channels"), |&channels| {
        measure(channels, params.count("seconds"), params.count("pauses"))
    })?;
    Ok(report(params, &points))
}

fn measure(channels: u64, seconds: u64, pauses: u64) -> Result<Point, StudyError> {
    let config = config(channels as usize + 1, &[(64, 64)]);
    let (client, server, link): (EndpointHandle, EndpointHandle, LinkHandle) =
        two_handles(&config)?;
    let failed = |error| StudyError::run("set-up", error);
    let idle: Vec<_> =
        (0..channels).map(|_| link.open_channel(true)).collect::<Result<_, _>>().map_err(failed)?;
    let channel = link.open_channel(true).map_err(failed)?;
    let soon = Duration::from_secs(10);
    let accepted = server.accept(soon).map_err(|error| StudyError::run("set-up", error))?;
    let theirs: Vec<_> = (0..=channels).map_while(|_| accepted.accept_channel(soon).ok()).collect();
    let echo = theirs.iter().find(|theirs| theirs.id() == channel.id()).cloned();
    let echo = echo.ok_or_else(|| StudyError::run("set-up", "no channel"))?;
    thread::scope(|scope| {
        scope.spawn(move || {
            while let Ok(Incoming::Message(message)) = echo.recv(Duration::from_secs(3600)) {
                if let Ok(reply) = echo.copy(&message.to_vec()) {
                    drop(echo.send(reply, SendOptions::new()));
                }
            }
        });
        let measured = (|| {
            let ask = || {
                let posted = Instant::now();
                let none = || StudyError::run("asking", "no buffer or no answer");
                let request = channel.copy(&[7; 64]).map_err(|_| none())?;
                drop(channel.send(request, SendOptions::new()));
                channel.recv(soon).map_err(|_| none())?;
                Ok(posted.elapsed().as_secs_f64() * 1e6)
            };
            let hot_us = (0..pauses).map(|_| ask()).collect::<Result<_, _>>()?;
            let late = |_| {
                thread::sleep(PAUSE);
                ask()
            };
            let cold_us = (0..pauses).map(late).collect::<Result<_, _>>()?;
            thread::sleep(Duration::from_millis(100));
            let (before, began) = (cpu_ns(), Instant::now());
            thread::sleep(Duration::from_secs(seconds));
            let spent = cpu_ns().zip(before).map(|(after, before)| after - before);
            let cpu = spent.map(|ns| ns as f64 / began.elapsed().as_nanos() as f64);
            Ok(Point { channels, cpu, hot_us, cold_us })
        })();
        drop(idle);
        link.close();
        client.shutdown();
        server.shutdown();
        measured
    })
}

fn report(params: &Params, points: &[Point]) -> Report {
    let mut report = Report::new(STUDY.name, params);
    report.tables.push(Table {
        name: "idle",
        title: "Both ends together; a message of 64 bytes and its echo".to_owned(),
        columns: vec![
            Column::new("channels", "idle channels", "", Format::Plain),
            Column::new("cpu", "CPU of a core", "%", Format::Percent(3)),
            Column::new("hot_median_us", "echo at once: median", "us", Format::Decimals(1)),
            Column::new("hot_p99_us", "p99", "us", Format::Decimals(1)),
            Column::new("cold_median_us", "after a pause: median", "us", Format::Decimals(1)),
            Column::new("cold_p99_us", "p99", "us", Format::Decimals(1)),
        ],
        rows: points
            .iter()
            .map(|point| -> Vec<Cell> {
                vec![
                    point.channels.into(),
                    point.cpu.into(),
                    point.hot_us.median().into(),
                    point.hot_us.percentile(0.99).into(),
                    point.cold_us.median().into(),
                    point.cold_us.percentile(0.99).into(),
                ]
            })
            .collect(),
    });
    if let Some((point, cpu)) =
        points.iter().find_map(|p| Some((p, p.cpu?)).filter(|_| p.channels == 1000))
    {
        report.claims.push(Claim {
            name: "cpu_at_1000".to_owned(),
            what: format!("CPU of a core with {} idle channels", point.channels),
            demand: Demand::AtMost(1.0),
            measured: cpu * 100.0,
            unit: "%",
            decimals: 2,
        });
    }
    report
}
