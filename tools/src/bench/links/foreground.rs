//! How long a short message takes beside long ones, on a channel of its own and in one queue with
//! them (Avatar, figures 2 and 6 to 9).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use towpath_handle::ChannelHandle;
use towpath_lab::cluster::Samples;
use towpath_lab::failure::{Cause, PostError};
use towpath_lab::solo::{Application, Poster, ReaderState};
use towpath_lab::studies::foreground::{Lane, Point, Seen, depth, fill};
use towpath_lab::studies::{
    CONTROLLER, Clock, Kind, Param, Params, Report, Runner, Study, StudyError, controller_of,
};
use towpath_transport::{EndpointConfig, Nanos, Time};

use super::drive::{DRIVE, Drive, in_one_thread};
use super::rig::{Counted, Rig, config};
use super::rounds::in_turn;
use super::{ROUNDS, SPAN};

/// The study.
pub const STUDY: Study = Study {
    name: "foreground",
    what: "completion time of a message beside long ones: a channel of its own, or one queue",
    mirrors: "Avatar (APNet 2018), figures 2 and 6 to 9: 16 KB beside 16 KB to 1 GB",
    clock: Clock::Machine,
    params: &[BYTES, BACKGROUND, DEPTH, AHEAD, CONTROLLER, DRIVE, READER, SPAN, ROUNDS],
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

const READER: Param = Param {
    name: "reader",
    what: "Where one thread drives all, what the reader takes in at its turn: all that came \
           (keeps-up), or what one poll takes (one-poll)",
    unit: "",
    kind: Kind::Word(|word| match word {
        "keeps-up" | "one-poll" => Ok(()),
        _ => Err("keeps-up or one-poll"),
    }),
    many: false,
    defaults: ["keeps-up"; 3],
};

/// The fewest foreground messages of a measurement.
const SAMPLES_MIN: usize = 2;

/// Threads that are busy where each has its own: both posters, the worker, the server.
const THREADS: usize = 4;

/// How long a measurement may take beyond its span.
const PATIENCE: Nanos = Nanos::from_secs(120);

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let drive = Drive::of(params, THREADS);
    let backgrounds = params.counts("background");
    let points: Vec<(u64, Lane)> = backgrounds
        .iter()
        .flat_map(|&bytes| [Lane::Own, Lane::Shared].map(|lane| (bytes, lane)))
        .collect();
    let points: Vec<Point> = match drive {
        Drive::Threads => {
            let measured = in_turn(params, runner, &points, |&(bytes, lane)| {
                by_threads(params, bytes as usize, lane)
            })?;
            let lanes = backgrounds.iter().zip(measured.chunks(2));
            lanes.map(|(&bytes, lanes)| Point::of(bytes, &lanes[0], &lanes[1])).collect()
        }
        Drive::Turns => {
            let measured =
                in_turn(params, runner, backgrounds, |&bytes| in_turns(params, bytes as usize))?;
            let rounds = backgrounds.iter().zip(measured);
            rounds
                .map(|(&bytes, rounds)| {
                    let (own, shared): (Vec<Seen>, Vec<Seen>) = rounds.into_iter().unzip();
                    Point::of(bytes, &own, &shared)
                })
                .collect()
        }
    };
    let mut report = Report::new(STUDY.name, params);
    fill(&mut report, "Completion of foreground messages; all rounds together", &points);
    drive.mark(&mut report, THREADS);
    Ok(report)
}

fn set_up(params: &Params, background: usize) -> EndpointConfig {
    let (bytes, depth) =
        (params.count("bytes") as usize, depth(params, background as u64) as usize);
    config(2, &[(bytes, 4), (background, depth + 1)])
        .quota_chunks(64)
        .credit_total(512)
        .ahead_bytes(params.count("ahead"))
        .controller(controller_of(params.word("controller")).unwrap_or_default())
}

fn by_threads(params: &Params, background: usize, lane: Lane) -> Result<Seen, StudyError> {
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

/// The completion times of messages in turn, and what else came meanwhile; the first fifth of the
/// span does not count.
fn complete(
    server: &Counted,
    channel: &ChannelHandle,
    bytes: usize,
    span: Duration,
) -> Result<Seen, PostError> {
    let mut poster = Poster::new(bytes, 1);
    thread::sleep(span / 5);
    let (mut times_us, came, began) = (Samples::new(), server.bytes(), Instant::now());
    while began.elapsed() < span || times_us.len() < SAMPLES_MIN {
        let posted = Instant::now();
        poster.post(channel)?;
        poster.wait()?;
        times_us.add(posted.elapsed().as_secs_f64() * 1e6);
    }
    let elapsed_s = began.elapsed().as_secs_f64();
    let others = (server.bytes() - came).saturating_sub((times_us.len() * bytes) as u64);
    Ok(Seen { times_us, background_gbps: others as f64 * 8.0 / elapsed_s / 1e9 })
}

/// What came of one lane so far.
#[derive(Default)]
struct OnLane {
    times_us: Samples,
    /// What the reader took in meanwhile, and how long that was.
    bytes: u64,
    span: Nanos,
}

impl OnLane {
    fn seen(self, bytes: usize) -> Seen {
        let others = self.bytes.saturating_sub((self.times_us.len() * bytes) as u64);
        Seen { times_us: self.times_us, background_gbps: others as f64 * 8.0 / self.span.0 as f64 }
    }
}

/// Both applications, where one thread drives them. The background goes on all the time; messages
/// in the foreground go to either lane in turn, so that both have the same beside them.
struct Both {
    background: (Poster, ChannelHandle),
    foreground: Poster,
    lanes: [(ChannelHandle, OnLane); 2],
    /// The lane of the message that is under way, or of the next.
    lane: usize,
    /// The first message in the foreground is sent then.
    start: Time,
    /// When the one that is under way was posted.
    posted: Option<ReaderState>,
}

impl Application for Both {
    fn turn(&mut self, at: ReaderState) -> Result<bool, Cause> {
        let (poster, channel) = &mut self.background;
        let mut busy = false;
        while poster.try_post(channel)? {
            busy = true;
        }
        self.foreground.take_outcomes()?;
        if self.foreground.under_way() > 0 {
            return Ok(busy);
        }
        if let Some(posted) = self.posted.take() {
            let (span, (_, lane)) = (at.now.since(posted.now), &mut self.lanes[self.lane]);
            lane.times_us.add(span.0 as f64 / 1e3);
            lane.bytes += at.bytes_read - posted.bytes_read;
            lane.span = lane.span + span;
            self.lane = 1 - self.lane;
        }
        if at.now >= self.start && self.foreground.try_post(&self.lanes[self.lane].0)? {
            self.posted = Some(at);
            busy = true;
        }
        Ok(busy)
    }

    fn next_time(&self, now: Time) -> Time {
        if self.start > now { self.start } else { Time::NEVER }
    }
}

/// On a channel of its own, and in one queue with the background.
fn in_turns(params: &Params, background: usize) -> Result<(Seen, Seen), StudyError> {
    let failed = |cause: Cause| StudyError::run("posting", cause);
    // Each lane has half of it.
    let span = Nanos::from_millis(2 * params.count("span-ms"));
    let bytes = params.count("bytes") as usize;
    let mut solo = in_one_thread(|| set_up(params, background))?;
    solo.set_keeps_up(params.word("reader") == "keeps-up");
    let (channel, own) = (solo.open().map_err(failed)?, solo.open().map_err(failed)?);
    let depth = depth(params, background as u64) as usize;
    let start = solo.now() + Nanos(span.0 / 10);
    let mut both = Both {
        lanes: [own, channel.clone()].map(|channel| (channel, OnLane::default())),
        background: (Poster::new(background, depth), channel),
        foreground: Poster::new(bytes, 1),
        lane: 0,
        start,
        posted: None,
    };
    solo.run(&mut both, start + span, |_| false).map_err(failed)?;
    let has_enough =
        |both: &Both| both.lanes.iter().all(|(_, lane)| lane.times_us.len() >= SAMPLES_MIN);
    solo.run(&mut both, start + span + PATIENCE, has_enough).map_err(failed)?;
    let [(_, own), (_, shared)] = both.lanes;
    Ok((own.seen(bytes), shared.seen(bytes)))
}
