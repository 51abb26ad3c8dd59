//! `cargo xtask pgo`: the programs, built again with what they did in training runs as the
//! compiler's guide.
//!
//! A short message passes through more code than the first cache holds. Which branches it takes the
//! compiler can only guess, unless a profile tells it: then it lays the rest aside, and what is
//! left lies close together.

mod toolchain;
mod training;

use crate::failure::Failure;
use crate::{process, workspace};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use toolchain::Toolchain;

/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: char = '\x1f';

#[derive(clap::Args)]
#[command(after_help = "\
Three steps: programs that count what they execute, training runs over loopback, and the programs \
that are wanted, which come to lie in target/pgo/build/HOST/dist. Each program takes minutes to \
build. Needs llvm-profdata, which rustup has as the component llvm-tools; it is installed if it is \
not there.

  cargo xtask pgo --bin tow_write_lat --bin towpath")]
pub(crate) struct Args {
    /// Build this program; may be given again. All of towpath-tools and towpath-chunkserver
    /// otherwise.
    #[arg(long = "bin", value_name = "NAME")]
    bins: Vec<String>,
    /// Seconds that each of the training runs takes.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

/// Builds, trains and builds again.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let folder = workspace::root().join("target/pgo");
    let toolchain = Toolchain::find()?;
    let (counts, profile) = (folder.join("counts"), folder.join("profile"));
    // Counts of an earlier build do not fit.
    workspace::remove_dir(&counts)?;
    eprintln!("xtask: building what counts");
    let flag = flag_with("-Cprofile-generate=", &counts);
    let counting = build(&toolchain, &folder.join("counting"), training::PROGRAMS, &flag)?;
    for run in training::RUNS {
        eprintln!("xtask: training for {} s: {run}", args.seconds);
        run.take(&counting, args.seconds)?;
    }
    process::run(toolchain.merge().arg("-o").arg(&profile).arg(&counts))?;
    eprintln!("xtask: building what is wanted");
    let flag = flag_with("-Cprofile-use=", &profile);
    let bins: Vec<&str> = args.bins.iter().map(String::as_str).collect();
    let built = build(&toolchain, &folder.join("build"), &bins, &flag)?;
    println!("{}", built.display());
    Ok(())
}

fn flag_with(flag: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(flag);
    flag.push(path);
    flag
}

/// Builds programs, all if none is named, as released but with one more flag for the compiler;
/// says where they are.
fn build(
    toolchain: &Toolchain,
    target: &Path,
    bins: &[&str],
    flag: &OsString,
) -> Result<PathBuf, Failure> {
    let mut command = process::cargo();
    command.args(["build", "--profile", process::DIST, "--package", "towpath-tools"]);
    command.args(["--package", "towpath-chunkserver"]);
    if bins.is_empty() {
        command.arg("--bins");
    }
    for bin in bins {
        command.args(["--bin", bin]);
    }
    // With a target named, programs that only the build runs are built without these flags.
    command.args(["--target", &toolchain.host, "--target-dir"]).arg(target);
    add_flag(&mut command, flag);
    process::run(command.current_dir(workspace::root()))?;
    Ok(target.join(&toolchain.host).join(process::DIST))
}

/// Adds a flag to those that the user has set.
fn add_flag(command: &mut Command, flag: &OsString) {
    let mut flags = env::var_os("CARGO_ENCODED_RUSTFLAGS").unwrap_or_else(|| {
        let flags = env::var("RUSTFLAGS").unwrap_or_default();
        let words: Vec<&str> = flags.split_whitespace().collect();
        words.join(&FLAG_SEPARATOR.to_string()).into()
    });
    if !flags.is_empty() {
        flags.push(FLAG_SEPARATOR.to_string());
    }
    flags.push(flag);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_one_whatever_its_path_holds() {
        let mut command = Command::new("cargo");
        add_flag(&mut command, &"-Cprofile-use=/with a space/profile".into());
        let (_, flags) = command.get_envs().next().expect("it is set");
        let flags = flags.expect("to something").to_str().expect("UTF-8").to_owned();
        let last = flags.split(FLAG_SEPARATOR).next_back();
        assert_eq!(last, Some("-Cprofile-use=/with a space/profile"));
    }
}
