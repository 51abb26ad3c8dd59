//! `towpath scrub` and `towpath info`.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use towpath_fastpath::control::{DamagedSlice, DiskInfo, InfoReply, InterferenceInfo};
use towpath_fastpath::{ChunkId, SLICE_BYTES};

use super::open;
use crate::cli::args::ServerArgs;
use crate::cli::bytes::{show_count, show_size};
use crate::cli::error::CliError;
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::Progress;
use crate::cli::{print_json, print_text};

/// Damaged slices that are named; the rest is counted.
const NAMED_MAX: usize = 10_000;

/// The JSON object of `towpath scrub`.
#[derive(Debug, Default, Serialize)]
struct ScrubTotal {
    slices: u64,
    bytes: u64,
    damaged: u64,
    unreadable: u64,
    damaged_slices: Vec<DamagedReport>,
}

#[derive(Debug, Serialize)]
struct DamagedReport {
    chunk: String,
    slice: u64,
    file: String,
    offset: u64,
}

impl From<DamagedSlice> for DamagedReport {
    fn from(found: DamagedSlice) -> Self {
        let DamagedSlice { chunk, slice, file, offset } = found;
        Self { chunk: ChunkId::from(chunk).to_string(), slice, file, offset }
    }
}

/// Has the server check every slice once.
pub(crate) fn scrub(args: &ServerArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let mut session = open(args, None, interrupt)?;
    let mut before = session.info()?;
    let mut links = session.links_again();
    let mut progress = Progress::bytes("scrub", before.live_bytes);
    let mut total = ScrubTotal::default();
    // The server goes round and round: what was left of an earlier round comes first, then one
    // whole round from the first slice on.
    let mut rounds = 0;
    while rounds < 2 {
        let step = session.scrub_step(0)?;
        if links != session.links_again() {
            // A server that was started again begins anew as well.
            (links, rounds, total) = (session.links_again(), 0, ScrubTotal::default());
            before = session.info()?;
            continue;
        }
        if rounds == 0 && step.pass_done {
            rounds = 1;
            total = ScrubTotal::default();
            continue;
        }
        total.slices += step.slices;
        total.bytes += step.bytes;
        total.damaged += step.damaged_count;
        total.unreadable += step.unreadable_count;
        let room = NAMED_MAX - total.damaged_slices.len();
        total.damaged_slices.extend(step.damaged.into_iter().take(room).map(Into::into));
        progress.at(total.bytes);
        rounds += u32::from(step.pass_done);
    }
    drop(progress);
    let expected = expected_slices(&before, &session.info()?);
    session.close()?;
    if args.link.json {
        print_json(&total)?;
    } else {
        print_text(&total.text())?;
    }
    match total.damaged + total.unreadable {
        0 if expected.contains(&total.slices) => Ok(()),
        0 => Err(CliError::ScrubShared { checked: total.slices, live: *expected.start() }),
        damaged => Err(CliError::Damaged { damaged }),
    }
}

/// How many slices one whole round checks between two looks at a server: those that were there all
/// the time at least, those that were there at any time at most. The server has one place where
/// scrubs go on, so two at a time share their rounds, and each counts too few or too many.
fn expected_slices(before: &InfoReply, after: &InfoReply) -> RangeInclusive<u64> {
    let slices = |bytes: u64| bytes / SLICE_BYTES as u64;
    // A write touches two slices that it does not fill; one under way is not counted yet.
    let writes = after.writes.saturating_sub(before.writes);
    let waiting = after.requests_under_way * (slices(after.request_bytes_max) + 2);
    let written = after.write_bytes.saturating_sub(before.write_bytes);
    // The look itself is under way; without writes the count is exact.
    let waiting = if writes == 0 { 0 } else { waiting };
    let fresh = slices(written) + 2 * writes + waiting;
    let (before, after) = (slices(before.live_bytes), slices(after.live_bytes));
    after.saturating_sub(fresh).min(before)..=(before + fresh).max(after)
}

impl ScrubTotal {
    fn text(&self) -> String {
        let mut text = format!(
            "{} slices checked ({}), {} damaged, {} unreadable\n",
            show_count(self.slices),
            show_size(self.bytes),
            show_count(self.damaged),
            show_count(self.unreadable)
        );
        for DamagedReport { chunk, slice, file, offset } in &self.damaged_slices {
            // Writing to a string does not fail.
            let _ = writeln!(text, "chunk {chunk} slice {slice} in {file} at offset {offset}");
        }
        text
    }
}

/// The JSON object of `towpath info`.
#[derive(Debug, Serialize)]
struct InfoReport {
    program_version: String,
    protocol_version: u32,
    request_bytes_max: u64,
    chunks: u64,
    live_bytes: u64,
    free_bytes: u64,
    capacity_bytes: u64,
    resident_bytes: u64,
    resident_bytes_max: u64,
    writes: u64,
    write_bytes: u64,
    reads: u64,
    read_bytes: u64,
    commits: u64,
    slices_damaged: u64,
    wire_corrupt: u64,
    requests_under_way: u64,
    uptime_ms: u64,
    read_only: bool,
    disks: Vec<DiskReport>,
    interference: Option<InterferenceReport>,
}

/// What interference control does, and what it sees.
#[derive(Debug, Serialize)]
struct InterferenceReport {
    mean_us: u64,
    p99_us: u64,
    seen_mean_us: f64,
    seen_p99_us: f64,
    windows: u64,
    slow_windows: u64,
    cuts: u64,
    gives: u64,
    waits: u64,
    silver_bytes_per_s: Option<u64>,
    copper_bytes_per_s: Option<u64>,
}

impl From<InterferenceInfo> for InterferenceReport {
    fn from(info: InterferenceInfo) -> Self {
        Self {
            mean_us: info.mean_us,
            p99_us: info.p99_us,
            seen_mean_us: info.seen_mean_ns as f64 / 1e3,
            seen_p99_us: info.seen_p99_ns as f64 / 1e3,
            windows: info.windows,
            slow_windows: info.slow_windows,
            cuts: info.cuts,
            gives: info.gives,
            waits: info.waits,
            silver_bytes_per_s: info.silver_rate,
            copper_bytes_per_s: info.copper_rate,
        }
    }
}

impl InterferenceReport {
    fn text(&self) -> String {
        let bound = match self.copper_bytes_per_s {
            Some(bytes) => format!("Copper writes {} a second at most", show_size(bytes)),
            None => String::from("nobody is bound"),
        };
        let Self { seen_mean_us, seen_p99_us, .. } = self;
        format!("reads take {seen_mean_us:.0} us, p99 {seen_p99_us:.0} us; {bound}")
    }
}

#[derive(Debug, Serialize)]
struct DiskReport {
    name: String,
    state: &'static str,
    reason: String,
    chunks: u64,
    live_bytes: u64,
    free_bytes: u64,
    capacity_bytes: u64,
    scrub_rate_bytes: u64,
    scrub_checked: u64,
    scrub_expected: u64,
    scrub_last_pass_s: u64,
}

impl From<DiskInfo> for DiskReport {
    fn from(disk: DiskInfo) -> Self {
        let state = match disk.state {
            0 => "serving",
            1 => "read-only",
            _ => "failed",
        };
        Self {
            name: disk.name,
            state,
            reason: disk.reason,
            chunks: disk.chunks,
            live_bytes: disk.live_bytes,
            free_bytes: disk.free_bytes,
            capacity_bytes: disk.capacity_bytes,
            scrub_rate_bytes: disk.scrub_rate_bytes,
            scrub_checked: disk.scrub_checked,
            scrub_expected: disk.scrub_expected,
            scrub_last_pass_s: disk.scrub_last_pass_s,
        }
    }
}

impl DiskReport {
    fn text(&self) -> String {
        let Self { name, state, reason, chunks, live_bytes, free_bytes, .. } = self;
        let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let (chunks, live) = (show_count(*chunks), show_size(*live_bytes));
        format!("{name}: {state}{why}, {chunks} chunks, {live}, {} free", show_size(*free_bytes))
    }

    fn scrub(&self) -> String {
        if self.scrub_rate_bytes == 0 {
            return String::from("off");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let last = match self.scrub_last_pass_s {
            0 => String::from("no whole pass yet"),
            ended => {
                format!("last whole pass {} h ago", show_count(now.saturating_sub(ended) / 3600))
            }
        };
        let pass = match self.scrub_checked {
            0 => String::from("between passes"),
            checked => {
                let share = checked.saturating_mul(100) / self.scrub_expected.max(checked);
                format!("{share} % of a pass")
            }
        };
        format!("{}/s, {pass}, {last}", show_size(self.scrub_rate_bytes))
    }
}

/// Shows what a server is and how it is.
pub(crate) fn info(args: &ServerArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let mut session = open(args, None, interrupt)?;
    let info = session.info()?;
    session.close()?;
    let report = InfoReport::from(info);
    if args.link.json { print_json(&report) } else { print_text(&report.text()) }
}

impl From<InfoReply> for InfoReport {
    fn from(info: InfoReply) -> Self {
        Self {
            program_version: info.program_version,
            protocol_version: info.protocol_version,
            request_bytes_max: info.request_bytes_max,
            chunks: info.chunks,
            live_bytes: info.live_bytes,
            free_bytes: info.free_bytes,
            capacity_bytes: info.capacity_bytes,
            resident_bytes: info.resident_bytes,
            resident_bytes_max: info.resident_bytes_max,
            writes: info.writes,
            write_bytes: info.write_bytes,
            reads: info.reads,
            read_bytes: info.read_bytes,
            commits: info.commits,
            slices_damaged: info.slices_damaged,
            wire_corrupt: info.wire_corrupt,
            requests_under_way: info.requests_under_way,
            uptime_ms: info.uptime_ms,
            read_only: info.read_only,
            disks: info.disks.into_iter().map(DiskReport::from).collect(),
            interference: info.interference.map(|found| InterferenceReport::from(*found)),
        }
    }
}

impl InfoReport {
    fn text(&self) -> String {
        let state = match self.disks.iter().filter(|disk| disk.state != "serving").count() {
            _ if self.read_only => String::from("read-only: no disk takes changes"),
            0 => String::from("serving"),
            not => format!("serving, but for {not} of {} disks", self.disks.len()),
        };
        let capacity = if self.capacity_bytes == u64::MAX {
            String::from("as much as its file system holds")
        } else {
            format!("{}, {} free", show_size(self.capacity_bytes), show_size(self.free_bytes))
        };
        let resident = match self.resident_bytes_max {
            0 => String::from("none"),
            max => format!("{} of {}", show_size(self.resident_bytes), show_size(max)),
        };
        let rows = [
            ("state", state),
            ("up for", format!("{} s", show_count(self.uptime_ms / 1000))),
            ("version", format!("{} (protocol {})", self.program_version, self.protocol_version)),
            ("chunks", show_count(self.chunks)),
            ("stored", show_size(self.live_bytes)),
            ("capacity", capacity),
            ("resident in memory", resident),
            ("writes", format!("{}, {}", show_count(self.writes), show_size(self.write_bytes))),
            ("reads", format!("{}, {}", show_count(self.reads), show_size(self.read_bytes))),
            ("commits", show_count(self.commits)),
            ("damage found", times(self.slices_damaged)),
            ("damaged on the way", times(self.wire_corrupt)),
        ];
        let disks = self.disks.iter().enumerate();
        let disks = disks.flat_map(|(number, disk)| {
            [
                (format!("disk {number}"), disk.text()),
                (format!("scrub of disk {number}"), disk.scrub()),
            ]
        });
        let rows = rows.into_iter().map(|(what, value)| (String::from(what), value)).chain(disks);
        let control = self.interference.as_ref();
        let control = control.map(|found| (String::from("interference"), found.text()));
        let rows = rows.chain(control);
        rows.fold(String::new(), |text, (what, value)| text + &format!("{what:20}{value}\n"))
    }
}

/// How often something was seen. A slice that is read three times is found damaged three times.
fn times(count: u64) -> String {
    format!("{} {}", show_count(count), if count == 1 { "time" } else { "times" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_another_scrub_shared_is_told_from_one_that_changes_met() {
        let look = |live: u64, writes: u64| InfoReply {
            live_bytes: live * SLICE_BYTES as u64,
            writes,
            write_bytes: writes * 4 * SLICE_BYTES as u64,
            ..InfoReply::default()
        };
        assert_eq!(expected_slices(&look(1000, 0), &look(1000, 0)), 1000..=1000, "nothing changed");
        assert_eq!(expected_slices(&look(1000, 0), &look(900, 0)), 900..=1000, "some deleted");
        assert_eq!(expected_slices(&look(1000, 7), &look(1040, 17)), 980..=1060, "some written");
        // Written and deleted: 60 may be new, so 940 of the old may be left at the end.
        assert_eq!(expected_slices(&look(1000, 0), &look(1000, 10)), 940..=1060);
    }
}
