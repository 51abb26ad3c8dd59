//! The systems that are compared: bare, Basic Haechi, Haechi as published, and ours.

use super::setting::{self, CLIENTS};
use crate::world::{ClientPlan, Outcome, Pattern, Plan};
use towpath_base::Nanos;
use towpath_lab::studies::{Kind, Param, Params, Report, Runner, StudyError};
use towpath_qos::Rules;

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// No tokens.
    Bare,
    /// As published, but without conversion.
    Basic,
    /// As published.
    Published,
    /// Ours.
    Ours,
}

const SYSTEMS: [System; 4] = [System::Bare, System::Basic, System::Published, System::Ours];

pub(super) const PARAM: Param = Param {
    name: "systems",
    what: "bare: no tokens; basic: Haechi without conversion; published: Haechi; ours",
    unit: "",
    kind: Kind::Word(|word| System::of(word).map(drop)),
    many: true,
    defaults: ["bare,basic,published,ours"; 3],
};

pub(super) const TICKS: Param = Param {
    name: "ticks",
    what: "Looks of engines and monitor in a period; the paper's are 1 ms apart",
    unit: "ticks",
    kind: Kind::Count(20..=10_000),
    many: false,
    defaults: ["100", "250", "1000"],
};

impl System {
    fn of(word: &str) -> Result<Self, &'static str> {
        let found = SYSTEMS.into_iter().find(|system| system.word() == word);
        found.ok_or("bare, basic, published or ours")
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Basic => "basic",
            Self::Published => "published",
            Self::Ours => "ours",
        }
    }

    pub(super) fn rules(self) -> Option<Rules> {
        match self {
            Self::Bare => None,
            Self::Basic => Some(Rules::BASIC),
            Self::Published => Some(Rules::PUBLISHED),
            Self::Ours => Some(Rules::OURS),
        }
    }
}

/// The systems that were asked for.
pub(super) fn systems(params: &Params) -> Vec<System> {
    params.words(PARAM.name).iter().filter_map(|word| System::of(word).ok()).collect()
}

/// What clients have reserved and want, in I/Os of a period.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) reserved: Vec<u32>,
    pub(super) wanted: Vec<u32>,
    pub(super) pattern: Pattern,
}

impl Case {
    /// I/Os that a client must get in each period: what it has reserved, and if it wants no more
    /// than that, what it wants less those that are under way at the end.
    pub(super) fn needed(&self, client: usize, depth: u32) -> u32 {
        let (reserved, wanted) = (self.reserved[client], self.wanted[client]);
        if wanted > reserved { reserved } else { wanted.saturating_sub(depth) }
    }

    /// On a system.
    pub(super) fn plan(&self, params: &Params, system: System) -> Plan {
        let client = |(&reserved, &wanted): (&u32, &u32)| {
            ClientPlan::new(wanted, self.pattern).reserved(reserved)
        };
        let clients = self.reserved.iter().zip(&self.wanted).map(client).collect();
        let plan = setting::plan(params, clients);
        let tick = Nanos(plan.period.0 / params.count(TICKS.name));
        Plan { rules: system.rules(), tick, ..plan }
    }
}

/// A case on a system, and what came of it.
pub(super) struct Seen {
    pub(super) case: usize,
    pub(super) system: System,
    pub(super) outcome: Outcome,
}

impl Seen {
    /// Periods in which each client did not get what it must.
    pub(super) fn missed(&self, case: &Case, depth: u32) -> Vec<usize> {
        let of = |client| self.outcome.missed(client, case.needed(client, depth));
        (0..case.reserved.len()).map(of).collect()
    }
}

/// Runs each case on each system.
pub(super) fn run(
    report: &mut Report,
    (params, runner): (&Params, &Runner<'_>),
    cases: &[Case],
    change: impl Fn(&Case, Plan) -> Plan + Sync,
) -> Result<Vec<Seen>, StudyError> {
    let systems = systems(params);
    let each = (0..cases.len()).flat_map(|case| systems.iter().map(move |&system| (case, system)));
    let label =
        |&(case, system): &(usize, System)| format!("{}, {}", cases[case].name, system.word());
    let run = |&(case, system): &(usize, System)| {
        change(&cases[case], cases[case].plan(params, system)).run()
    };
    let seen = report.run(runner, each.collect(), label, run, |outcome| &outcome.end)?;
    let seen = seen.into_iter();
    Ok(seen.map(|((case, system), outcome)| Seen { case, system, outcome }).collect())
}

/// Reservations that are alike and sum up to a share of the capacity.
pub(super) fn uniform(params: &Params, share: f64) -> Vec<u32> {
    vec![(capacity(params) * share / CLIENTS as f64) as u32; CLIENTS]
}

/// Five groups of two clients by Zipf's law with an exponent of 0.6.
pub(super) fn zipf(params: &Params, share: f64) -> Vec<u32> {
    let weight = |client: usize| 1.0 / ((client / 2 + 1) as f64).powf(0.6);
    let all: f64 = (0..CLIENTS).map(weight).sum();
    (0..CLIENTS).map(|client| (weight(client) / all * capacity(params) * share) as u32).collect()
}

/// I/Os of a period that the server's port carries.
pub(super) fn capacity(params: &Params) -> f64 {
    f64::from(setting::per_period(params, setting::PAPER.all))
}
