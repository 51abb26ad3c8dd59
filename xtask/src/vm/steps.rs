//! The steps of the suite: one script each, whose head says what it needs of the host.

use crate::failure::Failure;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// What runs a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suite {
    /// `--quick`: what tells in the shortest time whether all works.
    #[default]
    Quick,
    /// The command without flags: what measures, too.
    Full,
    /// Only its name.
    Named,
}

impl Suite {
    fn of(word: &str) -> Self {
        match word {
            "full" => Self::Full,
            "named" => Self::Named,
            _ => Self::Quick,
        }
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quick => "quick",
            Self::Full => "full",
            Self::Named => "only by its name",
        })
    }
}

/// What a step needs, as its script says in lines like `# test: verbs_link` before its first
/// command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// `# test:` integration tests of `towpath-tests`, built with the feature `verbs`.
    pub(super) tests: BTreeSet<String>,
    /// `# unit:` packages whose own tests run inside, built with the feature `verbs`.
    pub(super) units: BTreeSet<String>,
    /// `# bin:` binaries of `towpath-tools` and `towpath-chunkserver`, built with the feature
    /// `verbs`; optimised where a step of the full suite, which measures, is among them.
    pub(super) bins: BTreeSet<String>,
    /// `# command:` programs of the host, taken along with their libraries.
    pub(super) commands: BTreeSet<String>,
    /// `# package:` Debian packages that those come from.
    pub(super) packages: BTreeSet<String>,
    /// `# suite:` the smallest that a step is in: of several, the largest.
    pub(super) suite: Suite,
    /// `# clock: counted` has it run in a guest whose clock counts instructions.
    pub(super) counted: bool,
}

impl Needs {
    /// Reads the head of a script.
    fn of(script: &str) -> Self {
        let mut needs = Self::default();
        for line in script.lines().take_while(|line| line.is_empty() || line.starts_with('#')) {
            let Some((key, words)) = line.trim_start_matches('#').split_once(':') else { continue };
            let words = words.split_whitespace().map(str::to_owned);
            match key.trim() {
                "test" => needs.tests.extend(words),
                "unit" => needs.units.extend(words),
                "bin" => needs.bins.extend(words),
                "command" => needs.commands.extend(words),
                "package" => needs.packages.extend(words),
                "suite" => {
                    needs.suite = words.map(|word| Suite::of(&word)).max().unwrap_or_default();
                }
                "clock" => needs.counted = words.into_iter().any(|word| word == "counted"),
                _ => {}
            }
        }
        needs
    }

    /// Of all of these together.
    pub(super) fn of_all<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Self {
        let mut all = Self::default();
        for Step { needs, .. } in steps {
            all.tests.extend(needs.tests.iter().cloned());
            all.units.extend(needs.units.iter().cloned());
            all.bins.extend(needs.bins.iter().cloned());
            all.commands.extend(needs.commands.iter().cloned());
            all.packages.extend(needs.packages.iter().cloned());
            all.suite = all.suite.max(needs.suite);
            all.counted |= needs.counted;
        }
        all
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The name of its script, as `20-link.sh`.
    pub(super) file: String,
    pub(super) needs: Needs,
}

impl Step {
    /// What it is called: the name of its script without number and ending.
    pub(super) fn name(&self) -> &str {
        let stem = self.file.trim_end_matches(".sh");
        stem.split_once('-').map_or(stem, |(_, name)| name)
    }
}

/// All steps of `folder`, in the order of their numbers.
pub(super) fn all(folder: &Path) -> Result<Vec<Step>, Failure> {
    let failed = |source| Failure::File { path: folder.to_owned(), source };
    let mut steps = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(file) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if file.ends_with(".sh") {
            let script = std::fs::read_to_string(&path);
            let script = script.map_err(|source| Failure::File { path: path.clone(), source })?;
            steps.push(Step { file: file.to_owned(), needs: Needs::of(&script) });
        }
    }
    steps.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(steps)
}

/// Those that `only` names, or without names those of the suite.
pub(super) fn chosen(steps: Vec<Step>, only: &[String], quick: bool) -> Result<Vec<Step>, Failure> {
    if let Some(name) = only.iter().find(|name| steps.iter().all(|step| step.name() != **name)) {
        let known: Vec<_> = steps.iter().map(Step::name).collect();
        return Err(Failure::NoSuchGuestStep { name: name.clone(), known: known.join(", ") });
    }
    let suite = if quick { Suite::Quick } else { Suite::Full };
    let wanted = |step: &Step| {
        let named = only.iter().any(|name| name == step.name());
        if only.is_empty() { step.needs.suite <= suite } else { named }
    };
    Ok(steps.into_iter().filter(wanted).collect())
}

/// The steps by the machine that they run in: those that need tests and nothing else, those that
/// need programs, and those whose clock counts instructions.
pub(super) fn machines(steps: &[Step]) -> [Vec<&Step>; 3] {
    let mut machines = [const { Vec::new() }; 3];
    for step in steps {
        let has_programs = !step.needs.bins.is_empty() || !step.needs.commands.is_empty();
        let machine = if step.needs.counted { 2 } else { usize::from(has_programs) };
        machines[machine].push(step);
    }
    machines
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "# What it does: much.\n# test: a b\n# unit: u\n# bin: c\n\
                          # command: d e\n# package: f\n# suite: full\n# clock: counted\n\n\
                          run # test: z\n# test: y\n";

    #[test]
    fn the_head_of_a_script_says_what_it_needs() {
        let set = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let needs = Needs {
            tests: set(&["a", "b"]),
            units: set(&["u"]),
            bins: set(&["c"]),
            commands: set(&["d", "e"]),
            packages: set(&["f"]),
            suite: Suite::Full,
            counted: true,
        };
        assert_eq!(Needs::of(SCRIPT), needs);
        assert_eq!(Needs::of("run # suite: full\n"), Needs::default());
    }

    fn step(file: &str, head: &str) -> Step {
        Step { file: file.to_owned(), needs: Needs::of(head) }
    }

    #[test]
    fn steps_are_chosen_by_name_or_by_suite() {
        let steps = || {
            vec![
                step("10-contract.sh", ""),
                step("85-table.sh", "# suite: full"),
                step("86-count.sh", "# suite: named"),
            ]
        };
        let names = |only: &[&str], quick| {
            let only: Vec<_> = only.iter().map(|&name| name.to_owned()).collect();
            let chosen = chosen(steps(), &only, quick)?;
            Ok::<_, Failure>(chosen.iter().map(|step| step.name().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[], false).unwrap(), ["contract", "table"]);
        assert_eq!(names(&[], true).unwrap(), ["contract"]);
        assert_eq!(
            names(&["count", "table"], true).unwrap(),
            ["table", "count"],
            "a name is a name"
        );
        let unknown = names(&["tabel"], false).unwrap_err().to_string();
        assert!(unknown.contains("tabel") && unknown.contains("contract, table, count"));
    }

    #[test]
    fn what_needs_no_programs_does_not_wait_for_them() {
        let steps = [
            step("10-contract.sh", "# test: a"),
            step("50-storage.sh", "# bin: b"),
            step("60-more.sh", "# unit: c"),
            step("85-table.sh", "# command: d"),
            step("86-count.sh", "# bin: b\n# clock: counted"),
        ];
        let files =
            machines(&steps).map(|steps| steps.iter().map(|step| step.name()).collect::<Vec<_>>());
        assert_eq!(files, [vec!["contract", "more"], vec!["storage", "table"], vec!["count"]]);
    }
}
