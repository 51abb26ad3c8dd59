//! `cargo xtask miri`: the tests of the crate that holds raw pointers, in an interpreter that finds
//! what the language does not allow: a slice that changes, a race, a pointer beyond its memory.
//!
//! No step of the gate, since it needs a nightly toolchain.

use crate::failure::Failure;
use crate::{process, workspace};
use std::process::{Command, Stdio};

/// Runs the tests of `towpath-memory` under Miri.
pub(crate) fn run() -> Result<(), Failure> {
    let probe = cargo().args(["miri", "--version"]).stdout(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return Err(Failure::NoMiri);
    }
    process::run(cargo().args(["miri", "test", "--package", "towpath-memory", "--lib"]))
}

/// That of the nightly toolchain, by way of rustup: the one that started us has no Miri.
fn cargo() -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly").env("CARGO_TARGET_DIR", "target/miri").current_dir(workspace::root());
    // What is dropped while a device has it is leaked, as tests of just that show.
    command.env("MIRIFLAGS", "-Zmiri-ignore-leaks");
    command
}
