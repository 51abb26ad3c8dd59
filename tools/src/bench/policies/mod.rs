//! How writes come to several servers, each a process of its own, over UDP on loopback
//! (docs/storage-protocol.md section 11).
//!
//! | file | what it holds |
//! |---|---|
//! | `world` | the processes, and one write by each policy |
//! | `report` | tables and targets |

mod report;
mod world;

use towpath_lab::studies::{Clock, Kind, Param, Params, Report, Runner, Study, StudyError};
use towpath_spread::Policy;

use super::links::rounds::in_turn;
use world::{Seen, World};

/// All, in the order in which they are listed.
pub const ALL: &[&Study] = &[&WRITE];

/// One write at a time by each policy, beside one copy.
pub const WRITE: Study = Study {
    name: "write",
    what: "how long one durable write takes by each policy, beside that of one copy",
    mirrors: "sPIN (SC 2022), figures 9, 10 and 15, at the scale of this machine",
    clock: Clock::Machine,
    params: &[POLICIES, SIZES, WRITES, ROUNDS],
    run,
};

const POLICIES: Param = Param {
    name: "policies",
    what: "Policies beside one copy, with commas between; `+triec` for `,triec`, as in \
           rs:8+3+triec",
    unit: "",
    kind: Kind::Word(|word| parse(word).map(drop)),
    many: true,
    defaults: [
        "ring:3",
        "flat:3,ring:3,tree:3,rs:8+3,rs:8+3+triec",
        "flat:2,ring:2,flat:3,ring:3,tree:3,flat:5,ring:5,tree:5,rs:8+3,rs:8+3+triec",
    ],
};

const SIZES: Param = Param {
    name: "sizes",
    what: "Bytes of a write",
    unit: "bytes",
    kind: Kind::Bytes(1..=16 << 20),
    many: true,
    defaults: ["1M", "4K,64K,1M", "1K,4K,16K,64K,256K,1M,4M"],
};

const WRITES: Param = Param {
    name: "writes",
    what: "Writes of each point and round, one after the other; their median counts",
    unit: "writes",
    kind: Kind::Count(1..=100_000),
    many: false,
    defaults: ["20", "50", "200"],
};

const ROUNDS: Param = Param {
    name: "rounds",
    what: "Rounds in which each point is measured once",
    unit: "rounds",
    kind: Kind::Count(1..=1000),
    many: false,
    defaults: ["3", "5", "9"],
};

/// What is compared with.
const ONE: Policy = Policy::Flat(1);

/// A policy and the length of its writes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    policy: Policy,
    bytes: usize,
}

fn parse(word: &str) -> Result<Policy, &'static str> {
    // Commas are between policies here.
    let text = match word.strip_suffix("+triec") {
        Some(shape) => format!("{shape},triec"),
        None => word.to_owned(),
    };
    text.parse().map_err(|_| "a policy, as in ring:3 or rs:8+3+triec")
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut points = Vec::new();
    let policies = params.words("policies").iter().filter_map(|word| parse(word).ok());
    let policies: Vec<Policy> = [ONE].into_iter().chain(policies).collect();
    for &bytes in params.counts("sizes") {
        points.extend(policies.iter().map(|&policy| Point { policy, bytes: bytes as usize }));
    }
    let servers = policies.iter().map(|policy| policy.parts()).max().unwrap_or(1);
    let world = World::start(servers, params.seed);
    let world = world.map_err(|error| StudyError::run("the servers", error))?;
    let writes = params.count("writes") as usize;
    let seen: Vec<Vec<Seen>> = in_turn(params, runner, &points, |point| {
        let seen = world.measure(point.policy, point.bytes, writes);
        seen.map_err(|error| StudyError::run(point.policy.to_string(), error))
    })?;
    Ok(report::report(&WRITE, params, &points, &seen))
}
