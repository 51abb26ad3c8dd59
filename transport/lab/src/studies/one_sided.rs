//! One-sided operations of many clients on one server's memory, while everything dies.

use super::{
    Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Report, Runner, Study,
    StudyError, Table,
};
use crate::one_sided::{CLIENTS_MAX, OneSidedPlan, Tally};
use towpath_base::Nanos;
use towpath_sim::FaultPlan;

/// The study.
pub const STUDY: Study = Study {
    name: "one-sided",
    what: "atomics that are carried out once or not at all, while packets, queue pairs and \
           clients are lost",
    mirrors: "no published counterpart; RC alone loses its queue pair and leaves the outcome of an \
              atomic open",
    clock: Clock::Virtual,
    params: &[
        Param {
            name: "additions",
            what: "FETCH_ADDs of all clients together; other operations come in between",
            unit: "operations",
            kind: Kind::Count(100..=16_000_000),
            many: false,
            defaults: ["20000", "1000000", "4000000"],
        },
        Param {
            name: "clients",
            what: "Clients, each on a host of its own",
            unit: "hosts",
            kind: Kind::Count(1..=CLIENTS_MAX as u64),
            many: false,
            defaults: ["16", "16", "16"],
        },
        Param::share("loss", "Share of packets that are lost", "0.01"),
        Param::share("copies", "Share of packets that come twice", "0.01"),
        Param::share("overtaken", "Share of packets that others overtake", "0.01"),
        Param {
            name: "every",
            what: "Something befalls a client after so many additions, on average; 0 is never",
            unit: "operations",
            kind: Kind::Count(0..=1_000_000),
            many: false,
            defaults: ["500", "500", "500"],
        },
    ],
    run,
};

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let faults = FaultPlan::none()
        .drop(params.share("loss"))
        .duplicate(params.share("copies"), Nanos::from_micros(100))
        .reorder(params.share("overtaken"), 4, Nanos::from_micros(50));
    let plan = OneSidedPlan {
        clients: params.count("clients") as usize,
        faults,
        every: params.count("every"),
        ..OneSidedPlan::new(params.seed, params.count("additions"))
    };
    let seen = runner
        .map(&[plan], |plan| plan.run().map_err(|failed| StudyError::run("all clients", failed)))?;
    let mut report = Report::new(STUDY.name, params);
    for tally in &seen {
        report.trace("all clients", tally.hash);
        report.tables = vec![additions(tally), troubles(tally)];
        report.claims = claims(tally);
    }
    report.notes = vec![
        "the study fails at the first promise that is broken: an addition that no one order \
         explains, a swap without a place in the chain, a write that comes back after a later \
         one or that was denied, a torn word, memory that changes after it was revoked"
            .to_owned(),
        "what is hashed as the trace is what clients were told: packets carry addresses of the \
         process"
            .to_owned(),
    ];
    Ok(report)
}

fn additions(tally: &Tally) -> Table {
    let columns = vec![
        Column::new("additions", "carried out", "", Format::Plain),
        Column::new("additions_unknown", "unknown", "", Format::Plain),
        Column::new("found", "in memory", "", Format::Plain),
        Column::new("swaps", "swaps", "", Format::Plain),
        Column::new("executed", "all carried out", "", Format::Plain),
        Column::new("denied_or_late", "denied, late", "", Format::Plain),
        Column::new("unknown", "all unknown", "", Format::Plain),
        Column::new("took_ms", "took", "ms", Format::Decimals(0)),
    ];
    let counts = [
        tally.additions,
        tally.additions_unknown,
        tally.found,
        tally.swaps,
        tally.outcomes.executed,
        tally.outcomes.not,
        tally.outcomes.unknown,
    ];
    let took = Cell::Number(tally.took.0 as f64 / 1e6);
    let row = counts.map(Cell::Count).into_iter().chain([took]).collect();
    Table { name: "additions", title: "What became of operations".into(), columns, rows: vec![row] }
}

fn troubles(tally: &Tally) -> Table {
    let columns = vec![
        Column::new("packets_lost", "lost", "packets", Format::Plain),
        Column::new("packets_copied", "copied", "packets", Format::Plain),
        Column::new("packets_overtaken", "overtaken", "packets", Format::Plain),
        Column::new("packets_sent_again", "sent again", "packets", Format::Plain),
        Column::new("queue_pairs_broken", "broken", "queue pairs", Format::Plain),
        Column::new("stalls", "stalls", "", Format::Plain),
        Column::new("revocations", "revocations", "", Format::Plain),
        Column::new("deaths", "deaths", "clients", Format::Plain),
    ];
    let (faults, befallen) = (&tally.faults, &tally.befallen);
    let counts = [
        faults.dropped_random,
        faults.duplicated,
        faults.reordered,
        tally.retransmitted,
        befallen.breaks,
        befallen.stalls,
        befallen.revocations,
        befallen.deaths,
    ];
    let row = counts.map(Cell::Count).to_vec();
    Table { name: "troubles", title: "What befell them".into(), columns, rows: vec![row] }
}

fn claims(tally: &Tally) -> Vec<Claim> {
    let claim = |name: &str, what: &str, demand, measured: u64, unit| Claim {
        name: name.to_owned(),
        what: what.to_owned(),
        demand,
        measured: measured as f64,
        unit,
        decimals: 0,
    };
    let (sure, found) = (tally.additions, tally.found);
    let most = sure + tally.additions_unknown;
    let (at_least, at_most) = (Demand::AtLeast(sure as f64), Demand::AtMost(most as f64));
    vec![
        claim("found_least", "in memory, of those carried out", at_least, found, "additions"),
        claim("found_most", "in memory, of those and the unknown", at_most, found, "additions"),
        claim(
            "additions_unknown",
            "the adversary got through",
            Demand::AtLeast(1.0),
            tally.additions_unknown,
            "unknown additions",
        ),
    ]
}
