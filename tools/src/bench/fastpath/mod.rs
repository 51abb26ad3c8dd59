//! The fast path against protobuf on this machine (docs/fastpath.md): a client and a server, each a
//! process of its own, over loopback. Only with the feature `baseline`.
//!
//! | file | what it holds |
//! |---|---|
//! | `way` | the ways that a write can go, and what it goes to |
//! | `world` | the processes of one run, and what was measured |
//! | `client`, `load` | the process of the client: writes, as many under way as it is told |
//! | `ours`, `over_rpc`, `over_grpc` | one way each: how its client writes, and its server |
//! | `server` | the process of the server |
//! | `chunk_store` | the store of the chunk server, for the servers of the baseline |
//! | `usage` | cache misses of a process, and its passes over memory |
//! | `report` | tables, plots and targets |

#[cfg(feature = "baseline")]
mod chunk_store;
#[cfg(feature = "baseline")]
mod client;
#[cfg(feature = "baseline")]
mod load;
#[cfg(feature = "baseline")]
mod ours;
#[cfg(feature = "baseline")]
mod over_grpc;
#[cfg(feature = "baseline")]
mod over_rpc;
#[cfg(feature = "baseline")]
mod report;
#[cfg(feature = "baseline")]
mod server;
#[cfg(feature = "baseline")]
mod usage;
mod way;
#[cfg(feature = "baseline")]
mod world;

#[cfg(feature = "baseline")]
pub(crate) use client::{ClientArgs, run as run_client};
#[cfg(feature = "baseline")]
pub(crate) use load::LoadError;
#[cfg(feature = "baseline")]
pub(crate) use server::{ServerArgs, serve};

use towpath_lab::studies::{Clock, Kind, Param, Params, Report, Runner, Study, StudyError};

use way::{is_store, is_way};

/// All, in the order in which they are listed.
pub const ALL: &[&Study] = &[&WRITE, &MEMORY];

/// Latency and processor time of small writes.
pub const WRITE: Study = Study {
    name: "write",
    what: "latency and processor time of 4 KiB writes: the fast path, protobuf over the same rpc, \
           and gRPC",
    mirrors: "figure 14 (a) and (b) of the paper on Alibaba's storage network: sequential writes \
              of 4 KiB, 1 and 16 under way",
    clock: Clock::Machine,
    params: &[WAYS, STORES, DEPTHS, BATCH, SPIN, SECONDS, ROUNDS],
    run: |params, runner| run(&WRITE, params, runner),
};

/// Passes over memory of long writes.
pub const MEMORY: Study = Study {
    name: "memory",
    what: "passes over memory of long writes: contiguous messages, sliced on the way, and sliced \
           and summed on the way",
    mirrors: "figure 14 (c) of the same: memory bandwidth of writes of 64 to 256 KiB",
    clock: Clock::Machine,
    params: &[SIZES, DEPTH, BATCH, SPIN, SECONDS, ROUNDS],
    run: |params, runner| run(&MEMORY, params, runner),
};

const WAYS: Param = Param {
    name: "ways",
    what: "What is measured: ours, prost (protobuf over our rpc), tonic (gRPC over TCP)",
    unit: "words",
    kind: Kind::Word(is_way),
    many: true,
    defaults: ["ours,prost,tonic"; 3],
};

const STORES: Param = Param {
    name: "stores",
    what: "What is written to: null (checks, keeps nothing, answers at once) or chunk (the store \
           of the chunk server, in a temporary folder)",
    unit: "words",
    kind: Kind::Word(is_store),
    many: true,
    defaults: ["null", "null,chunk", "null,chunk"],
};

const DEPTHS: Param = Param {
    name: "depths",
    what: "Writes under way",
    unit: "writes",
    kind: Kind::Count(1..=64),
    many: true,
    defaults: ["1,16"; 3],
};

const DEPTH: Param = Param {
    name: "depth",
    what: "Writes under way",
    unit: "writes",
    kind: Kind::Count(1..=64),
    many: false,
    defaults: ["4"; 3],
};

const SIZES: Param = Param {
    name: "sizes",
    what: "Bytes of a write",
    unit: "bytes",
    kind: Kind::Bytes(4096..=1 << 20),
    many: true,
    defaults: ["64K,128K,256K"; 3],
};

const BATCH: Param = Param {
    name: "batch",
    what: "Writes that our clients begin before they send them, if so many are ready; gRPC sends \
           as it likes",
    unit: "writes",
    kind: Kind::Count(1..=64),
    many: false,
    defaults: ["16"; 3],
};

const SPIN: Param = Param {
    name: "spin-us",
    what: "How long our ends poll without work before they sleep; gRPC sleeps at once",
    unit: "us",
    kind: Kind::Count(0..=1000),
    many: false,
    defaults: ["0"; 3],
};

const SECONDS: Param = Param {
    name: "seconds",
    what: "How long each point is measured in each round, after half a second that is not",
    unit: "s",
    kind: Kind::Count(1..=60),
    many: false,
    defaults: ["1", "2", "5"],
};

const ROUNDS: Param = Param {
    name: "rounds",
    what: "Rounds in which each point is measured once",
    unit: "rounds",
    kind: Kind::Count(1..=100),
    many: false,
    defaults: ["1", "3", "9"],
};

#[cfg(feature = "baseline")]
fn run(study: &'static Study, params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let plans = world::plans(study, params);
    let seen = super::links::rounds::in_turn(params, runner, &plans, world::Plan::run)?;
    Ok(match study.name == MEMORY.name {
        true => report::memory(study, params, &plans, &seen),
        false => report::write(study, params, &plans, &seen),
    })
}

#[cfg(not(feature = "baseline"))]
fn run(study: &'static Study, _: &Params, _: &Runner<'_>) -> Result<Report, StudyError> {
    let problem = "this program was built without what is compared with: \
                   cargo run --profile dist --features baseline --bin towpath -- bench fastpath";
    Err(StudyError::run(study.name, problem))
}
