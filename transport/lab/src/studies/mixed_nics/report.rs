//! The study: what each make of card gets, over RC and over Towpath.

use super::{MixedNics, MixedResult};
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::{
    Axis, Claim, Clock, Demand, Param, Params, Plot, Report, Runner, Series, Study, StudyError,
    Style, Table,
};
use towpath_base::Nanos;

/// The study.
pub const STUDY: Study = Study {
    name: "mixed-nics",
    what: "fast and slow network cards in one cluster, over RC and over Towpath",
    mirrors: "PNet figure 16 (41 against 31 Gb/s under RC, 38 each); Flor's 24.3 % to 1.3 %",
    clock: Clock::Virtual,
    params: &[
        Param::counts("hosts", "hosts", 1..=64, ["2", "2,4", "2,4,8"])
            .what("Senders of each make; they share three receivers for every four of them"),
        Param::count("rate-gbps", "Gb/s", 1..=800, ["50"; 3]).what("Rate of every port"),
        Param::count("span-ms", "ms", 1..=1_000, ["5", "10", "50"])
            .what("What is measured, after half as long"),
        Param { defaults: ["swift"; 3], ..CONTROLLER },
    ],
    run,
};

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let controller = controller_of(params.word("controller")).unwrap_or_default();
    let of = |&hosts: &u64| MixedNics {
        hosts_each: hosts as usize,
        rate_bits_per_s: params.count("rate-gbps") * 1_000_000_000,
        warm_up: Nanos::from_micros(params.count("span-ms") * 500),
        span: Nanos::from_millis(params.count("span-ms")),
        ..MixedNics::new(params.seed, controller)
    };
    let points: Vec<MixedNics> = params.counts("hosts").iter().map(of).collect();
    let label = |point: &MixedNics| format!("{} senders of each make", point.hosts_each);
    let mut report = Report::new(STUDY.name, params);
    let seen = report.run(runner, points, label, MixedNics::run, |result| &result.end)?;
    report.tables = vec![table(&seen)];
    report.plots = vec![plot(&seen)];
    report.claims = claims(&seen);
    report.notes = notes(&seen);
    Ok(report)
}

fn claims(seen: &[(MixedNics, MixedResult)]) -> Vec<Claim> {
    let gaps = |of: &dyn Fn(&MixedResult) -> f64| -> Vec<f64> {
        seen.iter().map(|(_, result)| of(result) * 100.0).collect()
    };
    let widest = gaps(&|result| result.towpath.gap()).into_iter().fold(0.0, f64::max);
    let narrowest = gaps(&|result| result.rc.gap()).into_iter().fold(f64::INFINITY, f64::min);
    let (towpath, rc) = ("gap between the makes over Towpath, widest", "over RC, narrowest");
    vec![
        Claim::new("towpath_gap", towpath, Demand::AtMost(1.3), widest, "%", 2),
        Claim::new("rc_gap", rc, Demand::AtLeast(10.0), narrowest, "%", 2),
    ]
}

fn notes(seen: &[(MixedNics, MixedResult)]) -> Vec<String> {
    let make = |nic: &super::NicMake| {
        format!(
            "{} to {} ns in the host each way and RC queue pairs of {} packets",
            nic.host_delay.fixed.0,
            nic.host_delay.fixed.0 + nic.host_delay.jitter.0,
            nic.rc_window_packets
        )
    };
    let mut notes = vec![
        "the makes are a model of ours, not of two products: equal line rate, and unlike in what \
         is named here"
            .to_owned(),
    ];
    if let Some((point, _)) = seen.first() {
        notes.push(format!("fast: {}; slow: {}", make(&point.fast), make(&point.slow)));
    }
    let broken: usize = seen.iter().map(|(_, result)| result.rc_broken).sum();
    if broken > 0 {
        notes.push(format!("{broken} RC queue pairs gave up: their retries ran out"));
    }
    notes
}

fn table(seen: &[(MixedNics, MixedResult)]) -> Table {
    let of = |(point, result): &(MixedNics, MixedResult)| {
        let (dropped, again) = (Some(result.rc_dropped), Some(result.retransmitted));
        let (rc, towpath) = ((result.rc, dropped, None), (result.towpath, None, again));
        [("RC", rc), ("Towpath", towpath)].map(|(over, seen)| (point.hosts_each, over, seen))
    };
    let rows: Vec<_> = seen.iter().flat_map(of).collect();
    Table::of("shares", "What a sender of each make sends", &rows)
        .plain("hosts_each", "senders of each", "", |&(hosts, ..)| hosts)
        .plain("transport", "over", "", |&(_, over, _)| over)
        .decimals(2, "fast_gbps", "fast", "Gb/s", |(.., (shares, ..))| shares.fast / 1e9)
        .decimals(2, "slow_gbps", "slow", "Gb/s", |(.., (shares, ..))| shares.slow / 1e9)
        .percent(2, "gap", "gap", |(.., (shares, ..))| shares.gap())
        .decimals(4, "jain", "Jain of senders", "", |(.., (shares, ..))| shares.fairness)
        .plain("packets_dropped", "dropped", "packets", |&(.., (_, dropped, _))| dropped)
        .percent(2, "retransmitted", "again", |&(.., (.., again))| again)
        .done()
}

fn plot(seen: &[(MixedNics, MixedResult)]) -> Plot {
    let line = |label: &str, goodput: &dyn Fn(&MixedResult) -> f64| {
        let points = seen.iter().map(|(p, r)| (p.hosts_each as f64, goodput(r) / 1e9));
        Series::new(label, Style::Line, points)
    };
    Plot {
        title: "fast and slow cards in one cluster".to_owned(),
        x: Axis::linear("senders of each make", ""),
        y: Axis::linear("goodput of a sender", "Gb/s"),
        series: vec![
            line("RC, fast", &|result| result.rc.fast),
            line("RC, slow", &|result| result.rc.slow),
            line("Towpath, fast", &|result| result.towpath.fast),
            line("Towpath, slow", &|result| result.towpath.slow),
        ],
    }
}
