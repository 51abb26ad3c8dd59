//! Throughput against the number of workers that the links of two hosts are spread over.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use towpath_handle::{ChannelHandle, EndpointHandle};
use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Clock, Column, Format, Kind, Param, Params, Plot, Report, Runner, Series, Study,
    StudyError, Style, Table,
};
use towpath_transport::{
    Endpoint, EndpointConfig, Event, Nanos, Placing, RoceUdp, UdpConfig, Workers, roce_udp_group,
};

use super::connections::DEPTH;
use super::rounds::in_turn;
use super::{BYTES, ROUNDS, SPAN};
use crate::random::random;
use towpath_lab::failure::PostError;
use towpath_lab::solo::Poster;

/// The study.
pub const STUDY: Study = Study {
    name: "workers",
    what: "throughput against the number of workers that links are spread over, at both ends",
    mirrors: "no figure: Avatar (APNet 2018) has one worker for each core",
    clock: Clock::Machine,
    params: &[WORKERS, LINKS, BYTES, DEPTH, SPAN, ROUNDS],
    run,
};

const WORKERS: Param = Param {
    name: "workers",
    what: "Workers of each end; the first is what the others are compared with",
    unit: "workers",
    kind: Kind::Count(1..=64),
    many: true,
    defaults: ["1,2", "1,2,4", "1,2,3,4,6,8,12,16"],
};

const LINKS: Param = Param {
    name: "links",
    what: "Links between the two ends, spread evenly, or one for each worker if that is more",
    unit: "links",
    kind: Kind::Count(1..=256),
    many: false,
    defaults: ["8", "16", "16"],
};

/// Receive buffers that are posted for a link: all links of an end together have some hundreds of
/// MiB then, and a link's window stays above what its share of the socket's buffer lets through.
const RECEIVES: u32 = 128;

/// One measurement.
struct Run {
    bits_per_s: f64,
    /// Packets that came to another worker than theirs.
    handed_over: u64,
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let workers = params.counts("workers");
    let runs = in_turn(params, runner, workers, |&count| measure(params, count as usize))?;
    let points: Vec<(u64, Samples, u64)> = workers
        .iter()
        .zip(&runs)
        .map(|(&count, rounds)| {
            let gbps = rounds.iter().map(|run| run.bits_per_s / 1e9).collect();
            (count, gbps, rounds.iter().map(|run| run.handed_over).sum())
        })
        .collect();
    Ok(report(params, &points))
}

fn report(params: &Params, points: &[(u64, Samples, u64)]) -> Report {
    let mut report = Report::new(STUDY.name, params);
    let cores = available_parallelism().map_or(1, usize::from);
    let first = points.first().map_or(f64::NAN, |(_, gbps, _)| gbps.median());
    report.tables.push(Table {
        name: "workers",
        title: format!("Workers of each end on {cores} cores; medians of rounds"),
        columns: vec![
            Column::new("workers", "workers", "", Format::Plain),
            Column::new("cores", "cores", "", Format::Plain),
            Column::new("goodput_gbps", "goodput", "Gb/s", Format::Decimals(2)),
            Column::new("goodput_spread_gbps", "spread", "Gb/s", Format::Decimals(2)),
            Column::new("of_first", "of the first", "%", Format::Percent(1)),
            Column::new("handed_over", "handed over", "packets", Format::Plain),
        ],
        rows: points
            .iter()
            .map(|(count, gbps, handed_over)| {
                vec![
                    (*count).into(),
                    (cores as u64).into(),
                    gbps.median().into(),
                    gbps.spread().into(),
                    (gbps.median() / first).into(),
                    (*handed_over).into(),
                ]
            })
            .collect(),
    });
    report.plots.push(Plot {
        title: format!("Goodput against workers of each end, {cores} cores"),
        x: Axis::linear("workers of each end", ""),
        y: Axis::linear("goodput", "Gb/s"),
        series: vec![Series {
            label: "all links".to_owned(),
            style: Style::Line,
            points: points.iter().map(|(n, gbps, _)| (*n as f64, gbps.median())).collect(),
        }],
    });
    report.notes.push(format!(
        "A worker of each end and who posts to it are three threads, and this machine has {cores} \
         cores: what is beyond them shows what sharing cores costs, not how workers scale."
    ));
    report
}

/// Both ends with so many workers, and posters that keep all links busy.
fn measure(params: &Params, count: usize) -> Result<Run, StudyError> {
    let (bytes, depth) = (params.count("bytes") as usize, params.count("depth") as usize);
    let span = Duration::from_millis(params.count("span-ms"));
    let links = (params.count("links") as usize).max(count);
    let per_worker = links.div_ceil(count);
    let config = EndpointConfig::new()
        .links_max(per_worker + 1)
        .receives_ready(RECEIVES)
        .send_pools(&[(bytes, depth + 1)]);
    let server = Server::new(count, &config)?;
    let of_client = Workers::new(count, Placing::default(), random());
    let devices = roce_udp_group(udp(), &config, count).map_err(failed)?;
    let spawn = |(index, device)| {
        EndpointHandle::spawn(move || Ok(device), config.clone().of_worker(&of_client, index))
    };
    let client = devices.into_iter().enumerate().map(spawn).collect::<Result<Vec<_>, _>>();
    let client = client.map_err(failed)?;
    // By worker, since a buffer is its worker's.
    let mut channels: Vec<Vec<ChannelHandle>> = vec![Vec::new(); count];
    for link in 0..links {
        let worker = link % count;
        let link = client[worker].connect(server.addr).map_err(failed)?;
        channels[worker].push(link.open_channel(true).map_err(failed)?);
    }
    let over = AtomicBool::new(false);
    let bits_per_s = thread::scope(|scope| {
        let over = &over;
        let posters: Vec<_> = channels
            .iter()
            .map(|channels| scope.spawn(move || keep_busy(channels, bytes, depth, over)))
            .collect();
        let bits_per_s = server.bits_per_s(span);
        over.store(true, Ordering::Relaxed);
        for poster in posters {
            let ended = poster.join().unwrap_or(Err(PostError::Stuck));
            ended.map_err(|error| StudyError::run("posting", error))?;
        }
        Ok(bits_per_s)
    })?;
    drop(channels);
    client.into_iter().for_each(EndpointHandle::shutdown);
    Ok(Run { bits_per_s, handed_over: server.stop() })
}

fn keep_busy(
    channels: &[ChannelHandle],
    bytes: usize,
    depth: usize,
    over: &AtomicBool,
) -> Result<(), PostError> {
    let mut poster = Poster::new(bytes, depth);
    for channel in channels.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        poster.post(channel)?;
    }
    poster.finish()
}

fn udp() -> UdpConfig {
    UdpConfig::new(Ipv4Addr::LOCALHOST.into())
}

fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StudyError {
    StudyError::run("set-up", cause)
}

/// Workers that count what arrives.
struct Server {
    addr: SocketAddr,
    bytes: Vec<Arc<AtomicU64>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Server {
    fn new(count: usize, config: &EndpointConfig) -> Result<Self, StudyError> {
        let workers = Workers::new(count, Placing::default(), random());
        let devices = roce_udp_group(udp(), config, count).map_err(failed)?;
        let mut endpoints = Vec::new();
        for (index, device) in devices.into_iter().enumerate() {
            let config = config.clone().of_worker(&workers, index);
            endpoints.push(Endpoint::new(device, config).map_err(failed)?);
        }
        let addr = endpoints[0].listen((Ipv4Addr::LOCALHOST, 0).into()).map_err(failed)?;
        let bytes: Vec<Arc<AtomicU64>> = (0..count).map(|_| Arc::default()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let worker = |(endpoint, bytes): (_, &Arc<AtomicU64>)| {
            let (bytes, stop) = (Arc::clone(bytes), Arc::clone(&stop));
            thread::spawn(move || serve(endpoint, &bytes, &stop))
        };
        let threads = endpoints.into_iter().zip(&bytes).map(worker).collect();
        Ok(Self { addr, bytes, stop, threads })
    }

    fn bytes(&self) -> u64 {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Payload bits in a second that arrive in a span from now on, after a fifth of it went before.
    fn bits_per_s(&self, span: Duration) -> f64 {
        thread::sleep(span / 5);
        let (bytes, began) = (self.bytes(), Instant::now());
        thread::sleep(span);
        (self.bytes() - bytes) as f64 * 8.0 / began.elapsed().as_secs_f64()
    }

    /// Ends the workers; returns how many packets came to another than theirs.
    fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        // What a thread has to say about its end was said on stderr.
        self.threads.drain(..).map(|thread| thread.join().unwrap_or(0)).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn serve(mut endpoint: Endpoint<RoceUdp>, bytes: &AtomicU64, stop: &AtomicBool) -> u64 {
    while !stop.load(Ordering::Relaxed) {
        let is_busy = endpoint.turn(|at, event| match event {
            Event::Message(message) => {
                bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
                at.release(message);
            }
            Event::StreamChunk { chunk, .. } => {
                bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
            _ => {}
        });
        if !is_busy {
            endpoint.wait(Nanos::from_millis(1));
        }
    }
    let counters = endpoint.device().link().first().udp_counters();
    counters.handed_over + counters.handed_over_lost
}
