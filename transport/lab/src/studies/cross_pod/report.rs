//! The study: more and more servers in the other pod.

use super::{CrossPod, CrossPodResult, SERVERS};
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Series, Study, StudyError, Style, Table,
};
use towpath_base::Nanos;

/// The study.
pub const STUDY: Study = Study {
    name: "cross-pod",
    what: "clients whose servers are more and more in another pod, over RC and over Towpath",
    mirrors: "PNet figure 17: steady where RC shrinks",
    clock: Clock::Virtual,
    params: &[
        Param {
            name: "remote",
            what: "Servers of each client in the other pod, of four",
            unit: "servers",
            kind: Kind::Count(0..=SERVERS as u64),
            many: true,
            defaults: ["0,4", "0,1,2,3,4", "0,1,2,3,4"],
        },
        Param {
            name: "hosts",
            what: "Hosts of each pod",
            unit: "hosts",
            kind: Kind::Count(SERVERS as u64 + 1..=64),
            many: false,
            defaults: ["8", "8", "16"],
        },
        Param {
            name: "spines",
            what: "Switches between the pods, each at 100 Gb/s to either",
            unit: "switches",
            kind: Kind::Count(1..=64),
            many: false,
            defaults: ["5", "5", "10"],
        },
        Param {
            name: "span-ms",
            what: "What is measured, after half as long",
            unit: "ms",
            kind: Kind::Count(1..=1_000),
            many: false,
            defaults: ["5", "10", "50"],
        },
        Param { defaults: ["swift"; 3], ..CONTROLLER },
    ],
    run,
};

type Seen = [(CrossPod, CrossPodResult)];

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let controller = controller_of(params.word("controller")).unwrap_or_default();
    let of = |&remote: &u64| CrossPod {
        hosts_each: params.count("hosts") as usize,
        spines: params.count("spines") as usize,
        warm_up: Nanos::from_micros(params.count("span-ms") * 500),
        span: Nanos::from_millis(params.count("span-ms")),
        ..CrossPod::new(params.seed, controller, remote as usize)
    };
    let points: Vec<CrossPod> = params.counts("remote").iter().map(of).collect();
    let label = |point: &CrossPod| format!("{} of {SERVERS} servers remote", point.remote);
    let mut report = Report::new(STUDY.name, params);
    let seen = report.run(runner, points, label, CrossPod::run, |result| &result.end)?;
    report.tables = vec![table(&seen)];
    report.plots = vec![plot(&seen)];
    report.claims = claims(&seen);
    report.notes = vec![
        "under RC the pods are lossless (priority flow control) and the spines are not; Towpath \
         has no pauses anywhere"
            .to_owned(),
        "pod A has the faster make of card of the study mixed-nics, pod B the slower".to_owned(),
    ];
    let broken: usize = seen.iter().map(|(_, result)| result.rc_broken).sum();
    if broken > 0 {
        report.notes.push(format!("{broken} RC queue pairs gave up: their retries ran out"));
    }
    Ok(report)
}

fn table(seen: &Seen) -> Table {
    let columns = vec![
        Column::new("remote", "remote servers", "", Format::Plain),
        Column::new("rc_a_gbps", "RC, pod A", "Gb/s", Format::Decimals(1)),
        Column::new("rc_b_gbps", "RC, pod B", "Gb/s", Format::Decimals(1)),
        Column::new("towpath_a_gbps", "Towpath, pod A", "Gb/s", Format::Decimals(1)),
        Column::new("towpath_b_gbps", "Towpath, pod B", "Gb/s", Format::Decimals(1)),
        Column::new("rc_dropped", "dropped under RC", "packets", Format::Plain),
        Column::new("towpath_dropped", "under Towpath", "packets", Format::Plain),
    ];
    let row = |(point, result): &(CrossPod, CrossPodResult)| -> Vec<Cell> {
        let goodputs = result.rc.into_iter().chain(result.towpath).map(|one| (one / 1e9).into());
        let dropped = result.dropped.map(Cell::from);
        [(point.remote as u64).into()].into_iter().chain(goodputs).chain(dropped).collect()
    };
    let title = "What a client of each pod sends".to_owned();
    Table { name: "pods", title, columns, rows: seen.iter().map(row).collect() }
}

fn plot(seen: &Seen) -> Plot {
    let line = |label: &str, goodput: &dyn Fn(&CrossPodResult) -> f64| Series {
        label: label.to_owned(),
        style: Style::Line,
        points: seen.iter().map(|(p, r)| (p.remote as f64, goodput(r) / 1e9)).collect(),
    };
    Plot {
        title: "clients with servers in another pod".to_owned(),
        x: Axis::linear("servers in the other pod, of four", ""),
        y: Axis::linear("goodput of a client", "Gb/s"),
        series: vec![
            line("RC, pod A", &|result| result.rc[0]),
            line("RC, pod B", &|result| result.rc[1]),
            line("Towpath, pod A", &|result| result.towpath[0]),
            line("Towpath, pod B", &|result| result.towpath[1]),
        ],
    }
}

/// The least of what the clients of the pods got, of the most, over all points.
fn steadiness(seen: &Seen, of: impl Fn(&CrossPodResult) -> [f64; 2]) -> f64 {
    let all = || seen.iter().flat_map(|(_, result)| of(result));
    all().fold(f64::INFINITY, f64::min) / all().fold(0.0, f64::max)
}

fn claims(seen: &Seen) -> Vec<Claim> {
    let claim = |name: &str, what: &str, demand, share: f64| Claim {
        name: name.to_owned(),
        what: what.to_owned(),
        demand,
        measured: share * 100.0,
        unit: "%",
        decimals: 1,
    };
    let (towpath, rc) = (steadiness(seen, |r| r.towpath), steadiness(seen, |r| r.rc));
    vec![
        claim("towpath_steady", "Towpath: the least of the most", Demand::AtLeast(90.0), towpath),
        claim("rc_shrinks", "RC: the least of the most", Demand::AtMost(80.0), rc),
    ]
}
