//! Where the compiler's own tools are.

use crate::failure::Failure;
use crate::process;
use std::path::PathBuf;
use std::process::Command;

/// What is needed of the toolchain that builds.
pub(super) struct Toolchain {
    /// What it builds for, if nobody says.
    pub(super) host: String,
    profdata: PathBuf,
}

impl Toolchain {
    /// Finds it, and has rustup install what it lacks.
    pub(super) fn find() -> Result<Self, Failure> {
        let host = process::output(rustc().args(["--print", "host-tuple"]))?.trim().to_owned();
        let libraries = process::output(rustc().args(["--print", "target-libdir"]))?;
        let libraries = PathBuf::from(libraries.trim());
        // The tools lie beside the libraries of the host.
        let profdata = libraries.with_file_name("bin").join("llvm-profdata");
        if !profdata.is_file() {
            let mut add = Command::new("rustup");
            process::run(add.args(["component", "add", "llvm-tools"]))?;
        }
        if !profdata.is_file() {
            return Err(Failure::NoProfiler { path: profdata });
        }
        Ok(Self { host, profdata })
    }

    /// The command that makes one profile of many counts.
    pub(super) fn merge(&self) -> Command {
        let mut command = Command::new(&self.profdata);
        command.arg("merge");
        command
    }
}

/// The compiler that our cargo uses.
fn rustc() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}
