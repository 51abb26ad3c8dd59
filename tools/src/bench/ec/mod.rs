//! Erasure coding on one core of this machine, beside a copy of the same bytes
//! (docs/erasure-coding.md section 8).
//!
//! | file | what it holds |
//! |---|---|
//! | `work` | what is measured, over stripes in memory |
//! | `report` | tables and targets |

mod report;
mod work;

use towpath_ec::Shape;
use towpath_lab::studies::{Clock, Kind, Param, Params, Report, Runner, Study, StudyError};

use super::links::rounds::in_turn;
use work::{Point, Speeds};

/// All, in the order in which they are listed.
pub const ALL: &[&Study] = &[&THROUGHPUT];

/// Bytes a second of each thing that a code does.
pub const THROUGHPUT: Study = Study {
    name: "throughput",
    what: "bytes of data a second that are encoded, decoded, made contributions of, added and \
           sketched, on one core, beside a copy of the same bytes",
    mirrors: "TriEC (SC 2019) and sPIN (SC 2022, section 6), which encode on NICs",
    clock: Clock::Machine,
    params: &[SHAPES, SHARDS, MEMORY, ROUNDS],
    run,
};

const SHAPES: Param = Param {
    name: "shapes",
    what: "Data and parity shards of a stripe, as in 6+3",
    unit: "shards",
    kind: Kind::Word(|word| parse(word).map(drop)),
    many: true,
    defaults: ["6+3", "3+2,6+3,8+3,10+4", "3+2,4+2,6+3,8+3,10+4"],
};

const SHARDS: Param = Param {
    name: "shards",
    what: "Bytes of a shard",
    unit: "bytes",
    kind: Kind::Bytes(1..=16 << 20),
    many: true,
    defaults: ["4K,64K", "1K,4K,64K,1M", "1K,4K,16K,64K,256K,1M"],
};

const MEMORY: Param = Param {
    name: "memory",
    what: "Bytes of data that each pass goes over, a stripe at least: more than caches hold, or \
           less",
    unit: "bytes",
    kind: Kind::Bytes(1..=1 << 30),
    many: true,
    defaults: ["128M", "128M,256K", "256M,256K"],
};

const ROUNDS: Param = Param {
    name: "rounds",
    what: "Rounds in which each point is measured once; medians are shown",
    unit: "rounds",
    kind: Kind::Count(1..=1000),
    many: false,
    defaults: ["3", "7", "21"],
};

fn parse(word: &str) -> Result<Shape, &'static str> {
    let no_shape = "data shards, a plus and parity shards: 1 to 32 in all, as in 6+3";
    let (k, m) = word.split_once('+').ok_or(no_shape)?;
    let (k, m) = (k.parse().map_err(|_| no_shape)?, m.parse().map_err(|_| no_shape)?);
    Shape::new(k, m).map_err(|_| no_shape)
}

fn run(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut points = Vec::new();
    for &memory in params.counts("memory") {
        for shape in params.words("shapes").iter().filter_map(|word| parse(word).ok()) {
            for &shard in params.counts("shards") {
                points.push(Point::new(shape, shard as usize, memory as usize));
            }
        }
    }
    let seen: Vec<Vec<Speeds>> = in_turn(params, runner, &points, Point::measure)?;
    Ok(report::report(&THROUGHPUT, params, &points, &seen))
}
