//! The programs that measure.

use super::Part;
use crate::failure::Failure;
use crate::{process, workspace};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where they are.
pub(super) struct Programs {
    tools: PathBuf,
    lossy: PathBuf,
    examples: PathBuf,
}

impl Programs {
    /// Builds what `parts` need; not the tools where they are in a folder that was named.
    pub(super) fn build(parts: &[Part], tools: Option<&Path>) -> Result<Self, Failure> {
        let root = workspace::root();
        let built = workspace::target_directory(&root)?.join(process::DIST);
        let has = |part| parts.contains(&part);
        if tools.is_none() && parts.iter().any(|part| part.runs_tools()) {
            let bins = ["--bin", "tow_write_bw", "--bin", "tow_write_lat"];
            cargo_build("towpath-tools", &bins, &root)?;
        }
        if tools.is_none() && has(Part::OneSided) {
            let bins = ["--bin", "tow_read_bw", "--bin", "tow_atomic_bw"];
            cargo_build("towpath-tools", &bins, &root)?;
        }
        let lossy = tools.unwrap_or(&built).join("towpath-lossy");
        let lossy = if lossy.is_file() { lossy } else { built.join("towpath-lossy") };
        let of_store = [Part::Wire, Part::FourK, Part::Store, Part::Application];
        if tools.is_none() && of_store.into_iter().any(has) {
            cargo_build("towpath-tools", &["--bin", "towpath"], &root)?;
            cargo_build("towpath-chunkserver", &["--bin", "towpath-chunkserver"], &root)?;
        }
        if has(Part::Sizes) {
            cargo_build("towpath-device-roce", &["--example", "udp_bench"], &root)?;
        }
        let is_given = tools.is_some_and(|folder| lossy.starts_with(folder));
        if has(Part::Wire) && !is_given {
            cargo_build("towpath-tools", &["--bin", "towpath-lossy"], &root)?;
        }
        if has(Part::Server) {
            cargo_build("towpath-chunkserver", &["--example", "write_bench"], &root)?;
        }
        let is_there = |folder: &Path| folder.join("examples/tcp_store").is_file();
        if has(Part::Application) && !tools.is_some_and(is_there) {
            cargo_build("towpath-chunkserver", &["--example", "tcp_store"], &root)?;
        }
        if has(Part::Software) {
            let example = ["--features", "mem", "--example", "software_cost"];
            cargo_build("towpath-transport", &example, &root)?;
        }
        let tools = tools.map_or_else(|| built.clone(), Path::to_owned);
        Ok(Self { tools, lossy, examples: built.join("examples") })
    }

    /// Where the tools and the chunk server are.
    pub(super) fn folder(&self) -> &Path {
        &self.tools
    }

    /// The wire, which need not be of the same build as what it carries.
    pub(super) fn lossy(&self) -> &Path {
        &self.lossy
    }

    /// A benchmark that compares by itself, of the folder of the tools where it has one.
    pub(super) fn example(&self, name: &str) -> Command {
        let beside = self.tools.join("examples").join(name);
        let is_there = beside.is_file();
        Command::new(if is_there { beside } else { self.examples.join(name) })
    }
}

fn cargo_build(package: &str, what: &[&str], root: &Path) -> Result<(), Failure> {
    let mut command = process::cargo();
    command.args(["build", "--profile", process::DIST, "--package", package]).args(what);
    eprintln!("xtask: {}", process::line(&command));
    process::run(command.current_dir(root))
}

/// Programs that only print.
#[cfg(test)]
pub(super) mod tests {
    use super::{Command, Path, PathBuf, Programs};
    use std::{env, fs};

    /// A folder with such programs, which goes with this.
    pub(crate) struct Fakes(PathBuf);

    impl Fakes {
        /// For the test `name`.
        pub(crate) fn of(name: &str) -> Self {
            // With a space in it, as a person's folders have.
            let folder =
                env::temp_dir().join(format!("towpath bench {name} {}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        /// A program, by what the shell does.
        pub(crate) fn put(&self, name: &str, script: &str) {
            // By another process: what this one had open for writing a test beside would hand on
            // to a child of its own, and nobody may execute the file until that is gone.
            let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"";
            let mut command = Command::new("sh");
            command.args(["-c", write, "sh"]).arg(self.0.join(name)).arg(script);
            assert!(command.status().unwrap().success());
        }

        pub(crate) fn folder(&self) -> &Path {
            &self.0
        }

        pub(crate) fn programs(&self) -> Programs {
            let folder = || self.0.clone();
            Programs { tools: folder(), lossy: folder(), examples: folder() }
        }
    }

    impl Drop for Fakes {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
