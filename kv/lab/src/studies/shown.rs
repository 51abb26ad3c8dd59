//! Runs, and what tables and drawings of them have in common.

use crate::model::{Outcome, Plan, RunError, run};
use towpath_lab::studies::{
    Axis, Claim, Column, Demand, Format, Plot, Report, Runner, Series, StudyError, Style,
};

/// Runs all plans; their traces are in the report.
pub(super) fn outcomes(
    report: &mut Report,
    runner: &Runner<'_>,
    plans: &[Plan],
) -> Result<Vec<Outcome>, StudyError> {
    let stop = || runner.is_stopped();
    let seen = runner.map(plans, |plan| {
        run(plan, &stop).map_err(|error| match error {
            RunError::Stopped => StudyError::Stopped,
            RunError::Stuck => StudyError::run(label(plan), "it is stuck"),
        })
    })?;
    for (plan, outcome) in plans.iter().zip(&seen) {
        report.trace(label(plan), outcome.hash);
    }
    Ok(seen)
}

/// Which run.
fn label(plan: &Plan) -> String {
    let (transport, waiting) = (plan.transport.word(), plan.waiting.word());
    let (program, clients) = (plan.program.word(), plan.clients);
    format!("{transport}, {waiting}, {program}, {clients} clients")
}

/// A target.
pub(super) fn claim(
    name: String,
    what: String,
    demand: Demand,
    (measured, unit, decimals): (f64, &'static str, u8),
) -> Claim {
    Claim { name, what, demand, measured, unit, decimals }
}

/// Microseconds with one decimal.
pub(super) const fn us(name: &'static str, head: &'static str) -> Column {
    Column::new(name, head, "us", Format::Decimals(1))
}

/// A word, or a whole number.
pub(super) const fn plain(name: &'static str, head: &'static str, unit: &'static str) -> Column {
    Column::new(name, head, unit, Format::Plain)
}

/// A ratio.
pub(super) const fn ratio(name: &'static str, head: &'static str, unit: &'static str) -> Column {
    Column::new(name, head, unit, Format::Decimals(2))
}

/// A line of points.
pub(super) fn line(label: &str, points: impl Iterator<Item = (f64, f64)>) -> Series {
    Series { label: label.to_owned(), style: Style::Line, points: points.collect() }
}

/// Points that the model was fitted to, to be drawn over those of lines; `None` where there are
/// none.
pub(super) fn fitted_points(points: Vec<(f64, f64)>) -> Option<Series> {
    let label = "fitted to the thesis".to_owned();
    (!points.is_empty()).then_some(Series { label, style: Style::Points, points })
}

/// Over the number of clients.
pub(super) fn over_clients(
    title: String,
    y: &'static str,
    unit: &'static str,
    series: Vec<Series>,
) -> Plot {
    Plot { title, x: Axis::linear("clients", ""), y: Axis::linear(y, unit), series }
}

/// What a reader should know of all of them.
pub(super) fn notes() -> Vec<String> {
    vec![
        "a model of hardware, no code of ours runs in it; rows and points that say `fitted` are \
         those that its parameters were chosen for (docs/studies.md): no target is made of them, \
         nor of what follows from one of those parameters alone"
            .to_owned(),
    ]
}
