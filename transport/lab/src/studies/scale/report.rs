//! The study: how the cost of an event grows with the hosts.

use super::{Cost, bare, growth_beyond_log, medians, whole};
use crate::failure::Cause;
use crate::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Series, Study, StudyError, Style, Table,
};
use towpath_base::Nanos;

/// The study.
pub const STUDY: Study = Study {
    name: "scale",
    what: "events a second of the simulator as hosts grow, bare and with the whole stack",
    mirrors: "no published counterpart: it says how large the other studies may be",
    clock: Clock::Machine,
    params: &[
        Param {
            name: "hosts",
            what: "Hosts of the bare runs",
            unit: "hosts",
            kind: Kind::Count(2..=16_384),
            many: true,
            defaults: ["16,256", "16,64,256,1024,4096", "16,64,256,1024,4096,16384"],
        },
        Param {
            name: "stack-hosts",
            what: "Hosts of the runs with the whole stack",
            unit: "hosts",
            kind: Kind::Count(2..=16_384),
            many: true,
            defaults: ["16", "16,64,256,1024", "16,64,256,1024,4096"],
        },
        Param {
            name: "packets",
            what: "Packets that each run carries, about",
            unit: "packets",
            kind: Kind::Count(1_000..=1_000_000_000),
            many: false,
            defaults: ["100000", "1000000", "10000000"],
        },
        Param {
            name: "rounds",
            what: "Rounds in which each bare size is run once; medians count",
            unit: "rounds",
            kind: Kind::Count(1..=99),
            many: false,
            defaults: ["1", "3", "5"],
        },
    ],
    run,
};

/// Packets that a busy host of these runs takes in each microsecond, about.
const PACKETS_PER_HOST_US: u64 = 2;

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let packets = params.count("packets");
    let span = |hosts: u64| {
        Nanos::from_micros((packets / (PACKETS_PER_HOST_US * hosts)).clamp(50, 1_000_000))
    };
    // One after the other: they are measured in real time.
    let alone = runner.one_at_a_time();
    let seed = params.seed;
    let mut report = Report::new(STUDY.name, params);
    let mut measure = |sizes: &[u64], run: &(dyn Fn(u64) -> Result<Cost, Cause> + Sync)| {
        let label = |hosts: &u64| format!("{hosts} hosts");
        let seen = report.run(&alone, sizes.to_vec(), label, |&n| run(n), |cost| &cost.end)?;
        Ok::<Vec<Cost>, StudyError>(seen.into_iter().map(|(_, cost)| cost).collect())
    };
    let run_bare = |n: u64| bare(seed, n as usize, span(n));
    let mut rounds = vec![measure(params.counts("hosts"), &|n| Ok(run_bare(n)))?];
    let stack_costs = measure(params.counts("stack-hosts"), &|n| whole(seed, n as usize, span(n)))?;
    for _ in 1..params.count("rounds") {
        rounds.push(alone.map(params.counts("hosts"), |&n| Ok(run_bare(n)))?);
    }
    let bare_costs = medians(rounds);
    report.tables = vec![table(&bare_costs, &stack_costs)];
    report.plots = vec![plot(&bare_costs, &stack_costs)];
    report.claims = claims(&bare_costs);
    report.notes = vec![
        "these figures are of the machine and the moment: time on the processor where the system \
         tells, but caches are shared, so run it on a quiet one; of bare sizes the median of \
         rounds that take turns; what is simulated is the same each time"
            .to_owned(),
        "bare: full packets tossed between hosts at random; whole stack: an endpoint over the \
         userspace NIC on each host, with all checksums, every message checked"
            .to_owned(),
    ];
    Ok(report)
}

fn table(bare: &[Cost], stack: &[Cost]) -> Table {
    let columns = vec![
        Column::new("kind", "what", "", Format::Plain),
        Column::new("hosts", "hosts", "", Format::Plain),
        Column::new("events", "events", "", Format::Plain),
        Column::new("events_per_s", "events", "M/s", Format::Decimals(2)),
        Column::new("packets_per_s", "packets", "M/s", Format::Decimals(2)),
        Column::new("ns_per_event", "each event", "ns", Format::Decimals(0)),
    ];
    let row = |kind: &str, cost: &Cost| -> Vec<Cell> {
        vec![
            kind.into(),
            (cost.hosts as u64).into(),
            cost.events.into(),
            (cost.events_per_s() / 1e6).into(),
            (cost.packets as f64 / cost.seconds / 1e6).into(),
            cost.ns_per_event().into(),
        ]
    };
    let rows = bare.iter().map(|cost| row("bare", cost));
    let rows = rows.chain(stack.iter().map(|cost| row("whole stack", cost)));
    let title = "What the simulator costs, on one core".to_owned();
    Table { name: "cost", title, columns, rows: rows.collect() }
}

fn plot(bare: &[Cost], stack: &[Cost]) -> Plot {
    let line = |label: &str, costs: &[Cost]| Series {
        label: label.to_owned(),
        style: Style::Line,
        points: costs.iter().map(|cost| (cost.hosts as f64, cost.ns_per_event())).collect(),
    };
    let log = bare.first().map(|first| {
        let per_log = first.ns_per_event() / (first.hosts as f64).ln();
        let points = bare.iter().map(|cost| {
            let hosts = cost.hosts as f64;
            (hosts, per_log * hosts.ln())
        });
        let label = "bare, if it grew with the logarithm".to_owned();
        Series { label, style: Style::Bound, points: points.collect() }
    });
    let lines = [line("bare", bare), line("whole stack", stack)];
    Plot {
        title: "what an event costs".to_owned(),
        x: Axis::log("hosts", ""),
        y: Axis::linear("time for an event", "ns"),
        series: lines.into_iter().chain(log).filter(|line| !line.points.is_empty()).collect(),
    }
}

fn claims(bare: &[Cost]) -> Vec<Claim> {
    let slowest = bare.iter().map(Cost::events_per_s).fold(f64::INFINITY, f64::min);
    let claim = |name: &str, what: &str, demand, measured, unit| Claim {
        name: name.to_owned(),
        what: what.to_owned(),
        demand,
        measured,
        unit,
        decimals: 2,
    };
    let rate = "packet events on one core, slowest size";
    let growth = growth_beyond_log(bare).map(|growth| {
        let what = "growth of the cost of an event, of the logarithm's";
        claim("growth_of_log", what, Demand::AtMost(1.0), growth, "")
    });
    [claim("events_per_s", rate, Demand::AtLeast(1.0), slowest / 1e6, "M/s")]
        .into_iter()
        .chain(growth)
        .collect()
}
