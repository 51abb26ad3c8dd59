//! `drive TARGET [--seconds N] [--seed S] [--inputs N] [--careful] [--input FILE]`, or `--list`.
//!
//! `cargo xtask fuzz` runs it with a limit on memory; run alone it has none.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use towpath_fuzz::drive::{Options, Outcome, drive, reproduce};
use towpath_fuzz::{Target, targets};

const USAGE: &str = "usage: drive TARGET [--seconds N] [--seed S] [--inputs N] [--careful]\n   \
                     or: drive TARGET --input FILE\n   or: drive --list";

enum Task {
    List,
    Fuzz(Target, Options),
    Once(Target, PathBuf),
}

fn main() -> ExitCode {
    let Some(task) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match task {
        Task::List => {
            for target in targets() {
                println!("{}", target.name);
            }
            ExitCode::SUCCESS
        }
        Task::Fuzz(target, options) => fuzz(target, &options),
        Task::Once(target, path) => once(target, &path),
    }
}

fn fuzz(target: Target, options: &Options) -> ExitCode {
    let name = target.name;
    match drive(target, options) {
        Ok(Outcome::Clean { inputs, classes }) => {
            println!("{name}: seed {}, {inputs} inputs, {classes} classes, clean", options.seed);
            ExitCode::SUCCESS
        }
        Ok(Outcome::Broken(path)) => {
            eprintln!("{name}: seed {}, broken by {}", options.seed, path.display());
            eprintln!("{}", reproduce(target, &path));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: {}: {error}", options.folder.display());
            ExitCode::FAILURE
        }
    }
}

/// Lets a panic through, so that its message and backtrace are the ordinary ones.
fn once(target: Target, path: &Path) -> ExitCode {
    match std::fs::read(path) {
        Ok(input) => {
            let class = (target.run)(&input);
            println!("{}: {} bytes, class {class:#018x}, clean", target.name, input.len());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Option<Task> {
    let first = args.next()?;
    if first == "--list" {
        return Some(Task::List);
    }
    let target = *targets().iter().find(|target| target.name == first)?;
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut options =
        Options { seconds: 60, inputs_max: u64::MAX, seed: 1, careful: false, folder };
    while let Some(flag) = args.next() {
        match flag.as_str() {
            "--seconds" => options.seconds = args.next()?.parse().ok()?,
            "--seed" => options.seed = args.next()?.parse().ok()?,
            "--inputs" => options.inputs_max = args.next()?.parse().ok()?,
            "--careful" => options.careful = true,
            "--input" => return Some(Task::Once(target, PathBuf::from(args.next()?))),
            _ => return None,
        }
    }
    Some(Task::Fuzz(target, options))
}
