//! Classes on one server (docs/qos.md section 7): Copper writes while Gold and Silver read, each a
//! process of its own, over UDP on loopback.
//!
//! | file | what it holds |
//! |---|---|
//! | `world` | the processes of one run, and what each class got |
//! | `client` | the process of one class |
//! | `report` | tables and targets |

mod client;
mod report;
mod world;

pub(crate) use client::{ClassArgs, run as run_class};

use towpath_lab::studies::{Clock, Kind, Param, Params, Report, Runner, Study, StudyError};

use super::links::rounds::in_turn;
use world::{Plan, Seen, System};

/// All, in the order in which they are listed.
pub const ALL: &[&Study] = &[&COPPER];

/// Copper's writes beside the reads of others.
pub const COPPER: Study = Study {
    name: "copper",
    what: "how slow Gold's and Silver's reads become while Copper writes, up to all that the \
           server can, with interference control and without",
    mirrors: "Pangu and PNet, figure 18, at the scale of this machine",
    clock: Clock::Machine,
    params: &[LOADS, SECONDS, WRITE_KIB, DEPTH, ROUNDS],
    run,
};

const LOADS: Param = Param {
    name: "loads",
    what: "Copper's writes, of what the server can write",
    unit: "%",
    kind: Kind::Count(1..=100),
    many: true,
    defaults: ["39,100", "10,39,70,100", "10,39,70,100"],
};

const SECONDS: Param = Param {
    name: "seconds",
    what: "Seconds that are measured, of each load",
    unit: "s",
    kind: Kind::Count(1..=600),
    many: false,
    defaults: ["2", "4", "10"],
};

const WRITE_KIB: Param = Param {
    name: "write-kib",
    what: "Length of Copper's writes",
    unit: "KiB",
    kind: Kind::Count(4..=1024),
    many: false,
    defaults: ["64", "64", "64"],
};

const DEPTH: Param = Param {
    name: "depth",
    what: "Writes that Copper has under way at most",
    unit: "writes",
    kind: Kind::Count(1..=64),
    many: false,
    defaults: ["16", "16", "16"],
};

const ROUNDS: Param = Param {
    name: "rounds",
    what: "Rounds in which each load is measured once",
    unit: "rounds",
    kind: Kind::Count(1..=100),
    many: false,
    defaults: ["1", "3", "7"],
};

/// How much slower reads may be at the load that figure 18 names, with interference control.
const SLOWER_MAX: f64 = 0.05;

/// That load.
const LOAD: f64 = 39.0;

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let count = |name| params.count(name) as usize;
    let plan = Plan {
        seconds: count("seconds") as u64,
        write_bytes: count("write-kib") * 1024,
        depth: count("depth"),
        seed: params.seed,
    };
    // What the server writes by itself, and what reads take beside nothing, are measured first.
    let alone = plan.run(System::WritesAlone, runner)?;
    let bandwidth = alone.copper_bytes as f64;
    let quiet = plan.run(System::Profiled, runner)?;
    // The server's own figures: what it keeps to is the time that it takes itself.
    let targets = quiet.server_us.map(|us| us * (1.0 + SLOWER_MAX));
    let mut systems = vec![System::Quiet];
    for load in params.counts("loads").iter().map(|load| *load as f64) {
        let rate = bandwidth * load / 100.0;
        systems.push(System::Beside { load, rate, targets: None });
        systems.push(System::Beside { load, rate, targets: Some(targets) });
    }
    let seen: Vec<Vec<Seen>> =
        in_turn(params, runner, &systems, |&system| plan.run(system, runner))?;
    Ok(report::report(&COPPER, params, (bandwidth, targets), &systems, &seen))
}
