//! Families of studies, each under a command of its own: as tables, JSON and drawings.
//!
//! | file | what it does |
//! |---|---|
//! | `args` | a subcommand for each study, a flag for each parameter |
//! | `table` | what people read |
//! | `json` | what programs read |
//! | `svg` | what there is to see |

mod args;
mod json;
mod svg;
mod table;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tempfile::NamedTempFile;
use towpath_lab::studies::{Progress as Watcher, Report, Runner, Study, StudyError};

use super::error::{CliError, FileVerb};
use super::interrupt::{Interrupt, Interrupted};
use super::progress::Progress;
use super::{print_json, print_text};
use args::StudyArgs;
pub(crate) use args::{Family, FamilyArgs};

/// Lists the studies, or runs one and prints what it found.
pub(crate) fn run<F: Family>(args: &FamilyArgs<F>, interrupt: &Interrupt) -> Result<(), CliError> {
    let Some(asked) = &args.study else { return list::<F>(args.json) };
    // A place that cannot be written to is better known before a minute has gone.
    let drawing = asked.svg.as_deref().map(begin_drawing).transpose()?;
    let report = ask(asked, interrupt)?;
    if asked.json || args.json {
        print_json(&json::ReportJson::of(asked.study, &report))?;
    } else {
        print_text(&table::show(asked.study, &report, &asked.command(&report)))?;
    }
    if let (Some(drawing), Some(path)) = (drawing, &asked.svg) {
        end_drawing(drawing, path, &svg::draw(asked.study, &report, &asked.command(&report)))?;
    }
    let missed = report.claims.iter().filter(|claim| !claim.is_met()).count();
    if missed == 0 { Ok(()) } else { Err(CliError::Missed { missed, of: report.claims.len() }) }
}

fn list<F: Family>(as_json: bool) -> Result<(), CliError> {
    if as_json {
        return print_json(&json::list(F::STUDIES));
    }
    print_text(&table::list::<F>())
}

/// Shows how many runs are done, and stops when somebody asks to.
struct Watch<'a> {
    progress: Mutex<Progress>,
    interrupt: &'a Interrupt,
}

impl Watcher for Watch<'_> {
    fn at(&self, done: usize, all: usize) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.of(all as u64);
        progress.at(done as u64);
    }

    fn stop(&self) -> bool {
        self.interrupt.check().is_err()
    }
}

fn ask<F: Family>(asked: &StudyArgs<F>, interrupt: &Interrupt) -> Result<Report, CliError> {
    let progress = Mutex::new(Progress::runs(asked.study.name));
    let watch = Watch { progress, interrupt };
    let runner = Runner::new(asked.threads, &watch);
    let run: &Study = asked.study;
    (run.run)(&asked.params, &runner).map_err(|error| match error {
        StudyError::Stopped => Interrupted.into(),
        error => CliError::Study { study: run.name, source: error },
    })
}

fn begin_drawing(path: &Path) -> Result<NamedTempFile, CliError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    NamedTempFile::new_in(dir.unwrap_or(Path::new(".")))
        .map_err(|error| CliError::file(FileVerb::Create, path, error))
}

/// Puts the drawing in its place whole, in place of what was there.
fn end_drawing(mut drawing: NamedTempFile, path: &Path, text: &str) -> Result<(), CliError> {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let failed = |error| CliError::file(FileVerb::Write, path, error);
    drawing.write_all(text.as_bytes()).map_err(failed)?;
    // Temporary files are for their owner alone; a drawing is to be shown.
    let readable = std::fs::Permissions::from_mode(0o644);
    drawing.as_file().set_permissions(readable).map_err(failed)?;
    drawing.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
