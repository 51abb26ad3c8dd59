//! How the paths of a link stand, as a table: for `towpath paths`, and at the end of a `tow_*` run.

use crate::cli::bytes::{show_count, show_size};
use std::fmt::Write as _;
use towpath_status::PathStatus;

/// A head, and a line for each path.
pub(crate) fn path_table(paths: &[PathStatus]) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = writeln!(
        text,
        "{:>4} {:5}{:9}{:>10}{:>8}{:>8}{:>10}{:>12}{:>8}{:>10}{:>8}{:>12}{:>7}{:>6} acks",
        "path",
        "over",
        "state",
        "for s",
        "qp",
        "port",
        "rtt us",
        "sent",
        "loss %",
        "flight",
        "doubts",
        "quarantines",
        "moves",
        "anew"
    );
    for path in paths {
        text += &line(path);
    }
    text
}

fn line(path: &PathStatus) -> String {
    let loss = if path.sent == 0 { 0.0 } else { 100.0 * path.lost as f64 / path.sent as f64 };
    let text = format!(
        "{:>4} {:5}{:9}{:>10.1}{:>8}{:>8}{:>10}{:>12}{loss:>8.2}{:>10}{:>8}{:>12}{:>7}{:>6} {}",
        path.index,
        path.carrier,
        path.state,
        path.for_ns as f64 / 1e9,
        path.qp_num,
        path.source_port,
        us(path.rtt_ns),
        show_count(path.sent),
        show_size(path.in_flight_bytes),
        show_count(path.doubts),
        show_count(path.quarantines),
        show_count(path.moves),
        show_count(path.renewals),
        if path.carries_acks { "here" } else { "" },
    );
    text.trim_end().to_owned() + "\n"
}

/// Microseconds, with a dash for what is not known.
pub(crate) fn us(ns: Option<u64>) -> String {
    ns.map_or_else(|| String::from("-"), |ns| format!("{:.1}", ns as f64 / 1e3))
}
