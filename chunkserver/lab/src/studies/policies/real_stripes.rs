//! Figure 15 with the chunk server that ships: a stripe whose parity servers make, beside one whose
//! parity the client has made and sends.

use super::real::{WRITES, served};
use super::setting::{LINE, MTU, SIZES, Setting, params};
use super::stripes::{SHAPES, shape};
use super::systems::{Stripe, end_us};
use super::{by_size, lines};
use crate::flow::run;
use crate::served::{Seen, Way};
use towpath_fastpath::SLICE_BYTES;
use towpath_lab::studies::{
    Claim, Clock, Demand, Param, Params, Report, Runner, Study, StudyError, Table, show_bytes,
};

pub(in super::super) const STUDY: Study = Study {
    name: "policies coded",
    what: "stripes whose parity servers make, by the chunk server that ships, beside the model",
    mirrors: "sPIN storage paper, figure 15: TriEC by size",
    clock: Clock::Virtual,
    params: params![
        Param {
            defaults: ["4K,64K,256K", "4K,16K,64K,256K,1M", "4K,16K,64K,256K,512K,1M"],
            ..SIZES
        },
        SHAPES,
        WRITES,
        Param { defaults: ["100"; 3], ..LINE }
    ],
    run: ask,
};

/// Units that are held to the target.
const LARGE_BYTES: u64 = 256 << 10;

struct Row {
    word: String,
    bytes: u64,
    /// Parity by the client, and by servers.
    seen: [Seen; 2],
    model_us: f64,
}

impl Row {
    fn of_client(&self) -> f64 {
        self.seen[1].median_us() / self.seen[0].median_us()
    }
}

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let slice = SLICE_BYTES as u64;
    if params.counts(SIZES.name).iter().any(|bytes| !bytes.is_multiple_of(slice)) {
        return Err(StudyError::run("sizes", format!("whole slices of {slice} bytes are written")));
    }
    let mut points = Vec::new();
    for word in params.words(SHAPES.name) {
        let (data, parity) = shape(word).map_err(|why| StudyError::run(word.as_str(), why))?;
        for &bytes in params.counts(SIZES.name) {
            for way in [Way::Flat, Way::Stripe(data as u8)] {
                points.push((word.clone(), (data, parity), bytes, way));
            }
        }
    }
    type Point = (String, (usize, usize), u64, Way);
    let label = |(word, _, bytes, way): &Point| {
        let who = if *way == Way::Flat { "the client" } else { "servers" };
        format!("{word} by {who}, units of {}", show_bytes(*bytes))
    };
    let run_point =
        |(_, (data, parity), bytes, way): &Point| served(params, *way, data + parity, *bytes).run();
    let seen = report.run(runner, points, label, run_point, |seen: &Seen| &seen.end)?;
    let mut rows = Vec::new();
    let mut seen = seen.into_iter();
    while let (Some(client), Some(servers)) = (seen.next(), seen.next()) {
        let ((word, (data, parity), bytes, _), by_client) = client;
        let setting = Setting::of(params, params.counts(MTU.name)[0]);
        let outcome = run(&Stripe::Streaming.plan(&setting, (data, parity), bytes));
        let model_us = end_us(&outcome, || format!("{word} of the model"))?;
        rows.push(Row { word, bytes, seen: [by_client, servers.1], model_us });
    }
    report.tables = vec![table(&rows)];
    let points = rows.iter().flat_map(|row| {
        let ways = [("by the client", 0), ("by servers", 1)];
        ways.map(|(who, place)| {
            (format!("{} {who}", row.word), row.bytes as f64, row.seen[place].median_us())
        })
    });
    let title = "stripes, figure 15, by the code that ships".to_owned();
    report.plots = vec![by_size(title, "latency", "us", lines(points))];
    let large = rows.iter().filter(|row| row.bytes == LARGE_BYTES);
    let most = large.map(Row::of_client).reduce(f64::max);
    report.claims.extend(most.map(|most| {
        let what = "units of 256 KiB: parity by servers, of the time of parity by the client, most";
        Claim::percent("by_servers", what, Demand::AtMost(85.0), most)
    }));
    report.note(&[
        "the chunk server with its store, the client and endpoints over the userspace NIC are \
         those that ship; processors and the disk take no time: neither do those who code, at the \
         client or at servers",
        "the model beside is streaming TriEC with the costs of the paper's card (`profile`, and \
         the other parameters)",
    ]);
    Ok(report)
}

fn table(rows: &[Row]) -> Table {
    Table::of("coded", "Latency of a stripe until all parts are durable, medians", rows)
        .plain("shape", "shape", "", |row| row.word.as_str())
        .bytes("unit_bytes", "unit", |row| row.bytes)
        .decimals(2, "by_client_us", "by the client", "us", |row| row.seen[0].median_us())
        .decimals(2, "by_servers_us", "by servers", "us", |row| row.seen[1].median_us())
        .percent(1, "of_client", "of that", Row::of_client)
        .decimals(2, "by_servers_first_us", "first", "us", |row| row.seen[1].first.0 as f64 / 1e3)
        .decimals(2, "by_servers_longest_us", "longest", "us", |row| row.seen[1].longest_us())
        .decimals(2, "model_us", "model", "us", |row| row.model_us)
        .done()
}
