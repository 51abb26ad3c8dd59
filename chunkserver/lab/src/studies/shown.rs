//! Tables, drawings and targets that experiments have in common.

use super::bars::{self, Bars};
use super::setting::DEPTH;
use super::system::{Case, Seen, System, capacity};
use towpath_lab::studies::{
    Axis, Cell, Claim, Column, Demand, Format, Params, Plot, Series, Style, Table,
};

/// What an experiment has seen.
pub(super) struct View<'a> {
    pub(super) params: &'a Params,
    pub(super) cases: &'a [Case],
    pub(super) seen: &'a [Seen],
}

impl View<'_> {
    fn depth(&self) -> u32 {
        self.params.count(DEPTH.name) as u32
    }

    pub(super) fn of(&self, case: usize, system: System) -> Option<&Seen> {
        self.seen.iter().find(|seen| seen.case == case && seen.system == system)
    }

    /// I/Os of a run, of those of the bare system.
    pub(super) fn of_bare(&self, seen: &Seen) -> Option<f64> {
        let bare = self.of(seen.case, System::Bare)?;
        Some(seen.outcome.ios_per_s() / bare.outcome.ios_per_s())
    }

    /// I/Os of a run, of what the server's port carries.
    pub(super) fn of_capacity(&self, seen: &Seen) -> f64 {
        let done: u64 = (0..seen.outcome.done.len()).map(|n| seen.outcome.total(n)).sum();
        done as f64 / seen.outcome.done.len().max(1) as f64 / capacity(self.params)
    }

    /// Periods and clients in which something was missed, all together.
    pub(super) fn missed(&self, seen: &Seen) -> usize {
        seen.missed(&self.cases[seen.case], self.depth()).iter().sum()
    }

    /// What each run came to.
    pub(super) fn totals(&self) -> Table {
        let columns = vec![
            Column::new("case", "case", "", Format::Plain),
            Column::new("system", "system", "", Format::Plain),
            Column::new("kios_per_s", "completed", "K/s", Format::Decimals(1)),
            Column::new("of_capacity", "of C_G", "%", Format::Percent(2)),
            Column::new("of_bare", "of bare", "%", Format::Percent(2)),
            Column::new("clients_missed", "clients that", "missed", Format::Plain),
            Column::new("periods_missed", "in periods", "all together", Format::Plain),
            Column::new("atomics_per_s", "atomics", "1/s", Format::Decimals(0)),
            Column::new("reports_per_s", "reports", "1/s", Format::Decimals(0)),
            Column::new("stranded", "stranded", "% of tokens", Format::Percent(3)),
        ];
        let row = |seen: &Seen| -> Vec<Cell> {
            let (case, outcome) = (&self.cases[seen.case], &seen.outcome);
            let missed = seen.missed(case, self.depth());
            let stranded = outcome.stranded.iter().sum::<u64>() as f64
                / (capacity(self.params) * outcome.stranded.len().max(1) as f64);
            let has_tokens = seen.system != System::Bare;
            vec![
                case.name.as_str().into(),
                seen.system.word().into(),
                (outcome.ios_per_s() / 1e3).into(),
                self.of_capacity(seen).into(),
                self.of_bare(seen).into(),
                (missed.iter().filter(|missed| **missed > 0).count() as u64).into(),
                (missed.iter().sum::<usize>() as u64).into(),
                has_tokens.then(|| outcome.per_s(outcome.fetches)).into(),
                has_tokens.then(|| outcome.per_s(outcome.reports)).into(),
                has_tokens.then_some(stranded).into(),
            ]
        };
        let periods = self.seen.first().map_or(0, |seen| seen.outcome.done.len());
        let title = format!("All clients, in {periods} periods");
        Table { name: "totals", title, columns, rows: self.seen.iter().map(row).collect() }
    }

    /// What each client got. `paper` says what the paper's Haechi gave one in thousands a second,
    /// where its text does.
    pub(super) fn clients(&self, paper: impl Fn(usize, System, usize) -> Option<f64>) -> Table {
        let columns = vec![
            Column::new("case", "case", "", Format::Plain),
            Column::new("system", "system", "", Format::Plain),
            Column::new("client", "client", "", Format::Plain),
            Column::new("reserved_kios_per_s", "reserved", "K/s", Format::Decimals(1)),
            Column::new("wanted_kios_per_s", "wanted", "K/s", Format::Decimals(1)),
            Column::new("client_kios_per_s", "completed", "K/s", Format::Decimals(1)),
            Column::new("least_kios_per_s", "least", "K/s", Format::Decimals(1)),
            Column::new("client_periods_missed", "missed", "periods", Format::Plain),
            Column::new("paper_client_kios_per_s", "paper", "K/s", Format::Decimals(0)),
        ];
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for seen in self.seen {
            let (case, outcome) = (&self.cases[seen.case], &seen.outcome);
            let scale = 1.0 / (outcome.period.as_secs_f64() * 1e3);
            let missed = seen.missed(case, self.depth());
            for (client, &missed) in missed.iter().enumerate() {
                let least = outcome.done.iter().map(|done| done[client]).min().unwrap_or(0);
                rows.push(vec![
                    case.name.as_str().into(),
                    seen.system.word().into(),
                    (client as u64 + 1).into(),
                    (f64::from(case.reserved[client]) * scale).into(),
                    (f64::from(case.wanted[client]) * scale).into(),
                    (outcome.client_ios_per_s(client) / 1e3).into(),
                    (f64::from(least) * scale).into(),
                    (missed as u64).into(),
                    paper(seen.case, seen.system, client).into(),
                ]);
            }
        }
        Table { name: "clients", title: "By client".to_owned(), columns, rows }
    }

    /// Bars of what was reserved and what systems gave, by case.
    pub(super) fn bars(&self, figures: &[&str]) -> Vec<Plot> {
        let draw = |(number, case): (usize, &Case)| {
            let seen = || self.seen.iter().filter(move |seen| seen.case == number);
            let periods = seen().next().map_or(0, |seen| seen.outcome.done.len());
            let mut all = vec![Bars::level("reserved", &case.reserved, periods)];
            all.extend(seen().map(|seen| Bars::of(seen.system.word(), &seen.outcome)));
            let figure = figures.get(number).copied().unwrap_or_default();
            bars::draw(format!("{}{figure}", case.name), all)
        };
        self.cases.iter().enumerate().map(draw).collect()
    }

    /// How a case went on in the course of a period.
    pub(super) fn course(&self, case: usize) -> Plot {
        let line = |seen: &Seen| {
            let (course, outcome) = (&seen.outcome.course, &seen.outcome);
            let each = capacity(self.params) * outcome.done.len() as f64 / course.len() as f64;
            let at = |place: usize| (place as f64 + 0.5) / course.len() as f64 * 100.0;
            let points = course.iter().enumerate();
            let points = points.map(|(place, &ios)| (at(place), ios as f64 / each * 100.0));
            Series {
                label: seen.system.word().to_owned(),
                style: Style::Line,
                points: points.collect(),
            }
        };
        Plot {
            title: format!("{}: in the course of a period", self.name(case)),
            x: Axis::linear("passed of the period", "%").range(0.0, 100.0),
            y: Axis::linear("throughput, of C_G", "%"),
            series: self.seen.iter().filter(|seen| seen.case == case).map(line).collect(),
        }
    }

    /// That ours misses nothing, by case.
    pub(super) fn nothing_missed(&self) -> Vec<Claim> {
        let claim = |number: usize| {
            let seen = self.of(number, System::Ours)?;
            let what =
                format!("{}, ours: reservations missed, by client and period", self.name(number));
            let missed = self.missed(seen) as f64;
            Some(claim(("missed", number), what, Demand::AtMost(0.0), (missed, "", 0)))
        };
        (0..self.cases.len()).filter_map(claim).collect()
    }

    /// That ours does nearly what the bare system does, by case.
    pub(super) fn nearly_bare(&self, least: f64) -> Vec<Claim> {
        let claim = |number: usize| {
            let seen = self.of(number, System::Ours)?;
            let what = format!("{}, ours: of the bare system", self.name(number));
            let measured = (self.of_bare(seen)? * 100.0, "%", 2);
            Some(claim(("of_bare", number), what, Demand::AtLeast(least), measured))
        };
        (0..self.cases.len()).filter_map(claim).collect()
    }

    pub(super) fn name(&self, case: usize) -> &str {
        &self.cases[case].name
    }
}

/// A target for a case.
pub(super) fn claim(
    (name, case): (&str, usize),
    what: String,
    demand: Demand,
    (measured, unit, decimals): (f64, &'static str, u8),
) -> Claim {
    Claim { name: format!("{name}_{case}"), what, demand, measured, unit, decimals }
}
