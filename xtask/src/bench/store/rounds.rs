//! All measurements of a run: figures, table, drawing.

use super::case::{COLD_READ, Case, Measure, Side};
use super::seen::Seen;
use crate::bench::figure::{Figure, Wanted, ratios};
use crate::failure::Failure;
use crate::stats::median;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use towpath_plot::{Axis, Plot, Series, Style};

/// A read may take what fio's takes and so many times what the network takes.
const NETWORKS: f64 = 1.3;

/// What each round brought.
pub(super) struct Rounds {
    cases: Vec<Case>,
    seen: BTreeMap<(usize, Side), Vec<Seen>>,
}

/// One side of a case.
type Row<'a> = ((&'a Case, usize, Side), &'a [Seen]);

impl Rounds {
    pub(super) fn new(cases: &[Case]) -> Self {
        Self { cases: cases.to_vec(), seen: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, case: usize, side: Side, seen: Seen) {
        self.seen.entry((case, side)).or_default().push(seen);
    }

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let cases = &self.cases;
        self.seen.iter().map(|(&(at, side), seen)| ((&cases[at], at, side), &seen[..]))
    }

    fn values(&self, case: usize, side: Side, name: &str) -> Vec<f64> {
        let seen = self.seen.get(&(case, side)).map_or(&[][..], |seen| seen);
        seen.iter().filter_map(|seen| seen.value(name)).collect()
    }

    /// What a side is compared with: its rate by that one's, round by round.
    fn ratio(&self, case: usize, side: Side) -> Option<(Side, Vec<f64>)> {
        let (other, name) = match side {
            Side::Fresh | Side::Aged if self.seen.contains_key(&(case, Side::Fio)) => {
                (Side::Fio, "iops")
            }
            Side::Fresh | Side::Aged => (Side::Nbd, "iops"),
            Side::Put => (Side::Before, "mb_per_s"),
            _ => return None,
        };
        let ratios = ratios(&self.values(case, side, name), &self.values(case, other, name));
        (!ratios.is_empty()).then_some((other, ratios))
    }

    /// What a cold read takes, by what it may take.
    fn allowance(&self, case: usize, side: Side) -> Vec<f64> {
        let of = |side| self.values(case, side, "p50_us");
        let may = of(Side::Fio).into_iter().zip(of(Side::Network));
        let may: Vec<f64> = may.map(|(fio, network)| fio + NETWORKS * network).collect();
        ratios(&of(side), &may)
    }

    /// Each value of each side, and what it is compared with.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for ((case, at, side), seen) in self.rows() {
            let key = match case.measure {
                Measure::Idle => case.name.to_owned(),
                Measure::Load(_) => format!("{}.{}", case.name, side.word()),
            };
            for &(name, _) in seen.first().map_or(&[][..], |seen| &seen.0) {
                let title = format!("{}, {side}: {name}", case.name);
                let values = self.values(at, side, name);
                figures.push(Figure::of(format!("{key}.{name}"), title, &values, Wanted::Nothing));
            }
            if let Some((other, values)) = self.ratio(at, side) {
                let title = format!("{}, {side} to {other}", case.name);
                let name = format!("{key}.to_{}", other.word());
                figures.push(Figure::of(name, title, &values, Wanted::Nothing));
            }
            if case.name == COLD_READ && matches!(side, Side::Fresh | Side::Aged) {
                let title = format!(
                    "{}, {side}: median latency to fio's and {NETWORKS} times the network's",
                    case.name
                );
                let (name, values) = (format!("{key}.to_allowed"), self.allowance(at, side));
                figures.push(Figure::of(name, title, &values, Wanted::AtMost(1.0)));
            }
        }
        figures
    }

    /// What a person reads: medians, and least and most in brackets.
    pub(super) fn table(&self) -> String {
        let mut text = format!(
            "{:<20}  {:>27}  {:>8}  {:>24}  {:>8}  beside the other (least, most)\n",
            "", "IOPS (least, most)", "MB/s", "median us (least, most)", "p99 us"
        );
        let mut last = None;
        for ((case, at, side), seen) in self.rows() {
            if last.replace(at) != Some(at) {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{}: {}", case.name, case.title);
            }
            if case.measure == Measure::Idle {
                text += &self.idle_lines(at, seen);
                continue;
            }
            let spread = |name: &str, digits: usize| spread(&self.values(at, side, name), digits);
            let middle = |name: &str, digits: usize| middle(&self.values(at, side, name), digits);
            let beside = self.ratio(at, side).map_or_else(String::new, |(other, values)| {
                format!("{} of {other}", self::spread(&values, 2))
            });
            let line = format!(
                "  {:<18}  {:>27}  {:>8}  {:>24}  {:>8}  {beside}",
                side.to_string(),
                spread("iops", 0),
                middle("mb_per_s", 1),
                spread("p50_us", 1),
                middle("p99_us", 1),
            );
            let _ = writeln!(text, "{}", line.trim_end());
            if case.name == COLD_READ && matches!(side, Side::Fresh | Side::Aged) {
                let values = self::spread(&self.allowance(at, side), 2);
                let _ = writeln!(
                    text,
                    "  {:<18}  median latency to fio's + {NETWORKS} times the network's: {values}",
                    ""
                );
            }
        }
        text
    }

    fn idle_lines(&self, case: usize, seen: &[Seen]) -> String {
        let names = seen.first().map_or(&[][..], |seen| &seen.0);
        let lines = names.iter().map(|(name, _)| {
            format!("  {name:<18}  {}\n", spread(&self.values(case, Side::Idle, name), 2))
        });
        lines.collect()
    }

    /// The rates of fresh and aged stores to what they are compared with.
    pub(super) fn draw(&self, ran: &str, file: &Path) -> Result<(), Failure> {
        let text =
            towpath_plot::draw("A chunk server beside fio", &[self.plot()], &[ran.to_owned()]);
        let failed = |source| Failure::File { path: file.to_owned(), source };
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(file, text).map_err(failed)
    }

    fn plot(&self) -> Plot {
        let middle = |at, side| Some(median(&self.ratio(at, side)?.1));
        let shown: Vec<usize> = (0..self.cases.len())
            .filter(|&at| [Side::Fresh, Side::Aged].iter().any(|&side| middle(at, side).is_some()))
            .collect();
        let groups: Vec<String> = shown.iter().map(|&at| self.cases[at].name.to_owned()).collect();
        let bars = |side: Side| {
            (side.to_string(), shown.iter().map(|&at| middle(at, side)).collect::<Vec<_>>())
        };
        let y = Axis::linear("IOPS to fio's", "");
        let title = "requests a second to those of fio".to_owned();
        let mut plot = Plot::bars(title, "case", y, &groups, [bars(Side::Fresh), bars(Side::Aged)]);
        if let Some((low, high)) = plot.x.range {
            plot.series.push(Series::new("as fio", Style::Bound, [(low, 1.0), (high, 1.0)]));
        }
        plot
    }
}

fn middle(values: &[f64], digits: usize) -> String {
    if values.is_empty() { String::from("-") } else { format!("{:.digits$}", median(values)) }
}

fn spread(values: &[f64], digits: usize) -> String {
    if values.is_empty() {
        return String::from("-");
    }
    let figure = Figure::of("", "", values, Wanted::Nothing);
    let Figure { median, least, most, .. } = figure;
    format!("{median:.digits$} ({least:.digits$}, {most:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::super::case::chosen;
    use super::*;

    fn seen(iops: f64, p50_us: f64) -> Seen {
        Seen(vec![("iops", iops), ("mb_per_s", iops / 250.0), ("p50_us", p50_us), ("p99_us", 9.0)])
    }

    fn found(figures: &[Figure], name: &str) -> Figure {
        let figure = figures.iter().find(|figure| figure.name == name);
        figure.unwrap_or_else(|| panic!("no figure {name}")).clone()
    }

    #[test]
    fn a_store_is_compared_with_fio_of_the_same_round() {
        let cases = chosen(&["write-4k-32".to_owned()]).unwrap();
        let mut rounds = Rounds::new(&cases);
        for (fio, fresh, aged) in [(1000.0, 900.0, 800.0), (500.0, 600.0, 400.0)] {
            rounds.add(0, Side::Fio, seen(fio, 10.0));
            rounds.add(0, Side::Fresh, seen(fresh, 10.0));
            rounds.add(0, Side::Aged, seen(aged, 10.0));
        }
        let figures = rounds.figures();
        let fresh = found(&figures, "write-4k-32.fresh.to_fio");
        assert_eq!((fresh.least, fresh.most), (0.9, 1.2));
        assert_eq!(found(&figures, "write-4k-32.aged.to_fio").median, 0.8);
        assert_eq!(found(&figures, "write-4k-32.fio.iops").median, 750.0);
        let table = rounds.table();
        assert!(table.contains("0.80 (0.80, 0.80) of fio"), "{table}");
        let plot = rounds.plot();
        assert_eq!(plot.series.len(), 3, "fresh, aged and the bound");
        assert_eq!(plot.series[1].points[0].1, 0.8);
    }

    #[test]
    fn a_cold_read_may_take_what_fio_and_the_network_take() {
        let cases = chosen(&[COLD_READ.to_owned()]).unwrap();
        let mut rounds = Rounds::new(&cases);
        rounds.add(0, Side::Fio, seen(10_000.0, 100.0));
        rounds.add(0, Side::Network, seen(20_000.0, 50.0));
        rounds.add(0, Side::Fresh, seen(6_000.0, 165.0));
        rounds.add(0, Side::Aged, seen(5_000.0, 198.0));
        let figures = rounds.figures();
        let fresh = found(&figures, "read-4k-1.fresh.to_allowed");
        assert!((fresh.median - 1.0).abs() < 1e-9, "{}", fresh.median);
        let aged = found(&figures, "read-4k-1.aged.to_allowed");
        assert!((aged.median - 1.2).abs() < 1e-9);
        assert_eq!(aged.json()["met"], false);
    }

    #[test]
    fn what_is_not_there_is_a_dash_and_no_figure() {
        let cases = chosen(&["memory-4k-32".to_owned(), "idle".to_owned()]).unwrap();
        let mut rounds = Rounds::new(&cases);
        rounds.add(0, Side::Fresh, seen(900.0, 10.0));
        rounds.add(0, Side::Put, Seen(vec![("mb_per_s", 300.0)]));
        rounds.add(0, Side::Before, Seen(vec![("mb_per_s", 200.0)]));
        rounds.add(1, Side::Idle, Seen(vec![("wakeups_per_s", 3.0)]));
        let figures = rounds.figures();
        assert!(figures.iter().all(|figure| !figure.name.contains("to_nbd")), "no nbdkit");
        assert_eq!(found(&figures, "memory-4k-32.put.to_put_before").median, 1.5);
        assert_eq!(found(&figures, "idle.wakeups_per_s").median, 3.0);
        let table = rounds.table();
        let put = table.lines().find(|line| line.contains("whole put ")).unwrap();
        assert!(put.contains(" - ") && put.contains("1.50 (1.50, 1.50)"), "{put}");
    }
}
