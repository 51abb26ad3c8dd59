//! The study: more and more servers in the other pod.

use super::{CrossPod, CrossPodResult, SERVERS};
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use towpath_base::Nanos;

/// The study.
pub const STUDY: Study = Study {
    name: "cross-pod",
    what: "clients whose servers are more and more in another pod, over RC and over Towpath",
    mirrors: "PNet figure 17: steady where RC shrinks",
    clock: Clock::Virtual,
    params: &[
        Param::counts("remote", "servers", 0..=SERVERS as u64, ["0,4", "0,1,2,3,4", "0,1,2,3,4"])
            .what("Servers of each client in the other pod, of four"),
        Param::count("hosts", "hosts", SERVERS as u64 + 1..=64, ["8", "8", "16"])
            .what("Hosts of each pod"),
        Param::count("spines", "switches", 1..=64, ["5", "5", "10"])
            .what("Switches between the pods, each at 100 Gb/s to either"),
        Param::count("span-ms", "ms", 1..=1_000, ["5", "10", "50"])
            .what("What is measured, after half as long"),
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
    report.note(&[
        "under RC the pods are lossless (priority flow control) and the spines are not; Towpath \
         has no pauses anywhere",
        "pod A has the faster make of card of the study mixed-nics, pod B the slower",
    ]);
    let broken: usize = seen.iter().map(|(_, result)| result.rc_broken).sum();
    if broken > 0 {
        report.notes.push(format!("{broken} RC queue pairs gave up: their retries ran out"));
    }
    Ok(report)
}

fn table(seen: &Seen) -> Table {
    Table::of("pods", "What a client of each pod sends", seen)
        .plain("remote", "remote servers", "", |(point, _)| point.remote)
        .decimals(1, "rc_a_gbps", "RC, pod A", "Gb/s", |(_, r)| r.rc[0] / 1e9)
        .decimals(1, "rc_b_gbps", "RC, pod B", "Gb/s", |(_, r)| r.rc[1] / 1e9)
        .decimals(1, "towpath_a_gbps", "Towpath, pod A", "Gb/s", |(_, r)| r.towpath[0] / 1e9)
        .decimals(1, "towpath_b_gbps", "Towpath, pod B", "Gb/s", |(_, r)| r.towpath[1] / 1e9)
        .plain("rc_dropped", "dropped under RC", "packets", |(_, r)| r.dropped[0])
        .plain("towpath_dropped", "under Towpath", "packets", |(_, r)| r.dropped[1])
        .done()
}

fn plot(seen: &Seen) -> Plot {
    let line = |label: &str, goodput: &dyn Fn(&CrossPodResult) -> f64| {
        let points = seen.iter().map(|(p, r)| (p.remote as f64, goodput(r) / 1e9));
        Series::new(label, Style::Line, points)
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
    let (towpath, rc) = (steadiness(seen, |r| r.towpath), steadiness(seen, |r| r.rc));
    vec![
        Claim::percent(
            "towpath_steady",
            "Towpath: the least of the most",
            Demand::AtLeast(90.0),
            towpath,
        ),
        Claim::percent("rc_shrinks", "RC: the least of the most", Demand::AtMost(80.0), rc),
    ]
}
