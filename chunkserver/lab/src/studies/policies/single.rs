//! Figure 6: one copy, by size.

use super::setting::{LINE, MTU, SIZES, Setting, params};
use super::systems::{Single, end_us};
use super::{by_size, claim, lines, notes};
use crate::flow::run;
use towpath_lab::studies::{
    Cell, Claim, Clock, Column, Demand, Format, Param, Params, Report, Runner, Study, StudyError,
    Table, show_bytes,
};

const PARAMS: &[Param] = params![SIZES, LINE];

pub(in super::super) const STUDY: Study = Study {
    name: "policies fig6",
    what: "latency of a write whose capability is checked, beside raw writes and RPC",
    mirrors: "sPIN storage paper, figure 6: at most 27 % over raw writes, little for large ones",
    clock: Clock::Virtual,
    params: PARAMS,
    run: ask,
};

/// Writes from here on are large.
const LARGE: u64 = 64 << 10;

/// One size.
struct Row {
    mtu: u64,
    bytes: u64,
    /// In microseconds, as `Single::ALL`.
    us: Vec<f64>,
    hash: u64,
}

impl Row {
    fn of(&self, which: Single) -> f64 {
        let place = Single::ALL.iter().position(|&known| known == which);
        place.and_then(|place| self.us.get(place)).copied().unwrap_or(f64::NAN)
    }

    fn over_raw(&self) -> f64 {
        self.of(Single::Ours) / self.of(Single::Raw) - 1.0
    }

    fn check(&self) -> f64 {
        1.0 - self.of(Single::Unchecked) / self.of(Single::Ours)
    }

    fn label(mtu: u64, bytes: u64) -> String {
        format!("{}, MTU {mtu}", show_bytes(bytes))
    }
}

fn row(params: &Params, &(mtu, bytes): &(u64, u64)) -> Result<Row, StudyError> {
    let setting = Setting::of(params, mtu);
    let outcomes: Vec<_> =
        Single::ALL.iter().map(|which| run(&which.plan(&setting, bytes))).collect();
    let us = outcomes.iter().map(|outcome| end_us(outcome, || Row::label(mtu, bytes)));
    let us = us.collect::<Result<_, _>>()?;
    let hash = outcomes.iter().fold(0, |hash: u64, seen| hash.rotate_left(1) ^ seen.trace_hash);
    Ok(Row { mtu, bytes, us, hash })
}

fn ask(params: &Params, runner: &Runner<'_>) -> Result<Report, StudyError> {
    let mut report = Report::new(STUDY.name, params);
    let sizes = || params.counts(SIZES.name).iter();
    let mtus = params.counts(MTU.name).iter();
    let points: Vec<(u64, u64)> =
        mtus.flat_map(|&mtu| sizes().map(move |&bytes| (mtu, bytes))).collect();
    let rows = runner.map(&points, |point| row(params, point))?;
    for row in &rows {
        report.trace(Row::label(row.mtu, row.bytes), row.hash);
    }
    report.tables = vec![table(&rows)];
    for &mtu in params.counts(MTU.name) {
        let of = |which: Single| {
            let rows = rows.iter().filter(move |row| row.mtu == mtu);
            rows.map(move |row| (which.word().to_owned(), row.bytes as f64, row.of(which)))
        };
        let series = lines(Single::ALL.into_iter().flat_map(of));
        report.plots.push(by_size(format!("figure 6, MTU {mtu}"), "latency", "us", series));
    }
    report.claims = claims(&rows);
    report.notes = notes(params);
    report.notes.push(
        "paper: at most 27 % over raw for small writes, little for large ones; the check takes \
         200 cycles (figure 7). All wait until data is in the server's memory: a raw write by a \
         READ behind it"
            .to_owned(),
    );
    Ok(report)
}

fn table(rows: &[Row]) -> Table {
    let us = |name, head| Column::new(name, head, "us", Format::Decimals(2));
    let columns = vec![
        Column::new("mtu", "MTU", "bytes", Format::Plain),
        Column::new("write_bytes", "write", "", Format::Bytes),
        us("raw_us", "raw"),
        us("rpc_us", "RPC"),
        us("rpc_rdma_us", "RPC + RDMA"),
        us("ours_us", "ours"),
        us("unchecked_us", "unchecked"),
        Column::new("over_raw", "over raw", "%", Format::Percent(1)),
        Column::new("check", "check", "% of ours", Format::Percent(2)),
    ];
    let row = |row: &Row| -> Vec<Cell> {
        let mut cells: Vec<Cell> = vec![row.mtu.into(), row.bytes.into()];
        cells.extend(row.us.iter().map(|&us| Cell::from(us)));
        cells.extend([row.over_raw().into(), row.check().into()]);
        cells
    };
    let rows = rows.iter().map(row).collect();
    let title = "Latency of a write, from the client's request to its answer".to_owned();
    Table { name: "latency", title, columns, rows }
}

fn claims(rows: &[Row]) -> Vec<Claim> {
    let most = |large: bool, of: fn(&Row) -> f64| {
        let rows = rows.iter().filter(|row| (row.bytes >= LARGE) == large);
        rows.map(of).reduce(f64::max).map(|share| (share * 100.0, "%", 2))
    };
    let each = [
        ("over_raw_small", "over raw, below 64 KiB, the most", 27.0, most(false, Row::over_raw)),
        ("over_raw_large", "over raw, from 64 KiB on, the most", 1.0, most(true, Row::over_raw)),
        ("check_small", "the check alone, of a write below 64 KiB", 27.0, most(false, Row::check)),
        ("check_large", "the check alone, from 64 KiB on", 1.0, most(true, Row::check)),
    ];
    let each = each.into_iter().filter_map(|(name, what, target, measured)| {
        Some(claim(name, format!("ours, {what}"), Demand::AtMost(target), measured?))
    });
    each.collect()
}
