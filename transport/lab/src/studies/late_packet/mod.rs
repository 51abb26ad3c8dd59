//! The adversary that delays packets past the reuse of buffers, and whose memory it changes.
//!
//! Packets are held for a random long time (past the end of their message, past the reuse of its
//! buffers, past a restart of the link on the same queue pairs) and copied, on a wire that loses
//! some too. Applications let their buffers lie between filling them and sending them, and keep
//! what they received for a while; each time they look whether any byte changed.
//!
//! | file | who is on the wire |
//! |---|---|
//! | `towpath` | Towpath, over UC |
//! | `naive` | for comparison only: chunks written straight into the application's buffers |

mod naive;
mod towpath;

use super::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Series, Study, StudyError, Style, Table,
};
use towpath_base::{Nanos, Prng};
use towpath_sim::{FaultPlan, LinkConfig};

/// The study.
pub const STUDY: Study = Study {
    name: "late-packet",
    what: "memory changed by packets that come after their buffers were used again",
    mirrors: "the late-packet hazard of UC that SDR-RDMA guards against",
    clock: Clock::Virtual,
    params: &[
        Param {
            name: "messages",
            what: "Messages through Towpath",
            unit: "messages",
            kind: Kind::Count(64..=1_000_000_000),
            many: false,
            defaults: ["32000", "1000000", "20000000"],
        },
        Param {
            name: "naive-messages",
            what: "Messages through the naive design",
            unit: "messages",
            kind: Kind::Count(64..=1_000_000_000),
            many: false,
            defaults: ["8000", "100000", "1000000"],
        },
        Param {
            name: "size-max",
            what: "The longest message; lengths are even over the orders of magnitude from 64",
            unit: "bytes",
            kind: Kind::Bytes(64..=64 << 10),
            many: false,
            defaults: ["4K", "4K", "4K"],
        },
        Param::share("late", "Share of packets that are held for long", "0.05"),
        Param {
            name: "late-us",
            what: "The longest that a packet is held",
            unit: "us",
            kind: Kind::Count(30..=100_000),
            many: false,
            defaults: ["2000", "2000", "2000"],
        },
        Param::share("copies", "Share of packets that come twice, the copy late", "0.05"),
        Param::share("loss", "Share of packets that are lost", "0.01"),
        Param {
            name: "hold-us",
            what: "The longest that an application keeps a buffer before it looks again",
            unit: "us",
            kind: Kind::Count(1..=10_000),
            many: false,
            defaults: ["50", "50", "50"],
        },
    ],
    run,
};

/// Parts that run by themselves, each with a seed of its own: so that threads have work, and that
/// results do not depend on how many threads there are.
const SHARDS: u64 = 16;

/// The least that a late packet is held: two round trips of the wire below.
const LATE_MIN: Nanos = Nanos::from_micros(20);

/// What one part of the study is given.
#[derive(Clone, Debug)]
struct Shard {
    seed: u64,
    messages: u64,
    bytes_max: u64,
    plan: FaultPlan,
    hold_max: Nanos,
}

impl Shard {
    fn wire() -> LinkConfig {
        LinkConfig {
            delay: Nanos::from_micros(5),
            queue_bytes: 16 << 20,
            rx_buffer_bytes: 16 << 20,
            ..LinkConfig::default()
        }
    }

    /// The length of the next message.
    fn draw_len(&self, prng: &mut Prng) -> u32 {
        let (low, high) = (64f64.ln(), (self.bytes_max as f64).ln());
        (low + (high - low) * prng.unit()).exp() as u32
    }
}

/// What one part saw.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    messages: u64,
    /// Packets that were held for long, and copies.
    late: u64,
    copies: u64,
    /// Chunks that came after they were no longer wanted.
    stale: u64,
    restarts: u64,
    buffers_looked_at: u64,
    bytes_changed: u64,
    /// Buffers with a byte changed.
    buffers_changed: u64,
    trace_hash: u64,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.late += other.late;
        self.copies += other.copies;
        self.stale += other.stale;
        self.restarts += other.restarts;
        self.buffers_looked_at += other.buffers_looked_at;
        self.bytes_changed += other.bytes_changed;
        self.buffers_changed += other.buffers_changed;
    }
}

/// A part of the study, and who is on its wire.
enum Job {
    Towpath(Shard),
    Naive(Shard),
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let late_max = Nanos::from_micros(params.count("late-us"));
    let plan = FaultPlan::none()
        .late(params.share("late"), LATE_MIN, late_max)
        .duplicate(params.share("copies"), late_max)
        .drop(params.share("loss"));
    let mut seeds = Prng::new(params.seed);
    let mut shard = |messages: u64, number: u64| Shard {
        seed: seeds.next_u64(),
        // The first ones take what cannot be shared out evenly.
        messages: messages / SHARDS + u64::from(number < messages % SHARDS),
        bytes_max: params.count("size-max"),
        plan: plan.clone(),
        hold_max: Nanos::from_micros(params.count("hold-us")),
    };
    let mut jobs = Vec::new();
    for number in 0..SHARDS {
        jobs.push(Job::Towpath(shard(params.count("messages"), number)));
        jobs.push(Job::Naive(shard(params.count("naive-messages"), number)));
    }
    let seen = runner.map(&jobs, |job| match job {
        Job::Towpath(shard) => towpath::run(shard),
        Job::Naive(shard) => naive::run(shard),
    })?;
    let mut report = Report::new(STUDY.name, params);
    let (mut ours, mut theirs) = (Seen::default(), Seen::default());
    let mut paths = [vec![(0.0, 0.0)], vec![(0.0, 0.0)]];
    for (number, pair) in seen.chunks(2).enumerate() {
        for (which, (sum, seen)) in [&mut ours, &mut theirs].into_iter().zip(pair).enumerate() {
            sum.add(seen);
            let name = ["towpath", "naive"][which];
            report.trace(format!("{name}, part {number}"), seen.trace_hash);
            paths[which].push((sum.messages as f64, sum.bytes_changed as f64));
        }
    }
    report.tables = vec![table(&ours, &theirs)];
    report.plots = vec![plot(paths)];
    report.claims = claims(&ours, &theirs);
    report.notes = vec![
        "Towpath receives every chunk as a SEND into a buffer of the transport, and hands it over \
         when it has looked at it; a late chunk is turned away, or finds a fresh buffer"
            .to_owned(),
        "the naive design writes chunks straight into the application's buffers (WRITE with \
         immediate data over UC, software acks, retransmission) and looks at sequence numbers \
         when the bytes are there already; it exists in this study only"
            .to_owned(),
        "both are looked at alike: buffers are filled anew as soon as they are free, kept for a \
         while, and compared byte for byte with what they should hold"
            .to_owned(),
    ];
    Ok(report)
}

fn table(ours: &Seen, theirs: &Seen) -> Table {
    let columns = vec![
        Column::new("design", "design", "", Format::Plain),
        Column::new("messages", "messages", "", Format::Plain),
        Column::new("packets_late", "held", "packets", Format::Plain),
        Column::new("packets_copied", "copied", "packets", Format::Plain),
        Column::new("chunks_stale", "stale", "chunks", Format::Plain),
        Column::new("restarts", "restarts", "", Format::Plain),
        Column::new("buffers_looked_at", "looked at", "buffers", Format::Plain),
        Column::new("buffers_changed", "changed", "buffers", Format::Plain),
        Column::new("bytes_changed", "changed", "bytes", Format::Plain),
    ];
    let row = |design: &str, seen: &Seen| -> Vec<Cell> {
        let counts = [
            seen.messages,
            seen.late,
            seen.copies,
            seen.stale,
            seen.restarts,
            seen.buffers_looked_at,
            seen.buffers_changed,
            seen.bytes_changed,
        ];
        [design.into()].into_iter().chain(counts.map(Cell::Count)).collect()
    };
    let rows = vec![row("Towpath", ours), row("naive", theirs)];
    let title = "Application memory under late and copied packets".to_owned();
    Table { name: "late_packet", title, columns, rows }
}

fn plot([ours, theirs]: [Vec<(f64, f64)>; 2]) -> Plot {
    let series = |label: &str, points: Vec<(f64, f64)>| Series {
        label: label.to_owned(),
        style: Style::Line,
        // Zero has no place on an axis of powers of ten.
        points: points.into_iter().skip(1).collect(),
    };
    Plot {
        title: "application memory that packets changed after their time".to_owned(),
        x: Axis::log("messages so far", ""),
        y: Axis::linear("changed", "bytes"),
        series: vec![
            series("Towpath over UC", ours),
            series("naive: chunks written in place", theirs),
        ],
    }
}

fn claims(ours: &Seen, theirs: &Seen) -> Vec<Claim> {
    let claim = |name: &str, what: &str, demand, measured: u64, unit| Claim {
        name: name.to_owned(),
        what: what.to_owned(),
        demand,
        measured: measured as f64,
        unit,
        decimals: 0,
    };
    let zero = Demand::AtMost(0.0);
    let some = Demand::AtLeast(1.0);
    vec![
        claim(
            "towpath_bytes_changed",
            "Towpath: memory changed",
            zero,
            ours.bytes_changed,
            "bytes",
        ),
        claim(
            "towpath_chunks_stale",
            "Towpath: the adversary got through",
            some,
            ours.stale,
            "stale chunks",
        ),
        claim(
            "naive_bytes_changed",
            "naive: the same checks see it",
            some,
            theirs.bytes_changed,
            "bytes",
        ),
    ]
}
