//! The published protocol, as its text can be read: which reading meets all reservations where the
//! paper does (figure 9b).
//!
//! Beside the runs stands a bound. In bursts the server divides itself equally among clients that
//! have something to do (the paper says so of experiment 1C), and one client does no more than C_L.
//! From both follows what the largest client can have at most, whatever the rules of tokens are.

use super::setting::{self, CAPACITY, DEPTH, PAPER, PERIODS, WARM_UP};
use super::system::{Case, System, TICKS, capacity, zipf};
use super::token_setting::LONG;
use crate::world::{Outcome, Pattern, Plan};
use towpath_lab::studies::{
    Axis, Claim, Clock, Demand, Params, Plot, Report, Runner, Series, Study, StudyError, Style,
    Table,
};
use towpath_qos::{Decay, Rules};

/// The study.
pub(super) const STUDY: Study = Study {
    name: "haechi readings",
    what: "the published protocol as its text can be read: who meets all reservations (Zipf)",
    mirrors: "Haechi experiment 2A, figure 9b: all reservations met",
    clock: Clock::Virtual,
    params: &[CAPACITY, DEPTH, LONG, TICKS, PERIODS, WARM_UP],
    run,
};

/// Of the capacity.
const RESERVED: f64 = 0.9;

/// A way to read the paper.
struct Reading {
    name: &'static str,
    /// What of the text it stands on.
    text: &'static str,
    rules: Option<Rules>,
    pattern: Pattern,
    /// What a client wants beyond its reservation, of the pool.
    wants_of_pool: f64,
}

impl Reading {
    const fn new(name: &'static str, text: &'static str, rules: Rules) -> Self {
        let pattern = Pattern::Burst;
        Self { name, text, rules: Some(rules), pattern, wants_of_pool: 1.0 }
    }

    const fn pattern(self, pattern: Pattern) -> Self {
        Self { pattern, ..self }
    }

    /// Each wants as much of the pool as all others.
    const fn evenly(self) -> Self {
        Self { wants_of_pool: 0.1, ..self }
    }
}

/// Only what was not asked for is given up.
const BY_DEMAND: Rules = Rules { decay: Decay::Demand, ..Rules::PUBLISHED };

const READINGS: [Reading; 9] = [
    Reading { rules: None, ..Reading::new("bare system", "no tokens", Rules::PUBLISHED) },
    Reading::new(
        "as written",
        "II-D: a token for each I/O that is sent; what is above X is given up",
        Rules::PUBLISHED,
    ),
    Reading::new(
        "given up by demand",
        "Definition 1: only what was not asked for is given up",
        BY_DEMAND,
    ),
    Reading::new(
        "tokens at once",
        "figure 3: a token for each request as it arrives, all at the start",
        Rules::PUBLISHED,
    )
    .pattern(Pattern::AtOnce),
    Reading::new(
        "tokens at once, none converted",
        "the same, and the pool is not filled again (Basic Haechi)",
        Rules::BASIC,
    )
    .pattern(Pattern::AtOnce),
    Reading::new(
        "an even part of the pool",
        "III-C: demand is the reservation and a tenth of the pool; given up by demand",
        BY_DEMAND,
    )
    .evenly(),
    Reading::new(
        "an even part, tokens at once",
        "the same demand, and tokens as requests arrive",
        BY_DEMAND,
    )
    .evenly()
    .pattern(Pattern::AtOnce),
    Reading::new(
        "constant rate",
        "III-D: requests with equal spacing, which the text has in experiment 3 alone",
        Rules::PUBLISHED,
    )
    .pattern(Pattern::Constant),
    Reading::new(
        "constant rate, an even part",
        "the same, and demand is the reservation and a tenth of the pool",
        Rules::PUBLISHED,
    )
    .evenly()
    .pattern(Pattern::Constant),
];

/// The reading in which tokens are conserved and all are taken at once: what the bound is of.
const CONSERVED: usize = 4;

/// Parts of the pool that clients have taken, evenly, when the bound is worked out.
const TAKEN: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

impl Reading {
    fn case(&self, params: &Params) -> Case {
        let reserved = zipf(params, RESERVED);
        let pool = (capacity(params) * (1.0 - RESERVED) * self.wants_of_pool) as u32;
        let wanted = reserved.iter().map(|ios| ios + pool).collect();
        Case { name: self.name.to_owned(), reserved, wanted, pattern: self.pattern }
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan { rules: self.rules, ..self.case(params).plan(params, System::Published) }
    }
}

/// What the clients of a server have after one period that divides itself equally: `wanted` are
/// I/Os of each, `all` and `one` what the server and one client do in a period.
fn divided(wanted: &[f64], all: f64, one: f64) -> Vec<f64> {
    let mut done = vec![0.0; wanted.len()];
    let mut left = 1.0_f64;
    loop {
        let active: Vec<usize> =
            (0..wanted.len()).filter(|&client| wanted[client] - done[client] > 1e-9).collect();
        if active.is_empty() || left <= 0.0 {
            return done;
        }
        let rate = one.min(all / active.len() as f64);
        let least = active.iter().map(|&client| wanted[client] - done[client]);
        let span = left.min(least.fold(f64::INFINITY, f64::min) / rate);
        active.iter().for_each(|&client| done[client] += rate * span);
        left -= span;
    }
}

/// The bound, where clients have so much of the pool.
struct Bound {
    taken: f64,
    /// Of the largest client.
    first: f64,
    all: f64,
}

impl Bound {
    fn new(params: &Params, taken: f64) -> Self {
        let capacity = capacity(params);
        let reserved = zipf(params, RESERVED);
        let each = capacity * (1.0 - RESERVED) * taken / reserved.len() as f64;
        let wanted: Vec<f64> = reserved.iter().map(|&ios| f64::from(ios) + each).collect();
        let one = f64::from(setting::per_period(params, PAPER.one));
        let done = divided(&wanted, capacity, one);
        Self { taken, first: done[0], all: done.iter().sum() }
    }
}

/// A reading, and what came of it.
struct Seen<'a> {
    reading: &'a Reading,
    outcome: &'a Outcome,
    /// What the largest client has reserved.
    reserved: f64,
    capacity: f64,
    clients_missed: usize,
    periods_missed: usize,
}

impl Seen<'_> {
    /// I/Os of the largest client in a period, of its reservation.
    fn first(&self) -> f64 {
        let periods = self.outcome.done.len().max(1) as f64;
        let done: u64 = self.outcome.done.iter().map(|period| u64::from(period[0])).sum();
        done as f64 / periods / self.reserved
    }

    fn of_capacity(&self) -> f64 {
        let periods = self.outcome.done.len();
        let done: u64 = (0..periods).map(|period| self.outcome.total(period)).sum();
        done as f64 / periods.max(1) as f64 / self.capacity
    }

    fn reproduces(&self) -> bool {
        self.reading.rules.is_some() && self.clients_missed == 0
    }
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let points: Vec<&Reading> = READINGS.iter().collect();
    let label = |reading: &&Reading| reading.name.to_owned();
    let run = |reading: &&Reading| reading.plan(params).run();
    let results = report.run(runner, points, label, run, |outcome| &outcome.end)?;
    let depth = params.count(DEPTH.name) as u32;
    let of = |(reading, outcome): &'_ (&'static Reading, Outcome)| -> (usize, usize) {
        let case = reading.case(params);
        let missed = |client| outcome.missed(client, case.needed(client, depth));
        let missed: Vec<usize> = (0..case.reserved.len()).map(missed).collect();
        (missed.iter().filter(|&&periods| periods > 0).count(), missed.iter().sum())
    };
    let seen: Vec<Seen<'_>> = results
        .iter()
        .map(|result| {
            let (clients_missed, periods_missed) = of(result);
            Seen {
                reading: result.0,
                outcome: &result.1,
                reserved: f64::from(result.0.case(params).reserved[0]),
                capacity: capacity(params),
                clients_missed,
                periods_missed,
            }
        })
        .collect();
    let bounds: Vec<Bound> = TAKEN.iter().map(|&taken| Bound::new(params, taken)).collect();
    let reserved = f64::from(zipf(params, RESERVED)[0]);
    report.tables = vec![readings_table(&seen), bounds_table(&bounds, reserved, params)];
    report.plots = vec![plot(&bounds, reserved, params)];
    if let (Some(conserved), Some(whole)) = (seen.get(CONSERVED), bounds.last()) {
        let off = (conserved.first() * reserved / whole.first - 1.0).abs();
        let what = "C1 with tokens at once, none converted: off the bound with all of the pool";
        report.claims.push(Claim::percent("bound_off", what, Demand::AtMost(5.0), off));
    }
    report.notes = notes(params, &seen);
    Ok(report)
}

fn notes(params: &Params, seen: &[Seen<'_>]) -> Vec<String> {
    let mut notes = setting::notes(params);
    let of = |is_burst: bool| -> Vec<&str> {
        let readings = seen.iter().filter(|seen| {
            let constant = seen.reading.pattern == Pattern::Constant;
            seen.reproduces() && constant != is_burst
        });
        readings.map(|seen| seen.reading.name).collect()
    };
    let words = |names: Vec<&str>| match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    };
    notes.push(format!(
        "all reservations are met, as in figure 9b, by these readings with bursts: {}; without \
         bursts: {}",
        words(of(true)),
        words(of(false))
    ));
    notes.push(
        "the bound: in bursts the server divides itself equally (the paper, 1C), so each I/O that \
         a smaller client takes of the pool while C1 is at work is taken from C1 too; C1 has its \
         reservation only if the others leave the whole pool alone, which no rule of the paper \
         makes them do; conversion adds to the pool what engines have given up, or have taken for \
         I/Os that still wait, and so gives C1 less than the bound"
            .to_owned(),
    );
    notes
}

fn readings_table(seen: &[Seen<'_>]) -> Table {
    Table::of("readings", "Nine tenths reserved by Zipf's law, as published", seen)
        .plain("reading", "reading", "", |seen| seen.reading.name)
        .plain("text", "what it stands on", "", |seen| seen.reading.text)
        .percent(1, "first_of_reserved", "C1: of its reservation", Seen::first)
        .plain("clients_missed", "clients that", "missed", |seen| seen.clients_missed)
        .plain("periods_missed", "in periods", "all together", |seen| seen.periods_missed)
        .percent(2, "of_capacity", "of C_G", Seen::of_capacity)
        .plain(
            "reproduces",
            "as figure 9b",
            "",
            |seen| {
                if seen.reproduces() { "yes" } else { "no" }
            },
        )
        .done()
}

fn bounds_table(bounds: &[Bound], reserved: f64, params: &Params) -> Table {
    let capacity = capacity(params);
    Table::of("bound", "The most that C1 can have where the server divides itself equally", bounds)
        .percent(0, "pool_taken", "taken of the pool", |bound| bound.taken)
        .percent(1, "first_of_reserved", "C1: of its reservation", |bound| bound.first / reserved)
        .percent(2, "of_capacity", "of C_G", |bound| bound.all / capacity)
        .done()
}

fn plot(bounds: &[Bound], reserved: f64, params: &Params) -> Plot {
    let capacity = capacity(params);
    let line = |label: &str, of: &dyn Fn(&Bound) -> f64| {
        let points = bounds.iter().map(|bound| (bound.taken * 100.0, of(bound) * 100.0));
        Series::new(label, Style::Line, points)
    };
    Plot {
        title: "the bound in a server that divides itself equally".to_owned(),
        x: Axis::linear("taken of the pool", "%"),
        y: Axis::linear("share", "%"),
        series: vec![
            line("C1, of its reservation", &|bound| bound.first / reserved),
            line("all, of C_G", &|bound| bound.all / capacity),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_divided_equally_until_somebody_has_enough_or_one_does_no_more() {
        let done = divided(&[10.0, 30.0, 90.0], 90.0, 50.0);
        // A third each until 10; then 45 each until 30, after 7/9; then 50.
        let first = 10.0 / 30.0;
        let second = first + 20.0 / 45.0;
        assert!((done[0] - 10.0).abs() < 1e-9 && (done[1] - 30.0).abs() < 1e-9, "{done:?}");
        assert!((done[2] - (30.0 + (1.0 - second) * 50.0)).abs() < 1e-9, "{done:?}");
        assert_eq!(divided(&[1.0, 1.0], 10.0, 10.0), [1.0, 1.0]);
    }
}
