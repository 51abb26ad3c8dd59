//! `towpath bench`: measurements on this machine.

use super::error::CliError;
use super::interrupt::Interrupt;
use super::study::{self, Family, FamilyArgs};
use crate::bench::links;
use clap::{Args as ClapArgs, Subcommand};
use towpath_lab::studies::{Clock, Study, classes};

/// Flags of `towpath bench`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Links that many channels and threads share: throughput, fairness, latency
    Links(FamilyArgs<Links>),
}

/// What shared links are measured by.
#[derive(Clone, Debug)]
pub(crate) struct Links;

impl Family for Links {
    const COMMAND: &'static str = "bench links";
    const CLOCK: Clock = Clock::Machine;
    const TITLE: &'static str = "Shared links, measured on this machine";
    const AFTER_HELP: &'static str = "\
Both ends run in this process, over UDP on loopback. Figures are medians of rounds that take
turns, and are those of this machine and of what else runs on it. Where more threads would be
busy than there are cores, one thread drives both ends in `foreground` and `isolation` (--drive).
Classes want ports that keep them apart, which loopback is not: that study is in virtual time,
under `towpath sim`, where `foreground` and `isolation` are as well.";
    const TAKES: &'static str = "within a minute";
    const STUDIES: &'static [&'static Study] = links::ALL;

    fn replays(study: &Study) -> bool {
        study.name == classes::STUDY.name
    }
}

/// Runs what was asked for.
pub(crate) fn run(args: &BenchArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let What::Links(args) = &args.what;
    study::run(args, interrupt)
}
