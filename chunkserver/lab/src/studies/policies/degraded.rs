//! Reads of erasure-coded stripes of which data nodes are lost. The paper has no such figure; the
//! shapes are those of docs/erasure-coding.md.

use super::readers::{Asked, Reading, decode};
use super::setting::{LINE, MTU, SIZES, Setting, params};
use super::{by_size, claim, lines, notes};
use crate::flow::ns;
use towpath_fastpath::SLICE_BYTES;
use towpath_lab::studies::{
    Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Report, Runner, Study,
    StudyError, Table, show_bytes,
};

/// A shape, and how fast one core decodes it with all parity used: tenths of gigabytes of data a
/// second with shards of 4 KiB and of 64 KiB, within the cache and out of it (docs/studies.md).
struct Shape {
    word: &'static str,
    data: usize,
    parity: usize,
    cache: [u64; 2],
    memory: [u64; 2],
}

const fn known(
    word: &'static str,
    (data, parity): (usize, usize),
    cache: [u64; 2],
    memory: [u64; 2],
) -> Shape {
    Shape { word, data, parity, cache, memory }
}

const KNOWN: [Shape; 5] = [
    known("3+2", (3, 2), [218, 477], [68, 127]),
    known("4+2", (4, 2), [276, 522], [82, 145]),
    known("6+3", (6, 3), [215, 273], [90, 117]),
    known("8+3", (8, 3), [180, 221], [100, 130]),
    known("10+4", (10, 4), [125, 145], [86, 103]),
];

fn shape(word: &str) -> Result<&'static Shape, &'static str> {
    KNOWN.iter().find(|shape| shape.word == word).ok_or("3+2, 4+2, 6+3, 8+3 or 10+4")
}

const SHAPES: Param = Param {
    name: "shapes",
    what: "Shapes of stripes: 3+2, 4+2, 6+3, 8+3, 10+4",
    unit: "",
    kind: Kind::Word(|word| shape(word).map(|_| ())),
    many: true,
    defaults: ["6+3", "3+2,4+2,6+3,8+3,10+4", "3+2,4+2,6+3,8+3,10+4"],
};
const UNIT: Param = Param {
    name: "unit",
    what: "Bytes of a node in a whole stripe",
    unit: "bytes",
    kind: Kind::Bytes(4_096..=16 << 20),
    many: false,
    defaults: ["64K"; 3],
};
const ROW: Param = Param {
    name: "row",
    what: "Bytes of a node that are decoded at once where a client decodes by rows",
    unit: "bytes",
    kind: Kind::Bytes(4_096..=16 << 20),
    many: false,
    defaults: ["4K"; 3],
};
const CORES: Param = Param {
    name: "cores",
    what: "Cores of the client that check and decode",
    unit: "",
    kind: Kind::Count(1..=64),
    many: false,
    defaults: ["1"; 3],
};
/// Our client's (storage-fastpath/spread).
const LATE: Param = Param {
    name: "late-us",
    what: "When a client that does not know of a loss asks others",
    unit: "us",
    kind: Kind::Count(0..=10_000_000),
    many: false,
    defaults: ["100000"; 3],
};
const FROM: Param = Param {
    name: "decode-from",
    what: "Where a core decodes from: the `cache`, since it has just checked the data, or `memory`",
    unit: "",
    kind: Kind::Word(|word| {
        if ["cache", "memory"].contains(&word) { Ok(()) } else { Err("cache or memory") }
    }),
    many: false,
    defaults: ["cache"; 3],
};

pub(in super::super) const STUDY: Study = Study {
    name: "policies degraded",
    what: "latency of reads of erasure-coded stripes of which nodes are lost",
    mirrors: "no figure of the paper: at most 1.5 times the latency of a read of all data nodes",
    clock: Clock::Virtual,
    params: params![
        Param { defaults: ["4K,1M", "4K,64K,256K,1M,16M", "4K,64K,256K,1M,16M"], ..SIZES },
        Param { defaults: ["100"; 3], ..LINE },
        SHAPES,
        UNIT,
        ROW,
        CORES,
        LATE,
        FROM
    ],
    run: ask,
};

/// A degraded read takes at most so many times as long as a whole one.
const TARGET: f64 = 1.5;

#[derive(Clone, Copy)]
struct Point {
    mtu: u64,
    shape: &'static Shape,
    bytes: u64,
    lost: usize,
}

impl Point {
    fn label(&self) -> String {
        let Self { mtu, shape, bytes, lost } = self;
        format!("{} of {}, {lost} lost, MTU {mtu}", show_bytes(*bytes), shape.word)
    }
}

/// In microseconds.
struct Row {
    point: Point,
    whole: f64,
    known: f64,
    rows: f64,
    all: f64,
    late: f64,
    hash: u64,
}

fn row(params: &Params, point: &Point) -> Result<Row, StudyError> {
    let setting = Setting::of(params, point.mtu);
    let shape = point.shape;
    let speeds = if params.word(FROM.name) == "cache" { shape.cache } else { shape.memory };
    let unit = params.count(UNIT.name);
    let whole = Reading {
        data: shape.data,
        parity: shape.parity,
        lost: point.lost,
        bytes: point.bytes,
        unit,
        row: unit,
        cores: params.count(CORES.name),
        decode: decode(shape.data as u64, speeds),
    };
    let by_rows = Reading { row: params.count(ROW.name), ..whole };
    let late = Asked::Late(ns(params.count(LATE.name) * 1_000));
    let mut hash = 0_u64;
    let mut us = |reading: &Reading, asked: Asked| {
        let end = reading.end(&setting, asked);
        let (end, seen) =
            end.ok_or_else(|| StudyError::run(point.label(), "too few answers".to_owned()))?;
        hash = hash.rotate_left(1) ^ seen;
        Ok(end as f64 / 1e6)
    };
    let [whole, known, rows, all, late] = [
        us(&whole, Asked::Whole)?,
        us(&whole, Asked::Known)?,
        us(&by_rows, Asked::Known)?,
        us(&whole, Asked::All)?,
        us(&whole, late)?,
    ];
    Ok(Row { point: *point, whole, known, rows, all, late, hash })
}

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    for name in [UNIT.name, ROW.name] {
        if !params.count(name).is_multiple_of(SLICE_BYTES as u64) {
            return Err(StudyError::run(name, "whole slices of 4,096 bytes"));
        }
    }
    let mut report = Report::new(STUDY.name, params);
    let mut points = Vec::new();
    for &mtu in params.counts(MTU.name) {
        for word in params.words(SHAPES.name) {
            let shape = shape(word).map_err(|why| StudyError::run(word.as_str(), why))?;
            for &bytes in params.counts(SIZES.name) {
                let lost = 1..=shape.parity.min(shape.data);
                points.extend(lost.map(|lost| Point { mtu, shape, bytes, lost }));
            }
        }
    }
    let rows = runner.map(&points, |point| row(params, point))?;
    for row in &rows {
        report.trace(row.point.label(), row.hash);
    }
    report.tables = vec![table(&rows)];
    for &mtu in params.counts(MTU.name) {
        // As many lost as may be.
        let worst = rows.iter().filter(|row| row.point.lost == row.point.shape.parity);
        let points = worst.filter(|row| row.point.mtu == mtu).flat_map(|row| {
            let each = [("whole", row.whole), ("lost", row.known), ("lost, by rows", row.rows)];
            each.map(|(what, us)| {
                (format!("{} {what}", row.point.shape.word), row.point.bytes as f64, us)
            })
        });
        let title = format!("degraded reads, MTU {mtu}");
        report.plots.push(by_size(title, "latency", "us", lines(points)));
    }
    report.claims = claims(params, &rows);
    report.notes = notes(params);
    report.notes.push(
        "decoding costs what was measured with all parity used, however many are lost; `late` \
         waits before it asks others, as our client does once for each server that is lost"
            .to_owned(),
    );
    Ok(report)
}

fn table(rows: &[Row]) -> Table {
    let us = |name, head| Column::new(name, head, "us", Format::Decimals(2));
    let times = |name, head| Column::new(name, head, "of whole", Format::Decimals(2));
    let columns = vec![
        Column::new("mtu", "MTU", "bytes", Format::Plain),
        Column::new("shape", "shape", "", Format::Plain),
        Column::new("read_bytes", "read", "", Format::Bytes),
        Column::new("lost", "lost", "", Format::Plain),
        us("whole_us", "whole"),
        us("known_us", "known"),
        us("rows_us", "by rows"),
        us("all_us", "all asked"),
        us("late_us", "late"),
        times("known_of_whole", "known"),
        times("rows_of_whole", "by rows"),
        times("all_of_whole", "all asked"),
    ];
    let row = |row: &Row| -> Vec<Cell> {
        let Point { mtu, shape, bytes, lost } = row.point;
        let times = [row.known, row.rows, row.all].map(|us| Cell::from(us / row.whole));
        let us = [row.whole, row.known, row.rows, row.all, row.late].map(Cell::from);
        let mut cells: Vec<Cell> =
            vec![mtu.into(), shape.word.into(), bytes.into(), (lost as u64).into()];
        cells.extend(us.into_iter().chain(times));
        cells
    };
    let rows = rows.iter().map(row).collect();
    let title = "Latency of a read, until all data is in the client's memory, checked".to_owned();
    Table { name: "degraded", title, columns, rows }
}

fn claims(params: &Params, rows: &[Row]) -> Vec<Claim> {
    let most = |word: &str, of: fn(&Row) -> f64| {
        let rows = rows.iter().filter(|row| row.point.shape.word == word);
        rows.map(|row| of(row) / row.whole).reduce(f64::max)
    };
    let each = params.words(SHAPES.name).iter().flat_map(|word| {
        let of = |way: &str, what: &str, of: fn(&Row) -> f64| {
            let what = format!("{word}, {what}, of a whole read, the most");
            let name = format!("{way}_{word}");
            Some(claim(&name, what, Demand::AtMost(TARGET), (most(word, of)?, "", 2)))
        };
        [
            of("known", "losses known, stripe by stripe", |row| row.known),
            of("rows", "losses known, decoded by rows", |row| row.rows),
        ]
    });
    each.flatten().collect()
}
