//! `cargo xtask vm-test`: the tests on real libibverbs, in a virtual machine with the kernel's rxe.
//!
//! `steps` knows what there is to run, `report` counts what came of it, `perftest` makes a table of
//! what perftest and Towpath measured.

mod perftest;
mod report;
mod steps;

use crate::failure::Failure;
use crate::{process, workspace};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use steps::{Needs, Step};

/// How long the machine may run, in seconds: all of it takes some minutes where nothing else runs,
/// and emulation on a busy host is many times slower.
const GUEST_SECONDS: u64 = 3600;

/// How long perftest and our tools are compared: three rounds or more where nothing else runs.
const COMPARISON_SECONDS: u64 = 150;

/// What `timeout` ends with when time was up.
const TIMED_OUT: i32 = 124;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long the machine may run before it is stopped, in seconds.
    #[arg(long, default_value_t = GUEST_SECONDS)]
    seconds: u64,
    /// Run only the quick suite.
    #[arg(long)]
    quick: bool,
    /// Run only this step; may be given several times.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// How long the comparison with perftest may take, in seconds: as many rounds as fit, one at
    /// least.
    #[arg(long, default_value_t = COMPARISON_SECONDS)]
    compare_seconds: u64,
    /// Print what was compared as one JSON object too, as the last line.
    #[arg(long)]
    json: bool,
    /// Name the steps and stop.
    #[arg(long)]
    list: bool,
}

/// Installs what is missing, builds, boots, runs the suite inside, and counts.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace::root();
    let scripts = root.join("tests/vm");
    let steps = steps::all(&scripts.join("guest/steps"))?;
    let steps = steps::chosen(steps, &args.only, args.quick)?;
    if args.list {
        for step in &steps {
            println!("{:16} {}", step.name(), if step.needs.full { "full" } else { "quick" });
        }
        return Ok(());
    }
    let needs = Needs::of_all(&steps);
    let dir = workspace::target_directory(&root)?.join("vm");
    let out = dir.join("out");
    let file = |path: &Path, source| Failure::File { path: path.to_owned(), source };
    std::fs::create_dir_all(&dir).map_err(|source| file(&dir, source))?;
    process::run(Command::new(scripts.join("prepare.sh")).arg(&dir).args(&needs.packages))?;
    let files = files(&root, &needs)?;
    process::run(Command::new(scripts.join("initramfs.sh")).arg(&dir).args(files))?;
    workspace::remove_dir(&out)?;
    std::fs::create_dir_all(&out).map_err(|source| file(&out, source))?;
    let limit = format!("{}\n", args.compare_seconds);
    std::fs::write(out.join("compare_seconds"), limit).map_err(|source| file(&out, source))?;
    // A machine that had to be stopped has results too, and the first error tells most.
    let booted = run_steps(&scripts.join("boot.sh"), &dir, &steps, args.seconds);
    let compared = perftest::write_all(&out);
    let reported = report::report(&out, &steps);
    if let (true, Ok(Some(object))) = (args.json, &compared) {
        println!("{object}");
    }
    booted.and(compared.map(drop)).and(reported)
}

/// Runs the steps, those whose clock counts instructions in a machine of their own. The first error
/// is returned when all have had their turn.
fn run_steps(script: &Path, dir: &Path, steps: &[Step], seconds: u64) -> Result<(), Failure> {
    let mut all = Ok(());
    for counted in [false, true] {
        let of_clock = steps.iter().filter(|step| step.needs.counted == counted);
        let plan: String = of_clock.map(|Step { file, .. }| format!("{file}\n")).collect();
        if !plan.is_empty() {
            let path = dir.join("out/plan");
            let wrote = std::fs::write(&path, plan);
            wrote.map_err(|source| Failure::File { path, source })?;
            all = all.and(boot(script, dir, seconds, counted));
        }
    }
    all
}

/// Runs the machine until it powers itself off, or time is up.
fn boot(script: &Path, dir: &Path, seconds: u64, counted: bool) -> Result<(), Failure> {
    let mut command = Command::new(script);
    command.arg(dir).arg(seconds.to_string()).args(counted.then_some("counted"));
    let booted = process::run(&mut command);
    booted.map_err(|failure| match failure {
        Failure::Status { status, .. } if status.code() == Some(TIMED_OUT) => {
            Failure::GuestHung { seconds }
        }
        other => other,
    })
}

/// What goes into the guest beside its system, as `FILE=PLACE`.
fn files(root: &Path, needs: &Needs) -> Result<Vec<String>, Failure> {
    let mut files = Vec::new();
    if !needs.tests.is_empty() {
        let mut command = process::cargo();
        command.args(["test", "--no-run", "-p", "towpath-tests", "--features", "verbs"]);
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
        let mut command = process::cargo();
        // What only has to work is built as tests are, which takes a fraction of the time.
        let profile = if needs.full { "guest" } else { "dev" };
        command.args(["build", "--profile", profile, "-p", "towpath-tools"]);
        command.args(["-p", "towpath-chunkserver", "--features"]);
        command.arg("towpath-tools/verbs,towpath-chunkserver/verbs");
        command.args(needs.bins.iter().flat_map(|name| ["--bin", name]));
        files.extend(built(root, &mut command, &needs.bins, "/usr/bin")?);
    }
    files.extend(needs.commands.iter().map(|name| format!("{name}=/usr/bin/{name}")));
    Ok(files)
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
