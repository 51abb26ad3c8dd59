//! `cargo xtask ci`: the one gate. Every step by name, timed, in order; stops at the first failure.

use crate::failure::Failure;
use crate::{arrows, fuzz, loom, no_std, process, tidy, workspace};
use std::process::Command;
use std::time::Instant;

/// How long each fuzz target runs within the gate, in seconds: enough for the seeds and a first
/// look; `.ci/run` goes on for longer.
const FUZZ_SECONDS: u64 = 3;

/// The package that has the feature `baseline`, which is off but in the gate.
const BASELINE: &str = "-p towpath-tools";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this step; may be given several times.
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Name the steps and stop.
    #[arg(long)]
    list: bool,
}

struct Step {
    name: &'static str,
    what: &'static str,
    run: fn() -> Result<(), Failure>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", what: "every file is formatted", run: fmt },
    Step { name: "tidy", what: "every file is as the house style wants it", run: tidy::run },
    Step { name: "arrows", what: "crates use only what the table allows", run: check_arrows },
    Step { name: "clippy", what: "no lint fires", run: clippy },
    Step { name: "docs", what: "the documentation builds without a warning", run: docs },
    Step { name: "test", what: "every test passes", run: test },
    Step { name: "no-std", what: "the sans-IO crates link without std", run: no_std::run },
    Step { name: "loom", what: "no order of threads breaks what they share", run: loom::run },
    Step { name: "fuzz", what: "no fuzz target breaks in a few seconds", run: smoke },
];

/// Runs the steps that the arguments name, or all.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.list {
        for step in STEPS {
            println!("{:8} {}", step.name, step.what);
        }
        return Ok(());
    }
    let started = Instant::now();
    let steps = chosen(&args.only)?;
    for step in &steps {
        println!("--- {}: {}", step.name, step.what);
        let began = Instant::now();
        (step.run)()
            .map_err(|source| Failure::Step { step: step.name, source: Box::new(source) })?;
        println!("--- {}: passed in {:.1} s", step.name, began.elapsed().as_secs_f64());
    }
    println!("--- ci: {} steps passed in {:.1} s", steps.len(), started.elapsed().as_secs_f64());
    Ok(())
}

/// The named steps in the order of the gate, or all of them when none is named.
fn chosen(only: &[String]) -> Result<Vec<&'static Step>, Failure> {
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        return Err(Failure::NoSuchStep(unknown.clone()));
    }
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(wanted).collect())
}

/// A cargo command in the root of the repository.
fn cargo(args: &str) -> Command {
    let mut command = process::cargo();
    command.args(args.split_whitespace()).current_dir(workspace::root());
    command
}

fn fmt() -> Result<(), Failure> {
    process::run(&mut cargo("fmt --all --check"))?;
    process::run(&mut cargo("fmt --check --manifest-path fuzz/Cargo.toml"))?;
    process::run(&mut cargo("fmt --check --manifest-path xtask/no-std-proof/Cargo.toml"))
}

fn check_arrows() -> Result<(), Failure> {
    arrows::run(&arrows::Args { print: false, write: false })
}

fn clippy() -> Result<(), Failure> {
    process::run(&mut cargo("clippy --workspace --all-targets -- -D warnings"))?;
    let baseline = format!(
        "clippy {BASELINE} --features {} --all-targets -- -D warnings",
        process::GATE_FEATURES
    );
    process::run(&mut cargo(&baseline))?;
    no_std::copy_lock(&workspace::root(), "fuzz")?;
    process::run(&mut cargo(
        "clippy --manifest-path fuzz/Cargo.toml --target-dir target/fuzz --all-targets \
         -- -D warnings",
    ))
}

/// Twice, because only the public pages show a link from a public item to a private one, and
/// only the private pages show a broken link on a private item.
fn docs() -> Result<(), Failure> {
    for private in ["", "--document-private-items"] {
        let mut command = cargo("doc --workspace --no-deps");
        command.args(private.split_whitespace()).env("RUSTDOCFLAGS", "-D warnings");
        process::run(&mut command)?;
    }
    Ok(())
}

fn test() -> Result<(), Failure> {
    // With what is off elsewhere: one build, where a second with it would make all libraries anew.
    process::run(&mut cargo(&format!("test --workspace --features {}", process::GATE_FEATURES)))?;
    no_std::copy_lock(&workspace::root(), "fuzz")?;
    // In release, like the driver itself, so that the two share one build.
    process::run(&mut cargo(
        "test --release --manifest-path fuzz/Cargo.toml --target-dir target/fuzz",
    ))
}

/// One fixed seed: the same commit passes or fails the same.
fn smoke() -> Result<(), Failure> {
    fuzz::run(&fuzz::Args {
        seconds: FUZZ_SECONDS,
        target: None,
        seed: Some(1),
        jobs: None,
        input: None,
        list: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_steps_run_in_the_order_of_the_gate() {
        let names = |only: &[&str]| {
            let only: Vec<_> = only.iter().map(|&name| name.to_owned()).collect();
            chosen(&only).map(|steps| steps.iter().map(|step| step.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["test", "fmt"]).unwrap(), ["fmt", "test"]);
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
        assert!(matches!(names(&["tset"]), Err(Failure::NoSuchStep(name)) if name == "tset"));
    }

    #[test]
    fn a_failed_step_says_how_to_run_it_alone() {
        let source = Box::new(Failure::Fuzz(1));
        let text = Failure::Step { step: "fuzz", source }.to_string();
        assert!(text.ends_with("cargo xtask ci --only fuzz"), "{text}");
    }
}
