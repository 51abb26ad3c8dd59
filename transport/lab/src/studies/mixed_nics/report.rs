//! The study: what each make of card gets, over RC and over Towpath.

use super::{MixedNics, MixedResult};
use crate::studies::controller::{CONTROLLER, controller_of};
use crate::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Series, Study, StudyError, Style, Table,
};
use towpath_base::Nanos;

/// The study.
pub const STUDY: Study = Study {
    name: "mixed-nics",
    what: "fast and slow network cards in one cluster, over RC and over Towpath",
    mirrors: "PNet figure 16 (41 against 31 Gb/s under RC, 38 each); Flor's 24.3 % to 1.3 %",
    clock: Clock::Virtual,
    params: &[
        Param {
            name: "hosts",
            what: "Senders of each make; they share three receivers for every four of them",
            unit: "hosts",
            kind: Kind::Count(1..=64),
            many: true,
            defaults: ["2", "2,4", "2,4,8"],
        },
        Param {
            name: "rate-gbps",
            what: "Rate of every port",
            unit: "Gb/s",
            kind: Kind::Count(1..=800),
            many: false,
            defaults: ["50", "50", "50"],
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
    let claim = |name: &str, what: &str, demand, measured| Claim {
        name: name.to_owned(),
        what: what.to_owned(),
        demand,
        measured,
        unit: "%",
        decimals: 2,
    };
    let widest = gaps(&|result| result.towpath.gap()).into_iter().fold(0.0, f64::max);
    let narrowest = gaps(&|result| result.rc.gap()).into_iter().fold(f64::INFINITY, f64::min);
    let (towpath, rc) = ("gap between the makes over Towpath, widest", "over RC, narrowest");
    vec![
        claim("towpath_gap", towpath, Demand::AtMost(1.3), widest),
        claim("rc_gap", rc, Demand::AtLeast(10.0), narrowest),
    ]
}

fn notes(seen: &[(MixedNics, MixedResult)]) -> Vec<String> {
    let make = |nic: &super::Nic| {
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
    let columns = vec![
        Column::new("hosts_each", "senders of each", "", Format::Plain),
        Column::new("transport", "over", "", Format::Plain),
        Column::new("fast_gbps", "fast", "Gb/s", Format::Decimals(2)),
        Column::new("slow_gbps", "slow", "Gb/s", Format::Decimals(2)),
        Column::new("gap", "gap", "%", Format::Percent(2)),
        Column::new("jain", "Jain of senders", "", Format::Decimals(4)),
        Column::new("packets_dropped", "dropped", "packets", Format::Plain),
        Column::new("retransmitted", "again", "%", Format::Percent(2)),
    ];
    let mut rows = Vec::new();
    for (point, result) in seen {
        let of = [
            ("RC", result.rc, Some(result.rc_dropped), None),
            ("Towpath", result.towpath, None, Some(result.retransmitted)),
        ];
        for (transport, shares, dropped, again) in of {
            rows.push(vec![
                Cell::from(point.hosts_each as u64),
                transport.into(),
                (shares.fast / 1e9).into(),
                (shares.slow / 1e9).into(),
                shares.gap().into(),
                shares.fairness.into(),
                dropped.into(),
                again.into(),
            ]);
        }
    }
    let title = "What a sender of each make sends".to_owned();
    Table { name: "shares", title, columns, rows }
}

fn plot(seen: &[(MixedNics, MixedResult)]) -> Plot {
    let line = |label: &str, style, goodput: &dyn Fn(&MixedResult) -> f64| Series {
        label: label.to_owned(),
        style,
        points: seen.iter().map(|(p, r)| (p.hosts_each as f64, goodput(r) / 1e9)).collect(),
    };
    Plot {
        title: "fast and slow cards in one cluster".to_owned(),
        x: Axis::linear("senders of each make", ""),
        y: Axis::linear("goodput of a sender", "Gb/s"),
        series: vec![
            line("RC, fast", Style::Line, &|result| result.rc.fast),
            line("RC, slow", Style::Line, &|result| result.rc.slow),
            line("Towpath, fast", Style::Line, &|result| result.towpath.fast),
            line("Towpath, slow", Style::Line, &|result| result.towpath.slow),
        ],
    }
}
