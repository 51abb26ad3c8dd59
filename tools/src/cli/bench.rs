//! `towpath bench`: measurements on this machine, and of a running chunk server.

mod store;

use super::error::CliError;
use super::interrupt::Interrupt;
use super::study::{self, Family, FamilyArgs};
use crate::bench::{classes as classes_bench, ec, fastpath, haechi, kv, links, policies};
use clap::{Args as ClapArgs, Subcommand};
use store::StoreArgs;
pub(crate) use store::StoreError;
use towpath_lab::studies::{Clock, Study, classes};

/// Flags of `towpath bench`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Classes: how slow Gold's and Silver's reads become while Copper writes
    Classes(FamilyArgs<Classes>),
    /// Erasure coding: encoding, decoding and sketches on one core, beside a copy
    Ec(FamilyArgs<Ec>),
    /// The storage fast path against protobuf and gRPC: latency, processor time, memory
    Fastpath(FamilyArgs<Fastpath>),
    /// Reservations: what tenants get of a chunk server in each period, each a process of its own
    Haechi(FamilyArgs<Haechi>),
    /// A key-value store over each transport: throughput, latency, context switches, losses
    Kv(FamilyArgs<Kv>),
    /// Policies: how long a write takes to one server and to several, by each way
    Policies(FamilyArgs<Policies>),
    /// Links that many channels and threads share: throughput, fairness, latency
    Links(FamilyArgs<Links>),
    /// Load on a running chunk server, in the words of fio: IOPS, bandwidth, latency
    Store(Box<StoreArgs>),
}

/// What classes are measured by.
#[derive(Clone, Debug)]
pub(crate) struct Classes;

impl Family for Classes {
    const COMMAND: &'static str = "bench classes";
    const CLOCK: Clock = Clock::Machine;
    const TITLE: &'static str = "Classes on one server, measured on this machine";
    const AFTER_HELP: &'static str = "\
The server and each class are processes of their own, over UDP on loopback. What the server writes
by itself and what reads take without Copper are measured first. All processes share the cores of
this machine, with whatever else runs on it. The network is not part of it: see `towpath sim
classes`.";
    const TAKES: &'static str = "within five minutes";
    const STUDIES: &'static [&'static Study] = classes_bench::ALL;

    fn replays(_: &Study) -> bool {
        false
    }
}

/// What erasure coding is measured by.
#[derive(Clone, Debug)]
pub(crate) struct Ec;

impl Family for Ec {
    const COMMAND: &'static str = "bench ec";
    const CLOCK: Clock = Clock::Machine;
    const TITLE: &'static str = "Erasure coding, measured on this machine";
    const AFTER_HELP: &'static str = "\
One thread in this process. In each round each thing is done once over the same buffers, a copy of
the data first: it is what others are compared with, out of the cache and within it. No network and
no disk is part of it. docs/erasure-coding.md says what came out.";
    const TAKES: &'static str = "within a minute";
    const STUDIES: &'static [&'static Study] = ec::ALL;

    fn replays(_: &Study) -> bool {
        false
    }
}

/// What the fast path is measured by.
#[derive(Clone, Debug)]
pub(crate) struct Fastpath;

impl Family for Fastpath {
    const COMMAND: &'static str = "bench fastpath";
    const CLOCK: Clock = Clock::Machine;
    const TITLE: &'static str = "The storage fast path, measured on this machine";
    const AFTER_HELP: &'static str = "\
Client and server are processes of their own, over loopback; points take turns, round by round. It
needs a program that was built with what is compared with:
`cargo run --profile dist --features baseline --bin towpath -- bench fastpath write`.
docs/fastpath.md says what is compared, and what came out.";
    const TAKES: &'static str = "within two minutes";
    const STUDIES: &'static [&'static Study] = fastpath::ALL;

    fn replays(_: &Study) -> bool {
        false
    }
}

/// What reservations are measured by.
#[derive(Clone, Debug)]
pub(crate) struct Haechi;

impl Family for Haechi {
    const COMMAND: &'static str = "bench haechi";
    const CLOCK: Clock = Clock::Machine;
    const TITLE: &'static str = "Reservations, measured on this machine";
    const AFTER_HELP: &'static str = "\
The server and each tenant are processes of their own, over UDP on loopback. What the machine does
is measured first, by the same processes without reservations: tenants reserve shares of that.
Whatever else runs on the machine takes from both. The experiments of the paper are under
`towpath sim haechi`.";
    const TAKES: &'static str = "within two minutes";
    const STUDIES: &'static [&'static Study] = haechi::ALL;

    fn replays(_: &Study) -> bool {
        false
    }
}

/// What a key-value store is measured by.
#[derive(Clone, Debug)]
pub(crate) struct Kv;

impl Family for Kv {
    const COMMAND: &'static str = "bench kv";
    const CLOCK: Clock = Clock::Machine;
    const TITLE: &'static str = "A key-value store over each transport, measured on this machine";
    const AFTER_HELP: &'static str = "\
The server and its clients are a process each, over loopback; a client is a thread that has one
operation under way at a time. Points take turns, round by round. All share the cores of this
machine, with whatever else runs on it. The experiments at the thesis's scale are under
`towpath sim kv`; docs/choosing-a-transport.md says what came out.";
    const TAKES: &'static str = "within three minutes";
    const STUDIES: &'static [&'static Study] = kv::ALL;

    fn replays(_: &Study) -> bool {
        false
    }
}

/// What ways to several servers are measured by.
#[derive(Clone, Debug)]
pub(crate) struct Policies;

impl Family for Policies {
    const COMMAND: &'static str = "bench policies";
    const CLOCK: Clock = Clock::Machine;
    const TITLE: &'static str = "Writes to several servers, measured on this machine";
    const AFTER_HELP: &'static str = "\
Each server is a process of its own, with a folder under TMPDIR, over UDP on loopback. Points take
turns, round by round, one write at a time. All share the cores of this machine, with whatever else
runs on it. The experiments of the paper are under `towpath sim policies`.";
    const TAKES: &'static str = "within two minutes";
    const STUDIES: &'static [&'static Study] = policies::ALL;

    fn replays(_: &Study) -> bool {
        false
    }
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
    match &args.what {
        What::Classes(args) => study::run(args, interrupt),
        What::Ec(args) => study::run(args, interrupt),
        What::Fastpath(args) => study::run(args, interrupt),
        What::Haechi(args) => study::run(args, interrupt),
        What::Kv(args) => study::run(args, interrupt),
        What::Links(args) => study::run(args, interrupt),
        What::Policies(args) => study::run(args, interrupt),
        What::Store(args) => store::run(args, interrupt),
    }
}
