//! Tables, plots and targets.

use towpath_base::passes::Pass;
use towpath_lab::cluster::Samples;
use towpath_lab::studies::{
    Axis, Cell, Claim, Column, Demand, Format, Params, Plot, Report, Series, Study, Style, Table,
    show_bytes,
};

use super::way::{StoreKind, Way};
use super::world::{Plan, Seen};

/// What the paper has for one depth: processor time and latency against those of rpc and protobuf.
struct Paper {
    depth: usize,
    cpu: f64,
    latency: f64,
}

const PAPER: [Paper; 2] = [
    Paper { depth: 1, cpu: -0.7273, latency: -0.0692 },
    Paper { depth: 16, cpu: -0.7142, latency: -0.3725 },
];

/// What the paper has of memory bandwidth at 64 KiB: sliced by the NIC, and summed too.
const PAPER_BYTES: u64 = 64 << 10;
const PAPER_SLICED: f64 = 0.70;
const PAPER_SUMMED: f64 = 0.50;

/// At the depth of this claim against gRPC.
const CLAIM_DEPTH: usize = 16;

/// Bytes of a line of a cache.
const LINE_BYTES: f64 = 64.0;

/// What a NIC touches whatever the way: it reads each byte at one end and writes it at the other.
const BY_DMA: f64 = 2.0;

impl Seen {
    fn median_us(&self) -> f64 {
        self.client.median_us
    }

    /// Microseconds of processor time of a write: at the client, at the server.
    fn cpu_us(&self) -> [f64; 2] {
        let of = |ns: u64| ns as f64 / 1e3 / self.client.writes.max(1) as f64;
        [of(self.client.client_ns), of(self.client.server_ns)]
    }

    fn cpu_sum_us(&self) -> f64 {
        self.cpu_us().iter().sum()
    }

    /// Bytes of one kind of pass for each byte that was written, of both processes.
    fn passes(&self, pass: Pass, bytes: usize) -> f64 {
        let all = self.client.memory.of(pass) + self.server.of(pass);
        all as f64 / (self.client.all.max(1) as f64 * bytes as f64)
    }

    /// Bytes that came from memory to a cache for each byte that was written, if that was counted.
    fn missed(&self, bytes: usize) -> Option<f64> {
        let lines = self.client.memory.misses? + self.server.misses?;
        Some(lines as f64 * LINE_BYTES / (self.client.all.max(1) as f64 * bytes as f64))
    }
}

fn samples(rounds: &[Seen], of: impl Fn(&Seen) -> f64) -> Samples {
    rounds.iter().map(of).collect()
}

/// By how much the first is less than the second, round by round: median, least, most.
fn change(ours: &[Seen], other: &[Seen], of: impl Fn(&Seen) -> f64) -> [f64; 3] {
    let ratios: Samples =
        ours.iter().zip(other).map(|(ours, other)| of(ours) / of(other) - 1.0).collect();
    [ratios.median(), ratios.percentile(0.0), ratios.percentile(1.0)]
}

/// Figure 14 (a) and (b).
pub(super) fn write(study: &Study, params: &Params, plans: &[Plan], seen: &[Vec<Seen>]) -> Report {
    let mut report = Report::new(study.name, params);
    report.tables.push(points(plans, seen));
    let (saved, claims) = saved(plans, seen);
    report.tables.push(saved);
    report.claims = claims;
    let stores = [StoreKind::Null, StoreKind::Chunk];
    for store in stores.into_iter().filter(|store| plans.iter().any(|plan| plan.store == *store)) {
        let name = store.word();
        let title = format!("Latency of a write to the {name} store, median");
        report.plots.push(plot(title, store, plans, seen, Seen::median_us));
        let title = format!("Processor time of a write to the {name} store");
        report.plots.push(plot(title, store, plans, seen, Seen::cpu_sum_us));
    }
    report.notes.push(
        "Medians of the rounds. Processor time is that of all threads of both processes, in user \
         and system mode. The paper compares with protobuf over its own rpc, on NICs and cloud \
         disks; here both ends share a processor, and the userspace NIC and the kernel's sockets \
         are in the figures of all ways."
            .to_owned(),
    );
    report
}

fn points(plans: &[Plan], seen: &[Vec<Seen>]) -> Table {
    let mut rows = Vec::new();
    for (plan, rounds) in plans.iter().zip(seen) {
        let cpu = samples(rounds, Seen::cpu_sum_us);
        rows.push(vec![
            plan.store.word().into(),
            Cell::Count(plan.depth as u64),
            plan.way.word().into(),
            Cell::Number(
                samples(rounds, |seen| seen.client.writes as f64 / seen.client.seconds).median(),
            ),
            Cell::Number(samples(rounds, Seen::median_us).median()),
            Cell::Number(samples(rounds, |seen| seen.client.p99_us).median()),
            Cell::Number(samples(rounds, |seen| seen.cpu_us()[0]).median()),
            Cell::Number(samples(rounds, |seen| seen.cpu_us()[1]).median()),
            Cell::Number(cpu.median()),
            Cell::Number(cpu.percentile(0.0)),
            Cell::Number(cpu.percentile(1.0)),
        ]);
    }
    Table {
        name: "points",
        title: "Sequential writes of 4 KiB".to_owned(),
        columns: vec![
            Column::new("store", "store", "", Format::Plain),
            Column::new("depth", "depth", "", Format::Plain),
            Column::new("way", "way", "", Format::Plain),
            Column::new("writes_per_s", "writes", "1/s", Format::Decimals(0)),
            Column::new("median_us", "median", "us", Format::Decimals(1)),
            Column::new("p99_us", "p99", "us", Format::Decimals(1)),
            Column::new("client_cpu_us", "CPU: client", "us", Format::Decimals(2)),
            Column::new("server_cpu_us", "server", "us", Format::Decimals(2)),
            Column::new("cpu_us", "both", "us", Format::Decimals(2)),
            Column::new("cpu_least_us", "least", "us", Format::Decimals(2)),
            Column::new("cpu_most_us", "most", "us", Format::Decimals(2)),
        ],
        rows,
    }
}

fn saved(plans: &[Plan], seen: &[Vec<Seen>]) -> (Table, Vec<Claim>) {
    let (mut rows, mut claims) = (Vec::new(), Vec::new());
    let points = || plans.iter().zip(seen);
    for (plan, ours) in points().filter(|(plan, _)| plan.way == Way::Ours) {
        let paper = PAPER.iter().find(|paper| paper.depth == plan.depth);
        let like = |other: &&(&Plan, &Vec<Seen>)| {
            other.0.way != Way::Ours && (other.0.store, other.0.depth) == (plan.store, plan.depth)
        };
        for (other, theirs) in points().collect::<Vec<_>>().iter().filter(like) {
            let cpu = change(ours, theirs, Seen::cpu_sum_us);
            let latency = change(ours, theirs, Seen::median_us);
            let mut row: Vec<Cell> = vec![
                plan.store.word().into(),
                Cell::Count(plan.depth as u64),
                other.way.word().into(),
            ];
            row.extend(cpu.map(Cell::Number));
            row.push(paper.map(|paper| paper.cpu).into());
            row.extend(latency.map(Cell::Number));
            row.push(paper.map(|paper| paper.latency).into());
            rows.push(row);
            let is_claimed = plan.store == StoreKind::Null
                && plan.depth == CLAIM_DEPTH
                && other.way == Way::Tonic;
            if is_claimed {
                claims.push(claim("cpu_against_tonic_16", "processor time", -70.0, cpu[0]));
                claims.push(claim("latency_against_tonic_16", "latency", -37.0, latency[0]));
            }
        }
    }
    let percent = Format::Percent(1);
    let table = Table {
        name: "saved",
        title: "What the fast path takes less than the others, round by round".to_owned(),
        columns: vec![
            Column::new("store", "store", "", Format::Plain),
            Column::new("depth", "depth", "", Format::Plain),
            Column::new("against", "against", "", Format::Plain),
            Column::new("cpu_change", "CPU", "%", percent),
            Column::new("cpu_change_least", "from", "%", percent),
            Column::new("cpu_change_most", "to", "%", percent),
            Column::new("paper_cpu_change", "paper", "%", percent),
            Column::new("latency_change", "latency", "%", percent),
            Column::new("latency_change_least", "from", "%", percent),
            Column::new("latency_change_most", "to", "%", percent),
            Column::new("paper_latency_change", "paper", "%", percent),
        ],
        rows,
    };
    (table, claims)
}

fn claim(name: &str, what: &str, at_most: f64, measured: f64) -> Claim {
    Claim {
        name: name.to_owned(),
        what: format!("{what} against gRPC, {CLAIM_DEPTH} writes under way, null store"),
        demand: Demand::AtMost(at_most),
        measured: measured * 100.0,
        unit: "%",
        decimals: 1,
    }
}

fn plot(
    title: String,
    store: StoreKind,
    plans: &[Plan],
    seen: &[Vec<Seen>],
    of: fn(&Seen) -> f64,
) -> Plot {
    let series = [Way::Ours, Way::Prost, Way::Tonic].into_iter().map(|way| {
        let of_way = plans.iter().zip(seen);
        let of_way = of_way.filter(|(plan, _)| (plan.way, plan.store) == (way, store));
        let points = of_way.map(|(plan, rounds)| (plan.depth as f64, samples(rounds, of).median()));
        Series { label: way.word().to_owned(), style: Style::Line, points: points.collect() }
    });
    Plot {
        title,
        x: Axis::log("under way", "writes"),
        y: Axis::linear("time", "us"),
        series: series.filter(|series| !series.points.is_empty()).collect(),
    }
}

/// Figure 14 (c).
pub(super) fn memory(study: &Study, params: &Params, plans: &[Plan], seen: &[Vec<Seen>]) -> Report {
    let mut report = Report::new(study.name, params);
    let touched: Vec<f64> =
        plans.iter().zip(seen).map(|(plan, rounds)| touched(plan, rounds)).collect();
    let is_counted = seen.iter().flatten().all(|seen| seen.missed(1).is_some());
    let mut rows = Vec::new();
    for ((plan, rounds), of_plan) in plans.iter().zip(seen).zip(&touched) {
        let first = plans.iter().position(|other| other.bytes == plan.bytes);
        let share = first.map(|first| of_plan / touched[first]);
        let at_paper = plan.bytes as u64 == PAPER_BYTES;
        let (name, paper) = match plan.way {
            Way::Apart => ("sliced", Some(PAPER_SLICED).filter(|_| at_paper)),
            Way::Ours => ("sliced and summed", Some(PAPER_SUMMED).filter(|_| at_paper)),
            Way::Prost | Way::Tonic => ("contiguous", Some(1.0)),
        };
        let pass = |kind| samples(rounds, |seen| seen.passes(kind, plan.bytes)).median();
        let missed: Samples = rounds.iter().filter_map(|seen| seen.missed(plan.bytes)).collect();
        let mb = |seen: &Seen| seen.client.writes as f64 * plan.bytes as f64 / 1e6;
        rows.push(vec![
            Cell::Count(plan.bytes as u64),
            name.into(),
            Cell::Number(pass(Pass::Crc)),
            Cell::Number(pass(Pass::Copy)),
            Cell::Number(*of_plan),
            share.into(),
            paper.into(),
            Some(missed.median()).filter(|_| is_counted).into(),
            Cell::Number(pass(Pass::Icrc) + 2.0 * (pass(Pass::Device) + pass(Pass::Socket))),
            Cell::Number(samples(rounds, Seen::cpu_sum_us).median()),
            Cell::Number(samples(rounds, |seen| mb(seen) / seen.client.seconds).median()),
        ]);
    }
    report.tables.push(Table {
        name: "traffic",
        title: "Writes to the null store: how often a byte is touched".to_owned(),
        columns: vec![
            Column::new("bytes", "write", "", Format::Bytes),
            Column::new("way", "way", "", Format::Plain),
            Column::new("sums", "sums", "", Format::Decimals(2)),
            Column::new("copies", "copies", "", Format::Decimals(2)),
            Column::new("touched", "touched", "", Format::Decimals(2)),
            Column::new("touched_share", "of contiguous", "%", Format::Percent(0)),
            Column::new("paper_share", "paper", "%", Format::Percent(0)),
            Column::new("missed", "cache misses", "", Format::Decimals(2)),
            Column::new("userspace_nic", "userspace NIC", "", Format::Decimals(2)),
            Column::new("cpu_us", "CPU", "us", Format::Decimals(1)),
            Column::new("mb_per_s", "throughput", "MB/s", Format::Decimals(0)),
        ],
        rows,
    });
    report.plots.push(traffic_plot(plans, &touched));
    report.notes.push(notes(is_counted));
    report
}

/// How often a byte is read or written above the NIC, and by its DMA.
fn touched(plan: &Plan, rounds: &[Seen]) -> f64 {
    let pass = |kind| samples(rounds, |seen| seen.passes(kind, plan.bytes)).median();
    pass(Pass::Crc) + 2.0 * pass(Pass::Copy) + BY_DMA
}

fn traffic_plot(plans: &[Plan], touched: &[f64]) -> Plot {
    let ways = [(Way::Prost, "contiguous"), (Way::Apart, "sliced"), (Way::Ours, "and summed")];
    let series = ways.map(|(way, label)| {
        let of_way = plans.iter().zip(touched).filter(|(plan, _)| plan.way == way);
        let points = of_way.map(|(plan, touched)| (plan.bytes as f64, *touched));
        Series { label: label.to_owned(), style: Style::Line, points: points.collect() }
    });
    let ticks = plans.iter().map(|plan| (plan.bytes as f64, show_bytes(plan.bytes as u64)));
    Plot {
        title: "How often a byte of a write is touched".to_owned(),
        x: Axis::log("write", "").ticks(ticks),
        y: Axis::linear("reads and writes", ""),
        series: series.to_vec(),
    }
}

fn notes(is_counted: bool) -> String {
    let misses = match is_counted {
        true => "Cache misses are lines that the last cache did not have, in bytes for each byte.",
        false => {
            "This machine has no counters of cache misses that a process may read, so passes are \
             counted by the code that makes them."
        }
    };
    format!(
        "A sum reads a byte, a copy reads and writes it; what is touched has in addition the two \
         accesses of a NIC's DMA. The userspace NIC and the sockets below it touch each byte as \
         often as the column says, whatever the way: a NIC does not. All ways have the data in \
         memory of the application, and each copies it once on its way out. {misses}"
    )
}
