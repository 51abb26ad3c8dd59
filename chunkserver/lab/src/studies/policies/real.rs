//! Figures 9 and 10 with the chunk server that ships: copies by size and by how many, in virtual
//! time, beside what the model of hardware says of the same.

use super::setting::{LINE, LINK, MTU, SIZES, Setting, params};
use super::systems::{Copies, How, end_us};
use super::{by_size, lines};
use crate::flow::Ack;
use crate::served::{Seen, Served, Way};
use towpath_base::Nanos;
use towpath_fastpath::{RouteKind, SLICE_BYTES};
use towpath_lab::studies::{
    Claim, Clock, Demand, Kind, Param, Params, Report, Runner, Study, StudyError, Table, show_bytes,
};

const COPIES: Param = Param {
    name: "copies",
    what: "Servers that store a write",
    unit: "",
    kind: Kind::Count(1..=7),
    many: true,
    defaults: ["3", "2,3,4", "1,2,3,4,7"],
};

pub(super) const WRITES: Param = Param {
    name: "writes",
    what: "Writes that are measured, one after the other; the one before makes links",
    unit: "",
    kind: Kind::Count(1..=1_000),
    many: false,
    defaults: ["5", "20", "100"],
};

pub(in super::super) const STUDY: Study = Study {
    name: "policies served",
    what: "replicated writes by the chunk server that ships, beside the model of hardware",
    mirrors: "sPIN storage paper, figures 9 and 10: flat, ring and tree by size and copies",
    clock: Clock::Virtual,
    params: params![
        Param {
            defaults: ["4K,64K,1M", "4K,16K,64K,256K,1M", "4K,16K,64K,256K,512K,1M,4M"],
            ..SIZES
        },
        COPIES,
        WRITES,
        Param { defaults: ["100"; 3], ..LINE }
    ],
    run: ask,
};

/// What is compared: one copy, then the ways to several.
const WAYS: [(&str, Way, Option<Copies>); 4] = [
    ("one copy", Way::Flat, None),
    ("flat", Way::Flat, Some(Copies::OurFlat)),
    ("ring", Way::Along(RouteKind::Ring), Some(Copies::Ring)),
    ("tree", Way::Along(RouteKind::Tree), Some(Copies::Tree)),
];

/// The ring of three is held against one copy from this size on.
const LARGE_BYTES: u64 = 1 << 20;

struct Row {
    copies: u64,
    bytes: u64,
    /// As [`WAYS`].
    seen: Vec<Seen>,
    /// The model's of the last three, in microseconds.
    model_us: [f64; 3],
}

impl Row {
    /// How many times as long as one copy a way takes.
    fn of_one(&self, way: usize) -> f64 {
        self.seen[way].median_us() / self.seen[0].median_us()
    }
}

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let slice = SLICE_BYTES as u64;
    if params.counts(SIZES.name).iter().any(|bytes| !bytes.is_multiple_of(slice)) {
        return Err(StudyError::run("sizes", format!("whole slices of {slice} bytes are written")));
    }
    let points: Vec<(u64, u64)> = params
        .counts(COPIES.name)
        .iter()
        .flat_map(|&copies| params.counts(SIZES.name).iter().map(move |&bytes| (copies, bytes)))
        .collect();
    let runs = points
        .iter()
        .flat_map(|&(copies, bytes)| (0..WAYS.len()).map(move |way| (copies, bytes, way)))
        .collect();
    let label = |&(copies, bytes, way): &(u64, u64, usize)| {
        format!("{} of {copies} copies, {}", WAYS[way].0, show_bytes(bytes))
    };
    let run = |&(copies, bytes, way): &(u64, u64, usize)| {
        let copies = if way == 0 { 1 } else { copies as usize };
        served(params, WAYS[way].1, copies, bytes).run()
    };
    let seen = report.run(runner, runs, label, run, |seen: &Seen| &seen.end)?;
    let mut seen = seen.into_iter().map(|(_, seen)| seen);
    let mut rows = Vec::new();
    for (copies, bytes) in points {
        let seen = seen.by_ref().take(WAYS.len()).collect();
        rows.push(Row { copies, bytes, seen, model_us: model_us(params, copies, bytes)? });
    }
    report.tables = vec![table(&rows)];
    let points = rows.iter().flat_map(|row| {
        WAYS.iter().enumerate().map(|(way, (name, ..))| {
            (format!("{} x {name}", row.copies), row.bytes as f64, row.seen[way].median_us())
        })
    });
    let title = "copies, figure 9, by the code that ships".to_owned();
    report.plots = vec![by_size(title, "latency", "us", lines(points))];
    report.claims = claims(&rows);
    report.note(&[
        "the chunk server with its store, the client and endpoints over the userspace NIC are \
         those that ship; processors and the disk take no time, so the figures are of rounds and \
         wires",
        "the model beside has the costs of the paper's card (`profile`, and the other parameters), \
         and no congestion control, no store and no transport",
        "the first write finds servers without links to each other",
    ]);
    Ok(report)
}

pub(super) fn served(params: &Params, way: Way, copies: usize, bytes: u64) -> Served {
    Served {
        seed: params.seed,
        way,
        copies,
        bytes: bytes as usize,
        writes: params.count(WRITES.name) as usize,
        rate_bits_per_s: params.count(LINE.name) * 1_000_000_000,
        // Two cables to the switch between them.
        delay: Nanos(params.count(LINK.name).div_ceil(2)),
    }
}

fn model_us(params: &Params, copies: u64, bytes: u64) -> Result<[f64; 3], StudyError> {
    let setting = Setting::of(params, params.counts(MTU.name)[0]);
    let how = How { setting, ack: Ack::Sender, copies: true, request: 0 };
    let mut us = [0.0; 3];
    for (place, (name, _, which)) in WAYS.iter().filter(|way| way.2.is_some()).enumerate() {
        if let Some(which) = which {
            let (outcome, _) = which.best(&how, copies as usize, bytes);
            us[place] = end_us(&outcome, || format!("{name} of the model"))?;
        }
    }
    Ok(us)
}

fn table(rows: &[Row]) -> Table {
    Table::of("served", "Latency of a write until all copies are durable, medians", rows)
        .plain("copies", "copies", "", |row| row.copies)
        .bytes("write_bytes", "write", |row| row.bytes)
        .decimals(2, "one_us", "one copy", "us", |row| row.seen[0].median_us())
        .decimals(2, "flat_us", "flat", "us", |row| row.seen[1].median_us())
        .decimals(2, "ring_us", "ring", "us", |row| row.seen[2].median_us())
        .decimals(2, "tree_us", "tree", "us", |row| row.seen[3].median_us())
        .decimals(2, "ring_of_one", "ring / one", "", |row| row.of_one(2))
        .decimals(2, "ring_first_us", "ring: first", "us", |row| row.seen[2].first.0 as f64 / 1e3)
        .decimals(2, "ring_longest_us", "longest", "us", |row| row.seen[2].longest_us())
        .decimals(2, "model_flat_us", "model: flat", "us", |row| row.model_us[0])
        .decimals(2, "model_ring_us", "ring", "us", |row| row.model_us[1])
        .decimals(2, "model_tree_us", "tree", "us", |row| row.model_us[2])
        .done()
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let large = || rows.iter().filter(|row| row.bytes == LARGE_BYTES);
    let ring = large().filter(|row| row.copies == 3).map(|row| row.of_one(2)).next();
    let ring = ring.map(|times| {
        let what = "ring of 3 copies, 1 MiB: times one copy";
        Claim::new("ring_3_of_one", what, Demand::AtMost(1.3), times, "", 2)
    });
    let gain = large().map(|row| row.seen[1].median_us() / row.seen[2].median_us());
    let gain =
        gain.fold(None, |least: Option<f64>, gain| Some(least.map_or(gain, |l| l.min(gain))));
    let gain = gain.filter(|_| rows.iter().all(|row| row.copies > 1)).map(|times| {
        let what = "1 MiB: flat, times the ring, least";
        Claim::new("flat_of_ring", what, Demand::AtLeast(1.5), times, "", 2)
    });
    ring.into_iter().chain(gain).collect()
}
