//! What the steps left behind, counted.

use super::steps::Step;
use crate::failure::Failure;
use std::path::Path;

/// Tells what each step came to, shows its tables, and fails unless all of it passed.
pub(super) fn report(out: &Path, steps: &[Step]) -> Result<(), Failure> {
    let read = |name: &str| {
        let path = out.join(name);
        std::fs::read_to_string(&path).map_err(|source| Failure::File { path, source })
    };
    // Without it nothing ran at all.
    let parts = if out.join("parts").exists() { read("parts")? } else { String::new() };
    let parts: Vec<Part<'_>> = parts.lines().filter_map(Part::of).collect();
    let mut total = Count::default();
    for part in &parts {
        // A machine that is stopped may have written the one and not yet the other.
        let log = read(&format!("{}.log", part.name)).unwrap_or_default();
        let count = count(&log);
        let Count { passed, failed } = count;
        println!("--- {}: {passed} passed, {failed} failed ({} s)", part.name, part.seconds);
        if failed > 0 {
            print!("{log}");
        }
        total.add(count);
    }
    for step in unseen(steps, &parts) {
        println!("--- {step}: did not run");
        total.failed += 1;
    }
    for table in tables(out)? {
        print!("\n{}", read(&table)?);
    }
    println!("\n{} passed, {} failed; logs in {}", total.passed, total.failed, out.display());
    match total {
        Count { failed: 0, passed: 1.. } => Ok(()),
        Count { failed, .. } => Err(Failure::Guest(failed)),
    }
}

/// A line of the list that the guest keeps: a part of a step, with a log of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part<'a> {
    step: &'a str,
    name: &'a str,
    seconds: &'a str,
}

impl<'a> Part<'a> {
    /// `STEP PART SECONDS`; the last is missing when the machine was stopped in the middle.
    fn of(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ');
        let (step, name) = (words.next()?, words.next()?);
        Some(Self { step, name, seconds: words.next().unwrap_or("?") })
    }
}

/// The steps without a part: each was there to run something.
fn unseen<'a>(steps: &'a [Step], parts: &[Part<'_>]) -> Vec<&'a str> {
    let seen = |step: &Step| parts.iter().any(|part| part.step == step.file);
    steps.iter().filter(|step| !seen(step)).map(Step::name).collect()
}

/// The tables that steps left, by name.
fn tables(out: &Path) -> Result<Vec<String>, Failure> {
    let failed = |source| Failure::File { path: out.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(out).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".table") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Counts the tests in the log of a part. A log without an end is one failure more: the program
/// crashed or was stopped; and so is one without any test, since each part is there to run some.
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
    use super::super::steps::Needs;
    use super::*;

    #[test]
    fn a_part_that_did_not_end_or_ran_nothing_has_failed() {
        let end = "\ntest result: ok. 2 passed\n";
        let two = "test a ... ok\ntest b ... ok";
        assert_eq!(count(&format!("{two}{end}")), Count { passed: 2, failed: 0 });
        assert_eq!(count(two), Count { passed: 2, failed: 1 });
        assert_eq!(count(end), Count { passed: 0, failed: 1 });
        let bad = format!("test a ... ok\ntest b ... FAILED{end}");
        assert_eq!(count(&bad), Count { passed: 1, failed: 1 });
    }

    #[test]
    fn a_step_that_left_nothing_is_missed() {
        let step = |file: &str| Step { file: file.to_owned(), needs: Needs::default() };
        let steps = [step("10-a.sh"), step("20-b.sh")];
        let part = Part::of("10-a.sh a-part 3").unwrap();
        assert_eq!(part, Part { step: "10-a.sh", name: "a-part", seconds: "3" });
        assert_eq!(unseen(&steps, &[part]), ["b"]);
        assert_eq!(Part::of("10-a.sh a-part").map(|part| part.seconds), Some("?"));
    }
}
