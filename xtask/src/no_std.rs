//! `cargo xtask no-std`: the sans-IO crates link without std, on the host toolchain alone.
//!
//! A library with its own panic handler links them (`xtask/no-std-proof`). If any crate in their
//! tree brings std in, std brings a second panic handler and rustc refuses.

use crate::failure::Failure;
use crate::process;
use crate::workspace;
use std::path::Path;

/// The crate that does the linking, from the root.
pub(crate) const PROOF: &str = "xtask/no-std-proof";

/// Builds the proof.
pub(crate) fn run() -> Result<(), Failure> {
    let root = workspace::root();
    copy_lock(&root, PROOF)?;
    let mut command = process::cargo();
    command.args(["build", "--manifest-path", "xtask/no-std-proof/Cargo.toml"]);
    command.args(["--target-dir", "target/no-std-proof"]).current_dir(&root);
    process::run(&mut command)?;
    println!("no-std: base, cc, verbs, proto, qos and ec link without std");
    Ok(())
}

/// Gives a crate that stands outside the workspace the versions that the workspace uses.
pub(crate) fn copy_lock(root: &Path, folder: &str) -> Result<(), Failure> {
    let from = root.join("Cargo.lock");
    let to = root.join(folder).join("Cargo.lock");
    match std::fs::copy(&from, &to) {
        Ok(_) => Ok(()),
        Err(source) => Err(Failure::File { path: from, source }),
    }
}
