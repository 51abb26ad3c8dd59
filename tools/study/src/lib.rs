//! Studies: questions with parameters, and reports that answer them.
//!
//! A [`Study`] has a name, parameters with defaults, and a function that runs it and returns a
//! [`Report`]: tables, plots, what it claims and whether that was met, and a trace hash of each
//! run.
//!
//! | file | what it holds |
//! |---|---|
//! | `param` | parameters: what they mean, their units, defaults and text forms |
//! | `runner` | independent runs on several threads, in an order that does not depend on them |
//! | `runs` | the runs of a study, until the first trouble, and their traces |
//! | `report` | tables, claims, trace hashes |
//! | `error` | why a study has no report |

#![forbid(unsafe_code)]

mod error;
mod param;
mod report;
pub mod runner;
mod runs;

pub use error::StudyError;
pub use param::{Kind, Level, Param, ParamError, Params, Value};
pub use report::{Cell, Claim, Column, Columns, Demand, Format, Report, RunTrace, Table};
pub use runner::{Progress, Runner};
pub use runs::RunEnd;
pub use towpath_plot::{Axis, Plot, Scale, Series, Style, box_of};

/// A question, how it is asked, and where it was asked before.
#[derive(Debug)]
pub struct Study {
    /// One word, as in `towpath sim loss`, or two, as in `towpath sim haechi 1a`.
    pub name: &'static str,
    /// What it shows, in one line.
    pub what: &'static str,
    /// What it mirrors in the literature.
    pub mirrors: &'static str,
    /// Whose time its figures are in.
    pub clock: Clock,
    /// What can be chosen.
    pub params: &'static [Param],
    /// Runs it.
    pub run: fn(&Params, &Runner<'_>) -> Result<Report, StudyError>,
}

/// Whose time the figures of a study are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Virtual time: the same seed and parameters give the same figures on every machine.
    Virtual,
    /// Time of the machine that runs the study: its figures differ from run to run.
    Machine,
}

impl Clock {
    /// As a word, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Machine => "machine",
        }
    }
}

/// Bytes for people: with a unit where that is a whole number.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole =
        units.iter().find(|(bits, _)| bytes >= 1 << bits && bytes.is_multiple_of(1 << bits));
    whole.map_or_else(|| format!("{bytes} B"), |(bits, unit)| format!("{} {unit}", bytes >> bits))
}

/// A share for people: as `1/256` where it is one part of a whole number, in percent otherwise.
#[must_use]
pub fn show_share(share: f64) -> String {
    let parts = 1.0 / share;
    let is_whole = parts.is_finite() && (parts - parts.round()).abs() < 1e-6 * parts;
    // People say 1 %, and nobody says 0.390625 %.
    let is_round = (share * 1000.0 - (share * 1000.0).round()).abs() < 1e-9;
    if is_whole && !is_round {
        return format!("1/{parts:.0}");
    }
    let digits = format!("{:.6}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}
