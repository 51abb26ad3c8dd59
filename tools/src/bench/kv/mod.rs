//! A key-value store over each transport, on this machine (docs/choosing-a-transport.md): the
//! server and its clients are a process each.
//!
//! | file | what it holds |
//! |---|---|
//! | `way` | what carries requests, and what is asked |
//! | `world` | the processes of one point, and what was seen |
//! | `server` | the process of the server |
//! | `client` | the process of the clients |
//! | `connect` | how they connect |
//! | `phases` | when all begin together, and leave |
//! | `worker` | one thread of it: one client, or several |
//! | `task` | what one client asks, one operation after the other |
//! | `seen` | all that was seen, and ratios of it |
//! | `report` | tables and targets; `paper` has the numbers of the study that asked first |
//! | `drawings` | drawings |

mod client;
mod connect;
mod drawings;
mod paper;
mod phases;
mod report;
mod seen;
mod server;
mod task;
mod way;
mod worker;
mod world;

pub(crate) use client::{ClientArgs, LoadError, run as run_client};
pub(crate) use server::{ServerArgs, serve};

use std::time::Duration;

use towpath_lab::studies::{Clock, Kind, Param, Params, Report, Runner, Study, StudyError};

use super::links::rounds::in_turn;
use seen::All;
use way::{ALONE_MAX, Load, NO_ROOM, Way};
use world::{Point, Seen};

/// All, in the order in which they are listed.
pub const ALL: &[&Study] = &[&THROUGHPUT, &LATENCY, &SWITCHES, &LOSS, &WORKLOADS];

/// Operations a second, over clients.
pub const THROUGHPUT: Study = Study {
    name: "throughput",
    what: "operations a second by each transport, over clients, polling and asleep",
    mirrors: "J. E. Troost, Scalability of RDMA transportation types in a Key Value store \
              application (2021), figures 4.1 and 4.2, table 4.1",
    clock: Clock::Machine,
    params: &[
        WAYS,
        WAITING,
        CLIENTS,
        CLIENT_THREADS,
        MIX,
        WORKERS,
        RECORDS,
        OPERATIONS,
        SECONDS,
        ROUNDS,
    ],
    run: |params, runner| run(&THROUGHPUT, params, runner, report::throughput),
};

/// How long one operation takes.
pub const LATENCY: Study = Study {
    name: "latency",
    what: "how long one operation takes by each transport: percentiles, distribution, boxes",
    mirrors: "the same, figures 4.3 to 4.8, tables 4.2 and 4.3",
    clock: Clock::Machine,
    params: OF_ONE_OPERATION,
    run: |params, runner| run(&LATENCY, params, runner, report::latency),
};

/// Context switches of one operation.
pub const SWITCHES: Study = Study {
    name: "switches",
    what: "how often the server and its clients leave a processor for each operation",
    mirrors: "the same, table 4.4",
    clock: Clock::Machine,
    params: OF_ONE_OPERATION,
    run: |params, runner| run(&SWITCHES, params, runner, report::switches),
};

/// What losses cost, and whether each operation is done once.
pub const LOSS: Study = Study {
    name: "loss",
    what: "operations a second while packets are lost, and whether each is done exactly once",
    mirrors: "",
    clock: Clock::Machine,
    params: &[
        LOST_WAYS,
        ONE_WAITING,
        LOSS_CLIENTS,
        CLIENT_THREADS,
        LOSSES,
        WORKERS,
        OPERATIONS,
        SECONDS,
        ROUNDS,
    ],
    run: |params, runner| run(&LOSS, params, runner, report::loss),
};

/// The workloads of YCSB.
pub const WORKLOADS: Study = Study {
    name: "workloads",
    what: "operations a second and latency by each transport, with the workloads of YCSB",
    mirrors: "B. F. Cooper et al., Benchmarking Cloud Serving Systems with YCSB (2010): A, B, C, \
              D and F",
    clock: Clock::Machine,
    params: &[
        WAYS,
        ONE_WAITING,
        LOSS_CLIENTS,
        CLIENT_THREADS,
        MIXES,
        WORKERS,
        RECORDS,
        OPERATIONS,
        SECONDS,
        ROUNDS,
    ],
    run: |params, runner| run(&WORKLOADS, params, runner, report::workloads),
};

/// What latency and context switches of one operation are measured with.
const OF_ONE_OPERATION: &[Param] = &[
    WAYS,
    WAITING,
    FEW_CLIENTS,
    CLIENT_THREADS,
    MIX,
    WORKERS,
    RECORDS,
    OPERATIONS,
    SECONDS,
    ROUNDS,
];

const WAYS: Param = Param {
    name: "transports",
    what: "What carries requests: tcp (the kernel's), rc, uc, ud (queue pairs without Towpath), \
           towpath-uc, towpath-rc, towpath-tcp (Towpath channels on these), towpath-shared (on \
           UC, up to 1,000 clients on a link), one-sided (on UC, where clients read values by \
           themselves)",
    unit: "",
    kind: Kind::Word(is_way),
    many: true,
    defaults: [
        "tcp,uc,towpath-uc",
        "tcp,rc,uc,ud,towpath-uc,towpath-shared,one-sided",
        "tcp,rc,uc,ud,towpath-uc,towpath-shared,one-sided,towpath-rc,towpath-tcp",
    ],
};

const LOST_WAYS: Param = Param {
    what: "What carries requests, over a device whose packets are lost on purpose, at the clients, \
           both ways: rc, uc, ud, towpath-uc, towpath-shared, one-sided, towpath-rc",
    kind: Kind::Word(is_way_with_packets),
    defaults: ["uc,towpath-uc", "rc,uc,ud,towpath-uc", "rc,uc,ud,towpath-uc,towpath-rc"],
    ..WAYS
};

const WAITING: Param = Param {
    name: "waiting",
    what: "How both ends wait: poll (ask again and again) or sleep (until something comes)",
    unit: "",
    kind: Kind::Word(is_waiting),
    many: true,
    defaults: ["poll,sleep"; 3],
};

const ONE_WAITING: Param = Param { many: false, defaults: ["sleep"; 3], ..WAITING };

const CLIENTS: Param = Param {
    name: "clients",
    what: "Clients, one operation at a time",
    unit: "clients",
    kind: Kind::Count(1..=10_000),
    many: true,
    defaults: ["1,8", "1,2,8,32,70", "1,2,5,10,15,20,32,40,50,60,70,1000,10000"],
};

const FEW_CLIENTS: Param = Param { defaults: ["5", "5,32,60", "5,32,60"], ..CLIENTS };

const LOSS_CLIENTS: Param = Param { many: false, defaults: ["8", "16", "32"], ..CLIENTS };

const CLIENT_THREADS: Param = Param {
    name: "client-threads",
    what: "Threads of the clients: where there are more clients over tcp or towpath-shared, each \
           thread has several; over others each client has its own",
    unit: "threads",
    kind: Kind::Count(1..=10_000),
    many: false,
    defaults: ["70"; 3],
};

const LOSSES: Param = Param {
    name: "losses",
    what: "Packets that are lost",
    unit: "of all",
    kind: Kind::Share(0.0..=0.5),
    many: true,
    defaults: ["0,1%", "0,0.1%,1%", "0,0.1%,0.3%,1%"],
};

const MIX: Param = Param {
    name: "mix",
    what: "What clients ask: study (30 GETs for each SET, keys of 64 and values of 256 bytes), a, \
           b, c, d, f (YCSB's, values of 1,000 bytes), count (each adds ones to a number of its \
           own)",
    unit: "",
    kind: Kind::Word(is_load),
    many: false,
    defaults: ["study"; 3],
};

const MIXES: Param =
    Param { name: "mixes", many: true, defaults: ["a,c", "a,b,c,d,f", "a,b,c,d,f"], ..MIX };

const WORKERS: Param = Param {
    name: "workers",
    what: "Threads of the server, which share all clients",
    unit: "threads",
    kind: Kind::Count(1..=1024),
    many: false,
    defaults: ["1"; 3],
};

const RECORDS: Param = Param {
    name: "records",
    what: "Keys that are there before; where clients count, each has one of its own",
    unit: "keys",
    kind: Kind::Count(1..=10_000_000),
    many: false,
    defaults: ["1000", "1000", "100000"],
};

const OPERATIONS: Param = Param {
    name: "operations",
    what: "Operations of each point and round, divided among the clients",
    unit: "operations",
    kind: Kind::Count(1..=1_000_000_000),
    many: false,
    defaults: ["20000", "100000", "10000000"],
};

const SECONDS: Param = Param {
    name: "seconds",
    what: "How long each point of a round may take at most, without the time to connect: what is \
           not done then is left out",
    unit: "s",
    kind: Kind::Count(1..=3600),
    many: false,
    defaults: ["1", "1", "600"],
};

const ROUNDS: Param = Param {
    name: "rounds",
    what: "Rounds in which each point is measured once",
    unit: "rounds",
    kind: Kind::Count(1..=100),
    many: false,
    defaults: ["1", "3", "5"],
};

fn is_way(word: &str) -> Result<(), &'static str> {
    Way::of(word)
        .map(drop)
        .ok_or("tcp, rc, uc, ud, towpath-uc, towpath-shared, one-sided, towpath-rc or towpath-tcp")
}

fn is_way_with_packets(word: &str) -> Result<(), &'static str> {
    let way = Way::of(word).filter(|way| way.has_packets());
    way.map(drop).ok_or(
        "rc, uc, ud, towpath-uc, towpath-shared, one-sided or towpath-rc: packets of the kernel's \
         TCP are not ours to lose",
    )
}

fn is_waiting(word: &str) -> Result<(), &'static str> {
    if polls(word).is_some() { Ok(()) } else { Err("poll or sleep") }
}

fn is_load(word: &str) -> Result<(), &'static str> {
    Load::of(word).map(drop).ok_or("study, a, b, c, d, f or count")
}

fn polls(word: &str) -> Option<bool> {
    match word {
        "poll" => Some(true),
        "sleep" => Some(false),
        _ => None,
    }
}

/// Makes the tables of a study from its points and what was seen of each, round by round.
type Tell = fn(&Params, &[Point], &[Vec<Seen>]) -> Report;

fn run(
    study: &Study,
    params: &Params,
    runner: &Runner<'_>,
    tell: Tell,
) -> Result<Report, StudyError> {
    let (points, left_out): (Vec<Point>, Vec<Point>) =
        points(study, params).into_iter().partition(|point| point.way.has_room_for(point.clients));
    if points.is_empty() {
        return Err(StudyError::Params { name: CLIENTS.name, problem: NO_ROOM });
    }
    let seen = in_turn(params, runner, &points, |point| {
        let seen = point.measure(runner);
        seen.map_err(|error| StudyError::run(point.to_string(), error))?.ok_or(StudyError::Stopped)
    })?;
    let mut report = tell(params, &points, &seen);
    report.claims.extend(report::count_claims(All { points: &points, seen: &seen }));
    report.notes.extend(left_out_note(&left_out));
    Ok(report)
}

/// Says what was not measured, and why.
fn left_out_note(points: &[Point]) -> Option<String> {
    let mut words: Vec<String> = Vec::new();
    for point in points {
        let word = format!("{} x {}", point.way.word(), point.clients);
        if !words.contains(&word) {
            words.push(word);
        }
    }
    (!words.is_empty()).then(|| {
        format!(
            "Not run: {}. Each of these clients has a thread, a device and some 20 files of its \
             own, and one process at most {ALONE_MAX} of them.",
            words.join(", ")
        )
    })
}

/// Each of what is compared with each other.
fn points(study: &Study, params: &Params) -> Vec<Point> {
    let has = |name: &str| study.params.iter().any(|param| param.name == name);
    let loads: Vec<Load> = match () {
        () if has(MIXES.name) => words(params, MIXES.name, Load::of),
        () if has(MIX.name) => words(params, MIX.name, Load::of),
        () => vec![Load::Count],
    };
    let losses = if has(LOSSES.name) { params.shares(LOSSES.name) } else { &[0.0] };
    let mut points = Vec::new();
    for &loss in losses {
        for &load in &loads {
            for &clients in params.counts(CLIENTS.name) {
                for polls in words(params, WAITING.name, polls) {
                    for way in words(params, WAYS.name, Way::of) {
                        points.push(Point {
                            way,
                            polls,
                            load,
                            loss,
                            clients: clients as usize,
                            client_threads: params.count(CLIENT_THREADS.name) as usize,
                            workers: params.count(WORKERS.name) as usize,
                            records: if has(RECORDS.name) { params.count(RECORDS.name) } else { 1 },
                            operations: params.count(OPERATIONS.name),
                            most: Duration::from_secs(params.count(SECONDS.name)),
                            seed: params.seed,
                        });
                    }
                }
            }
        }
    }
    points
}

/// The values of a parameter that is made of words.
fn words<T>(params: &Params, name: &str, of: impl Fn(&str) -> Option<T>) -> Vec<T> {
    params.words(name).iter().filter_map(|word| of(word)).collect()
}
