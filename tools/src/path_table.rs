//! How the paths of a link stand, as a table: for `towpath paths`, and at the end of a `tow_*` run.

use crate::cli::bytes::{show_count, show_size};
use crate::columns::columns;
use towpath_status::PathStatus;

const HEAD: [&str; 17] = [
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
    "mtu",
    "why",
    "doubts",
    "quarantines",
    "moves",
    "anew",
    "acks",
];

/// A head, and a line for each path.
pub(crate) fn path_table(paths: &[PathStatus]) -> String {
    columns(HEAD, &[1, 2, 11, 16], &paths.iter().map(line).collect::<Vec<_>>())
}

fn line(path: &PathStatus) -> [String; 17] {
    let loss = if path.sent == 0 { 0.0 } else { 100.0 * path.lost as f64 / path.sent as f64 };
    [
        path.index.to_string(),
        path.carrier.to_string(),
        path.state.to_string(),
        format!("{:.1}", path.for_ns as f64 / 1e9),
        path.qp_num.to_string(),
        path.source_port.to_string(),
        us(path.rtt_ns),
        show_count(path.sent),
        format!("{loss:.2}"),
        show_size(path.in_flight_bytes),
        show_count(path.mtu.into()),
        String::from(why(path)),
        show_count(path.doubts),
        show_count(path.quarantines),
        show_count(path.moves),
        show_count(path.renewals),
        String::from(if path.carries_acks { "here" } else { "" }),
    ]
}

/// Why the packets of a path are as long as they are, or that it is not known yet.
fn why(path: &PathStatus) -> &str {
    match path.mtu_phase.as_str() {
        found @ ("base" | "searching") => found,
        _ => &path.mtu_reason,
    }
}

/// Microseconds, with a dash for what is not known.
pub(crate) fn us(ns: Option<u64>) -> String {
    ns.map_or_else(|| String::from("-"), |ns| format!("{:.1}", ns as f64 / 1e3))
}
