//! One-sided operations of many clients on one server's memory, while everything dies.

use super::{Claim, Clock, Demand, Param, Params, Report, Runner, Study, StudyError, Table};
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
        Param::count("additions", "operations", 100..=16_000_000, ["20000", "1000000", "4000000"])
            .what("FETCH_ADDs of all clients together; other operations come in between"),
        Param::count("clients", "hosts", 1..=CLIENTS_MAX as u64, ["16"; 3])
            .what("Clients, each on a host of its own"),
        Param::share("loss", 0.0..=0.2, ["0.01"; 3]).what("Share of packets that are lost"),
        Param::share("copies", 0.0..=0.2, ["0.01"; 3]).what("Share of packets that come twice"),
        Param::share("overtaken", 0.0..=0.2, ["0.01"; 3])
            .what("Share of packets that others overtake"),
        Param::count("every", "operations", 0..=1_000_000, ["500"; 3])
            .what("Something befalls a client after so many additions, on average; 0 is never"),
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
    report.note(&[
        "the study fails at the first promise that is broken: an addition that no one order \
         explains, a swap without a place in the chain, a write that comes back after a later \
         one or that was denied, a torn word, memory that changes after it was revoked",
        "what is hashed as the trace is what clients were told: packets carry addresses of the \
         process",
    ]);
    Ok(report)
}

fn additions(tally: &Tally) -> Table {
    Table::of("additions", "What became of operations", &[tally])
        .plain("additions", "carried out", "", |t| t.additions)
        .plain("additions_unknown", "unknown", "", |t| t.additions_unknown)
        .plain("found", "in memory", "", |t| t.found)
        .plain("swaps", "swaps", "", |t| t.swaps)
        .plain("executed", "all carried out", "", |t| t.outcomes.executed)
        .plain("denied_or_late", "denied, late", "", |t| t.outcomes.not)
        .plain("unknown", "all unknown", "", |t| t.outcomes.unknown)
        .decimals(0, "took_ms", "took", "ms", |t| t.took.0 as f64 / 1e6)
        .done()
}

fn troubles(tally: &Tally) -> Table {
    Table::of("troubles", "What befell them", &[tally])
        .plain("packets_lost", "lost", "packets", |t| t.faults.dropped_random)
        .plain("packets_copied", "copied", "packets", |t| t.faults.duplicated)
        .plain("packets_overtaken", "overtaken", "packets", |t| t.faults.reordered)
        .plain("packets_sent_again", "sent again", "packets", |t| t.retransmitted)
        .plain("queue_pairs_broken", "broken", "queue pairs", |t| t.befallen.breaks)
        .plain("stalls", "stalls", "", |t| t.befallen.stalls)
        .plain("revocations", "revocations", "", |t| t.befallen.revocations)
        .plain("deaths", "deaths", "clients", |t| t.befallen.deaths)
        .done()
}

fn claims(tally: &Tally) -> Vec<Claim> {
    let claim = |name: &str, what: &str, demand, measured: u64, unit| {
        Claim::new(name, what, demand, measured as f64, unit, 0)
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
