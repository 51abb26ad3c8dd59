//! The command that looks at a store, and repairs it, while no server has it.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};
use serde::Serialize;

use super::error::DaemonError;
use super::stopped::{cannot, dirs_arg, dirs_of, each, flag};
use super::store::{open_disk, repair_config};
use crate::store::core::{CoreRepairError, check_core, repair_core};
use crate::store::{CheckReport, Damage, DamageKind};

const AFTER_HELP: &str = "\
Without --repair nothing is changed. The server must not run.

A store has two generations, and the log tells what changed since the older one began: either of
them with the log gives the same chunks. --repair takes the newest generation that is whole, applies
the log, and writes a sound one over the other. Where neither is whole it takes what can be read of
the newest, and all chunks are suspect. Of several stores each is done by itself, whatever becomes
of the others.

Exit codes, of several stores the highest one:
  0    nothing is damaged and nothing lost
  1    something is, or was lost before a repair: what is printed names all of it
  2    wrong flag
  4    the store cannot be read (no store, locked, of a newer version), or not repaired";

/// What `check` is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCheck {
    /// The directory of each store.
    pub dirs: Vec<PathBuf>,
    /// Read each slice as well.
    pub data: bool,
    /// Repair what is damaged.
    pub repair: bool,
    /// Serve chunks of which a change is lost as they are.
    pub accept_loss: bool,
    /// Print one JSON object for each store.
    pub json: bool,
}

/// Name of the command.
pub(super) const NAME: &str = "check";

pub(super) fn command() -> Command {
    Command::new(NAME)
        .about("Says what of a store is whole and what is not, and repairs it")
        .arg(dirs_arg())
        .arg(flag("data", "read each slice too, and check it against its checksum"))
        .arg(flag(
            "repair",
            "keep all that is whole, and write what is damaged anew: copy the disk file first",
        ))
        .arg(
            flag(
                "accept-loss",
                "with --repair: serve chunks of which a change is lost as they are, old or short",
            )
            .requires("repair"),
        )
        .arg(flag("json", "print one JSON object for each store, on a line"))
        .after_help(AFTER_HELP)
}

impl StoreCheck {
    pub(super) fn of(matches: &ArgMatches) -> Self {
        Self {
            dirs: dirs_of(matches),
            data: matches.get_flag("data"),
            repair: matches.get_flag("repair"),
            accept_loss: matches.get_flag("accept-loss"),
            json: matches.get_flag("json"),
        }
    }

    /// Checks, and repairs if that is wanted; prints what was found.
    ///
    /// # Errors
    /// [`DaemonError::StoreDamaged`] when something is damaged or lost, and whatever keeps the
    /// store from being read; of several [`DaemonError::Stores`].
    pub fn run(&self) -> Result<(), DaemonError> {
        let say = |dir: &Path, why: &str| writeln!(io::stdout(), "{}", cannot(dir, why, self.json));
        each(&self.dirs, |dir| self.run_in(dir), say)
    }

    fn run_in(&self, dir: &Path) -> Result<(), DaemonError> {
        if !dir.is_dir() {
            return Err(DaemonError::NotADirectory(dir.into()));
        }
        let repaired = if self.repair { Some(self.repair(dir)?) } else { None };
        let report = self.check(dir)?;
        self.print(dir, &report, repaired.as_ref()).map_err(DaemonError::Ready)?;
        if report.is_whole() { Ok(()) } else { Err(DaemonError::StoreDamaged(dir.into())) }
    }

    fn check(&self, dir: &Path) -> Result<CheckReport, DaemonError> {
        let (mut disk, _) = open_disk(dir, None)?;
        check_core(&mut *disk, self.data)
            .map_err(|source| DaemonError::Store { path: dir.into(), source })
    }

    fn repair(&self, dir: &Path) -> Result<CheckReport, DaemonError> {
        let (disk, _) = open_disk(dir, None)?;
        repair_core(disk, &repair_config(), self.accept_loss).map_err(|error| match error {
            CoreRepairError::Open(source) => DaemonError::Store { path: dir.into(), source },
            source => DaemonError::NotRepaired { path: dir.into(), source },
        })
    }

    fn print(
        &self,
        dir: &Path,
        report: &CheckReport,
        repaired: Option<&CheckReport>,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            serde_json::to_writer(&mut out, &object(dir, report, repaired))?;
            writeln!(out)?;
        } else {
            out.write_all(text(dir, report, repaired).as_bytes())?;
        }
        out.flush()
    }
}

fn text(dir: &Path, report: &CheckReport, repaired: Option<&CheckReport>) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        text.push_str(&words);
        text.push('\n');
    };
    for damage in repaired.iter().flat_map(|before| &before.damage) {
        line(format!("was damaged: {damage}"));
    }
    report.damage.iter().for_each(|damage| line(format!("damaged: {damage}")));
    for chunk in &report.suspect {
        line(format!("suspect: a change of chunk {chunk} is lost, and nothing of it is served"));
    }
    for run in &report.lost {
        let last = run.first + run.count - 1;
        line(format!("lost: slices {} to {last} of chunk {}", run.first, run.chunk));
    }
    report.bad_slices.iter().for_each(|bad| line(format!("damaged: {}", bad.why)));
    let CheckReport { generation, chunks, slices, slices_checked, .. } = report;
    let verdict = match (report.is_whole(), report.takes_changes, repaired.is_some()) {
        (true, ..) => "whole",
        (_, false, _) => "damaged: a server opens it and takes no changes until `--repair`",
        (_, _, true) => "sound but for what is named above",
        _ => "damaged: a server opens it, and serves all but what is named above",
    };
    line(format!(
        "{}: generation {generation}, {chunks} chunks, {slices} slices ({slices_checked} read): \
         {verdict}",
        dir.display()
    ));
    text
}

#[derive(Serialize)]
struct Object {
    dir: String,
    whole: bool,
    takes_changes: bool,
    generation: u64,
    chunks: u64,
    slices: u64,
    records: u64,
    torn_tail_bytes: u64,
    slices_checked: u64,
    damage: Vec<Part>,
    suspect: Vec<String>,
    lost: Vec<Run>,
    bad_slices: Vec<Bad>,
    repair: Option<Repair>,
}

#[derive(Serialize)]
struct Part {
    kind: &'static str,
    file: String,
    offset: u64,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_records: Option<Lost>,
}

#[derive(Serialize)]
struct Lost {
    first: u64,
    last: u64,
    named: Vec<Named>,
    unnamed: u64,
}

#[derive(Serialize)]
struct Named {
    record: u64,
    chunk: String,
}

#[derive(Serialize)]
struct Run {
    chunk: String,
    first_slice: u64,
    slices: u64,
}

#[derive(Serialize)]
struct Bad {
    chunk: String,
    slice: u64,
    text: String,
}

#[derive(Serialize)]
struct Repair {
    was_damaged: Vec<Part>,
}

fn object(dir: &Path, report: &CheckReport, repaired: Option<&CheckReport>) -> Object {
    Object {
        dir: dir.display().to_string(),
        whole: report.is_whole(),
        takes_changes: report.takes_changes,
        generation: report.generation,
        chunks: report.chunks,
        slices: report.slices,
        records: report.records,
        torn_tail_bytes: report.torn_tail_bytes,
        slices_checked: report.slices_checked,
        damage: report.damage.iter().map(part).collect(),
        suspect: report.suspect.iter().map(ToString::to_string).collect(),
        lost: report
            .lost
            .iter()
            .map(|run| Run {
                chunk: run.chunk.to_string(),
                first_slice: run.first,
                slices: run.count,
            })
            .collect(),
        bad_slices: report
            .bad_slices
            .iter()
            .map(|bad| Bad {
                chunk: bad.chunk.to_string(),
                slice: bad.slice,
                text: bad.why.clone(),
            })
            .collect(),
        repair: repaired
            .map(|before| Repair { was_damaged: before.damage.iter().map(part).collect() }),
    }
}

fn part(damage: &Damage) -> Part {
    let lost_records = match &damage.kind {
        DamageKind::LostRecords(lost) => Some(Lost {
            first: lost.first,
            last: lost.last,
            named: lost
                .named
                .iter()
                .map(|(record, chunk)| Named { record: *record, chunk: chunk.to_string() })
                .collect(),
            unnamed: lost.unnamed(),
        }),
        _ => None,
    };
    Part {
        kind: damage.kind.name(),
        file: damage.file.clone(),
        offset: damage.offset,
        text: damage.to_string(),
        lost_records,
    }
}
