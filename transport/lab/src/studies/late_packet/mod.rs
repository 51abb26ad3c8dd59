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
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
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
        Param::count("messages", "messages", 64..=1_000_000_000, ["32000", "1000000", "20000000"])
            .what("Messages through Towpath"),
        Param::count(
            "naive-messages",
            "messages",
            64..=1_000_000_000,
            ["8000", "100000", "1000000"],
        )
        .what("Messages through the naive design"),
        Param::size("size-max", 64..=64 << 10, ["4K"; 3])
            .what("The longest message; lengths are even over the orders of magnitude from 64"),
        Param::share("late", 0.0..=0.2, ["0.05"; 3])
            .what("Share of packets that are held for long"),
        Param::count("late-us", "us", 30..=100_000, ["2000"; 3])
            .what("The longest that a packet is held"),
        Param::share("copies", 0.0..=0.2, ["0.05"; 3])
            .what("Share of packets that come twice, the copy late"),
        Param::share("loss", 0.0..=0.2, ["0.01"; 3]).what("Share of packets that are lost"),
        Param::count("hold-us", "us", 1..=10_000, ["50"; 3])
            .what("The longest that an application keeps a buffer before it looks again"),
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
    report.note(&[
        "Towpath receives every chunk as a SEND into a buffer of the transport, and hands it over \
         when it has looked at it; a late chunk is turned away, or finds a fresh buffer",
        "the naive design writes chunks straight into the application's buffers (WRITE with \
         immediate data over UC, software acks, retransmission) and looks at sequence numbers \
         when the bytes are there already; it exists in this study only",
        "both are looked at alike: buffers are filled anew as soon as they are free, kept for a \
         while, and compared byte for byte with what they should hold",
    ]);
    Ok(report)
}

fn table(ours: &Seen, theirs: &Seen) -> Table {
    let title = "Application memory under late and copied packets";
    Table::of("late_packet", title, &[("Towpath", ours), ("naive", theirs)])
        .plain("design", "design", "", |&(design, _)| design)
        .plain("messages", "messages", "", |(_, seen)| seen.messages)
        .plain("packets_late", "held", "packets", |(_, seen)| seen.late)
        .plain("packets_copied", "copied", "packets", |(_, seen)| seen.copies)
        .plain("chunks_stale", "stale", "chunks", |(_, seen)| seen.stale)
        .plain("restarts", "restarts", "", |(_, seen)| seen.restarts)
        .plain("buffers_looked_at", "looked at", "buffers", |(_, seen)| seen.buffers_looked_at)
        .plain("buffers_changed", "changed", "buffers", |(_, seen)| seen.buffers_changed)
        .plain("bytes_changed", "changed", "bytes", |(_, seen)| seen.bytes_changed)
        .done()
}

fn plot([ours, theirs]: [Vec<(f64, f64)>; 2]) -> Plot {
    // Zero has no place on an axis of powers of ten.
    let series = |label: &str, points: Vec<(f64, f64)>| {
        Series::new(label, Style::Line, points.into_iter().skip(1))
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
    let claim = |name: &str, what: &str, demand, measured: u64, unit| {
        Claim::new(name, what, demand, measured as f64, unit, 0)
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
