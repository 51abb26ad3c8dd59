//! `cargo xtask promtool`: Prometheus' own tool reads the alert rules and what a server tells it.

use crate::failure::Failure;
use crate::{process, workspace};
use std::path::PathBuf;
use std::process::Command;

/// Debian's name for what has the tool. It is unpacked and not installed, since that would start a
/// service.
const PACKAGE: &str = "prometheus";

/// Gets the tool where it is missing, and runs it.
pub(crate) fn run() -> Result<(), Failure> {
    let root = workspace::root();
    let tool = tool()?;
    let rules = root.join("chunkserver/operations/alerts.yml");
    process::run(Command::new(&tool).args(["check", "rules"]).arg(rules))?;
    let mut command = process::test("metrics");
    command.args(["--", "--ignored"]).env("TOWPATH_PROMTOOL", tool);
    process::run(command.current_dir(root))
}

fn tool() -> Result<PathBuf, Failure> {
    let found = process::output(&mut process::shell("command -v promtool || true"))?;
    if !found.trim().is_empty() {
        return Ok(PathBuf::from(found.trim()));
    }
    let dir = workspace::root().join("target/promtool");
    let tool = dir.join("usr/bin/promtool");
    if !tool.exists() {
        let line = format!(
            "mkdir -p {dir} && cd {dir} && (apt-get download -qq {PACKAGE} || \
             (apt-get update -qq && apt-get download -qq {PACKAGE})) && dpkg -x {PACKAGE}_*.deb .",
            dir = process::quote(&dir.to_string_lossy())
        );
        process::run(&mut process::shell(&line))?;
    }
    Ok(tool)
}
