//! `cargo xtask loom`: what threads share, in every order that the memory model allows.
//!
//! The models stand beside what they are of, in files that are compiled with `--cfg loom` alone.

use crate::failure::Failure;
use crate::{process, workspace};

/// The crates that have models.
const PACKAGES: [&str; 2] = ["towpath-memory", "towpath-wake"];

/// Runs all models.
pub(crate) fn run() -> Result<(), Failure> {
    let mut command = process::cargo();
    command.args(["test", "--lib", "--target-dir", "target/loom"]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    process::run(command.env("RUSTFLAGS", "--cfg loom").current_dir(workspace::root()))
}
