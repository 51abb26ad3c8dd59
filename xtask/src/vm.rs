//! `cargo xtask vm-test`: the tests on real libibverbs, in a virtual machine with the kernel's rxe.

use crate::failure::Failure;
use crate::{process, workspace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How long the machine may run, in seconds. The quick suite takes a minute where nothing else
/// runs; emulation on a busy host is several times slower.
const GUEST_SECONDS: u64 = 400;

/// The integration tests of `tests` that have something to run there.
const PROGRAMS: [&str; 2] = ["device_contract", "verbs_link"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long the machine may run before it is stopped, in seconds.
    #[arg(long, default_value_t = GUEST_SECONDS)]
    seconds: u64,
}

/// Installs what is missing, builds, boots, runs the suite inside, and counts.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace::root();
    let scripts = root.join("tests/vm");
    let dir = workspace::target_directory(&root)?.join("vm");
    std::fs::create_dir_all(&dir).map_err(|source| Failure::File { path: dir.clone(), source })?;
    process::run(Command::new(scripts.join("prepare.sh")).arg(&dir))?;
    let programs = build(&root)?;
    process::run(Command::new(scripts.join("initramfs.sh")).arg(&dir).args(programs))?;
    let seconds = args.seconds.to_string();
    // A machine that had to be stopped has results too, and the first error tells most.
    let booted = process::run(Command::new(scripts.join("boot.sh")).arg(&dir).arg(seconds));
    let reported = report(&dir.join("out"));
    booted.and(reported)
}

/// Builds the tests with the feature, and says where they are.
fn build(root: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut command = process::cargo();
    command.args(["test", "--no-run", "-p", "towpath-tests", "--features", "verbs"]);
    command.args(PROGRAMS.iter().flat_map(|name| ["--test", name]));
    command.args(["--message-format", "json-render-diagnostics"]).current_dir(root);
    let text = process::output(&mut command)?;
    let json = |source| Failure::Json { command: process::line(&command), source };
    executables(&text).map_err(json)
}

/// The test programs in what cargo prints: one JSON object in each line.
fn executables(text: &str) -> Result<Vec<PathBuf>, serde_json::Error> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line)?;
        let is_test = message["profile"]["test"] == true;
        if let Some(path) = message["executable"].as_str().filter(|_| is_test) {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}

/// Tells what each step came to.
fn report(out: &Path) -> Result<(), Failure> {
    let read = |name: &str| {
        let path = out.join(name);
        std::fs::read_to_string(&path).map_err(|source| Failure::File { path, source })
    };
    let mut total = Count::default();
    for step in read("steps")?.lines() {
        let log = read(&format!("{step}.log"))?;
        let count = count(&log);
        println!("--- {step}: {} passed, {} failed", count.passed, count.failed);
        if count.failed > 0 {
            print!("{log}");
        }
        total.passed += count.passed;
        total.failed += count.failed;
    }
    println!("{} passed, {} failed; logs in {}", total.passed, total.failed, out.display());
    match total {
        Count { failed: 0, passed: 1.. } => Ok(()),
        Count { failed, .. } => Err(Failure::Guest(failed)),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
}

/// Counts the tests in the log of a step. A log without an end is one failure more: the program
/// crashed or was stopped; and so is one without any test, since each step is there to run some.
fn count(log: &str) -> Count {
    let tests = || log.lines().filter(|line| line.starts_with("test ") && line.contains(" ... "));
    let passed = tests().filter(|line| line.ends_with(" ok")).count();
    let failed = log.lines().filter(|line| line.ends_with("FAILED")).count();
    let ended = log.lines().any(|line| line.starts_with("test result:"));
    let whole = ended && passed + failed > 0;
    Count { passed, failed: failed + usize::from(!whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_those_that_cargo_built_as_tests() {
        let text = concat!(
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":"/a/tool"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":"/a/deps/b-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":null}"#,
            "\nnot JSON\n",
        );
        assert_eq!(executables(text).unwrap(), [PathBuf::from("/a/deps/b-1")]);
    }

    #[test]
    fn a_step_that_did_not_end_or_ran_nothing_has_failed() {
        let end = "\ntest result: ok. 2 passed\n";
        let two = "test a ... ok\ntest b ... ok";
        assert_eq!(count(&format!("{two}{end}")), Count { passed: 2, failed: 0 });
        assert_eq!(count(two), Count { passed: 2, failed: 1 });
        assert_eq!(count(end), Count { passed: 0, failed: 1 });
        let bad = format!("test a ... ok\ntest b ... FAILED{end}");
        assert_eq!(count(&bad), Count { passed: 1, failed: 1 });
    }
}
