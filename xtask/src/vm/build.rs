//! Building what runs in the guest.

use super::steps::{Needs, Suite};
use crate::failure::Failure;
use crate::process;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Real devices, in all that runs there.
const FEATURES: &str = "towpath-tests/verbs,towpath-tools/verbs,towpath-chunkserver/verbs";

/// Any test: where one is built along, libraries have the features that tests have.
const A_TEST: &str = "device_contract";

/// What goes into the guest beside its system, as `FILE=PLACE`.
pub(super) fn files(root: &Path, needs: &Needs) -> Result<Vec<String>, Failure> {
    let mut files = Vec::new();
    if !needs.tests.is_empty() {
        let mut command = shared(process::cargo());
        command.args(needs.tests.iter().flat_map(|name| ["--test", name]));
        files.extend(built(root, &mut command, &needs.tests, "/tests")?);
    }
    for package in &needs.units {
        let mut command = process::cargo();
        command.args(["test", "--no-run", "--lib", "-p", package, "--features", "verbs"]);
        // The library's target bears its package's name as Rust writes it.
        let name = BTreeSet::from([package.replace('-', "_")]);
        files.extend(built(root, &mut command, &name, "/tests")?);
    }
    if !needs.bins.is_empty() {
        // Beside a guest, which takes as long as all of this and would only wait for it.
        let mut command = process::yielding(&process::cargo());
        if needs.suite == Suite::Quick {
            // What only has to work is built as tests are, which takes a fraction of the time.
            command = shared(command);
            command.args(["--test", A_TEST]);
        } else {
            command.args(["build", "--profile", "guest", "-p", "towpath-tools"]);
            command.args(["-p", "towpath-chunkserver", "--features"]);
            command.arg("towpath-tools/verbs,towpath-chunkserver/verbs");
        }
        command.args(needs.bins.iter().flat_map(|name| ["--bin", name]));
        files.extend(built(root, &mut command, &needs.bins, "/usr/bin")?);
    }
    files.extend(needs.commands.iter().map(|name| format!("{name}=/usr/bin/{name}")));
    Ok(files)
}

/// A build that shares what the gate has built, but for what is above real devices.
fn shared(mut cargo: Command) -> Command {
    let features = format!("{},{FEATURES}", process::GATE_FEATURES);
    cargo.args(["build", "--workspace", "--features", &features]);
    cargo
}

/// Builds what is named, and says where it lies and where it shall.
fn built(
    root: &Path,
    command: &mut Command,
    names: &BTreeSet<String>,
    folder: &str,
) -> Result<Vec<String>, Failure> {
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(root);
    let text = process::output(command)?;
    let json = |source| Failure::Json { command: process::line(command), source };
    let found = executables(&text, names).map_err(json)?;
    Ok(found.iter().map(|(name, path)| format!("{}={folder}/{name}", path.display())).collect())
}

/// The programs of these names in what cargo prints: one JSON object in each line.
fn executables(
    text: &str,
    names: &BTreeSet<String>,
) -> Result<Vec<(String, PathBuf)>, serde_json::Error> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line)?;
        let name = message["target"]["name"].as_str().filter(|&name| names.contains(name));
        if let (Some(name), Some(path)) = (name, message["executable"].as_str()) {
            found.push((name.to_owned(), PathBuf::from(path)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_those_of_the_names_that_were_asked_for() {
        let text = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"tool"},"executable":"/a/tool"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"b"},"executable":"/a/deps/b-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"b"},"executable":null}"#,
            "\nnot JSON\n",
        );
        let names = BTreeSet::from(["b".to_owned()]);
        let found = executables(text, &names).unwrap();
        assert_eq!(found, [("b".to_owned(), PathBuf::from("/a/deps/b-1"))]);
    }
}
