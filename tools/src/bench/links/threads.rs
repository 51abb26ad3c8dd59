//! Throughput against the number of threads that share a link, beside a mutex around it (Avatar,
//! figures 1 and 5b), and beside threads with a queue pair each and no Towpath.

mod raw;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Series, Study, StudyError, Style, Table,
};
use towpath_transport::{
    Buf, ChannelId, Endpoint, EndpointConfig, Event, LinkId, RoceUdp, SendOptions,
};

use super::connections::DEPTH;
use super::rig::{Counted, OwnLoop, Rig, config, throughput};
use super::rounds::in_turn;
use super::{BYTES, ROUNDS, SPAN};
use raw::RawThreads;

/// The study.
pub const STUDY: Study = Study {
    name: "threads",
    what: "throughput against the number of threads that share a link, beside a mutex, and beside \
           a queue pair of RC for each",
    mirrors: "Avatar (APNet 2018), figures 1 and 5b: threads that share a queue pair, 4 KB",
    clock: Clock::Machine,
    params: &[THREADS, BYTES, DEPTH, SPAN, ROUNDS],
    run,
};

const THREADS: Param = Param {
    name: "threads",
    what: "Threads that post, each to a channel of its own; the first is what the others are \
           compared with",
    unit: "threads",
    kind: Kind::Count(1..=256),
    many: true,
    defaults: ["1,4,16", "1,2,3,4,6,9,12,16", "1,2,3,4,5,6,7,8,9,10,12,14,16"],
};

/// What the paper has left of one thread's throughput with a lock.
const PAPER: [(u64, f64); 3] = [(1, 1.0), (3, 0.66), (9, 0.56)];

/// How threads come to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each posts to a queue of its own, without a lock; one worker has the queue pairs.
    Queues,
    /// Whoever has the lock posts a message, and sees to the link.
    Mutex,
    /// Each has a queue pair of RC of its own, without Towpath.
    QueuePairs,
}

const WAYS: [Way; 3] = [Way::Queues, Way::Mutex, Way::QueuePairs];

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let threads = params.counts("threads");
    let points: Vec<(Way, u64)> =
        threads.iter().flat_map(|&count| WAYS.map(|way| (way, count))).collect();
    let measured = in_turn(params, runner, &points, |&(way, count)| {
        let bytes = params.count("bytes") as usize;
        let (threads, depth) = (count as usize, params.count("depth") as usize);
        let span = Duration::from_millis(params.count("span-ms"));
        let config = config(threads, &[(bytes, threads * (depth + 1))]);
        let bits_per_s = match way {
            Way::Queues => throughput(&Rig::new(threads, &config)?, threads, bytes, depth, span)?,
            Way::Mutex => Locked::new(threads, &config)?.throughput(bytes, depth, span)?,
            Way::QueuePairs => RawThreads::new(threads, bytes, depth)?.throughput(bytes, span)?,
        };
        Ok(bits_per_s / 1e9)
    })?;
    let samples: Vec<Samples> =
        measured.into_iter().map(|rounds| rounds.into_iter().collect()).collect();
    let of = |way: Way| -> Vec<&Samples> {
        samples.iter().zip(&points).filter(|(_, point)| point.0 == way).map(|(s, _)| s).collect()
    };
    Ok(report(params, threads, WAYS.map(of)))
}

fn report(params: &Params, threads: &[u64], ways: [Vec<&Samples>; 3]) -> Report {
    let [queues, mutex, raw] = ways.each_ref().map(Vec::as_slice);
    let mut report = Report::new(STUDY.name, params);
    let paper = |count: u64| PAPER.iter().find(|&&(of, _)| of == count).map(|&(_, left)| left);
    report.tables.push(Table {
        name: "threads",
        title: "Threads of one link; medians of rounds".to_owned(),
        columns: vec![
            Column::new("threads", "threads", "", Format::Plain),
            Column::new("queues_gbps", "queues", "Gb/s", Format::Decimals(2)),
            Column::new("queues_spread_gbps", "spread", "Gb/s", Format::Decimals(2)),
            Column::new("queues_of_first", "of the first", "%", Format::Percent(1)),
            Column::new("mutex_gbps", "mutex", "Gb/s", Format::Decimals(2)),
            Column::new("mutex_spread_gbps", "spread", "Gb/s", Format::Decimals(2)),
            Column::new("mutex_of_first", "of the first", "%", Format::Percent(1)),
            Column::new("paper_mutex_of_first", "paper's lock", "%", Format::Percent(0)),
            Column::new("raw_gbps", "a queue pair each", "Gb/s", Format::Decimals(2)),
            Column::new("raw_spread_gbps", "spread", "Gb/s", Format::Decimals(2)),
            Column::new("queues_of_raw", "queues of that", "%", Format::Percent(1)),
        ],
        rows: threads
            .iter()
            .enumerate()
            .map(|(place, &count)| -> Vec<Cell> {
                vec![
                    count.into(),
                    queues[place].median().into(),
                    queues[place].spread().into(),
                    of_first(queues, place).into(),
                    mutex[place].median().into(),
                    mutex[place].spread().into(),
                    of_first(mutex, place).into(),
                    paper(count).into(),
                    raw[place].median().into(),
                    raw[place].spread().into(),
                    (queues[place].median() / raw[place].median()).into(),
                ]
            })
            .collect(),
    });
    if let Some(place) = threads.iter().position(|&count| count == 16) {
        report.claims.push(Claim {
            name: "queues_of_first_at_16".to_owned(),
            what: format!("goodput of 16 threads, of that of {}", threads[0]),
            demand: Demand::AtLeast(95.0),
            measured: of_first(queues, place) * 100.0,
            unit: "%",
            decimals: 1,
        });
    }
    report.plots.push(drawing(threads, queues, mutex));
    report.plots.push(rates(threads, [("queues", queues), ("mutex", mutex), ("RC each", raw)]));
    report.notes.push(
        "With queues one thread is two: it and the worker, so that on few cores the second one \
         is what more threads compete with."
            .to_owned(),
    );
    report.notes.push(
        "With a queue pair each, a thread has a NIC of its own too and drives it itself; nothing \
         is ordered, checked end to end or controlled by round trips there, and threads of one \
         host share nothing."
            .to_owned(),
    );
    report
}

/// What is left of the first one's goodput.
fn of_first(samples: &[&Samples], place: usize) -> f64 {
    samples[place].median() / samples.first().map_or(f64::NAN, |first| first.median())
}

fn drawing(threads: &[u64], queues: &[&Samples], mutex: &[&Samples]) -> Plot {
    let series = |label: &str, style, points: Vec<(f64, f64)>| Series {
        label: label.to_owned(),
        style,
        points,
    };
    let line = |samples: &[&Samples]| -> Vec<(f64, f64)> {
        let points = threads.iter().enumerate();
        points.map(|(place, &n)| (n as f64, of_first(samples, place) * 100.0)).collect()
    };
    Plot {
        title: "Goodput against threads of one link".to_owned(),
        x: Axis::linear("threads", ""),
        y: Axis::linear("goodput of the first", "%"),
        series: vec![
            series("queues", Style::Line, line(queues)),
            series("mutex", Style::Line, line(mutex)),
            series(
                "Avatar's lock",
                Style::Points,
                PAPER.iter().map(|&(n, left)| (n as f64, left * 100.0)).collect(),
            ),
        ],
    }
}

/// What each way has, not of the first.
fn rates(threads: &[u64], ways: [(&str, &[&Samples]); 3]) -> Plot {
    let line = |(label, samples): (&str, &[&Samples])| {
        let points = threads.iter().zip(samples);
        let points = points.map(|(&count, samples)| (count as f64, samples.median()));
        Series::new(label, Style::Line, points)
    };
    Plot {
        title: "Goodput of threads".to_owned(),
        x: Axis::linear("threads", ""),
        y: Axis::linear("goodput", "Gb/s"),
        series: ways.into_iter().map(line).collect(),
    }
}

/// The client of the mutex: whoever has it drives the endpoint.
struct Locked {
    client: Mutex<Client>,
    link: LinkId,
    channels: Vec<ChannelId>,
    server: Counted,
}

struct Client {
    endpoint: Endpoint<RoceUdp>,
    /// Buffers that came back, by the thread whose they are.
    back: Vec<Vec<Buf>>,
    failed: bool,
}

impl Locked {
    fn new(channels: usize, config: &EndpointConfig) -> Result<Self, StudyError> {
        let OwnLoop { endpoint, link, channels, server } = OwnLoop::new(channels, config)?;
        let back = channels.iter().map(|_| Vec::new()).collect();
        let client = Mutex::new(Client { endpoint, back, failed: false });
        Ok(Self { client, link, channels, server })
    }

    /// As [`throughput`] of a rig.
    fn throughput(&self, bytes: usize, depth: usize, span: Duration) -> Result<f64, StudyError> {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            for place in 0..self.channels.len() {
                let over = &over;
                scope.spawn(move || {
                    let mut left = depth;
                    while !over.load(Ordering::Relaxed) && self.post(place, bytes, &mut left) {}
                });
            }
            let bits_per_s = self.server.bits_per_s(span);
            over.store(true, Ordering::Relaxed);
            let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
            if client.failed {
                return Err(StudyError::run("posting", "a message was not delivered"));
            }
            Ok(bits_per_s)
        })
    }

    /// Posts a message of the thread at `place`, if it may have one more under way, and drives the
    /// endpoint, all under the lock.
    fn post(&self, place: usize, bytes: usize, left: &mut usize) -> bool {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let Client { endpoint, back, failed } = &mut *client;
        let mut buf = back[place].pop();
        if buf.is_none() && *left > 0 {
            *left -= 1;
            buf = endpoint.alloc(bytes).ok();
            if let Some(buf) = &mut buf {
                *failed |= buf.set_len(bytes).is_err();
            }
        }
        if let Some(buf) = buf {
            let options = SendOptions::new().token(place as u64);
            *failed |= endpoint.send(self.link, self.channels[place], buf, options).is_err();
        }
        endpoint.turn(|_, event| {
            if let Event::Sent { token, payload, .. } = event {
                back[token as usize].extend(payload.into_bufs());
            }
        });
        !*failed
    }
}
