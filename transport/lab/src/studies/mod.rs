//! Studies: questions that anybody can ask again, with one seed.
//!
//! A [`Study`] has a name, parameters with defaults, and a function that runs it and returns a
//! [`Report`]: tables, plots, what it claims and whether that was met, and a trace hash of each
//! run. `towpath sim` shows them; docs/studies.md says what each is for. A new study is one file,
//! and a line in [`ALL`].
//!
//! | file | what it holds |
//! |---|---|
//! | [`param`] | parameters: what they mean, their units, defaults and text forms |
//! | [`runner`] | independent runs on several threads, in an order that does not depend on them |
//! | [`report`] | tables, claims, trace hashes |
//! | [`plot`] | what there is to draw |
//! | [`error`] | why a study has no report |
//! | [`stream`] | messages one way between two hosts as fast as they go |
//! | [`loss`] | goodput against loss |
//! | [`incast`] | many senders, one port |
//! | [`fairness`] | flows that come and go, and unlike round trips |
//! | [`mixed_nics`] | unlike network cards in one cluster |
//! | [`cross_pod`] | servers in another pod |
//! | [`scale`] | what the simulator costs |

pub mod cross_pod;
pub mod error;
pub mod fairness;
pub mod incast;
pub mod loss;
pub mod mixed_nics;
pub mod param;
pub mod plot;
pub mod report;
pub mod runner;
pub mod scale;
pub mod stream;

pub use error::StudyError;
pub use param::{Kind, Level, Param, ParamError, Params, Value};
pub use plot::{Axis, Plot, Scale, Series, Style};
pub use report::{Cell, Claim, Column, Demand, Format, Report, RunTrace, Table};
pub use runner::{Progress, Runner};

/// A question, how it is asked, and where it was asked before.
#[derive(Debug)]
pub struct Study {
    /// One word, as in `towpath sim loss`.
    pub name: &'static str,
    /// What it shows, in one line.
    pub what: &'static str,
    /// What it mirrors in the literature.
    pub mirrors: &'static str,
    /// What can be chosen.
    pub params: &'static [Param],
    /// Runs it.
    pub run: fn(&Params, &Runner<'_>) -> Result<Report, StudyError>,
}

/// All studies, in the order in which they are listed.
pub const ALL: &[&Study] = &[
    &loss::STUDY,
    &incast::STUDY,
    &fairness::STUDY,
    &mixed_nics::STUDY,
    &cross_pod::STUDY,
    &scale::STUDY,
];

/// The study of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Study> {
    ALL.iter().copied().find(|study| study.name == name)
}

/// Bytes for people: with a unit where that is a whole number.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    let units = [(20, "MiB"), (10, "KiB")];
    let whole =
        units.iter().find(|(bits, _)| bytes >= 1 << bits && bytes.is_multiple_of(1 << bits));
    whole.map_or_else(|| format!("{bytes} B"), |(bits, unit)| format!("{} {unit}", bytes >> bits))
}

#[cfg(test)]
mod tests;
