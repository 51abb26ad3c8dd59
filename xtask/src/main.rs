//! The checks and tasks of this repository, as commands: `cargo xtask --help` lists them.
//!
//! One file or folder per command. `workspace`, `tree` and `source` say what the repository
//! holds; the checks in `tidy` and `arrows` are pure functions of that, so that their tests run
//! on small trees in memory. Only `process` starts other programs.

#![forbid(unsafe_code)]

mod ab;
mod arrows;
mod bench;
mod ci;
mod dissect;
mod etcd;
mod failure;
mod finding;
mod fuzz;
mod install_c;
mod instructions;
mod lines;
mod loom;
mod metric;
mod miri;
mod no_std;
mod pgo;
mod process;
mod promtool;
mod redis;
mod source;
mod stats;
mod tidy;
mod tree;
mod turns;
mod vm;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Programs in place of rules that people must remember.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The one gate: every check a change must pass, in order, stopping at the first failure.
    Ci(ci::Args),
    /// Is every file as the house style wants it?
    Tidy,
    /// Does every crate use only the crates that it may?
    Arrows(arrows::Args),
    /// Compare a benchmark between two revisions, or between two commands.
    Ab(ab::Args),
    /// Measure every figure that was wanted, beside what it is compared with.
    Bench(bench::Args),
    /// Build the programs as their training runs suggest: short messages take a tenth less.
    Pgo(pgo::Args),
    /// Build the library for C and install it, with its headers and its man page.
    InstallC(install_c::Args),
    /// Count the instructions of a message and compare them with the record.
    Instructions(instructions::Args),
    /// Count lines of code, fields, methods and circles of imports.
    Lines(lines::Args),
    /// Run the fuzz targets with the seeded driver.
    Fuzz(fuzz::Args),
    /// Do the sans-IO crates really link without std?
    NoStd,
    /// Does what threads share hold in every order of their steps?
    Loom,
    /// Run the tests of the memory crate in an interpreter that finds undefined behaviour.
    Miri,
    /// Have Wireshark and Scapy read what the userspace NIC sends, in every mode.
    Dissect,
    /// Have promtool check the alert rules and what a server tells Prometheus.
    Promtool,
    /// Keep the map of a cluster in a real etcd, which is installed where it is missing.
    Etcd,
    /// Have the tools of Redis use our key-value store, and compare it with redis-server.
    Redis(redis::Args),
    /// Run the tests on real libibverbs in a virtual machine with the kernel's rxe.
    VmTest(vm::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Ci(args) => ci::run(&args),
        Command::Tidy => tidy::run(),
        Command::Arrows(args) => arrows::run(&args),
        Command::Ab(args) => ab::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Pgo(args) => pgo::run(&args),
        Command::InstallC(args) => install_c::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Lines(args) => lines::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::NoStd => no_std::run(),
        Command::Loom => loom::run(),
        Command::Miri => miri::run(),
        Command::Dissect => dissect::run(),
        Command::Promtool => promtool::run(),
        Command::Etcd => etcd::run(),
        Command::Redis(args) => redis::run(&args),
        Command::VmTest(args) => vm::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn no_two_flags_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
