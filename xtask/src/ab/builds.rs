//! Builds to measure of the current files and of another revision, side by side.

use crate::failure::Failure;
use crate::process;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A finished build.
#[derive(Clone, Debug)]
pub(super) struct Build {
    /// Where its programs are.
    pub(super) programs: PathBuf,
}

impl Build {
    /// Builds the files as they are.
    pub(super) fn current(root: &Path) -> Result<Self, Failure> {
        Self::compile(root, &root.join("target/ab/current"))
    }

    /// Builds `rev` in a worktree of its own, which stays for the next time.
    pub(super) fn of_revision(root: &Path, rev: &str) -> Result<Self, Failure> {
        let mut parse = git(root);
        parse.args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        parse.arg(format!("{rev}^{{commit}}"));
        let commit = process::output(&mut parse)?;
        let commit = commit.trim();
        let short = &commit[..commit.len().min(12)];
        let folder = root.join("target/ab").join(short);
        let tree = folder.join("tree");
        if !tree.join("Cargo.toml").is_file() {
            // A tree that someone deleted by hand is still known to git; forget it first.
            process::run(git(root).args(["worktree", "prune"]))?;
            let mut add = git(root);
            add.args(["worktree", "add", "--quiet", "--detach"]).arg(&tree).arg(commit);
            process::run(&mut add)?;
        }
        Self::compile(&tree, &folder.join("build"))
    }

    fn compile(tree: &Path, target: &Path) -> Result<Self, Failure> {
        let manifest = tree.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest)
            .map_err(|source| Failure::File { path: manifest, source })?;
        let profile = profile(&text);
        let mut command = process::cargo();
        command.args(["build", "--profile", profile, "--workspace", "--bins", "--target-dir"]);
        process::run(command.arg(target).current_dir(tree))?;
        Ok(Self { programs: target.join(profile) })
    }

    /// The PATH with the programs of this build first.
    pub(super) fn path(&self) -> OsString {
        let mut path = self.programs.clone().into_os_string();
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        path
    }
}

/// The profile to measure with. A revision without one of its own for that has made whole programs
/// of its release builds.
fn profile(manifest: &str) -> &'static str {
    let wanted = format!("[profile.{}]", process::DIST);
    if manifest.lines().any(|line| line.trim() == wanted) { process::DIST } else { "release" }
}

fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(root);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_before_the_profile_are_built_as_they_were_measured() {
        let ours = crate::workspace::root().join("Cargo.toml");
        assert_eq!(profile(&std::fs::read_to_string(ours).unwrap()), process::DIST);
        assert_eq!(profile("[profile.release]\nlto = \"fat\"\n"), "release");
    }
}
