//! `cargo xtask vm-test`: the tests on real libibverbs, in a virtual machine with the kernel's rxe.
//!
//! `steps` knows what there is to run, `build` builds it, `report` counts what came of it,
//! `perftest` makes a table of what perftest and Towpath measured.

mod build;
mod perftest;
mod report;
mod steps;

use crate::failure::Failure;
use crate::{process, workspace};
use std::path::Path;
use std::process::Command;
use steps::{Needs, Step};

/// How long the machine may run, in seconds: all of it takes some minutes where nothing else runs,
/// and emulation on a busy host is many times slower.
const GUEST_SECONDS: u64 = 3600;

/// How long perftest and our tools are compared: three rounds where nothing else runs.
const COMPARISON_SECONDS: u64 = 90;

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
    /// Name all steps and what runs them, and stop.
    #[arg(long)]
    list: bool,
}

/// Installs what is missing, builds, boots, runs the suite inside, and counts.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace::root();
    let scripts = root.join("tests/vm");
    let steps = steps::all(&scripts.join("guest/steps"))?;
    if args.list {
        for step in &steps {
            println!("{:16} {}", step.name(), step.needs.suite);
        }
        return Ok(());
    }
    let steps = steps::chosen(steps, &args.only, args.quick)?;
    let needs = Needs::of_all(&steps);
    let dir = workspace::target_directory(&root)?.join("vm");
    let out = dir.join("out");
    let file = |path: &Path, source| Failure::File { path: path.to_owned(), source };
    std::fs::create_dir_all(&dir).map_err(|source| file(&dir, source))?;
    process::run(Command::new(scripts.join("prepare.sh")).arg(&dir).args(&needs.packages))?;
    workspace::remove_dir(&out)?;
    std::fs::create_dir_all(&out).map_err(|source| file(&out, source))?;
    let limit = format!("{}\n", args.compare_seconds);
    std::fs::write(out.join("compare_seconds"), limit).map_err(|source| file(&out, source))?;
    let guest = Guest { scripts: &scripts, dir: &dir, seconds: args.seconds };
    // A machine that had to be stopped has results too, and the first error tells most.
    let booted = build_and_boot(&root, &guest, &steps);
    let compared = perftest::write_all(&out);
    let reported = report::report(&out, &steps);
    if let (true, Ok(Some(object))) = (args.json, &compared) {
        println!("{object}");
    }
    booted.and(compared.map(drop)).and(reported)
}

/// Runs the steps in machines by what they need. The first is up while programs are built: tests
/// wait for the network more than they compute, and measure nothing. The first error is returned
/// when all have had their turn.
fn build_and_boot(root: &Path, guest: &Guest<'_>, steps: &[Step]) -> Result<(), Failure> {
    let [tests, programs, counted] = steps::machines(steps);
    let files = build::files(root, &Needs::of_all(tests.iter().copied()))?;
    let (tested, files) = std::thread::scope(|scope| {
        let tested = scope.spawn(|| guest.run(&tests, &files, false));
        let files = build::files(root, &Needs::of_all(programs.iter().chain(&counted).copied()));
        (tested.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), files)
    });
    let files = files?;
    tested.and(guest.run(&programs, &files, false)).and(guest.run(&counted, &files, true))
}

/// The machine, and how long it may run at a time.
struct Guest<'a> {
    scripts: &'a Path,
    dir: &'a Path,
    seconds: u64,
}

impl Guest<'_> {
    /// Packs the files, boots, and runs the steps, if there are any, until the machine powers
    /// itself off or time is up.
    fn run(&self, steps: &[&Step], files: &[String], counted: bool) -> Result<(), Failure> {
        if steps.is_empty() {
            return Ok(());
        }
        let plan: String = steps.iter().map(|Step { file, .. }| format!("{file}\n")).collect();
        let path = self.dir.join("out/plan");
        std::fs::write(&path, plan).map_err(|source| Failure::File { path, source })?;
        process::run(self.script("initramfs.sh").args(files))?;
        let mut boot = self.script("boot.sh");
        boot.arg(self.seconds.to_string()).args(counted.then_some("counted"));
        process::run(&mut boot).map_err(|failure| match failure {
            Failure::Status { status, .. } if status.code() == Some(TIMED_OUT) => {
                Failure::GuestHung { seconds: self.seconds }
            }
            other => other,
        })
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(self.scripts.join(name));
        command.arg(self.dir);
        command
    }
}
