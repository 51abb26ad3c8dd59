//! The driver: seeds first, then changed copies of whatever reached a new class of outcome.
//!
//! A panic is caught, its input shrunk and written to `artifacts/`; an input that does not come
//! back within [`HANG_SECONDS_MAX`] is written by a watchdog. What kills the process (a stack or
//! memory exhausted) leaves nothing behind, so `careful` writes each input before it runs: the
//! same seed then finds the same input again.

use crate::mutate::mutate;
use crate::{Target, fnv1a};
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use towpath_base::Prng;

/// How long one input may take before it counts as a hang, seconds: thousands of times what the
/// slowest target needs, even on a machine that is busy with something else.
pub const HANG_SECONDS_MAX: u64 = 60;

/// Most inputs that are kept, so that memory stays flat however fine the classes are.
const CORPUS_MAX: usize = 8_192;

/// How many trials shrinking may take.
const SHRINK_TRIALS_MAX: u32 = 5_000;

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Options {
    /// When to stop.
    pub seconds: u64,
    /// After how many inputs to stop, if that comes first.
    pub inputs_max: u64,
    /// What every choice follows from.
    pub seed: u64,
    /// Write each input to `artifacts/<target>-current` before it runs.
    pub careful: bool,
    /// The folder that holds `seeds` and `artifacts`.
    pub folder: PathBuf,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing broke.
    Clean {
        /// Inputs run.
        inputs: u64,
        /// Classes of outcome seen.
        classes: usize,
    },
    /// An input broke the target; it was written here.
    Broken(PathBuf),
}

/// Runs one target.
///
/// # Errors
///
/// When seeds cannot be read or an artifact cannot be written.
pub fn drive(target: Target, options: &Options) -> io::Result<Outcome> {
    let watch = Watch::start(target, options);
    let mut run = Run { target, options, watch, kept: Vec::new(), by_class: HashMap::new() };
    let outcome = run.all();
    run.watch.stop();
    outcome
}

/// Runs one input; true when the target panicked.
#[must_use]
pub fn breaks(target: Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err()
}

struct Run<'a> {
    target: Target,
    options: &'a Options,
    watch: Watch,
    /// Inputs and their classes.
    kept: Vec<(u64, Vec<u8>)>,
    by_class: HashMap<u64, usize>,
}

impl Run<'_> {
    fn all(&mut self) -> io::Result<Outcome> {
        let started = Instant::now();
        let limit = Duration::from_secs(self.options.seconds);
        let mut prng = Prng::new(self.options.seed);
        let mut inputs = 0;
        for seed in self.seeds()? {
            inputs += 1;
            if let Some(broken) = self.one(seed, &mut prng)? {
                return Ok(broken);
            }
        }
        while inputs < self.options.inputs_max && started.elapsed() < limit {
            inputs += 1;
            let (base, other) = (self.pick(&mut prng), self.pick(&mut prng));
            let input = mutate(&mut prng, base, other);
            if let Some(broken) = self.one(input, &mut prng)? {
                return Ok(broken);
            }
        }
        Ok(Outcome::Clean { inputs, classes: self.by_class.len() })
    }

    /// The committed inputs in the order of their names, and the empty one.
    fn seeds(&self) -> io::Result<Vec<Vec<u8>>> {
        let folder = self.options.folder.join("seeds").join(self.target.name);
        let mut paths = Vec::new();
        if folder.is_dir() {
            for entry in std::fs::read_dir(folder)? {
                paths.push(entry?.path());
            }
        }
        paths.sort();
        let mut seeds = vec![Vec::new()];
        for path in paths {
            seeds.push(std::fs::read(path)?);
        }
        Ok(seeds)
    }

    /// Half of the time one of the newest inputs, because they lead to where nobody was yet.
    fn pick(&self, prng: &mut Prng) -> &[u8] {
        let len = self.kept.len();
        let from = if prng.chance(0.5) { len.saturating_sub(16) } else { 0 };
        let at = from + prng.below((len - from).max(1) as u64) as usize;
        self.kept.get(at).map_or(&[], |(_, input)| input.as_slice())
    }

    fn one(&mut self, input: Vec<u8>, prng: &mut Prng) -> io::Result<Option<Outcome>> {
        if self.options.careful {
            std::fs::write(self.path("current")?, &input)?;
        }
        self.watch.enter(&input);
        let Ok(class) = catch_unwind(AssertUnwindSafe(|| (self.target.run)(&input))) else {
            self.watch.stop();
            let small = shrink(self.target, input);
            return write_artifact(self.target, &self.options.folder, &small)
                .map(|path| Some(Outcome::Broken(path)));
        };
        self.keep(class, input, prng);
        Ok(None)
    }

    /// Keeps an input whose class is new, or shorter than the one kept for its class.
    fn keep(&mut self, class: u64, input: Vec<u8>, prng: &mut Prng) {
        if let Some(&at) = self.by_class.get(&class) {
            if let Some((_, kept)) = self.kept.get_mut(at)
                && input.len() < kept.len()
            {
                *kept = input;
            }
            return;
        }
        let at = if self.kept.len() < CORPUS_MAX {
            self.kept.push((class, input));
            self.kept.len() - 1
        } else {
            let at = prng.below(CORPUS_MAX as u64) as usize;
            self.by_class.remove(&self.kept[at].0);
            self.kept[at] = (class, input);
            at
        };
        self.by_class.insert(class, at);
    }

    fn path(&self, suffix: &str) -> io::Result<PathBuf> {
        artifact_path(self.target, &self.options.folder, suffix)
    }
}

fn artifact_path(target: Target, folder: &Path, suffix: &str) -> io::Result<PathBuf> {
    let folder = folder.join("artifacts");
    std::fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("{}-{suffix}", target.name)))
}

fn write_artifact(target: Target, folder: &Path, input: &[u8]) -> io::Result<PathBuf> {
    let hash = fnv1a(input.iter().copied());
    let path = artifact_path(target, folder, &format!("{hash:016x}"))?;
    std::fs::write(&path, input)?;
    Ok(path)
}

/// Takes out ever smaller pieces for as long as what is left still breaks the target.
fn shrink(target: Target, mut input: Vec<u8>) -> Vec<u8> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut trials = 0;
    let mut piece = input.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < input.len() && trials < SHRINK_TRIALS_MAX {
            trials += 1;
            let mut smaller = input.clone();
            smaller.drain(at..(at + piece).min(input.len()));
            if breaks(target, &smaller) {
                input = smaller;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    std::panic::set_hook(hook);
    input
}

/// What the watchdog sees: how many inputs were begun, and the one that is running.
#[derive(Default)]
struct Seen {
    begun: AtomicU64,
    current: Mutex<Vec<u8>>,
}

/// The count that says that nothing is left to watch.
const STOPPED: u64 = u64::MAX;

struct Watch {
    seen: Arc<Seen>,
}

impl Watch {
    fn start(target: Target, options: &Options) -> Self {
        let seen = Arc::new(Seen::default());
        let (watched, folder) = (Arc::clone(&seen), options.folder.clone());
        std::thread::spawn(move || watch(target, &folder, &watched));
        Self { seen }
    }

    fn enter(&self, input: &[u8]) {
        let mut current = self.seen.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clear();
        current.extend_from_slice(input);
        self.seen.begun.fetch_add(1, Ordering::Relaxed);
    }

    fn stop(&self) {
        self.seen.begun.store(STOPPED, Ordering::Relaxed);
    }
}

fn watch(target: Target, folder: &Path, seen: &Seen) {
    let (mut last, mut same) = (0, 0);
    loop {
        std::thread::sleep(Duration::from_secs(1));
        let begun = seen.begun.load(Ordering::Relaxed);
        if begun == STOPPED {
            return;
        }
        same = if begun == last { same + 1 } else { 0 };
        last = begun;
        if same >= HANG_SECONDS_MAX {
            let current = seen.current.lock().unwrap_or_else(PoisonError::into_inner);
            eprintln!("{}: no answer after {HANG_SECONDS_MAX} s", target.name);
            match write_artifact(target, folder, &current) {
                Ok(path) => eprintln!("{}", reproduce(target, &path)),
                Err(error) => eprintln!("{}: the input is lost: {error}", target.name),
            }
            std::process::exit(1);
        }
    }
}

/// The one command that runs an artifact again.
#[must_use]
pub fn reproduce(target: Target, artifact: &Path) -> String {
    let name = artifact.file_name().unwrap_or_default().display();
    format!("reproduce: cargo xtask fuzz --target {} --input fuzz/artifacts/{name}", target.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(name: &str) -> Options {
        let folder =
            std::env::temp_dir().join(format!("towpath-fuzz-{name}-{}", std::process::id()));
        Options { seconds: 60, inputs_max: 5_000_000, seed: 5, careful: false, folder }
    }

    /// Breaks on 0x80 behind 0xff at the front of at least 300 bytes: three steps, each a class.
    fn staged(input: &[u8]) -> u64 {
        let long = input.len() >= 300;
        let stage = match (long, input.first(), input.get(1)) {
            (true, Some(0xff), Some(0x80)) => panic!("found"),
            (true, Some(0xff), _) => 1_001,
            (true, ..) => 1_000,
            _ => input.len() as u64 / 32,
        };
        crate::class(&[stage])
    }

    fn calm(input: &[u8]) -> u64 {
        input.len() as u64
    }

    #[test]
    fn classes_lead_step_by_step_to_a_bug_and_the_input_is_shrunk_and_written() {
        let options = options("staged");
        let target = Target { name: "staged", run: staged };
        let Outcome::Broken(path) = drive(target, &options).unwrap() else {
            panic!("5,000,000 inputs did not find it")
        };
        let input = std::fs::read(&path).unwrap();
        assert_eq!((input.len(), &input[..2]), (300, [0xff, 0x80].as_slice()));
        assert!(breaks(target, &input) && !breaks(target, &[0xff, 0x80]));
        std::fs::remove_dir_all(&options.folder).unwrap();
    }

    #[test]
    fn the_same_seed_takes_the_same_way() {
        let mut options = options("calm");
        options.inputs_max = 3_000;
        let target = Target { name: "calm", run: calm };
        let first = drive(target, &options).unwrap();
        assert!(matches!(first, Outcome::Clean { inputs: 3_000, classes } if classes > 50));
        assert_eq!(drive(target, &options).unwrap(), first);
    }
}
