//! The experiments of "Building Blocks for Network-Accelerated Distributed File Systems"
//! (S. Di Girolamo et al., SC 2022) on a model of hardware ([`crate::flow`]): figures 6, 9, 10
//! and 15; and copies and stripes by the chunk servers that ship
//! ([`crate::served`]).
//!
//! | file | contents |
//! |---|---|
//! | `setting` | the hardware, its parameters, what handlers and processors take |
//! | `systems` | the ways to write that are compared, as plans |
//! | `single` | figure 6: one copy, and what it costs to check a capability |
//! | `copies` | figures 9 and 10: several copies |
//! | `real`, `real_stripes` | figures 9, 10 and 15 by the production code in virtual time |
//! | `stripes` | figure 15: erasure coding |
//! | `degraded` | reads of stripes of which parts are lost: no figure of the paper |
//! | `readers` | what a client does with a stripe that it reads |

mod copies;
mod degraded;
mod readers;
mod real;
mod real_stripes;
mod setting;
mod single;
mod stripes;
mod systems;
#[cfg(test)]
mod tests;

pub(super) use copies::{MORE as MORE_COPIES, STUDY as COPIES};
pub(super) use degraded::STUDY as DEGRADED;
pub(super) use real::STUDY as REAL;
pub(super) use real_stripes::STUDY as REAL_STRIPES;
pub(super) use single::STUDY as SINGLE;
pub(super) use stripes::STUDY as STRIPES;

use setting::Setting;
use towpath_lab::studies::{Axis, Claim, Demand, Params, Plot, Series, Style};

/// A target.
fn claim(
    name: &str,
    what: String,
    demand: Demand,
    (measured, unit, decimals): (f64, &'static str, u8),
) -> Claim {
    Claim { name: name.to_owned(), what, demand, measured, unit, decimals }
}

/// A line for each label, by size or by number.
fn lines(points: impl Iterator<Item = (String, f64, f64)>) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for (label, x, y) in points {
        match series.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.push((x, y)),
            None => series.push(Series { label, style: Style::Line, points: vec![(x, y)] }),
        }
    }
    series
}

/// Latency by size, both logarithmic.
fn by_size(title: String, y: &'static str, unit: &'static str, series: Vec<Series>) -> Plot {
    Plot { title, x: Axis::log("write", "bytes"), y: Axis::log(y, unit), series }
}

/// What a reader should know of all of them.
fn notes(params: &Params) -> Vec<String> {
    let mut notes = vec![
        "a model of hardware, no code of ours runs in it: no loss, no other load, no queues in \
         switches; docs/studies.md says what each figure rests on"
            .to_owned(),
    ];
    let units =
        params.counts(setting::MTU.name).first().map(|&mtu| Setting::of(params, mtu).units());
    if params.word(setting::PROFILE.name) == "host" {
        notes.push(format!(
            "handlers cost what was measured on a processor, {} of them at a time: targets are \
             the paper's, for its card",
            units.unwrap_or_default()
        ));
    }
    notes
}
