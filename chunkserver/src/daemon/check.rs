//! The command that looks at a store, and repairs it, while no server has it.

use std::io::{self, Write as _};
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::error::DaemonError;
use super::stopped::Stores;
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
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct StoreCheck {
    #[command(flatten)]
    stores: Stores,
    /// Read each slice too, and check it against its checksum.
    #[arg(long)]
    data: bool,
    /// Keep all that is whole, and write what is damaged anew: copy the disk file first.
    #[arg(long)]
    repair: bool,
    /// With --repair: serve chunks of which a change is lost as they are, old or short.
    #[arg(long, requires = "repair")]
    accept_loss: bool,
}

impl StoreCheck {
    /// Checks, and repairs if that is wanted; prints what was found.
    ///
    /// # Errors
    /// [`DaemonError::StoreDamaged`] when something is damaged or lost, and whatever keeps the
    /// store from being read; of several [`DaemonError::Stores`].
    pub(super) fn run(&self) -> Result<(), DaemonError> {
        let say = |why: &str| writeln!(io::stdout(), "{why}");
        self.stores.each(|dir| self.run_in(dir), say)
    }

    fn run_in(&self, dir: &Path) -> Result<(), DaemonError> {
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
        if self.stores.json {
            writeln!(out, "{}", object(dir, report, repaired))?;
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

fn object(dir: &Path, report: &CheckReport, repaired: Option<&CheckReport>) -> Value {
    let parts = |report: &CheckReport| report.damage.iter().map(part).collect::<Value>();
    let lost = report.lost.iter().map(|run| {
        json!({ "chunk": run.chunk.to_string(), "first_slice": run.first, "slices": run.count })
    });
    let bad_slices = report
        .bad_slices
        .iter()
        .map(|bad| json!({ "chunk": bad.chunk.to_string(), "slice": bad.slice, "text": bad.why }));
    json!({
        "dir": dir.display().to_string(),
        "whole": report.is_whole(),
        "takes_changes": report.takes_changes,
        "generation": report.generation,
        "chunks": report.chunks,
        "slices": report.slices,
        "records": report.records,
        "torn_tail_bytes": report.torn_tail_bytes,
        "slices_checked": report.slices_checked,
        "damage": parts(report),
        "suspect": report.suspect.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "lost": lost.collect::<Value>(),
        "bad_slices": bad_slices.collect::<Value>(),
        "repair": repaired.map(|before| json!({ "was_damaged": parts(before) })),
    })
}

fn part(damage: &Damage) -> Value {
    let mut part = json!({
        "kind": damage.kind.name(),
        "file": damage.file,
        "offset": damage.offset,
        "text": damage.to_string(),
    });
    if let DamageKind::LostRecords(lost) = &damage.kind {
        let named = lost
            .named
            .iter()
            .map(|(record, chunk)| json!({ "record": record, "chunk": chunk.to_string() }));
        part["lost_records"] = json!({
            "first": lost.first,
            "last": lost.last,
            "named": named.collect::<Value>(),
            "unnamed": lost.unnamed(),
        });
    }
    part
}
