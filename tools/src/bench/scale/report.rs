//! The study: how the cost of an event grows with the hosts.

use super::{Cost, bare, growth_beyond_log, medians, whole};
use towpath_base::Nanos;
use towpath_lab::failure::Cause;
use towpath_lab::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};

/// The study.
pub const STUDY: Study = Study {
    name: "scale",
    what: "events a second of the simulator as hosts grow, bare and with the whole stack",
    mirrors: "no published counterpart: it says how large the other studies may be",
    clock: Clock::Machine,
    params: &[
        Param::counts(
            "hosts",
            "hosts",
            2..=16_384,
            ["16,256", "16,64,256,1024,4096", "16,64,256,1024,4096,16384"],
        )
        .what("Hosts of the bare runs"),
        Param::counts(
            "stack-hosts",
            "hosts",
            2..=16_384,
            ["16", "16,64,256,1024", "16,64,256,1024,4096"],
        )
        .what("Hosts of the runs with the whole stack"),
        Param::count(
            "packets",
            "packets",
            1_000..=1_000_000_000,
            ["100000", "1000000", "10000000"],
        )
        .what("Packets that each run carries, about"),
        Param::count("rounds", "rounds", 1..=99, ["1", "3", "5"])
            .what("Rounds in which each bare size is run once; medians count"),
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
    report.note(&[
        "these figures are of the machine and the moment: time on the processor where the system \
         tells, but caches are shared, so run it on a quiet one; of bare sizes the median of \
         rounds that take turns; what is simulated is the same each time",
        "bare: full packets tossed between hosts at random; whole stack: an endpoint over the \
         userspace NIC on each host, with all checksums, every message checked",
    ]);
    Ok(report)
}

fn table(bare: &[Cost], stack: &[Cost]) -> Table {
    let rows = bare.iter().map(|cost| ("bare", cost));
    let rows: Vec<_> = rows.chain(stack.iter().map(|cost| ("whole stack", cost))).collect();
    Table::of("cost", "What the simulator costs, on one core", &rows)
        .plain("kind", "what", "", |&(kind, _)| kind)
        .plain("hosts", "hosts", "", |(_, cost)| cost.hosts)
        .plain("events", "events", "", |(_, cost)| cost.events)
        .decimals(2, "events_per_s", "events", "M/s", |(_, cost)| cost.events_per_s() / 1e6)
        .decimals(2, "packets_per_s", "packets", "M/s", |(_, cost)| {
            cost.packets as f64 / cost.seconds / 1e6
        })
        .decimals(0, "ns_per_event", "each event", "ns", |(_, cost)| cost.ns_per_event())
        .done()
}

fn plot(bare: &[Cost], stack: &[Cost]) -> Plot {
    let line = |label: &str, costs: &[Cost]| {
        let points = costs.iter().map(|cost| (cost.hosts as f64, cost.ns_per_event()));
        Series::new(label, Style::Line, points)
    };
    let log = bare.first().map(|first| {
        let per_log = first.ns_per_event() / (first.hosts as f64).ln();
        let points = bare.iter().map(|cost| {
            let hosts = cost.hosts as f64;
            (hosts, per_log * hosts.ln())
        });
        Series::new("bare, if it grew with the logarithm", Style::Bound, points)
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
    let rate = "packet events on one core, slowest size";
    let rate = Claim::new("events_per_s", rate, Demand::AtLeast(1.0), slowest / 1e6, "M/s", 2);
    let growth = growth_beyond_log(bare).map(|growth| {
        let what = "growth of the cost of an event, of the logarithm's";
        Claim::new("growth_of_log", what, Demand::AtMost(1.0), growth, "", 2)
    });
    std::iter::once(rate).chain(growth).collect()
}
