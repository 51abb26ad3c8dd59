//! `cargo xtask ab`: is B faster than A, or is that noise?
//!
//! A and B run in turn, A B A B, so that a machine that warms up or is shared slows both alike.

mod builds;

use crate::failure::Failure;
use crate::stats::{P_MAX, mann_whitney, median, spread};
use crate::turns::Turns;
use crate::{metric, process, workspace};
use builds::Build;
use serde_json::Value;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = "\
The command prints one JSON object; --metric picks a number in it, `a.b` for one further in, `a.0` \
for one in a list. A single word is a shell line; several are a program and its arguments. The \
programs of the side that runs come first in the PATH.

  cargo xtask ab --base HEAD~1 --metric write_gbps -- towpath demo --json
  cargo xtask ab --vs 'BENCH -c TCP' --metric gbps -- 'BENCH'")]
pub(crate) struct Args {
    /// Side A is this revision, side B the files as they are.
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    /// Side A is this shell line, from the same build as side B.
    #[arg(long, value_name = "COMMAND")]
    vs: Option<String>,
    /// How often each side runs; below 4 nothing can be told apart.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Run both sides of a run at once, of which one goes on for so many milliseconds at a time
    /// while the other stands still: for commands that last for seconds by themselves, and whose
    /// metric a standstill does not change (a median of samples; no rate).
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    slice_ms: Option<u64>,
    /// The number to compare.
    #[arg(long)]
    metric: String,
    /// Print one JSON object in place of text.
    #[arg(long)]
    json: bool,
    /// What side B runs, and side A too unless --vs says otherwise.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// One of the two things compared.
struct Side {
    label: String,
    command: Vec<String>,
    build: Build,
}

/// Runs both sides in turn and prints what they came to.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace::root();
    let current = Build::current(&root)?;
    let b = Side { label: "current".to_owned(), command: args.command.clone(), build: current };
    let a = match (&args.base, &args.vs) {
        (Some(rev), None) => {
            let build = Build::of_revision(&root, rev)?;
            Side { label: rev.clone(), command: args.command.clone(), build }
        }
        (None, Some(line)) => {
            Side { label: "other".to_owned(), command: vec![line.clone()], build: b.build.clone() }
        }
        _ => return Err(Failure::WhichComparison),
    };
    let turns = args.slice_ms.map(|ms| Turns::of(Duration::from_millis(ms)));
    let both = || measure((&a, &b), &args.metric, turns.as_ref(), &root);
    // The first run of each pays for cold caches and is not counted.
    both()?;
    let mut values = (Vec::new(), Vec::new());
    for run in 1..=args.runs {
        let (one, other) = both()?;
        values.0.push(one);
        values.1.push(other);
        eprintln!("run {run} of {}: A {one} B {other}", args.runs);
    }
    let comparison = Comparison::of(&values.0, &values.1);
    if args.json {
        println!("{}", comparison.json(&args.metric, &a.label, &b.label));
    } else {
        println!("{} over {} runs each, in turn", args.metric, args.runs);
        println!("A ({}): {}", a.label, comparison.a);
        println!("B ({}): {}", b.label, comparison.b);
        println!("{comparison}");
    }
    Ok(())
}

/// One run of each side.
fn measure(
    (a, b): (&Side, &Side),
    metric: &str,
    turns: Option<&Turns>,
    root: &Path,
) -> Result<(f64, f64), Failure> {
    let (mut one, mut other) = (command(a, root), command(b, root));
    let [one, other] = match turns {
        Some(turns) => turns.outputs(one, other)?,
        None => [process::output(&mut one)?, process::output(&mut other)?],
    };
    let number = |side: &Side, output: &str| metric::of(&side.command.join(" "), output, metric);
    Ok((number(a, &one)?, number(b, &other)?))
}

fn command(side: &Side, root: &Path) -> Command {
    let mut command = match side.command.as_slice() {
        [line] => process::shell(line),
        words => {
            // Found here, because a PATH set for the child does not decide where it is found.
            let own = side.build.programs.join(&words[0]);
            let program = if own.is_file() { own } else { (&words[0]).into() };
            let mut command = Command::new(program);
            command.args(&words[1..]);
            command
        }
    };
    command.env("PATH", side.build.path()).current_dir(root);
    command
}

/// A side's middle and how far its runs lie apart.
#[derive(Clone, Copy, Debug)]
struct Summary {
    median: f64,
    spread: f64,
}

/// What the runs say.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    a: Summary,
    b: Summary,
    p: f64,
}

impl Comparison {
    fn of(a: &[f64], b: &[f64]) -> Self {
        let summary = |values| Summary { median: median(values), spread: spread(values) };
        Self { a: summary(a), b: summary(b), p: mann_whitney(a, b) }
    }

    fn ratio(&self) -> f64 {
        self.b.median / self.a.median
    }

    /// Whether the sides differ: unlikely between equals, and more than a run lies off as a rule.
    fn differs(&self) -> bool {
        let noise = self.a.spread.max(self.b.spread);
        self.p < P_MAX && (self.b.median - self.a.median).abs() > noise
    }

    fn json(&self, metric: &str, a: &str, b: &str) -> Value {
        let side = |label: &str, summary: &Summary| {
            let (median, spread) = (summary.median, summary.spread);
            serde_json::json!({ "label": label, "median": median, "spread": spread })
        };
        serde_json::json!({
            "metric": metric,
            "a": side(a, &self.a),
            "b": side(b, &self.b),
            "ratio": self.ratio(),
            "p": self.p,
            "differs": self.differs(),
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = 100.0 * self.spread / self.median.abs();
        write!(f, "median {:.4}, spread {:.4} ({share:.1} %)", self.median, self.spread)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ratio, p) = (self.ratio(), self.p);
        if self.differs() {
            return write!(f, "B / A = {ratio:.3} (p = {p:.4})");
        }
        write!(f, "no difference beyond the noise (B / A = {ratio:.3}, p = {p:.4})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_difference_is_called_and_noise_is_not() {
        let a = [10.0, 10.1, 9.9, 10.2, 9.8, 10.05];
        let faster = a.map(|x| x * 1.5 + 0.01);
        assert!(Comparison::of(&a, &faster).differs());
        assert!(!Comparison::of(&a, &a.map(|x| x + 0.02)).differs());
        assert!(!Comparison::of(&a[..3], &faster[..3]).differs(), "three runs tell nothing");
    }

    #[test]
    fn a_shift_smaller_than_the_runs_lie_apart_is_not_called_however_likely() {
        let a: Vec<f64> = (0..30).map(|i| f64::from(i % 10)).collect();
        let b: Vec<f64> = a.iter().map(|x| x + 2.4).collect();
        let comparison = Comparison::of(&a, &b);
        assert!(comparison.p < P_MAX && !comparison.differs(), "{comparison:?}");
    }
}
