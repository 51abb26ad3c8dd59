//! What there is to see: the plots of a study as one SVG.

use towpath_lab::studies::{Clock, Report, Study};

/// Draws all plots of a report, with title, legend, notes, and how to get the same again.
pub(super) fn draw(study: &Study, report: &Report, command: &str) -> String {
    towpath_plot::draw(study.what, &report.plots, &caption(study, report, command))
}

/// What a reader should know, whose time the figures are in, and the command; seed and trace only
/// of packets that replay.
fn caption(study: &Study, report: &Report, command: &str) -> Vec<String> {
    let clock = match study.clock {
        Clock::Virtual => "In virtual time",
        Clock::Machine => "Measured in real time on the machine that ran it",
    };
    let replay = if report.runs.is_empty() {
        String::new()
    } else {
        format!("; seed {}, trace {:016x}", report.seed, report.trace_hash())
    };
    let last = format!("{clock}{replay}. {command}");
    let notes = report.notes.iter().map(|note| format!("- {note}"));
    notes.chain([last]).collect()
}

#[cfg(test)]
mod tests;
