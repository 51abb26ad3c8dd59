//! A chunk server beside fio: the same requests to a server and to a file on its disk, in turn.
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
pub(super) mod rig;
mod rounds;
pub(super) mod seen;
pub(super) mod server;

use super::Amount;
use super::figure::Figure;
use super::programs::Programs;
use crate::failure::Failure;
use case::{Case, Has, Measure};
pub(super) use fio::has_nbd;
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
    /// Size of the chunk and of fio's file, as in 256m or 4g. Before the aged rows each page of the
    /// chunk is overwritten five times in random order.
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = parse_mib)]
    aged_size: u32,
    /// Where the disk is measured: a folder of the file system that is meant [default: the target
    /// directory].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A size in MiB: `256m`, `4g`.
fn parse_mib(text: &str) -> Result<u32, &'static str> {
    let lower = text.to_ascii_lowercase();
    let (digits, factor) = match (lower.strip_suffix('m'), lower.strip_suffix('g')) {
        (Some(digits), _) => (digits, 1),
        (_, Some(digits)) => (digits, 1024),
        _ => return Err("a number and m or g, as in 256m"),
    };
    let mib = digits.parse().ok().and_then(|count: u32| count.checked_mul(factor));
    mib.filter(|mib| (16..=1 << 20).contains(mib)).ok_or("16m to 1024g")
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
    let has = Has { nbd: has_nbd(), against: ground.against.is_some() };
    let mut rig = Rig::new(ground, amount.seconds, has)?;
    let mut rounds = Rounds::new(&cases);
    for round in 1..=amount.rounds {
        for (place, case) in cases.iter().enumerate() {
            for side in case.sides(has) {
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
pub(super) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    pub(super) fn on_signals() -> Self {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // Where it cannot be taken it ends us as ever, and the folders stay behind.
            let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
        }
        Self(flag)
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_mib_or_gib() {
        assert_eq!((parse_mib("256m"), parse_mib("4G")), (Ok(256), Ok(4096)));
        for text in ["", "m", "15m", "2000g", "4194305g", "256", "256k", "-1m"] {
            assert!(parse_mib(text).is_err(), "{text}");
        }
    }
}
