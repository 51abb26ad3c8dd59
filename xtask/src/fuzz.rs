//! `cargo xtask fuzz`: every fuzz target, as many at a time as there are cores.

use crate::failure::Failure;
use crate::no_std::copy_lock;
use crate::{process, workspace};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How much memory a target may have, KiB: a parser that believes a hostile length dies of it.
const MEMORY_KIB_MAX: u32 = 4 << 20;

/// How much longer the careful rerun of a target that was killed may take: it writes a file for
/// each input.
const CAREFUL_FACTOR: u64 = 30;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long each target runs, in seconds.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Run only this target.
    #[arg(long)]
    pub(crate) target: Option<String>,
    /// What every choice follows from [default: the time of day, printed].
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How many targets run at a time [default: the number of cores].
    #[arg(long)]
    pub(crate) jobs: Option<usize>,
    /// Run this one input instead; needs --target.
    #[arg(long, requires = "target", value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Name the targets and stop.
    #[arg(long)]
    pub(crate) list: bool,
}

/// Runs what the arguments name.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace::root();
    let driver = build(&root)?;
    let known = process::output(Command::new(&driver).arg("--list"))?;
    let mut names: Vec<&str> = known.lines().collect();
    if args.list {
        println!("{}", names.join("\n"));
        return Ok(());
    }
    if let Some(only) = &args.target {
        names.retain(|name| name == only);
        if names.is_empty() {
            let known = known.lines().collect::<Vec<_>>().join(", ");
            return Err(Failure::NoSuchTarget { name: only.clone(), known });
        }
        if let Some(input) = &args.input {
            let mut command = limited(&driver, &root, only);
            return process::run(command.arg("--input").arg(input));
        }
    }
    let fuzz = Fuzz { root, driver, seconds: args.seconds, seed: args.seed.unwrap_or_else(now) };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match fuzz.all(&names, args.jobs.unwrap_or(cores).max(1)) {
        0 => Ok(()),
        count => Err(Failure::Fuzz(count)),
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs())
}

/// Builds the driver with the versions of the workspace and says where it is.
fn build(root: &Path) -> Result<PathBuf, Failure> {
    copy_lock(root, "fuzz")?;
    let target = root.join("target/fuzz");
    let mut command = process::cargo();
    command.args(["build", "--release", "--bin", "drive"]).current_dir(root);
    command.args(["--manifest-path", "fuzz/Cargo.toml", "--target-dir"]).arg(&target);
    process::run(&mut command)?;
    Ok(target.join("release/drive"))
}

/// The driver under a limit on memory, which only a shell can set without unsafe code.
fn limited(driver: &Path, root: &Path, target: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {MEMORY_KIB_MAX} 2>/dev/null; exec \"$@\"");
    command.args(["-c", &script, "sh"]).arg(driver).arg(target).current_dir(root);
    command
}

struct Fuzz {
    root: PathBuf,
    driver: PathBuf,
    seconds: u64,
    seed: u64,
}

impl Fuzz {
    /// Runs the targets, `jobs` at a time; returns how many failed.
    fn all(&self, names: &[&str], jobs: usize) -> usize {
        let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let print = Mutex::new(());
        std::thread::scope(|scope| {
            for _ in 0..jobs.min(names.len()) {
                scope.spawn(|| {
                    while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let (clean, text) = self.one(name);
                        failed.fetch_add(usize::from(!clean), Ordering::Relaxed);
                        // Held only so that the lines of two targets do not mix.
                        let _held = print.lock();
                        print!("{text}");
                    }
                });
            }
        });
        failed.into_inner()
    }

    /// Runs a target; whether it stayed clean, and what to show.
    fn one(&self, name: &str) -> (bool, String) {
        let (status, text) = self.drive(name, self.seconds, &[]);
        match status {
            Some(0) => (true, text),
            // The driver ended by itself and has said all there is to say.
            Some(1 | 2) => (false, text),
            _ => (false, text + &self.find_killer(name)),
        }
    }

    /// Repeats a run that was killed, each input written before it runs, to keep the last.
    fn find_killer(&self, name: &str) -> String {
        let seconds = self.seconds.saturating_mul(CAREFUL_FACTOR);
        let (status, text) = self.drive(name, seconds, &["--careful"]);
        if status == Some(0) {
            return format!("{name}: killed with seed {}, but not when repeated\n", self.seed);
        }
        let input = self.name_killer(name);
        format!(
            "{text}{name}: killed with seed {}\nreproduce: cargo xtask fuzz --target {name} \
             --input {input}\n",
            self.seed
        )
    }

    /// Gives the input that was running a name of its own, so that the next one does not
    /// overwrite it; its old name where that fails.
    fn name_killer(&self, name: &str) -> String {
        let current = format!("fuzz/artifacts/{name}-current");
        let Ok(input) = std::fs::read(self.root.join(&current)) else { return current };
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        let named = format!("fuzz/artifacts/{name}-{:016x}", hasher.finish());
        match std::fs::rename(self.root.join(&current), self.root.join(&named)) {
            Ok(()) => named,
            Err(_) => current,
        }
    }

    fn drive(&self, name: &str, seconds: u64, more: &[&str]) -> (Option<i32>, String) {
        let mut command = limited(&self.driver, &self.root, name);
        command.args(["--seconds", &seconds.to_string(), "--seed", &self.seed.to_string()]);
        match command.args(more).output() {
            Ok(output) => {
                let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
                text.push_str(&String::from_utf8_lossy(&output.stderr));
                (output.status.code(), text)
            }
            Err(error) => (Some(1), format!("{name}: the driver could not be started: {error}\n")),
        }
    }
}
