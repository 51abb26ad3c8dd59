//! Figure 15: erasure coding of packets as they come, beside that of whole chunks.

use super::setting::{FULL, LINE, MTU, SIZES, Setting, params};
use super::systems::{Stripe, end_us, rate, writes};
use super::{by_size, claim, lines, notes};
use crate::flow::{Cost, Ps, ns, run};
use towpath_lab::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Study, StudyError, Table, show_bytes,
};

pub(super) const SHAPES: Param = Param {
    name: "shapes",
    what: "Shapes of stripes: 3+2, 6+3",
    unit: "",
    kind: Kind::Word(|word| shape(word).map(|_| ())),
    many: true,
    defaults: ["3+2,6+3"; 3],
};

/// The paper says both `write` and `block` of the same figure. Of a write of 1 KiB a data node gets
/// 171 bytes, and its port cannot carry the parity of them as fast as the paper says that it makes
/// parity at 1 KiB, even with no headers but RoCE's; of chunks of 1 KiB it can.
const SIZE_OF: Param = Param {
    name: "size-of",
    what: "What sizes are of: the `chunk` of a data node, or a `write`, which is cut into them",
    unit: "",
    kind: Kind::Word(|word| {
        if ["write", "chunk"].contains(&word) { Ok(()) } else { Err("write or chunk") }
    }),
    many: false,
    defaults: ["chunk"; 3],
};

pub(in super::super) const STUDY: Study = Study {
    name: "policies fig15",
    what: "latency and encode bandwidth of TriEC, packet by packet and chunk by chunk",
    mirrors: "sPIN storage paper, figure 15: 29 times the bandwidth of INEC-TriEC at 1 KiB, 3.3 at \
              512 KiB, at most half the latency",
    clock: Clock::Virtual,
    params: params![
        Param {
            defaults: [
                "1K,8K,64K,512K",
                "1K,2K,4K,8K,16K,32K,64K,128K,256K,512K",
                "1K,2K,4K,8K,16K,32K,64K,128K,256K,512K"
            ],
            ..SIZES
        },
        Param { defaults: ["100"; 3], ..LINE },
        SHAPES,
        SIZE_OF
    ],
    run: ask,
};

/// Only shapes of which the paper has handlers' durations.
pub(super) fn shape(word: &str) -> Result<(usize, usize), &'static str> {
    match word {
        "3+2" => Ok((3, 2)),
        "6+3" => Ok((6, 3)),
        _ => Err("3+2 or 6+3"),
    }
}

/// What sizes are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizeOf {
    Write,
    Chunk,
}

impl SizeOf {
    fn of(params: &Params) -> Self {
        if params.word(SIZE_OF.name) == "chunk" { Self::Chunk } else { Self::Write }
    }

    /// What each of so many data nodes gets.
    fn chunk(self, bytes: u64, data: usize) -> u64 {
        if self == Self::Chunk { bytes } else { bytes.div_ceil(data as u64) }
    }
}

/// Engines of cards that encode chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// As fast as the line, beside a READ of the host's memory and a write to it: what the way of
    /// the data alone costs.
    Ideal,
    /// As the paper's figures say that INEC's is.
    Implied,
}

/// The paper says no figure of INEC, but how many times INEC's bandwidth that of its own handlers
/// is, for 6+3: 29 at 1 KiB and 3.3 at 512 KiB. Its own follows from the durations of table II, on
/// 32 units, at 512 KiB, and is more at 1 KiB (a drop of 12 %). From that follows what an engine
/// takes for a chunk of each of the two sizes, so what it takes for any chunk, and for each byte.
fn implied(size_of: SizeOf, parity: usize) -> Cost {
    let [few, many] = [1_u64 << 10, 512 << 10].map(|bytes| size_of.chunk(bytes, 6));
    let own = paper_ps(many);
    let [short, long] = [own * few as f64 / many as f64 * 0.88 * 29.0, own * 3.3];
    let per_byte = (long - short) / (many - few) as f64;
    let fixed = short - per_byte * few as f64;
    // The paper has INEC's bandwidth of three shards of parity; others are in proportion.
    let per_kib = per_byte * 1_024.0 * parity as f64 / 3.0;
    Cost { fixed: fixed.max(0.0) as Ps, per_kib: per_kib.max(0.0) as Ps }
}

/// What the paper's units take for a chunk: the handlers of its packets, its header and its end.
fn paper_ps(chunk: u64) -> f64 {
    let packets = chunk as f64 / FULL as f64;
    (packets * ns(23_018) as f64 + ns(215 + 82) as f64) / 32.0
}

impl Engine {
    fn cost(self, setting: &Setting, size_of: SizeOf, parity: usize) -> Cost {
        match self {
            Self::Ideal => setting.ideal(),
            Self::Implied => implied(size_of, parity),
        }
    }
}

#[derive(Clone)]
struct Point {
    mtu: u64,
    word: String,
    shape: (usize, usize),
    bytes: u64,
}

impl Point {
    fn label(&self) -> String {
        format!("{} of {}, MTU {}", self.word, show_bytes(self.bytes), self.mtu)
    }
}

/// Latency in microseconds and bandwidth in Gb/s: streaming, by an ideal engine, as implied.
struct Row {
    point: Point,
    us: [f64; 3],
    gbps: [f64; 3],
    hash: u64,
}

impl Row {
    fn times(&self, engine: Engine) -> (f64, f64) {
        let place = if engine == Engine::Ideal { 1 } else { 2 };
        (self.us[place] / self.us[0], self.gbps[0] / self.gbps[place])
    }
}

const WAYS: [&str; 3] =
    ["streaming", "chunks, ideal engine", "chunks, as the paper implies (fitted)"];

fn row(params: &Params, point: &Point) -> Result<Row, StudyError> {
    let setting = Setting::of(params, point.mtu);
    let (data, parity) = point.shape;
    let size_of = SizeOf::of(params);
    let chunk = size_of.chunk(point.bytes, data);
    let chunks = |engine: Engine| Stripe::Chunks(engine.cost(&setting, size_of, parity));
    let ways = [Stripe::Streaming, chunks(Engine::Ideal), chunks(Engine::Implied)];
    let mut row = Row { point: point.clone(), us: [0.0; 3], gbps: [0.0; 3], hash: 0 };
    for (place, way) in ways.into_iter().enumerate() {
        let one = run(&way.plan(&setting, point.shape, chunk));
        row.us[place] = end_us(&one, || format!("{}, {}", point.label(), WAYS[place]))?;
        let many = run(&way.stream(&setting, point.shape, chunk, writes(chunk)));
        let first = run(&way.stream(&setting, point.shape, chunk, 1));
        row.gbps[place] = rate(&first, &many, chunk * parity as u64) / 1e9;
        row.hash = row.hash.rotate_left(1) ^ one.trace_hash ^ many.trace_hash.rotate_left(32);
    }
    Ok(row)
}

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let mut points = Vec::new();
    for &mtu in params.counts(MTU.name) {
        for word in params.words(SHAPES.name) {
            let known = shape(word).map_err(|why| StudyError::run(word.as_str(), why))?;
            points.extend(params.counts(SIZES.name).iter().map(|&bytes| Point {
                mtu,
                word: word.clone(),
                shape: known,
                bytes,
            }));
        }
    }
    let rows = runner.map(&points, |point| row(params, point))?;
    for row in &rows {
        report.trace(row.point.label(), row.hash);
    }
    report.tables = vec![table(&rows)];
    report.plots = plots(params, &rows);
    report.claims = claims(&rows);
    report.notes = notes(params);
    let cost = implied(SizeOf::of(params), 3);
    report.notes.push(format!(
        "the paper says no figure of INEC's engine: `implied` is {} ns for each chunk and {:.2} ns \
         for each byte with three shards of parity, from the paper's ratios (29 and 3.3) and its \
         handlers' durations. It is fitted, and no target is made of it; `ideal` has an engine at \
         the line's rate, and is what ours is held against",
        cost.fixed / 1_000,
        cost.per_kib as f64 / 1_024.0 / 1_000.0,
    ));
    report.notes.push(
        "bandwidth: intermediate parity that one data node makes, per time. Adding at parity \
         nodes costs what docs/studies.md says; the paper has no figure"
            .to_owned(),
    );
    Ok(report)
}

fn table(rows: &[Row]) -> Table {
    let us = |name, head| Column::new(name, head, "us", Format::Decimals(2));
    let gbps = |name, head| Column::new(name, head, "Gb/s", Format::Decimals(2));
    let times = |name, head| Column::new(name, head, "times", Format::Decimals(2));
    let columns = vec![
        Column::new("mtu", "MTU", "bytes", Format::Plain),
        Column::new("shape", "shape", "", Format::Plain),
        Column::new("write_bytes", "write", "", Format::Bytes),
        us("streaming_us", "streaming"),
        us("ideal_us", "ideal"),
        us("implied_us", "implied"),
        times("latency_implied", "implied / ours"),
        gbps("streaming_gbps", "streaming"),
        gbps("ideal_gbps", "ideal"),
        gbps("implied_gbps", "implied"),
        times("bandwidth_ideal", "ours / ideal"),
        times("bandwidth_implied", "ours / implied"),
        Column::new("fitted", "fitted", "", Format::Plain),
    ];
    let row = |row: &Row| -> Vec<Cell> {
        let Point { mtu, word, bytes, .. } = &row.point;
        let mut cells: Vec<Cell> = vec![(*mtu).into(), word.as_str().into(), (*bytes).into()];
        cells.extend(row.us.map(Cell::from));
        cells.push(row.times(Engine::Implied).0.into());
        cells.extend(row.gbps.map(Cell::from));
        cells.extend([row.times(Engine::Ideal).1.into(), row.times(Engine::Implied).1.into()]);
        cells.push("implied".into());
        cells
    };
    let title = "Latency of a write, and encode bandwidth of one data node".to_owned();
    Table { name: "triec", title, columns, rows: rows.iter().map(row).collect() }
}

fn plots(params: &Params, rows: &[Row]) -> Vec<Plot> {
    let mut plots = Vec::new();
    for &mtu in params.counts(MTU.name) {
        let each = |of: fn(&Row) -> [f64; 3]| {
            let rows = rows.iter().filter(move |row| row.point.mtu == mtu);
            let points = rows.flat_map(move |row| {
                let named = WAYS.into_iter().zip(of(row));
                named.map(|(way, y)| {
                    (format!("{} {way}", row.point.word), row.point.bytes as f64, y)
                })
            });
            lines(points)
        };
        let title = format!("figure 15, MTU {mtu}");
        plots.push(by_size(title.clone(), "latency", "us", each(|row| row.us)));
        plots.push(Plot {
            title,
            x: Axis::log("write", "bytes"),
            y: Axis::log("encode bandwidth", "Gb/s"),
            series: each(|row| row.gbps),
        });
    }
    plots
}

/// Against the engine at the line's rate: the other one is fitted to the ratios that the paper has.
fn claims(rows: &[Row]) -> Vec<Claim> {
    let of_shape = rows.iter().filter(|row| row.point.shape == (6, 3));
    let most = of_shape.map(|row| row.times(Engine::Ideal).0).reduce(f64::max);
    let claim = |most| {
        let what = "6+3: latency of whole chunks with an ideal engine, of streaming, most";
        claim("latency_ideal", what.to_owned(), Demand::AtLeast(2.0), (most, "", 2))
    };
    most.map(claim).into_iter().collect()
}
