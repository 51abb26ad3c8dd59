//! Tables and targets.

use towpath_lab::cluster::Samples;
use towpath_lab::studies::{Cell, Claim, Column, Demand, Format, Params, Report, Table};

use super::drawings;
use super::paper::{self, MOST_CLIENTS, PEAK_CLIENTS};
use super::seen::{All, median, samples};
use super::way::{Load, Way};
use super::world::{Point, Seen};
use super::{LATENCY, LOSS, SWITCHES, THROUGHPUT, WORKLOADS};

/// Many clients do at least so much of what the best number of clients does, asleep.
const HELD: f64 = 0.8;

/// A thousand clients that share links do at least so much of what 32 do.
const THOUSAND_CLIENTS: (usize, usize) = (1000, PEAK_CLIENTS);
const THOUSAND_LEAST: f64 = 0.9;
const THOUSAND_WAY: Way = Way::TowpathShared;

const MACHINE: &str = "Server and clients are a process each, and share the cores of this machine \
                       with whatever else runs on it: ratios of one run are worth more than rates. \
                       Operations without a reply are counted as unknown, and are not among \
                       those that took some time.";

/// Columns that every table begins with.
fn which() -> Vec<Column> {
    vec![
        Column::new("transport", "transport", "", Format::Plain),
        Column::new("waiting", "waiting", "", Format::Plain),
        Column::new("clients", "clients", "", Format::Plain),
    ]
}

fn which_of(point: &Point) -> Vec<Cell> {
    vec![
        Cell::from(point.way.word()),
        Cell::from(point.waiting()),
        Cell::Count(point.clients as u64),
    ]
}

/// Columns of what went wrong.
fn trouble() -> [Column; 4] {
    [
        Column::new("repeated_share", "repeated", "", Format::Percent(2)),
        Column::new("renewed", "reconnected", "", Format::Plain),
        Column::new("unknown", "unknown", "", Format::Plain),
        Column::new("mixed_up", "mixed up", "", Format::Plain),
    ]
}

fn trouble_of(rounds: &[Seen]) -> [Cell; 4] {
    let sum = |of: fn(&Seen) -> u64| rounds.iter().map(of).sum::<u64>();
    [
        Cell::Number(median(rounds, |seen| seen.per_operation(seen.counted.repeated))),
        Cell::Count(sum(|seen| seen.counted.renewed)),
        Cell::Count(sum(|seen| seen.counted.unknown + seen.counted.refused)),
        Cell::Count(sum(|seen| seen.counted.mixed_up)),
    ]
}

fn rate_columns() -> [Column; 9] {
    [
        Column::new("ops_per_s", "operations", "1/s", Format::Decimals(0)),
        Column::new("spread_per_s", "spread", "1/s", Format::Decimals(0)),
        Column::new("of_tcp", "of tcp", "", Format::Decimals(2)),
        Column::new("of_tcp_least", "least", "", Format::Decimals(2)),
        Column::new("of_tcp_most", "most", "", Format::Decimals(2)),
        Column::new("server_cpu_us", "server's processor", "us", Format::Decimals(1)),
        Column::new("client_cpu_us", "clients'", "us", Format::Decimals(1)),
        Column::new("median_us", "median", "us", Format::Decimals(0)),
        Column::new("read_alone", "unasked", "", Format::Percent(0)),
    ]
}

fn rate_of(all: All<'_>, point: &Point, rounds: &[Seen]) -> [Cell; 9] {
    let rate = samples(rounds, Seen::per_second);
    let of_tcp = all.over_tcp(point);
    [
        Cell::Number(rate.median()),
        Cell::Number(rate.spread()),
        Cell::from(of_tcp.as_ref().map(Samples::median)),
        Cell::from(of_tcp.as_ref().map(|ratio| ratio.percentile(0.0))),
        Cell::from(of_tcp.as_ref().map(|ratio| ratio.percentile(1.0))),
        Cell::Number(median(rounds, |seen| seen.cpu_us()[0])),
        Cell::Number(median(rounds, |seen| seen.cpu_us()[1])),
        Cell::Number(median(rounds, |seen| seen.share_us(500))),
        Cell::Number(median(rounds, |seen| seen.per_operation(seen.counted.read_alone))),
    ]
}

/// Figures 4.1 and 4.2, table 4.1.
pub(super) fn throughput(params: &Params, points: &[Point], seen: &[Vec<Seen>]) -> Report {
    let all = All { points, seen };
    let mut report = Report::new(THROUGHPUT.name, params);
    let mut columns = which();
    columns.extend(rate_columns());
    columns.push(Column::new("paper_of_tcp", "thesis", "", Format::Decimals(2)));
    columns.push(Column::new("per_client", "per client more", "1/s", Format::Decimals(0)));
    columns.extend(trouble());
    let row = |(point, rounds): (&Point, &[Seen])| {
        let mut row = which_of(point);
        row.extend(rate_of(all, point, rounds));
        row.push(Cell::from(paper::of_tcp(point)));
        row.push(Cell::from(per_client(all, point, rounds)));
        row.extend(trouble_of(rounds));
        row
    };
    report.tables.push(Table {
        name: "throughput",
        title: "Operations a second (thesis: over TCP at 32 clients)".to_owned(),
        columns,
        rows: all.each().map(row).collect(),
    });
    report.plots = drawings::throughput(all);
    report.claims.extend(held_claims(all));
    let thousand = thousand_claims(all);
    if thousand.is_empty() {
        let ((many, few), least) = (THOUSAND_CLIENTS, THOUSAND_LEAST);
        report.notes.push(format!(
            "Not run: {many} clients over {of} of {few}, at least {least:.2}: for that \
             --transports has {of}, and --clients {few},{many}.",
            of = THOUSAND_WAY.word(),
        ));
    }
    report.claims.extend(thousand);
    report.notes.push(MACHINE.into());
    report
}

/// What each client beside those of the point before adds (table 4.1).
fn per_client(all: All<'_>, point: &Point, rounds: &[Seen]) -> Option<f64> {
    let fewer = all.each().filter(|(other, _)| {
        Point { clients: point.clients, ..**other } == *point && other.clients < point.clients
    });
    let (before, of) = fewer.max_by_key(|(other, _)| other.clients)?;
    let more = median(rounds, Seen::per_second) - median(of, Seen::per_second);
    Some(more / (point.clients - before.clients) as f64)
}

/// Asleep, the most clients that the thesis has do nearly what the best number of them does.
fn held_claims(all: All<'_>) -> Vec<Claim> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let alike = move |point: Point| {
        let those = move |(other, _): &(&Point, &[Seen])| {
            Point { clients: point.clients, ..**other } == point && other.clients <= MOST_CLIENTS
        };
        all.each().filter(those)
    };
    let is_most = |(point, _): &(&Point, &[Seen])| {
        let is_many = point.clients >= PEAK_CLIENTS && point.clients > cores;
        let most = alike(**point).map(|(other, _)| other.clients).max();
        let least = alike(**point).map(|(other, _)| other.clients).min();
        is_many && !point.polls && most == Some(point.clients) && least < most
    };
    let many = all.each().filter(is_most);
    many.map(|(point, rounds)| {
        let rates = alike(*point).map(|(_, rounds)| median(rounds, Seen::per_second));
        let (way, most) = (point.way.word(), point.clients);
        Claim {
            name: format!("{}_held", way.replace('-', "_")),
            what: format!("{way} asleep, {most} clients, of its best number"),
            demand: Demand::AtLeast(HELD),
            measured: median(rounds, Seen::per_second) / rates.fold(0.0, f64::max),
            unit: "",
            decimals: 2,
        }
    })
    .collect()
}

fn thousand_claims(all: All<'_>) -> Vec<Claim> {
    let (many, few) = THOUSAND_CLIENTS;
    let points = all.each().filter(|(point, _)| point.clients == many && point.way == THOUSAND_WAY);
    points
        .filter_map(|(point, _)| {
            let fewer = Point { clients: few, ..*point };
            let ratio = all.ratio(point, fewer)?;
            let (waiting, way) = (point.waiting(), THOUSAND_WAY.word());
            let threads = [point.threads(), fewer.threads()];
            Some(Claim {
                name: format!("thousand_{waiting}"),
                what: format!(
                    "{many} clients over {way}, {waiting}, {} threads, of {few} with {}",
                    threads[0], threads[1]
                ),
                demand: Demand::AtLeast(THOUSAND_LEAST),
                measured: ratio.median(),
                unit: "",
                decimals: 2,
            })
        })
        .collect()
}

/// Figures 4.3 to 4.8, tables 4.2 and 4.3.
pub(super) fn latency(params: &Params, points: &[Point], seen: &[Vec<Seen>]) -> Report {
    let all = All { points, seen };
    let mut report = Report::new(LATENCY.name, params);
    let mut columns = which();
    let us = |name, head| Column::new(name, head, "us", Format::Decimals(0));
    columns.extend([
        us("mean_us", "mean"),
        us("p25_us", "p25"),
        us("median_us", "median"),
        us("p75_us", "p75"),
        us("iqr_us", "p75-p25"),
        us("p95_us", "p95"),
        us("p99_us", "p99"),
        us("p999_us", "p99.9"),
        us("max_us", "max"),
        us("deviation_us", "deviation"),
        us("paper_median_us", "thesis: median"),
        us("paper_iqr_us", "p75-p25"),
        us("paper_p95_us", "p95"),
        us("paper_p99_us", "p99"),
        us("paper_deviation_us", "deviation"),
    ]);
    let row = |(point, rounds): (&Point, &[Seen])| {
        let share = |share: u32| Cell::Number(median(rounds, |seen| seen.share_us(share)));
        let paper = paper::latency(point);
        let mut row = which_of(point);
        row.push(Cell::Number(median(rounds, |seen| seen.mean_us)));
        row.extend([250, 500, 750].map(share));
        row.push(Cell::Number(median(rounds, |seen| seen.share_us(750) - seen.share_us(250))));
        row.extend([950, 990, 999, 1000].map(share));
        row.push(Cell::Number(median(rounds, |seen| seen.deviation_us)));
        row.push(Cell::from(paper.map(|paper| paper.median)));
        row.push(Cell::from(paper.map(|paper| paper.spread)));
        row.push(Cell::from(paper.map(|paper| paper.p95)));
        row.push(Cell::from(paper.map(|paper| paper.p99)));
        row.push(Cell::from(paper.map(|paper| paper.deviation)));
        row
    };
    report.tables.push(Table {
        name: "latency",
        title: "One operation".to_owned(),
        columns,
        rows: all.each().map(row).collect(),
    });
    report.plots = drawings::latency(all);
    report.notes.push(MACHINE.into());
    report
}

/// Table 4.4.
pub(super) fn switches(params: &Params, points: &[Point], seen: &[Vec<Seen>]) -> Report {
    let all = All { points, seen };
    let mut report = Report::new(SWITCHES.name, params);
    let mut columns = which();
    let count = |name, head| Column::new(name, head, "", Format::Decimals(4));
    columns.extend([
        count("server_switches", "server"),
        count("client_switches", "clients"),
        count("paper_server_switches", "thesis: server"),
        count("paper_client_switches", "clients"),
        Column::new("ops_per_s", "operations", "1/s", Format::Decimals(0)),
    ]);
    let row = |(point, rounds): (&Point, &[Seen])| {
        let paper = paper::switches(point);
        let mut row = which_of(point);
        row.push(Cell::Number(median(rounds, |seen| seen.per_operation(seen.server.switches))));
        row.push(Cell::Number(median(rounds, |seen| seen.per_operation(seen.client.switches))));
        row.extend([0, 1].map(|at| Cell::from(paper.map(|paper| paper[at]))));
        row.push(Cell::Number(median(rounds, Seen::per_second)));
        row
    };
    report.tables.push(Table {
        name: "switches",
        title: "Context switches of one operation, by choice and not".to_owned(),
        columns,
        rows: all.each().map(row).collect(),
    });
    report.plots = drawings::switches(all);
    report.notes.push(MACHINE.into());
    report
}

/// What losses cost.
pub(super) fn loss(params: &Params, points: &[Point], seen: &[Vec<Seen>]) -> Report {
    let all = All { points, seen };
    let mut report = Report::new(LOSS.name, params);
    let mut columns = which();
    columns.extend([
        Column::new("loss", "loss", "", Format::Percent(2)),
        Column::new("ops_per_s", "operations", "1/s", Format::Decimals(0)),
        Column::new("spread_per_s", "spread", "1/s", Format::Decimals(0)),
        Column::new("of_lossless", "of none lost", "", Format::Decimals(2)),
        Column::new("p99_us", "p99", "us", Format::Decimals(0)),
        Column::new("p999_us", "p99.9", "us", Format::Decimals(0)),
        Column::new("lost", "packets lost", "", Format::Plain),
    ]);
    columns.extend(trouble());
    columns.push(Column::new("stray", "answered twice", "", Format::Plain));
    columns.push(Column::new("wrong", "done twice or never", "", Format::Plain));
    let sum = |rounds: &[Seen], of: fn(&Seen) -> u64| rounds.iter().map(of).sum::<u64>();
    let row = |(point, rounds): (&Point, &[Seen])| {
        let rate = samples(rounds, Seen::per_second);
        let lossless = all.ratio(point, Point { loss: 0.0, ..*point });
        let mut row = which_of(point);
        row.extend([
            Cell::Number(point.loss),
            Cell::Number(rate.median()),
            Cell::Number(rate.spread()),
            Cell::from(lossless.map(|ratio| ratio.median())),
            Cell::Number(median(rounds, |seen| seen.share_us(990))),
            Cell::Number(median(rounds, |seen| seen.share_us(999))),
            Cell::Count(sum(rounds, |seen| seen.lost)),
        ]);
        row.extend(trouble_of(rounds));
        row.push(Cell::Count(sum(rounds, |seen| seen.counted.stray)));
        row.push(Cell::Count(sum(rounds, |seen| seen.wrong)));
        row
    };
    report.tables.push(Table {
        name: "loss",
        title: "Each operation adds one to a number of its client".to_owned(),
        columns,
        rows: all.each().map(row).collect(),
    });
    report.plots = drawings::loss(all);
    report.notes.push(MACHINE.into());
    report
}

/// Where clients count, each operation is done once; where none is done, that says nothing.
/// None where no clients count.
pub(super) fn count_claims(all: All<'_>) -> Vec<Claim> {
    let rounds = || {
        let counts = all.each().filter(|(point, _)| point.load == Load::Count);
        counts.flat_map(|(_, rounds)| rounds)
    };
    let Some(done) = rounds().map(|seen| seen.done).min() else { return Vec::new() };
    let claim = |name: &str, what: &str, demand, measured: u64| Claim {
        name: name.into(),
        what: what.into(),
        demand,
        measured: measured as f64,
        unit: "",
        decimals: 0,
    };
    let wrong = rounds().map(|seen| seen.wrong).sum();
    let what = "operations that were done twice or never, of all transports";
    vec![
        claim("wrong", what, Demand::AtMost(0.0), wrong),
        claim(
            "counted",
            "operations that ended well, fewest of a round",
            Demand::AtLeast(1.0),
            done,
        ),
    ]
}

/// The workloads of YCSB.
pub(super) fn workloads(params: &Params, points: &[Point], seen: &[Vec<Seen>]) -> Report {
    let all = All { points, seen };
    let mut report = Report::new(WORKLOADS.name, params);
    let mut columns = which();
    columns.push(Column::new("mix", "mix", "", Format::Plain));
    columns.extend(rate_columns());
    columns.push(Column::new("p99_us", "p99", "us", Format::Decimals(0)));
    columns.extend(trouble());
    let row = |(point, rounds): (&Point, &[Seen])| {
        let mut row = which_of(point);
        row.push(Cell::from(point.load.word()));
        row.extend(rate_of(all, point, rounds));
        row.push(Cell::Number(median(rounds, |seen| seen.share_us(990))));
        row.extend(trouble_of(rounds));
        row
    };
    report.tables.push(Table {
        name: "workloads",
        title: "Operations a second with the workloads of YCSB".to_owned(),
        columns,
        rows: all.each().map(row).collect(),
    });
    report.plots = drawings::workloads(all);
    report.notes.push(MACHINE.into());
    report
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use towpath_kv::workload::Mix;

    use super::*;

    fn claims_where(load: Load, done: &[u64]) -> Vec<bool> {
        let point = Point {
            way: Way::Uc,
            polls: false,
            load,
            loss: 0.0,
            clients: 1,
            client_threads: 1,
            workers: 1,
            records: 1,
            operations: 1,
            most: Duration::from_secs(1),
            seed: 0,
        };
        let points = vec![point; done.len()];
        let rounds = |&done: &u64| vec![Seen { done, ..Seen::default() }];
        let seen: Vec<_> = done.iter().map(rounds).collect();
        count_claims(All { points: &points, seen: &seen }).iter().map(Claim::is_met).collect()
    }

    #[test]
    fn nothing_wrong_is_no_success_where_nothing_ended_well() {
        assert_eq!(claims_where(Load::Count, &[3, 1]), [true, true]);
        assert_eq!(claims_where(Load::Count, &[3, 0]), [true, false], "all of one were unknown");
        assert!(claims_where(Load::Mix(Mix::Study), &[3, 1]).is_empty());
    }
}
