//! What a study found: tables, claims, trace hashes.

use crate::param::Params;
use towpath_plot::Plot;

/// How the numbers of a column are shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As it is; whole numbers with a comma after every three digits.
    Plain,
    /// With so many decimals.
    Decimals(u8),
    /// A share as `1/256` where it is one part of a whole number, and in percent otherwise.
    Share,
    /// A share in percent, with so many decimals.
    Percent(u8),
    /// Bytes with a unit of its own, as in `64 KiB`.
    Bytes,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its field in JSON: it stays as it is, and ends with its unit where it has one.
    pub name: &'static str,
    /// Its head for people.
    pub head: &'static str,
    /// Its unit for people; may be empty.
    pub unit: &'static str,
    /// How it is shown.
    pub format: Format,
}

impl Column {
    /// A column.
    #[must_use]
    pub const fn new(
        name: &'static str,
        head: &'static str,
        unit: &'static str,
        format: Format,
    ) -> Self {
        Self { name, head, unit, format }
    }
}

/// One place of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A whole number.
    Count(u64),
    /// A number.
    Number(f64),
    /// A word.
    Text(String),
    /// Nothing is known here.
    Absent,
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(found: Option<T>) -> Self {
        found.map_or(Self::Absent, Into::into)
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its field in JSON.
    pub name: &'static str,
    /// What stands above it.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with a row for each of `rows`; columns follow one by one.
    pub fn of<'a, R>(
        name: &'static str,
        title: impl Into<String>,
        rows: &'a [R],
    ) -> Columns<'a, R> {
        let cells = rows.iter().map(|_| Vec::new()).collect();
        let table = Self { name, title: title.into(), columns: Vec::new(), rows: cells };
        Columns { table, rows }
    }
}

/// A table to which columns are added, each with the cell that it has in a row.
#[derive(Debug)]
#[must_use]
pub struct Columns<'a, R> {
    table: Table,
    rows: &'a [R],
}

impl<'a, R> Columns<'a, R> {
    fn add<C: Into<Cell>>(mut self, column: Column, cell: impl Fn(&'a R) -> C) -> Self {
        self.table.columns.push(column);
        for (cells, row) in self.table.rows.iter_mut().zip(self.rows) {
            cells.push(cell(row).into());
        }
        self
    }

    /// Adds a column that is shown as it is.
    pub fn plain<C: Into<Cell>>(
        self,
        name: &'static str,
        head: &'static str,
        unit: &'static str,
        cell: impl Fn(&'a R) -> C,
    ) -> Self {
        self.add(Column::new(name, head, unit, Format::Plain), cell)
    }

    /// Adds a column that is shown with so many decimals.
    pub fn decimals<C: Into<Cell>>(
        self,
        decimals: u8,
        name: &'static str,
        head: &'static str,
        unit: &'static str,
        cell: impl Fn(&'a R) -> C,
    ) -> Self {
        self.add(Column::new(name, head, unit, Format::Decimals(decimals)), cell)
    }

    /// Adds a column of shares that are shown in percent, with so many decimals.
    pub fn percent<C: Into<Cell>>(
        self,
        decimals: u8,
        name: &'static str,
        head: &'static str,
        cell: impl Fn(&'a R) -> C,
    ) -> Self {
        self.add(Column::new(name, head, "%", Format::Percent(decimals)), cell)
    }

    /// Adds a column of shares that are shown as one part of so many.
    pub fn share<C: Into<Cell>>(
        self,
        name: &'static str,
        head: &'static str,
        cell: impl Fn(&'a R) -> C,
    ) -> Self {
        self.add(Column::new(name, head, "", Format::Share), cell)
    }

    /// Adds a column of bytes.
    pub fn bytes<C: Into<Cell>>(
        self,
        name: &'static str,
        head: &'static str,
        cell: impl Fn(&'a R) -> C,
    ) -> Self {
        self.add(Column::new(name, head, "", Format::Bytes), cell)
    }

    /// The table.
    #[must_use]
    pub fn done(self) -> Table {
        self.table
    }
}

/// What is asked of a measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Demand {
    /// It is this or more.
    AtLeast(f64),
    /// It is this or less.
    AtMost(f64),
}

/// A target, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its field in JSON: it stays as it is.
    pub name: String,
    /// What is measured, in words.
    pub what: String,
    /// What is asked of it.
    pub demand: Demand,
    /// What was measured.
    pub measured: f64,
    /// The unit of both, as in `%`; may be empty.
    pub unit: &'static str,
    /// How many decimals are shown.
    pub decimals: u8,
}

impl Claim {
    /// A target, and what was measured.
    pub fn new(
        name: impl Into<String>,
        what: impl Into<String>,
        demand: Demand,
        measured: f64,
        unit: &'static str,
        decimals: u8,
    ) -> Self {
        Self { name: name.into(), what: what.into(), demand, measured, unit, decimals }
    }

    /// A target of a share, in percent with one decimal.
    pub fn percent(
        name: impl Into<String>,
        what: impl Into<String>,
        demand: Demand,
        share: f64,
    ) -> Self {
        Self::new(name, what, demand, share * 100.0, "%", 1)
    }

    /// Whether the target is met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match self.demand {
            Demand::AtLeast(target) => self.measured >= target,
            Demand::AtMost(target) => self.measured <= target,
        }
    }

    /// By how much it is missed: zero when it is met.
    #[must_use]
    pub fn missed_by(&self) -> f64 {
        let (Demand::AtLeast(target) | Demand::AtMost(target)) = self.demand;
        if self.is_met() { 0.0 } else { (target - self.measured).abs() }
    }
}

/// One run, and the hash over every packet that was on its wires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTrace {
    /// Which run.
    pub run: String,
    /// Equal seeds and parameters give equal hashes.
    pub trace_hash: u64,
}

/// What a study found.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The study's name.
    pub study: &'static str,
    /// Where everything random came from.
    pub seed: u64,
    /// The parameters and their texts.
    pub params: Vec<(&'static str, String)>,
    /// What was found.
    pub tables: Vec<Table>,
    /// What there is to draw.
    pub plots: Vec<Plot>,
    /// Targets, and whether they are met. A run with other parameters may not reach all of them:
    /// only those that were measured are here.
    pub claims: Vec<Claim>,
    /// What a reader should know about the figures.
    pub notes: Vec<String>,
    /// The runs and their traces.
    pub runs: Vec<RunTrace>,
}

impl Report {
    /// One of which nothing was found yet.
    #[must_use]
    pub fn new(study: &'static str, params: &Params) -> Self {
        Self {
            study,
            seed: params.seed,
            params: params.texts().map(|(name, text)| (name, text.to_owned())).collect(),
            tables: Vec::new(),
            plots: Vec::new(),
            claims: Vec::new(),
            notes: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Adds what a reader should know.
    pub fn note(&mut self, notes: &[&str]) {
        self.notes.extend(notes.iter().map(|&note| note.to_owned()));
    }

    /// Adds a trace.
    pub fn trace(&mut self, run: impl Into<String>, trace_hash: u64) {
        self.runs.push(RunTrace { run: run.into(), trace_hash });
    }

    /// One hash over those of all runs, in their order.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        // FNV-1a by 64-bit words: equality is all that is asked of it.
        self.runs.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, run| {
            (hash ^ run.trace_hash).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Whether every target that was measured is met.
    #[must_use]
    pub fn is_all_met(&self) -> bool {
        self.claims.iter().all(Claim::is_met)
    }
}
