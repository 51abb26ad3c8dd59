//! A figure: what was measured, and what was wanted.

use crate::stats::median;
use serde_json::{Value, json};
use std::fmt::{self, Write};

/// What a figure is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wanted {
    /// It stands for itself, or is part of another.
    Nothing,
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
    /// Both bounds are allowed.
    Between(f64, f64),
}

impl Wanted {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::Nothing => None,
            Self::AtLeast(bound) => Some(value >= bound),
            Self::AtMost(bound) => Some(value <= bound),
            Self::Below(bound) => Some(value < bound),
            Self::Between(least, most) => Some((least..=most).contains(&value)),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::AtMost(bound) => write!(f, "at most {bound}"),
            Self::Below(bound) => write!(f, "below {bound}"),
            Self::Between(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

/// The middle of the rounds, and their extremes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// Its key in the JSON.
    pub(super) name: String,
    /// With its unit.
    pub(super) title: String,
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    pub(super) wanted: Wanted,
}

impl Figure {
    /// Of one value a round; there must be one.
    pub(super) fn of(
        name: impl Into<String>,
        title: impl Into<String>,
        values: &[f64],
        wanted: Wanted,
    ) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (name, title) = (name.into(), title.into());
        Self { name, title, median: median(values), least, most, wanted }
    }

    pub(super) fn json(&self) -> Value {
        let bound = match self.wanted {
            Wanted::Nothing => Value::Null,
            wanted => wanted.to_string().into(),
        };
        json!({
            "median": self.median,
            "least": self.least,
            "most": self.most,
            "wanted": bound,
            "met": self.wanted.is_met(self.median),
        })
    }

    fn verdict(&self) -> String {
        match self.wanted.is_met(self.median) {
            None => String::new(),
            Some(true) => format!("{}: met", self.wanted),
            Some(false) => format!("{}: not met", self.wanted),
        }
    }
}

/// The ratios of two sides, round by round.
pub(super) fn ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| of / to).collect()
}

/// What a person reads.
pub(super) fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.title.len()).max().unwrap_or(0);
    let mut text =
        format!("{:width$}  {:>8}  {:>8}  {:>8}  wanted\n", "", "median", "least", "most");
    for figure in figures {
        let Figure { title, median, least, most, .. } = figure;
        let line = format!(
            "{title:width$}  {median:>8.2}  {least:>8.2}  {most:>8.2}  {}",
            figure.verdict()
        );
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_middle_of_its_rounds_and_says_whether_that_is_what_was_wanted() {
        let figure = Figure::of("a", "A", &[1.2, 1.5, 1.3], Wanted::AtLeast(1.3));
        assert_eq!((figure.median, figure.least, figure.most), (1.3, 1.2, 1.5));
        assert_eq!(figure.json()["met"], true);
        assert_eq!(figure.json()["wanted"], "at least 1.3");
        let figure = Figure::of("b", "B", &[1.0], Wanted::Below(1.0));
        assert_eq!(figure.json()["met"], false, "as much is not below");
        let figure = Figure::of("c", "C", &[1.0], Wanted::Nothing);
        assert!(figure.json()["met"].is_null() && figure.json()["wanted"].is_null());
    }

    #[test]
    fn the_table_has_a_line_for_each() {
        let met = Figure::of("a", "64 KiB, Gb/s", &[30.0], Wanted::Nothing);
        let missed = Figure::of("b", "to TCP", &[1.1, 1.0, 1.2], Wanted::AtLeast(1.3));
        let text = table(&[met, missed]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "64 KiB, Gb/s     30.00     30.00     30.00");
        let last = "to TCP            1.10      1.00      1.20  at least 1.3: not met";
        assert_eq!(lines[2], last);
    }

    #[test]
    fn ratios_are_of_each_round() {
        assert_eq!(ratios(&[3.0, 8.0], &[2.0, 4.0]), [1.5, 2.0]);
    }
}
