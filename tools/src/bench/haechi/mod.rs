//! Reservations on this machine (docs/qos.md): a chunk server and three tenants, each a process of
//! its own, over UDP on loopback.
//!
//! | file | what it holds |
//! |---|---|
//! | `world` | the processes of one run, and what each tenant got in each period |
//! | `tenant` | the process of one tenant |
//! | `server` | the process of the server |
//! | `report` | tables and targets |

mod report;
mod server;
mod tenant;
mod world;

pub(crate) use server::{ServerArgs, serve};
pub(crate) use tenant::{TenantArgs, run as run_tenant};

use towpath_lab::studies::{Clock, Kind, Param, Params, Report, Runner, Study, StudyError};

use super::links::rounds::in_turn;
use world::{Plan, Seen, System};

/// All, in the order in which they are listed.
pub const ALL: &[&Study] = &[&REQUESTS, &ONE_SIDED];

/// Ordinary reads, which the server orders.
pub const REQUESTS: Study = Study {
    name: "requests",
    what: "what three tenants get of a chunk server in each period, one of them greedy",
    mirrors: "Haechi, experiment 2A, at the scale of this machine, with ordinary reads",
    clock: Clock::Machine,
    params: &[PERIODS, LINKS, GREEDY_DEPTH, DEPTH, ROUNDS],
    run: |params, runner| run(&REQUESTS, params, runner),
};

/// READs of a resident chunk, which the server's NIC serves: engines keep to the rules.
pub const ONE_SIDED: Study = Study {
    name: "one-sided",
    what: "the same by READs of a resident chunk, which no thread of the server orders",
    mirrors: "Haechi, experiment 2A, at the scale of this machine",
    clock: Clock::Machine,
    params: &[PERIODS, LINKS, GREEDY_DEPTH, DEPTH, ROUNDS],
    run: |params, runner| run(&ONE_SIDED, params, runner),
};

const PERIODS: Param = Param {
    name: "periods",
    what: "Periods of a second that are shown, of each system",
    unit: "periods",
    kind: Kind::Count(2..=600),
    many: false,
    defaults: ["5", "30", "30"],
};

const LINKS: Param = Param {
    name: "greedy-links",
    what: "Links of the greedy tenant, where nothing is reserved or reads are ordinary ones; else \
           it has one, as the others",
    unit: "links",
    kind: Kind::Count(1..=32),
    many: false,
    defaults: ["16", "16", "16"],
};

const GREEDY_DEPTH: Param = Param {
    name: "greedy-depth",
    what: "Reads that the greedy tenant has under way on each link",
    unit: "reads",
    kind: Kind::Count(1..=128),
    many: false,
    defaults: ["64", "64", "64"],
};

const DEPTH: Param = Param {
    name: "depth",
    what: "Reads that each other tenant has under way",
    unit: "reads",
    kind: Kind::Count(1..=128),
    many: false,
    defaults: ["128", "128", "128"],
};

const ROUNDS: Param = Param {
    name: "rounds",
    what: "Rounds in which each system is measured once",
    unit: "rounds",
    kind: Kind::Count(1..=100),
    many: false,
    defaults: ["1", "1", "3"],
};

/// The tenants. The first one wants all that it can get.
pub(crate) const TENANTS: [&str; 3] = ["greedy", "middle", "small"];

/// What they reserve of what the machine was measured to do.
const SHARES: [f64; 3] = [0.6, 0.2, 0.1];

/// The same one-sided, where a tenant has one link, which does less than half of what several do.
const SHARES_ONE_SIDED: [f64; 3] = [0.3, 0.2, 0.1];

fn run(study: &'static Study, params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let count = |name| params.count(name) as usize;
    let plan = Plan {
        periods: count("periods"),
        links: [count("greedy-links"), 1, 1],
        depth: [count("greedy-depth"), count("depth"), count("depth")],
        is_one_sided: study.name == ONE_SIDED.name,
        shares: if study.name == ONE_SIDED.name { SHARES_ONE_SIDED } else { SHARES },
        seed: params.seed,
    };
    // What the machine does is measured first, by the same processes without reservations.
    let links = if plan.is_one_sided { [1; 3] } else { plan.links };
    let profiled = Plan { links, ..plan }.run(System::Bare, runner)?;
    let iops = profiled.total_median();
    let systems = [System::Bare, System::Reserved { iops }];
    let seen: Vec<Vec<Seen>> =
        in_turn(params, runner, &systems, |&system| plan.run(system, runner))?;
    Ok(report::report(study, params, (iops, plan.shares, &systems), &seen))
}
