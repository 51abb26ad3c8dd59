//! Drawings.

use towpath_lab::studies::{Axis, Plot, Series, Style};

use super::client::SHARES;
use super::seen::{All, median};
use super::world::{Point, Seen};

/// Up to so many clients an axis is divided evenly.
const LINEAR_CLIENTS: usize = 100;

/// Figures 4.1 and 4.2.
pub(super) fn throughput(all: All<'_>) -> Vec<Plot> {
    let plot = |polls| {
        let title = format!("Operations, {}", waiting_words(polls));
        let of = |rounds: &[Seen]| median(rounds, Seen::per_second);
        over_clients(title, Axis::linear("operations", "1/s"), all, polls, of)
    };
    ways_of_waiting(all.points).map(plot).collect()
}

/// Figures 4.3 to 4.8.
pub(super) fn latency(all: All<'_>) -> Vec<Plot> {
    let plots = |polls| {
        let title = format!("One operation, {}: mean", waiting_words(polls));
        let of = |rounds: &[Seen]| median(rounds, |seen| seen.mean_us);
        let means = over_clients(title, Axis::log("mean", "us"), all, polls, of);
        [vec![means], distributions(all, polls)].concat()
    };
    ways_of_waiting(all.points).flat_map(plots).collect()
}

/// Those of the server and of its clients.
pub(super) fn switches(all: All<'_>) -> Vec<Plot> {
    let plots = |polls| {
        let plot = |whose: &str, of: fn(&Seen) -> u64| {
            let title = format!("The {whose}, {}", waiting_words(polls));
            let of = |rounds: &[Seen]| median(rounds, |seen| seen.per_operation(of(seen)));
            over_clients(title, Axis::linear("switches of one operation", ""), all, polls, of)
        };
        [plot("server", |seen| seen.server.switches), plot("clients", |seen| seen.client.switches)]
    };
    ways_of_waiting(all.points).flat_map(plots).collect()
}

/// What is done, and how long the slowest take, while packets are lost.
pub(super) fn loss(all: All<'_>) -> Vec<Plot> {
    let plot = |title: &str, y: Axis, of: fn(&Seen) -> f64| {
        let x = |point: &Point| point.loss * 100.0;
        let series = lines(all, |_| true, x, |rounds| median(rounds, of));
        Plot { title: title.to_owned(), x: Axis::linear("lost", "%"), y, series }
    };
    vec![
        plot("Operations", Axis::log("operations", "1/s"), Seen::per_second),
        plot("99 of 100 operations", Axis::log("at most", "us"), |seen| seen.share_us(990)),
    ]
}

/// Those of YCSB, side by side.
pub(super) fn workloads(all: All<'_>) -> Vec<Plot> {
    let mut ways: Vec<_> = Vec::new();
    let mut loads: Vec<_> = Vec::new();
    for point in all.points {
        if !ways.contains(&point.way) {
            ways.push(point.way);
        }
        if !loads.contains(&point.load) {
            loads.push(point.load);
        }
    }
    let plot = |title: &str, y: Axis, of: fn(&Seen) -> f64| {
        let series = ways.iter().map(|&way| {
            let seen = |load| all.each().find(|(point, _)| (point.way, point.load) == (way, load));
            let value = |&load| seen(load).map(|(_, rounds)| median(rounds, of));
            (way.word().to_owned(), loads.iter().map(value).collect())
        });
        let groups: Vec<String> = loads.iter().map(|load| load.word().to_owned()).collect();
        Plot::bars(title.to_owned(), "workload", y, &groups, series)
    };
    vec![
        plot("Operations", Axis::linear("operations", "1/s"), Seen::per_second),
        plot("99 of 100 operations", Axis::linear("at most", "us"), |seen| seen.share_us(990)),
    ]
}

/// A line for each transport.
fn lines(
    all: All<'_>,
    is_shown: impl Fn(&Point) -> bool,
    x: impl Fn(&Point) -> f64,
    of: impl Fn(&[Seen]) -> f64,
) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for (point, rounds) in all.each().filter(|(point, _)| is_shown(point)) {
        let label = point.way.word();
        let at = (x(point), of(rounds));
        match series.iter_mut().find(|series| series.label == label) {
            Some(series) => series.points.push(at),
            None => {
                let label = label.to_owned();
                series.push(Series { label, style: Style::Line, points: vec![at] });
            }
        }
    }
    series
}

/// A line for each transport over the number of clients: by powers of ten where they are many.
fn over_clients(
    title: String,
    y: Axis,
    all: All<'_>,
    polls: bool,
    of: impl Fn(&[Seen]) -> f64,
) -> Plot {
    let is_shown = |point: &Point| point.polls == polls;
    let series = lines(all, is_shown, |point| point.clients as f64, of);
    let most = all.points.iter().map(|point| point.clients).max().unwrap_or(0);
    let scale = if most > LINEAR_CLIENTS { Axis::log } else { Axis::linear };
    Plot { title, x: scale("clients", ""), y, series }
}

const fn waiting_words(polls: bool) -> &'static str {
    if polls { "polling" } else { "asleep" }
}

/// How many ways of waiting there are among the points, in their order.
fn ways_of_waiting(points: &[Point]) -> impl Iterator<Item = bool> {
    [true, false].into_iter().filter(|polls| points.iter().any(|point| point.polls == *polls))
}

/// How operations are distributed, for each number of clients: a curve and a box of each
/// transport.
fn distributions(all: All<'_>, polls: bool) -> Vec<Plot> {
    let mut clients: Vec<usize> = all.points.iter().map(|point| point.clients).collect();
    clients.sort_unstable();
    clients.dedup();
    let plot = |clients: usize| {
        let alike =
            all.each().filter(|(point, _)| (point.polls, point.clients) == (polls, clients));
        let boxed = |(point, rounds): (&Point, &[Seen])| {
            let heights = [0, 1, 2, 3, 4].map(|at| median(rounds, |seen| seen.box_us[at]));
            (point.way.word().to_owned(), heights)
        };
        let who = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        let title = |what| format!("{who}, {}: {what}", waiting_words(polls));
        let y = Axis::log("one operation", "us");
        let boxes = Plot::boxes(title("boxes"), "transport", y, alike.clone().map(boxed));
        let series = alike.map(|(point, rounds)| Series {
            label: point.way.word().to_owned(),
            style: Style::Line,
            points: SHARES
                .iter()
                .map(|&share| {
                    let us = median(rounds, |seen| seen.share_us(share));
                    (us, f64::from(share) / 1e3)
                })
                .collect(),
        });
        let curves = Plot {
            title: title("distribution"),
            x: Axis::log("one operation", "us"),
            y: Axis::linear("share of all", ""),
            series: series.collect(),
        };
        [curves, boxes]
    };
    clients.into_iter().flat_map(plot).collect()
}
