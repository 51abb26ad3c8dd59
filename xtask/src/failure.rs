//! Why a command of this tool failed.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// What went wrong, where, and what to do next.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{count} finding(s), listed above; fix them and run `cargo xtask {command}` again")]
    Findings { count: usize, command: &'static str },
    #[error("`{command}` failed: {status}")]
    Status { command: String, status: ExitStatus },
    #[error("`{command}` could not be started: {source}")]
    Start { command: String, source: io::Error },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("`{command}` printed what is not the expected JSON: {source}")]
    Json { command: String, source: serde_json::Error },
    #[error("step `{step}` failed: {source}\n  run it alone: cargo xtask ci --only {step}")]
    Step { step: &'static str, source: Box<Self> },
    #[error("there is no step `{0}`; see `cargo xtask ci --list`")]
    NoSuchStep(String),
    #[error("there is no fuzz target `{name}`; there are: {known}")]
    NoSuchTarget { name: String, known: String },
    #[error("no case begins with `{name}`; there are: {known}")]
    NoSuchCase { name: String, known: String },
    #[error(
        "there is no fio; `apt-get install fio` installs it (a case that needs none: --case idle)"
    )]
    NoFio,
    #[error("`{command}` did not say where it listens, but: {said:?}")]
    NotReady { command: String, said: String },
    #[error("{0} fuzz target(s) failed; the commands that reproduce them stand above")]
    Fuzz(usize),
    #[error(
        "`{command}` printed no JSON object with a number `{metric}`; its output was:\n{output}"
    )]
    NoMetric { command: String, metric: String, output: String },
    #[error(
        "{count} figure(s) stand too far above {record}, or are not in it; where that is worth it, \
         run `cargo xtask instructions --record` and say in the commit what it buys"
    )]
    Instructions { count: usize, record: &'static str },
    #[error("there is no step `{name}` of the virtual machine's suite; there are: {known}")]
    NoSuchGuestStep { name: String, known: String },
    #[error("{0} failure(s) in the virtual machine; the logs stand above")]
    Guest(usize),
    #[error(
        "the virtual machine was stopped after {seconds} s: what it was at stands above; \
         --seconds gives it more time"
    )]
    GuestHung { seconds: u64 },
    #[error("interrupted: nothing was compared")]
    Interrupted,
    #[error("give exactly one of --base REV and --vs COMMAND")]
    WhichComparison,
    #[error(
        "there is no {}: it belongs to rustup's component llvm-tools of the toolchain that builds; \
         add that, or name the compiler of such a toolchain in RUSTC", path.display()
    )]
    NoProfiler { path: PathBuf },
    #[error(
        "there is no Miri; with rustup: `rustup toolchain install nightly`, then \
         `rustup component add miri rust-src --toolchain nightly`"
    )]
    NoMiri,
    #[error("no free port for a pair of processes: {source}")]
    Port { source: io::Error },
    #[error("ARCHITECTURE.md has no `{begin}` ... `{end}` block to hold the table")]
    NoTableBlock { begin: &'static str, end: &'static str },
}
