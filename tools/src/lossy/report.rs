//! What the wire did, as a table for people and as JSON.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use towpath_base::Nanos;

use super::bridge::Tally;
use super::error::LossyError;
use crate::cli::bytes::show_count;

/// One run. Fields are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) seed: u64,
    /// How long the wire was there.
    pub(super) seconds: f64,
    pub(super) ab: Direction,
    pub(super) ba: Direction,
    pub(super) exit: Exits,
}

/// Exit codes of the commands, 128 and the signal where one ended them; absent where there was no
/// command, or this program ended it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Exits {
    pub(super) a: Option<u8>,
    pub(super) b: Option<u8>,
}

/// What happened to the frames of one direction.
///
/// `frames` and `duplicated` are together `passed`, `lost`, `lost_in_bursts`, `lost_down`,
/// `queue_dropped`, `too_large`, `overflowed`, `refused` and `in_wire`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Direction {
    /// Frames that came in.
    frames: u64,
    bytes: u64,
    /// Frames that came out, copies too.
    passed: u64,
    passed_bytes: u64,
    lost: u64,
    lost_in_bursts: u64,
    lost_down: u64,
    queue_dropped: u64,
    too_large: u64,
    duplicated: u64,
    corrupted: u64,
    reordered: u64,
    delayed: u64,
    late: u64,
    /// Dropped because the wire held too much already: a limit of this program.
    overflowed: u64,
    /// Not taken by the interface that they came out to: damaged ones of fewer than 14 bytes.
    refused: u64,
    /// Still in the wire at the end.
    in_wire: u64,
    /// Dropped by the interface before they came in, for this program was too slow.
    unread: u64,
    /// The longest time between two frames that came out, one after the other.
    quiet_ms: u64,
}

impl Direction {
    pub(super) fn of(tally: &Tally, unread: u64) -> Self {
        let (wire, faults) = (&tally.wire, &tally.wire.faults);
        Self {
            frames: wire.offered,
            bytes: wire.offered_bytes,
            passed: faults.passed.saturating_sub(tally.refused),
            passed_bytes: wire.passed_bytes,
            lost: faults.dropped_random,
            lost_in_bursts: faults.dropped_burst,
            lost_down: wire.lost_down,
            queue_dropped: wire.queue_dropped,
            too_large: wire.too_large,
            duplicated: faults.duplicated,
            corrupted: faults.corrupted,
            reordered: faults.reordered,
            delayed: faults.delayed,
            late: faults.late,
            overflowed: faults.dropped_overflow,
            refused: tally.refused,
            in_wire: wire.in_wire(),
            unread,
            quiet_ms: tally.quiet.0 / 1_000_000,
        }
    }
}

type Row = (&'static str, fn(&Direction) -> u64);

const ROWS: [Row; 19] = [
    ("frames", |way| way.frames),
    ("  bytes", |way| way.bytes),
    ("passed", |way| way.passed),
    ("  bytes", |way| way.passed_bytes),
    ("lost", |way| way.lost),
    ("lost in bursts", |way| way.lost_in_bursts),
    ("lost while down", |way| way.lost_down),
    ("queue full", |way| way.queue_dropped),
    ("above the MTU", |way| way.too_large),
    ("duplicated", |way| way.duplicated),
    ("corrupted", |way| way.corrupted),
    ("reordered", |way| way.reordered),
    ("delayed", |way| way.delayed),
    ("late", |way| way.late),
    ("held too many", |way| way.overflowed),
    ("too short", |way| way.refused),
    ("in the wire", |way| way.in_wire),
    ("not read in time", |way| way.unread),
    ("longest quiet, ms", |way| way.quiet_ms),
];

/// Rows that are shown even where both directions have nothing.
const ALWAYS: usize = 5;

impl Report {
    /// The table: what befell no frame is left out.
    pub(super) fn table(&self) -> String {
        let mut text = format!("{:<18}{:>16}{:>16}\n", "", "a to b", "b to a");
        for (at, (what, of)) in ROWS.into_iter().enumerate() {
            let (ab, ba) = (of(&self.ab), of(&self.ba));
            if at < ALWAYS || ab + ba > 0 {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{what:<18}{:>16}{:>16}", show_count(ab), show_count(ba));
            }
        }
        let _ = writeln!(text, "{:.1} s, seed {}", self.seconds, self.seed);
        text
    }

    /// Writes JSON to `file`, or to stdout.
    pub(super) fn write_json(&self, file: Option<&Path>) -> Result<(), LossyError> {
        let failed = |source: io::Error| LossyError::Report {
            path: file.unwrap_or(Path::new("stdout")).to_owned(),
            source,
        };
        let mut line = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        match file {
            Some(path) => fs::write(path, &line),
            None => io::stdout().lock().write_all(&line),
        }
        .map_err(failed)
    }
}

/// One line that says how it goes: rates since the line before, shares of all frames so far.
pub(super) fn progress(now: &[Tally; 2], before: &[Tally; 2], span: Nanos) -> String {
    let mut line = String::new();
    for (at, way) in ["a to b", "b to a"].into_iter().enumerate() {
        let (wire, past) = (&now[at].wire, &before[at].wire);
        let bits = (wire.passed_bytes - past.passed_bytes) as f64 * 8.0;
        let gone = wire.too_large + wire.lost_down + wire.queue_dropped + wire.faults.lost();
        let share = 100.0 * gone as f64 / wire.offered.max(1) as f64;
        let rate = bits / span.as_secs_f64().max(1e-9) / 1e6;
        let gap = if at == 0 { "" } else { "   " };
        let frames = show_count(wire.offered);
        let _ = write!(line, "{gap}{way}: {rate:.1} Mb/s, {frames} frames, {share:.2}% dropped");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut tally = Tally::default();
        tally.wire.offered = 1_234;
        tally.wire.faults.taken = 1_234;
        tally.wire.faults.passed = 1_200;
        tally.wire.faults.dropped_random = 34;
        let ab = Direction::of(&tally, 0);
        Report { seed: 7, seconds: 1.25, ab, ba: Direction::default(), exit: Exits::default() }
    }

    #[test]
    fn the_table_leaves_out_what_befell_no_frame() {
        let table = report().table();
        assert!(table.contains("1,234"), "{table}");
        assert!(!table.contains("corrupted"), "{table}");
        assert!(table.contains("seed 7"), "{table}");
    }

    #[test]
    fn fields_of_the_json_stay() {
        let json = serde_json::to_value(report()).expect("an object");
        let names = |value: &serde_json::Value| {
            value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&json), "ab ba exit seconds seed");
        assert_eq!(
            names(&json["ab"]),
            "bytes corrupted delayed duplicated frames in_wire late lost lost_down lost_in_bursts \
             overflowed passed passed_bytes queue_dropped quiet_ms refused reordered too_large \
             unread"
        );
        assert_eq!(json["ab"]["in_wire"], 0);
        assert_eq!(json["exit"]["b"], serde_json::Value::Null);
    }
}
