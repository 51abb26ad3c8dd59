//! How long a short message takes beside long ones, on a channel of its own and in one queue with
//! them (Avatar, figures 2 and 6 to 9).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use towpath_lab::cluster::Samples;
use towpath_lab::studies::foreground::{Lane, Point, Seen, depth, fill};
use towpath_lab::studies::{Kind, Param, Params, Report, Runner, Study, StudyError};
use towpath_transport::{ChannelHandle, EndpointConfig};

use super::poster::{PostError, Poster};
use super::rig::{Counted, Rig, config};
use super::rounds::in_turn;
use super::{ROUNDS, SPAN};

/// The study.
pub const STUDY: Study = Study {
    name: "foreground",
    what: "completion time of a message beside long ones: a channel of its own, or one queue",
    mirrors: "Avatar (APNet 2018), figures 2 and 6 to 9: 16 KB beside 16 KB to 1 GB",
    params: &[BYTES, BACKGROUND, DEPTH, AHEAD, SPAN, ROUNDS],
    run,
};

const BYTES: Param = Param {
    name: "bytes",
    what: "Bytes of a foreground message; one is under way at a time",
    unit: "bytes",
    kind: Kind::Bytes(1..=1 << 20),
    many: false,
    defaults: ["16K", "16K", "16K"],
};

const BACKGROUND: Param = Param {
    name: "background",
    what: "Bytes of a background message",
    unit: "bytes",
    kind: Kind::Bytes(1..=1 << 30),
    many: true,
    defaults: ["128K", "16K,64K,128K,1M,16M,1G", "16K,32K,64K,128K,256K,1M,16M,128M,1G"],
};

const DEPTH: Param = Param {
    name: "depth",
    what: "Background messages under way; of long ones fewer, to make 64 MiB, and two at least",
    unit: "messages",
    kind: Kind::Count(2..=256),
    many: false,
    defaults: ["16", "16", "16"],
};

const AHEAD: Param = Param {
    name: "ahead",
    what: "What a link may have posted and not sent",
    unit: "bytes",
    kind: Kind::Bytes(1..=1 << 30),
    many: false,
    defaults: ["256K", "256K", "256K"],
};

/// The fewest foreground messages of a measurement.
const SAMPLES_MIN: usize = 2;

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let backgrounds = params.counts("background");
    let points: Vec<(u64, Lane)> = backgrounds
        .iter()
        .flat_map(|&bytes| [Lane::Own, Lane::Shared].map(|lane| (bytes, lane)))
        .collect();
    let measured =
        in_turn(params, runner, &points, |&(bytes, lane)| measure(params, bytes as usize, lane))?;
    let mut seen = measured.into_iter().map(|rounds| {
        let gbps: Samples = rounds.iter().map(|round| round.background_gbps).collect();
        Seen {
            times_us: rounds.iter().flat_map(|round| round.times_us.iter().copied()).collect(),
            background_gbps: gbps.median(),
        }
    });
    let mut next = || seen.next().unwrap_or_default();
    let points: Vec<Point> = backgrounds
        .iter()
        .map(|&background_bytes| Point { background_bytes, own: next(), shared: next() })
        .collect();
    let mut report = Report::new(STUDY.name, params);
    fill(&mut report, "Completion of foreground messages; all rounds together", &points);
    Ok(report)
}

fn set_up(params: &Params, background: usize) -> EndpointConfig {
    let (bytes, depth) =
        (params.count("bytes") as usize, depth(params, background as u64) as usize);
    config(2, &[(bytes, 4), (background, depth + 1)])
        .quota_chunks(64)
        .credit_total(512)
        .ahead_bytes(params.count("ahead"))
}

fn measure(params: &Params, background: usize, lane: Lane) -> Result<Round, StudyError> {
    let rig = Rig::new(2, &set_up(params, background))?;
    let span = Duration::from_millis(params.count("span-ms"));
    let over = AtomicBool::new(false);
    let failed = |error| StudyError::run("posting", error);
    thread::scope(|scope| {
        let (over, channel) = (&over, &rig.channels[0]);
        let depth = depth(params, background as u64) as usize;
        let others = scope.spawn(move || -> Result<(), PostError> {
            let mut poster = Poster::new(background, depth);
            while !over.load(Ordering::Relaxed) {
                poster.post(channel)?;
            }
            poster.finish()
        });
        let own = match lane {
            Lane::Own => &rig.channels[1],
            Lane::Shared => channel,
        };
        let measured = complete(&rig.server, own, params.count("bytes") as usize, span);
        over.store(true, Ordering::Relaxed);
        others.join().unwrap_or(Err(PostError::Stuck)).map_err(failed)?;
        measured.map_err(failed)
    })
}

/// What one measurement gave.
struct Round {
    times_us: Vec<f64>,
    background_gbps: f64,
}

/// The completion times of messages in turn, and what else came meanwhile; the first fifth of the
/// span does not count.
fn complete(
    server: &Counted,
    channel: &ChannelHandle,
    bytes: usize,
    span: Duration,
) -> Result<Round, PostError> {
    let mut poster = Poster::new(bytes, 1);
    thread::sleep(span / 5);
    let (mut times_us, came, began) = (Vec::new(), server.bytes(), Instant::now());
    while began.elapsed() < span || times_us.len() < SAMPLES_MIN {
        let posted = Instant::now();
        poster.post(channel)?;
        poster.wait()?;
        times_us.push(posted.elapsed().as_secs_f64() * 1e6);
    }
    let elapsed_s = began.elapsed().as_secs_f64();
    let others = (server.bytes() - came).saturating_sub((times_us.len() * bytes) as u64);
    Ok(Round { times_us, background_gbps: others as f64 * 8.0 / elapsed_s / 1e9 })
}
