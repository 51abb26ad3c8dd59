//! A chunk server beside fio: the same requests to a server and to a file on the same disk, in turn.
//!
//! | file | contents |
//! |---|---|
//! | `case` | the cases: which requests, where, beside what |
//! | `rig` | one measurement: a server or fio, on a fresh or an aged store |
//! | `server` | a chunk server with its default settings |
//! | `fio` | fio on a file and on nbdkit |
//! | `idle` | what a server without a client uses |
//! | `seen` | what one measurement brought |
//! | `rounds` | all measurements: figures, table, drawing |

mod case;
mod fio;
mod idle;
mod rig;
mod rounds;
mod seen;
mod server;

use super::Amount;
use super::figure::Figure;
use super::programs::Programs;
use crate::failure::Failure;
use case::{Case, Measure};
use rig::Rig;
use rounds::Rounds;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How the store is measured.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "store_options")]
#[command(next_help_heading = "Only for --only store")]
pub(super) struct Options {
    /// MiB of the chunk and of fio's file. Before the aged rows each page of the chunk is
    /// overwritten five times in random order.
    #[arg(long, value_name = "MIB", default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    aged_size: u32,
    /// Where the disk is measured: a folder of the file system that is meant [default: the target
    /// directory].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// What does not depend on a case.
pub(super) struct Ground<'a> {
    pub(super) programs: &'a Programs,
    pub(super) against: Option<&'a Path>,
    pub(super) options: &'a Options,
    /// Names of cases; none for all.
    pub(super) cases: &'a [String],
    pub(super) svg: &'a Path,
    /// Whether the table goes to the standard output.
    pub(super) on_stdout: bool,
}

/// Runs the cases round by round, prints the table, writes the drawing, and returns the figures.
pub(super) fn run(ground: &Ground<'_>, amount: Amount) -> Result<Vec<Figure>, Failure> {
    let cases = case::chosen(ground.cases)?;
    if cases.iter().any(Case::needs_fio) {
        fio::check()?;
    }
    let interrupted = Interrupted::on_signals();
    let mut rig = Rig::new(ground, amount.seconds)?;
    let mut rounds = Rounds::new(&cases);
    for round in 1..=amount.rounds {
        for (place, case) in cases.iter().enumerate() {
            for side in case.sides(rig.has()) {
                interrupted.check()?;
                let seen = match case.measure {
                    Measure::Idle => rig.idle()?,
                    Measure::Load(load) => rig.load(case, load, side)?,
                };
                eprintln!(
                    "store: round {round} of {}: {}, {side}: {}",
                    amount.rounds,
                    case.name,
                    seen.line()
                );
                rounds.add(place, side, seen);
            }
        }
    }
    let table = rounds.table() + &rig.not_measured(&cases);
    match ground.on_stdout {
        true => print!("{table}"),
        false => eprint!("{table}"),
    }
    let ran = rig.ran(amount);
    rounds.draw(&ran, ground.svg)?;
    eprintln!("store: {ran}; drawn in {}", ground.svg.display());
    Ok(rounds.figures())
}

/// Whether somebody asked to stop: what runs is ended then, and its folders are removed.
struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    fn on_signals() -> Self {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Where it cannot be taken it ends us as ever, and the folders stay behind.
            let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
        }
        Self(flag)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
    }
}
