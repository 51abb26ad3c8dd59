//! Figures 9 and 10: several copies, by size and by how many.

use super::setting::{LINE, MTU, PROFILE, SIZES, Setting, params};
use super::systems::{Copies, How, empty, end_us, rate, writes};
use super::{by_size, claim, lines, notes};
use crate::flow::{Ack, ns, run};
use towpath_fastpath::choice::{Choice, Way, choose};
use towpath_lab::studies::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Param, Params, Plot, Report, Runner,
    Study, StudyError, Table, show_bytes,
};

const COPIES: Param = Param {
    name: "copies",
    what: "Servers that store a write",
    unit: "",
    kind: Kind::Count(1..=8),
    many: true,
    defaults: ["2,4"; 3],
};
const ACKS: Param = Param {
    name: "acks",
    what: "How ours is acknowledged: `back` from the far end, or `direct` by each server",
    unit: "",
    kind: Kind::Word(|word| {
        if ["back", "direct"].contains(&word) { Ok(()) } else { Err("back or direct") }
    }),
    many: false,
    defaults: ["back"; 3],
};
const CPU_COPY: Param = Param {
    name: "cpu-copy",
    what: "Whether processors copy what they have checked to its place: `yes` or `no`",
    unit: "",
    kind: Kind::Word(|word| if ["yes", "no"].contains(&word) { Ok(()) } else { Err("yes or no") }),
    many: false,
    defaults: ["yes"; 3],
};

const REQUEST: Param = Param {
    name: "hyperloop-ns",
    what: "What a card takes for a request of HyperLoop, one after the other",
    unit: "ns",
    kind: Kind::Count(0..=1_000_000),
    many: false,
    defaults: ["0"; 3],
};

pub(in super::super) const STUDY: Study = Study {
    name: "policies fig9",
    what: "latency and goodput of replicated writes, by size",
    mirrors: "sPIN storage paper, figure 9: up to 2 and 2.16 times faster than the best other way",
    clock: Clock::Virtual,
    params: params![SIZES, COPIES, LINE, ACKS, CPU_COPY, REQUEST],
    run: by_bytes,
};

pub(in super::super) const MORE: Study = Study {
    name: "policies fig10",
    what: "latency of replicated writes, by the number of copies",
    mirrors: "sPIN storage paper, figure 10: 4 KiB and 512 KiB",
    clock: Clock::Virtual,
    params: params![
        Param { defaults: ["4K,512K"; 3], ..SIZES },
        Param { defaults: ["1,2,4,8", "1,2,3,4,5,6,7,8", "1,2,3,4,5,6,7,8"], ..COPIES },
        LINE,
        ACKS,
        CPU_COPY,
        REQUEST
    ],
    run: by_number,
};

/// The paper's figure is held against the best other way for so many copies.
const PAPER: [(u64, f64); 2] = [(2, 2.0), (4, 2.16)];
/// From here on the paper's ring has the line's rate.
const LINE_RATE_FROM: u64 = 8 << 10;

#[derive(Clone, Copy)]
struct Point {
    mtu: u64,
    copies: u64,
    bytes: u64,
}

impl Point {
    fn label(&self) -> String {
        let Self { mtu, copies, bytes } = self;
        format!("{copies} copies of {}, MTU {mtu}", show_bytes(*bytes))
    }
}

/// What came of one size and number of copies.
struct Row {
    point: Point,
    /// In microseconds, as `Copies::ALL`.
    us: Vec<f64>,
    /// The best chunk of the ways that have chunks.
    chunks: Vec<(Copies, u64)>,
    choice: Choice,
    hash: u64,
}

impl Row {
    fn of(&self, which: Copies) -> f64 {
        let place = Copies::ALL.iter().position(|&known| known == which);
        place.and_then(|place| self.us.get(place)).copied().unwrap_or(f64::NAN)
    }

    fn least(&self, of: &[Copies]) -> (Copies, f64) {
        let each = of.iter().map(|&which| (which, self.of(which)));
        each.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((Copies::Flat, f64::NAN))
    }

    /// How many times longer the best other way takes.
    fn gain(&self) -> f64 {
        self.least(&Copies::OTHERS).1 / self.least(&[Copies::Ring, Copies::Tree]).1
    }

    fn chosen(&self) -> Copies {
        match self.choice.way {
            Way::Flat => Copies::OurFlat,
            Way::Ring => Copies::Ring,
            Way::Tree => Copies::Tree,
        }
    }

    /// How much longer what was chosen takes than the best.
    fn regret(&self) -> f64 {
        let best = self.least(&[Copies::OurFlat, Copies::Ring, Copies::Tree]).1;
        self.of(self.chosen()) / best - 1.0
    }
}

fn how(params: &Params, mtu: u64) -> How {
    How {
        setting: Setting::of(params, mtu),
        ack: if params.word(ACKS.name) == "direct" { Ack::Client } else { Ack::Sender },
        copies: params.word(CPU_COPY.name) == "yes",
        request: ns(params.count(REQUEST.name)),
    }
}

fn row(params: &Params, point: &Point) -> Result<Row, StudyError> {
    let how = how(params, point.mtu);
    let copies = point.copies as usize;
    let mut row = Row {
        point: *point,
        us: Vec::new(),
        chunks: Vec::new(),
        choice: choose(point.copies as u8, point.bytes, &how.setting.costs(how.ack == Ack::Sender)),
        hash: 0,
    };
    for which in Copies::ALL {
        let (outcome, chunk) = which.best(&how, copies, point.bytes);
        row.us.push(end_us(&outcome, || format!("{}, {}", point.label(), which.word()))?);
        row.hash = row.hash.rotate_left(1) ^ outcome.trace_hash;
        row.chunks.push((which, chunk));
    }
    Ok(row)
}

fn rows(report: &mut Report, params: &Params, runner: &Runner<'_>) -> Result<Vec<Row>, StudyError> {
    let mut points = Vec::new();
    for &mtu in params.counts(MTU.name) {
        for &copies in params.counts(COPIES.name) {
            let sizes = params.counts(SIZES.name).iter();
            points.extend(sizes.map(|&bytes| Point { mtu, copies, bytes }));
        }
    }
    let rows = runner.map(&points, |point| row(params, point))?;
    for row in &rows {
        report.trace(row.point.label(), row.hash);
    }
    report.tables = vec![latencies(&rows)];
    report.notes = notes(params);
    report.notes.push(
        "RDMA flat and HyperLoop check no request; what works on chunks has the best size of \
         chunks, from 1 KiB to all; ours is compared with the best of these four, by its ring or \
         tree, whichever is faster"
            .to_owned(),
    );
    Ok(rows)
}

fn latencies(rows: &[Row]) -> Table {
    let us = |name, head| Column::new(name, head, "us", Format::Decimals(2));
    let columns = vec![
        Column::new("mtu", "MTU", "bytes", Format::Plain),
        Column::new("copies", "copies", "", Format::Plain),
        Column::new("write_bytes", "write", "", Format::Bytes),
        us("flat_us", "RDMA flat"),
        us("hyperloop_us", "HyperLoop"),
        us("cpu_ring_us", "CPU ring"),
        us("cpu_tree_us", "CPU tree"),
        us("our_flat_us", "our flat"),
        us("ring_us", "our ring"),
        us("tree_us", "our tree"),
        Column::new("gain", "best other", "of ours", Format::Decimals(2)),
        Column::new("best_other", "which", "", Format::Plain),
        Column::new("best_other_chunk_bytes", "its chunk", "", Format::Bytes),
        Column::new("chosen", "chosen", "", Format::Plain),
        Column::new("regret", "beyond the best", "%", Format::Percent(1)),
    ];
    let row = |row: &Row| -> Vec<Cell> {
        let Point { mtu, copies, bytes } = row.point;
        let other = row.least(&Copies::OTHERS).0;
        let chunk = row.chunks.iter().find(|(which, _)| *which == other).map(|&(_, chunk)| chunk);
        let mut cells: Vec<Cell> = vec![mtu.into(), copies.into(), bytes.into()];
        cells.extend(row.us.iter().map(|&us| Cell::from(us)));
        cells.extend([
            row.gain().into(),
            other.word().into(),
            chunk.into(),
            row.choice.way.word().into(),
            row.regret().into(),
        ]);
        cells
    };
    let title = "Latency of a write, until all copies are stored and the client knows".to_owned();
    Table { name: "latency", title, columns, rows: rows.iter().map(row).collect() }
}

/// That what is chosen is nearly the best.
fn chosen_well(rows: &[Row]) -> Option<Claim> {
    let most = rows.iter().map(Row::regret).reduce(f64::max)?;
    let what = "the way that is chosen, beyond the best of ours, the most".to_owned();
    Some(claim("chosen", what, Demand::AtMost(5.0), (most * 100.0, "%", 2)))
}

fn by_bytes(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let rows = rows(&mut report, params, runner)?;
    for &mtu in params.counts(MTU.name) {
        for &copies in params.counts(COPIES.name) {
            let of = |which: Copies| {
                let rows = rows
                    .iter()
                    .filter(move |row| (row.point.mtu, row.point.copies) == (mtu, copies));
                rows.map(move |row| {
                    (which.word().to_owned(), row.point.bytes as f64, row.of(which))
                })
            };
            let series = lines(Copies::ALL.into_iter().flat_map(of));
            let title = format!("figure 9, {copies} copies, MTU {mtu}");
            report.plots.push(by_size(title, "latency", "us", series));
        }
    }
    for (copies, target) in PAPER {
        let rows = rows.iter().filter(|row| row.point.copies == copies);
        let most = rows.map(Row::gain).reduce(f64::max);
        report.claims.extend(most.map(|most| {
            let what = format!("{copies} copies: best other way, of our ring or tree, the most");
            claim(&format!("gain_{copies}"), what, Demand::AtLeast(target), (most, "", 2))
        }));
    }
    report.claims.extend(chosen_well(&rows));
    goodput(&mut report, params, runner)?;
    report.notes.push(
        "paper: flat is up to 27 % faster than the ring at 1 KiB and two copies, and the fastest \
         up to 16 KiB; goodput: the ring has the line's rate from 8 KiB on, the tree about half"
            .to_owned(),
    );
    Ok(report)
}

/// The goodput of one server.
struct Flow {
    point: Point,
    which: Copies,
    gbps: f64,
    /// Of what the line carries of data in packets of this size.
    of_line: f64,
    /// How long the first server's body handlers took, in nanoseconds.
    body_ns: f64,
    hash: u64,
}

fn flow(params: &Params, &(point, which): &(Point, Copies)) -> Flow {
    let how = how(params, point.mtu);
    let (copies, bytes) = (point.copies as usize, point.bytes);
    let mut plan = empty(&how.setting, copies);
    for _ in 0..writes(bytes) {
        which.add(&mut plan, &how, copies, bytes, bytes);
    }
    let seen = run(&plan);
    let wire = &how.setting.wire;
    let header = how.setting.our_header(copies - 1);
    let packets = wire.packets(bytes, header).len() as u64;
    let all = bytes + header + packets * wire.header;
    let one = run(&which.plan(&how, copies, bytes, bytes));
    let gbps = rate(&one, &seen, bytes) / 1e9;
    let line = 8_000.0 / wire.ps_per_byte as f64;
    let first = seen.nodes.get(1).copied().unwrap_or_default();
    Flow {
        point,
        which,
        gbps,
        of_line: gbps / (line * bytes as f64 / all as f64),
        body_ns: first.bodies_took as f64 / first.bodies.max(1) as f64 / 1e3,
        hash: seen.trace_hash,
    }
}

/// The right panel: of four copies, where a server of a tree has two children.
fn goodput(report: &mut Report, params: &Params, runner: &Runner<'_>) -> Result<(), StudyError> {
    let mut points = Vec::new();
    for &mtu in params.counts(MTU.name) {
        for &bytes in params.counts(SIZES.name) {
            let point = Point { mtu, copies: 4, bytes };
            points.extend([Copies::Ring, Copies::Tree].map(|which| (point, which)));
        }
    }
    let flows = runner.map(&points, |point| Ok(flow(params, point)))?;
    for flow in &flows {
        let label = format!("{} without end, {}", flow.which.word(), flow.point.label());
        report.trace(label, flow.hash);
    }
    let columns = vec![
        Column::new("mtu", "MTU", "bytes", Format::Plain),
        Column::new("write_bytes", "write", "", Format::Bytes),
        Column::new("way", "way", "", Format::Plain),
        Column::new("goodput_gbps", "goodput", "Gb/s", Format::Decimals(1)),
        Column::new("of_line", "of the line", "%", Format::Percent(1)),
        Column::new("body_ns", "payload handler", "ns", Format::Decimals(0)),
        Column::new("paper_body_ns", "paper", "ns", Format::Plain),
    ];
    // Table I is about the paper's card and packets.
    let paper = |flow: &Flow| {
        let same = params.word(PROFILE.name) == "spin" && flow.point.mtu == 2_048;
        same.then_some(if flow.which == Copies::Ring { 193_u64 } else { 2_106 })
    };
    let row = |flow: &Flow| -> Vec<Cell> {
        vec![
            flow.point.mtu.into(),
            flow.point.bytes.into(),
            flow.which.word().into(),
            flow.gbps.into(),
            flow.of_line.into(),
            flow.body_ns.into(),
            paper(flow).into(),
        ]
    };
    let rows = flows.iter().map(row).collect();
    let title =
        "Goodput of a server, four copies; `of the line`: of the data that it carries with \
                 these headers"
            .to_owned();
    report.tables.push(Table { name: "goodput", title, columns, rows });
    for &mtu in params.counts(MTU.name) {
        let flows = flows.iter().filter(|flow| flow.point.mtu == mtu);
        let points =
            flows.map(|flow| (flow.which.word().to_owned(), flow.point.bytes as f64, flow.gbps));
        report.plots.push(Plot {
            title: format!("figure 9, goodput, MTU {mtu}"),
            x: Axis::log("write", "bytes"),
            y: Axis::linear("goodput", "Gb/s"),
            series: lines(points),
        });
    }
    let large = |flow: &&Flow| flow.which == Copies::Ring && flow.point.bytes >= LINE_RATE_FROM;
    let least = flows.iter().filter(large).map(|flow| flow.of_line).reduce(f64::min);
    report.claims.extend(least.map(|least| {
        let what = "our ring from 8 KiB on, of what the line carries, the least".to_owned();
        // The last packets of a write leave a little room that none fills.
        claim("line_rate", what, Demand::AtLeast(98.0), (least * 100.0, "%", 1))
    }));
    Ok(())
}

fn by_number(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(MORE.name, params);
    let rows = rows(&mut report, params, runner)?;
    for &mtu in params.counts(MTU.name) {
        for &bytes in params.counts(SIZES.name) {
            let of = |which: Copies| {
                let rows =
                    rows.iter().filter(move |row| (row.point.mtu, row.point.bytes) == (mtu, bytes));
                rows.map(move |row| {
                    (which.word().to_owned(), row.point.copies as f64, row.of(which))
                })
            };
            report.plots.push(Plot {
                title: format!("figure 10, {}, MTU {mtu}", show_bytes(bytes)),
                x: Axis::linear("copies", ""),
                y: Axis::linear("latency", "us"),
                series: lines(Copies::ALL.into_iter().flat_map(of)),
            });
        }
    }
    report.claims.extend(chosen_well(&rows));
    report.notes.push(
        "paper: at 4 KiB flat is the fastest for any number of copies; at 512 KiB it grows with \
         them, and ours hardly does; the tree is faster than the ring for small writes of many \
         copies"
            .to_owned(),
    );
    Ok(report)
}
