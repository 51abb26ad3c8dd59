//! `towpath health --breakdown`: where the time of operations goes.

use std::collections::BTreeMap;

use serde::Serialize;
use towpath_fastpath::ChunkId;
use towpath_fastpath::health::{OpKind, Phase, PhaseTimesReply, Times};
use towpath_status::say;
use towpath_transport::Nanos;

use super::{ClientSession, Room, open_with};
use crate::cli::args::HealthArgs;
use crate::cli::bytes::{show_count, show_size};
use crate::cli::error::CliError;
use crate::cli::interrupt::Interrupt;
use crate::cli::session::{Pipeline, Probed, SessionError};
use crate::cli::{print_json, print_text};
use crate::columns::columns;

/// Blocks that are written and read, round and round: more than a cache of one page flatters.
const BLOCKS: u64 = 64;

/// How long the removal of the chunk may take after an interruption.
const REMOVE_WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// The percentiles that are shown.
const PERCENTILES: [f64; 4] = [50.0, 90.0, 99.0, 99.9];

/// The JSON object of `towpath health --breakdown`.
#[derive(Debug, Serialize)]
struct Breakdown {
    /// All requests since the server started, by kind.
    server: BTreeMap<&'static str, ServerSide>,
    /// What this program asked for; none where it asked for nothing.
    probe: Option<ProbeReport>,
}

/// What the requests of one kind took at the server.
#[derive(Debug, Serialize)]
struct ServerSide {
    count: u64,
    /// Of all phases together.
    mean_us: f64,
    parts: BTreeMap<&'static str, Spread>,
}

#[derive(Debug, Serialize)]
struct ProbeReport {
    block_bytes: u64,
    seconds: u32,
    kinds: BTreeMap<&'static str, KindReport>,
}

/// What the requests of one kind took that this program asked for, one at a time.
#[derive(Debug, Serialize)]
struct KindReport {
    count: u64,
    whole: Spread,
    client: Spread,
    waiting: Spread,
    /// What is left of the waiting in the mean: the network, both kernels, and the wake-ups.
    network_mean_us: f64,
    round_trip: Spread,
    /// What the server counted meanwhile; requests of others of the kind are among these.
    server: ServerSide,
}

/// How times are spread, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
}

impl From<&Times> for Spread {
    fn from(times: &Times) -> Self {
        let [p50_us, p90_us, p99_us, p99_9_us] =
            PERCENTILES.map(|percent| times.percentile_ns(percent) / 1e3);
        Self { mean_us: times.mean_ns() / 1e3, p50_us, p90_us, p99_us, p99_9_us }
    }
}

impl Spread {
    fn cells(&self) -> [String; 5] {
        [self.mean_us, self.p50_us, self.p90_us, self.p99_us, self.p99_9_us]
            .map(|us| format!("{us:.1}"))
    }
}

/// What the server told of its phases at one time.
type Told = Vec<PhaseTimesReply>;

fn told(found: &Told, kind: OpKind, phase: Phase) -> Times {
    let of = |reply: &&PhaseTimesReply| (reply.kind, reply.phase) == (kind as u32, phase as u32);
    found.iter().find(of).map(PhaseTimesReply::times).unwrap_or_default()
}

impl ServerSide {
    /// What was told of one kind between two looks.
    fn between(before: &Told, after: &Told, kind: OpKind) -> Self {
        let since = |phase| told(after, kind, phase).since(&told(before, kind, phase));
        let phases = Phase::ALL.map(|phase| (phase, since(phase)));
        Self {
            count: phases.iter().map(|(_, times)| times.count()).max().unwrap_or(0),
            mean_us: phases.iter().map(|(_, times)| times.mean_ns()).sum::<f64>() / 1e3,
            parts: phases.iter().map(|(phase, times)| (phase.name(), times.into())).collect(),
        }
    }
}

impl KindReport {
    fn new(probed: &Probed, server: ServerSide) -> Self {
        let waiting = Spread::from(&probed.waiting);
        Self {
            count: probed.whole.count(),
            whole: (&probed.whole).into(),
            client: (&probed.client).into(),
            waiting,
            network_mean_us: (waiting.mean_us - server.mean_us).max(0.0),
            round_trip: (&probed.round_trip).into(),
            server,
        }
    }
}

/// Shows where the time of operations goes.
pub(crate) fn breakdown(args: &HealthArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let room = Room {
        pools: vec![(towpath_fastpath::resident::slots_bytes(args.block as usize), 4)],
        op_bytes: args.block,
    };
    let mut session = open_with(&args.server, &room, interrupt)?;
    let since_start = times_of(&mut session)?;
    let probe = match args.seconds {
        0 => None,
        _ => {
            Some(with_chunk(&mut session, interrupt, |session, chunk| probe(session, chunk, args))?)
        }
    };
    session.close()?;
    let kinds =
        OpKind::ALL.map(|kind| (kind.name(), ServerSide::between(&Vec::new(), &since_start, kind)));
    let server = kinds.into_iter().filter(|(_, side)| side.count > 0).collect();
    let report = Breakdown { server, probe };
    if args.server.link.json { print_json(&report) } else { print_text(&report.text()) }
}

fn times_of(session: &mut ClientSession) -> Result<Told, SessionError> {
    Ok(session.health_with_times()?.times)
}

/// Does something with a fresh chunk, and removes it whatever came of that.
fn with_chunk<T>(
    session: &mut ClientSession,
    interrupt: &Interrupt,
    run: impl FnOnce(&mut ClientSession, ChunkId) -> Result<T, SessionError>,
) -> Result<T, CliError> {
    let chunk = ChunkId::random();
    session.create(chunk, false).inspect_err(|_| {
        say(format_args!(
            "towpath: the breakdown writes to a chunk of its own: `--seconds 0` shows what the \
             server knows without that"
        ));
    })?;
    let ran = run(session, chunk);
    if interrupt.check().is_err() {
        session.pace().last_wait(REMOVE_WAIT);
    }
    let removed = session.delete(chunk).inspect_err(|_| {
        say(format_args!(
            "towpath: the chunk {chunk} could not be removed: `towpath rm {chunk}` removes it"
        ));
    });
    let ran = ran?;
    removed?;
    Ok(ran)
}

fn probe(
    session: &mut ClientSession,
    chunk: ChunkId,
    args: &HealthArgs,
) -> Result<ProbeReport, SessionError> {
    let (block, byte_len) = (args.block as usize, args.block * BLOCKS);
    // Half of the time for each kind.
    let half = Nanos::from_millis(500 * u64::from(args.seconds));
    let all = Pipeline { depth: 8, op_bytes: args.block };
    let fill = |_, out: &mut [u8]| {
        out.fill(0);
        Ok::<(), SessionError>(())
    };
    session.write_range(chunk, 0..byte_len, all, fill, |_| {})?;
    let mut kinds = BTreeMap::new();
    let mut before = times_of(session)?;
    for kind in [OpKind::Write, OpKind::Read] {
        if kind == OpKind::Read {
            session.finish(chunk, byte_len)?;
        }
        let probed = session.probe(chunk, kind == OpKind::Write, (block, BLOCKS), half)?;
        let after = times_of(session)?;
        let server = ServerSide::between(&before, &after, kind);
        kinds.insert(kind.name(), KindReport::new(&probed, server));
        before = after;
    }
    Ok(ProbeReport { block_bytes: args.block, seconds: args.seconds, kinds })
}

const HEAD: [&str; 7] = ["", "part", "mean us", "p50", "p90", "p99", "p99.9"];

impl Breakdown {
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(probe) = &self.probe {
            text += &probe.text();
            text.push('\n');
        }
        text += "All requests at the server since it started\n";
        if self.server.is_empty() {
            return text + "none\n";
        }
        let mut rows = Vec::new();
        for (kind, side) in &self.server {
            let name = format!("{kind}, {}", show_count(side.count));
            rows.push(row(&name, "all of it", mean_alone(side.mean_us)));
            rows.extend(side.rows());
        }
        text + &columns(HEAD, &[0, 1], &rows)
    }
}

impl ServerSide {
    fn rows(&self) -> impl Iterator<Item = [String; 7]> + '_ {
        // In the order in which a request goes through them.
        let each = Phase::ALL
            .into_iter()
            .filter_map(|phase| self.parts.get(phase.name()).map(|spread| (phase.name(), spread)));
        each.map(|(name, spread)| row("", &format!("server: {name}"), spread.cells()))
    }
}

impl ProbeReport {
    fn text(&self) -> String {
        let mut text =
            format!("Requests of {} of this program, one at a time\n", show_size(self.block_bytes));
        let mut rows = Vec::new();
        for (kind, report) in &self.kinds {
            let name = format!("{kind}, {}", show_count(report.count));
            rows.push(row(&name, "all of it", report.whole.cells()));
            rows.push(row("", "client", report.client.cells()));
            rows.push(row("", "network", mean_alone(report.network_mean_us)));
            rows.push(row("", "(a round trip)", report.round_trip.cells()));
            rows.extend(report.server.rows());
        }
        text += &columns(HEAD, &[0, 1], &rows);
        for (kind, report) in &self.kinds {
            let others = report.server.count.saturating_sub(report.count);
            if others > 0 {
                text += &format!(
                    "{} of the {kind}s at the server were of others meanwhile, and are in its \
                     parts\n",
                    show_count(others)
                );
            }
        }
        text
    }
}

fn row(kind: &str, part: &str, cells: [String; 5]) -> [String; 7] {
    let [mean, p50, p90, p99, p99_9] = cells;
    [kind.to_owned(), part.to_owned(), mean, p50, p90, p99, p99_9]
}

/// The cells of what has no percentiles.
fn mean_alone(us: f64) -> [String; 5] {
    let none = String::new;
    [format!("{us:.1}"), none(), none(), none(), none()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server tells of so many requests of one kind, each phase of which took so long.
    fn tells(kind: OpKind, count: u64, ns: u64) -> Told {
        let mut buckets = vec![0; towpath_fastpath::health::TIME_BUCKETS];
        buckets[towpath_fastpath::health::time_bucket(ns)] = count;
        let of = |phase: Phase| PhaseTimesReply {
            kind: kind as u32,
            phase: phase as u32,
            buckets: buckets.clone(),
            sum_ns: count * ns,
        };
        Phase::ALL.map(of).into()
    }

    #[test]
    fn the_means_of_the_parts_are_the_mean_of_the_whole() {
        let (before, after) = (tells(OpKind::Read, 10, 7_500), tells(OpKind::Read, 30, 7_500));
        let mut probed = Probed::default();
        for (whole, client) in [(100_000, 10_000), (300_000, 30_000)] {
            probed.whole.record(whole);
            probed.client.record(client);
            probed.waiting.record(whole - client);
        }
        let report = KindReport::new(&probed, ServerSide::between(&before, &after, OpKind::Read));
        // 20 requests of 7.5 us a phase came between the two looks.
        assert_eq!((report.count, report.server.count), (2, 20));
        let parts: f64 = report.server.parts.values().map(|part| part.mean_us).sum();
        assert!((parts - report.server.mean_us).abs() < 1e-6, "{parts}");
        let sum = report.client.mean_us + report.network_mean_us + report.server.mean_us;
        assert!((sum - report.whole.mean_us).abs() < 1e-6, "{sum}: {report:?}");
        assert_eq!(told(&after, OpKind::Write, Phase::Disk).count(), 0, "of the kind alone");
    }

    #[test]
    fn the_table_has_each_part_of_each_kind_and_says_what_others_did() {
        let server =
            || ServerSide::between(&Vec::new(), &tells(OpKind::Write, 7, 5_000), OpKind::Write);
        let mut probed = Probed::default();
        probed.whole.record(70_000);
        let kinds = BTreeMap::from([("write", KindReport::new(&probed, server()))]);
        let probe = Some(ProbeReport { block_bytes: 4096, seconds: 2, kinds });
        let report = Breakdown { server: BTreeMap::from([("write", server())]), probe };
        let text = report.text();
        for words in [
            "Requests of 4 KiB of this program, one at a time\n",
            "write, 1",
            "client",
            "network",
            "(a round trip)",
            "server: queue",
            "server: flush",
            "6 of the writes at the server were of others meanwhile",
            "All requests at the server since it started\n",
            "write, 7",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let empty = Breakdown { server: BTreeMap::new(), probe: None };
        assert_eq!(empty.text(), "All requests at the server since it started\nnone\n");
    }
}
