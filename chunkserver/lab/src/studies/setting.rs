//! The cluster that the experiments have in common: ten clients and one data node.

use crate::world::{ClientPlan, Plan, Rates, Sides};
use towpath_base::Nanos;
use towpath_lab::studies::{Kind, Param, Params};

/// I/Os a second of the paper's data node (C_G), and of one of its clients (C_L).
pub(super) const PAPER: Rates = Rates { all: 1_570_000, one: 400_000 };

/// Clients of the paper.
pub(super) const CLIENTS: usize = 10;

pub(super) const CAPACITY: Param = Param {
    name: "capacity",
    what: "READs of 4 KiB that the server's port carries; a client's carries 40 of 157 of them",
    unit: "READs/s",
    kind: Kind::Count(10_000..=10_000_000),
    many: false,
    defaults: ["1570000"; 3],
};

pub(super) const DEPTH: Param = Param {
    name: "depth",
    what: "I/Os that a client has under way; its lane has 16 of them at the device",
    unit: "I/Os",
    kind: Kind::Count(1..=128),
    many: false,
    defaults: ["64"; 3],
};

pub(super) const PERIOD: Param = Param {
    name: "period-ms",
    what: "Length of a period; the paper's is a second",
    unit: "ms",
    kind: Kind::Count(5..=10_000),
    many: false,
    defaults: ["20", "100", "1000"],
};

pub(super) const PERIODS: Param = Param {
    name: "periods",
    what: "Periods that are shown",
    unit: "periods",
    kind: Kind::Count(1..=1_000),
    many: false,
    defaults: ["5", "10", "30"],
};

pub(super) const WARM_UP: Param = Param {
    name: "warm-up",
    what: "Periods before those",
    unit: "periods",
    kind: Kind::Count(0..=100),
    many: false,
    defaults: ["1", "2", "3"],
};

/// What the ports are made for.
pub(super) fn rates(params: &Params) -> Rates {
    let all = params.count(CAPACITY.name);
    Rates { all, one: all * PAPER.one / PAPER.all }
}

/// A plan with clients, of what was asked for.
pub(super) fn plan(params: &Params, clients: Vec<ClientPlan>) -> Plan {
    plan_with(params, params.count(DEPTH.name) as u32, clients)
}

/// The same, where it is not asked for how many I/Os a client has under way.
pub(super) fn plan_with(params: &Params, depth: u32, clients: Vec<ClientPlan>) -> Plan {
    let period = Nanos::from_millis(params.count(PERIOD.name));
    Plan {
        seed: params.seed,
        clients,
        rates: rates(params),
        sides: Sides::One,
        rules: None,
        period,
        tick: period,
        estimate: 1.0,
        warm_up: params.count(WARM_UP.name) as usize,
        periods: params.count(PERIODS.name) as usize,
        depth,
    }
}

/// So many of the paper's I/Os a second, in a period of such a plan.
pub(super) fn per_period(params: &Params, paper_ios: u64) -> u32 {
    let (all, period) = (params.count(CAPACITY.name), params.count(PERIOD.name));
    let ios = u128::from(paper_ios) * u128::from(all) * u128::from(period)
        / (u128::from(PAPER.all) * 1_000);
    u32::try_from(ios).unwrap_or(u32::MAX)
}

/// What makes the capacities.
pub(super) fn ports(params: &Params) -> String {
    let rates = rates(params);
    let gbps = |ios| Rates::bits_per_s(ios) as f64 / 1e9;
    format!(
        "the ports make the capacities: an answer of 4 KiB takes 4,182 bytes of a wire, so \
             {} READs/s of the server are {:.2} Gb/s, and {} of a client {:.2} Gb/s; cables of \
             500 ns, no faults",
        rates.all,
        gbps(rates.all),
        rates.one,
        gbps(rates.one)
    )
}

/// What everybody should know.
pub(super) fn notes(params: &Params) -> Vec<String> {
    vec![
        ports(params),
        format!(
            "a client keeps {} I/Os under way; its lane posts at most 16 of them at the device, \
             and fewer where the link's controller (Swift) sees a queue",
            params.count(DEPTH.name)
        ),
        "what a client wanted in a period and had not begun at its end is not wanted any more; \
         what is hashed as the trace is who was done when: packets carry addresses of the process"
            .to_owned(),
    ]
}
