//! What is left to the others beside a channel whose reader stalls, a thread that dies holding a
//! handle, and a poster that floods.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use towpath_handle::{ChannelHandle, LinkHandle};
use towpath_lab::failure::{Cause, PostError};
use towpath_lab::solo::{Beside, Crowd, Lives, Poster, Queues};
use towpath_lab::studies::isolation::{Seen, endpoint, fill};
use towpath_lab::studies::{Clock, Kind, Param, Params, Report, Runner, Study, StudyError};
use towpath_transport::{ChannelError, CloseReason, Nanos, OpenError};

use super::connections::DEPTH;
use super::drive::{DRIVE, Drive, in_one_thread};
use super::rig::{Counted, Rig, post_in_turn};
use super::rounds::in_turn;
use super::{BYTES, ROUNDS, SPAN};

/// The study.
pub const STUDY: Study = Study {
    name: "isolation",
    what: "throughput of channels beside one that stalls, dies or floods",
    mirrors: "Avatar (APNet 2018), section 3: one application must not be felt by the others",
    clock: Clock::Machine,
    params: &[CHANNELS, THREADS, FLOOD, BYTES, DEPTH, DRIVE, SPAN, ROUNDS],
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
    what: "Threads or applications that post to them, each to its share of the channels in turn",
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

/// Busy threads beside those whose throughput counts: the one more, the worker, the server.
const THREADS_BESIDE: usize = 3;

/// How many cases there are.
const CASES: usize = Beside::ALL.len();

/// Where one thread drives all, the cases take turns in parts of this length: a thousand times what
/// a message takes, and a fraction of what other programs do at a time.
const PART: Nanos = Nanos::from_millis(10);

/// How long what is under way may take to arrive.
const PATIENCE: Nanos = Nanos::from_secs(10);

/// How many lives to wait for room at most: ten seconds, as for any outcome.
const WAITS_MAX: u32 = 2000;

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let lives = lives(params);
    let threads = lives.applications + THREADS_BESIDE;
    let drive = Drive::of(params, threads);
    let span = Duration::from_millis(params.count("span-ms"));
    let measured: Vec<Vec<f64>> = match drive {
        Drive::Threads => {
            in_turn(params, runner, &Beside::ALL, |&beside| by_threads(&lives, beside, span))?
        }
        Drive::Turns => {
            let rounds = in_turn(params, runner, &[()], |()| in_turns(&lives, span.into()))?;
            let parts: Vec<_> = rounds.into_iter().flatten().flatten().collect();
            let of_case = |case: usize| parts.iter().map(|gbps| gbps[case]).collect();
            (0..CASES).map(of_case).collect()
        }
    };
    let mut report = Report::new(STUDY.name, params);
    fill(&mut report, params, &Seen::of(Queues::Own, &measured));
    drive.mark(&mut report, threads);
    Ok(report)
}

fn lives(params: &Params) -> Lives {
    let count = |name| params.count(name) as usize;
    Lives {
        seed: params.seed,
        channels: count("channels"),
        applications: count("threads").min(count("channels")),
        bytes: count("bytes"),
        depth: count("depth"),
        flood: count("flood"),
        life: LIFE.into(),
        queues: Queues::Own,
    }
}

/// Goodput of the channels that count in each case, in Gb/s, in each part of a span. All cases have
/// one link with its buffers and sockets, and follow each other in each part: where memory happens
/// to lie and what the machine does beside meets all of them.
fn in_turns(lives: &Lives, span: Nanos) -> Result<Vec<[f64; CASES]>, StudyError> {
    let failed = |cause: Cause| StudyError::run("posting", cause);
    let lives = Lives { life: Nanos(PART.0 / 4), ..*lives };
    let mut solo = in_one_thread(|| endpoint(&lives))?;
    let mut parts = Vec::new();
    for part in 0..(span.0 / PART.0).max(1) as usize {
        let mut gbps = [0.0; CASES];
        for case in (0..CASES).cycle().skip(part % CASES).take(CASES) {
            let crowd = Crowd::gather(&mut solo, &lives, Beside::ALL[case]);
            let mut crowd = crowd.map_err(failed)?;
            let (bits, took) = crowd.deliver(&mut solo, Nanos(PART.0 / 5), PART).map_err(failed)?;
            gbps[case] = bits as f64 / took.0 as f64;
            if !crowd.settle(&mut solo, PATIENCE).map_err(failed)? {
                return Err(StudyError::run("posting", PostError::Stuck));
            }
        }
        parts.push(gbps);
    }
    Ok(parts)
}

/// The same of one case, with a thread for each application, for the worker and for the server.
fn by_threads(lives: &Lives, beside: Beside, span: Duration) -> Result<f64, StudyError> {
    let Lives { channels, applications, bytes, depth, flood, .. } = *lives;
    let mut rig = Rig::with(channels + 1, lives.channels_max(), &endpoint(lives))?;
    let extra = rig.channels.pop().ok_or_else(|| StudyError::run("set-up", "no channel"))?;
    let extra_id = extra.id();
    if beside == Beside::Stall {
        rig.server.stall(extra_id);
    }
    let counted: Vec<_> = rig.channels.iter().map(ChannelHandle::id).collect();
    let bytes_of_others =
        |server: &Counted| counted.iter().map(|&channel| server.bytes_of(channel)).sum();
    let over = AtomicBool::new(false);
    let failed = |error| StudyError::run("posting", error);
    thread::scope(|scope| {
        let (over, link) = (&over, &rig.link);
        let disturbs = scope.spawn(move || match beside {
            Beside::Same => keep_posting(&extra, bytes, depth, over),
            Beside::Flood => keep_posting(&extra, bytes, flood, over),
            Beside::Stall => post_in_vain(&extra, bytes, depth, over),
            Beside::Death => {
                drop(extra);
                keep_dying(link, bytes, depth, over)
            }
        });
        let posters = post_in_turn(scope, &rig.channels, applications, bytes, depth, over);
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
        let mut poster = Poster::new(bytes, depth);
        let died = thread::scope(|scope| {
            let poster = &mut poster;
            let dies = move || -> Result<(), PostError> {
                while poster.try_post(&channel)? {}
                thread::sleep(LIFE);
                resume_unwind(Box::new("on purpose"))
            };
            scope.spawn(dies).join()
        });
        // One that did not die has something to say.
        died.unwrap_or(Ok(()))?;
        // What it posted has its share of the link until it has arrived.
        poster.finish()?;
    }
    Ok(())
}
