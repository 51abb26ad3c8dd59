//! Words that must not stand in a file, each with what to write in its place.

use crate::finding::Finding;
use crate::source::{Code, find_words, is_in_module, line_of};
use crate::tree::{File, Tree};

/// The crates that read no clock, do no I/O and have one order of events.
const SANS_IO: [&str; 6] = [
    "transport/base/",
    "cc/",
    "transport/verbs/",
    "transport/proto/",
    "storage-fastpath/qos/",
    "storage-fastpath/ec/",
];

/// A word and why it is not wanted.
struct Ban {
    word: &'static str,
    instead: &'static str,
}

/// Not in the sans-IO crates, their tests excepted.
const IN_SANS_IO: &[Ban] = &[
    Ban { word: "Instant::now", instead: "`now: Time` is an argument" },
    Ban { word: "SystemTime", instead: "`now: Time` is an argument" },
    Ban { word: "thread_rng", instead: "take a seed and use `towpath_base::Prng`" },
    Ban { word: "std::", instead: "use `core` or `alloc`: the crate is `no_std`" },
    Ban { word: "extern crate std", instead: "the crate is `no_std`" },
    Ban { word: "HashMap", instead: "its order is random: use a slab, a ring or a `BTreeMap`" },
    Ban { word: "HashSet", instead: "its order is random: use a bitmap or a `BTreeSet`" },
];

/// Not in what users run: each of these panics where stdout or stderr cannot be written, as on a
/// full disk or a closed pipe, and takes a server or an exit code with it.
const IN_PRODUCTION: &[Ban] = &[
    Ban { word: "println!", instead: "write to stdout and return its error" },
    Ban { word: "print!", instead: "write to stdout and return its error" },
    Ban { word: "eprintln!", instead: "use `towpath_status::say`, which never fails" },
    Ban { word: "eprint!", instead: "use `towpath_status::say`, which never fails" },
];

/// Programs about the repository itself, which may end where they cannot print.
const ABOUT_THE_REPOSITORY: [&str; 2] = ["xtask/", "fuzz/"];

/// Not in any Rust code.
const IN_CODE: &[Ban] = &[
    Ban { word: "todo!", instead: "write it, or return a clear `Unsupported`" },
    Ban { word: "unimplemented!", instead: "write it, or return a clear `Unsupported`" },
    Ban { word: "dbg!", instead: "take it out" },
];

/// Not in any text but documents, comments included. Put together from halves, so that this file
/// does not name them.
const IN_TEXT: &[Ban] = &[
    Ban { word: concat!("FIX", "ME"), instead: "fix it, or say in a document what is missing" },
    Ban { word: concat!("TO", "DO"), instead: "do it, or say in a document what is missing" },
    Ban { word: concat!("XX", "X"), instead: "say what is meant" },
];

/// Not in any file: places that exist on one machine only.
const PLACES: &[Ban] = &[
    Ban { word: concat!("/wo", "rk/"), instead: "name no path of one machine" },
    Ban { word: concat!("/ro", "ot/"), instead: "name no path of one machine" },
    Ban { word: concat!("../sha", "red"), instead: "name no path outside the repository" },
    Ban { word: concat!("anch", "ors/"), instead: "name no path outside the repository" },
    Ban { word: concat!("pap", "ers/"), instead: "cite the publication, not a file" },
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let test_modules = tree.test_modules();
    for file in tree.rust().filter(|file| !is_in_module(&file.path, &test_modules)) {
        let is_below = |folder: &&str| file.path.starts_with(folder);
        if SANS_IO.iter().any(&is_below) {
            check_outside_tests(file, IN_SANS_IO, &mut findings);
        }
        if file.path.contains("src/") && !ABOUT_THE_REPOSITORY.iter().any(is_below) {
            check_outside_tests(file, IN_PRODUCTION, &mut findings);
        }
    }
    for file in &tree.files {
        check_text(file, PLACES, &mut findings);
        if !file.path.ends_with(".md") {
            check_text(file, IN_TEXT, &mut findings);
        }
        if file.path.ends_with(".rs") {
            check_code(file, &mut findings);
        }
    }
    findings
}

fn check_text(file: &File, bans: &[Ban], findings: &mut Vec<Finding>) {
    for ban in bans {
        for at in find_words(&file.text, ban.word) {
            findings.push(refuse(file, at, ban));
        }
    }
}

fn check_code(file: &File, findings: &mut Vec<Finding>) {
    let code = Code::read(&file.path, &file.text);
    for ban in IN_CODE {
        findings.extend(code.find(ban.word).map(|at| refuse(file, at, ban)));
    }
}

fn check_outside_tests(file: &File, bans: &[Ban], findings: &mut Vec<Finding>) {
    let code = Code::read(&file.path, &file.text);
    for ban in bans {
        let outside_tests = code.find(ban.word).filter(|&at| !code.is_test(at));
        findings.extend(outside_tests.map(|at| refuse(file, at, ban)));
    }
}

fn refuse(file: &File, at: usize, ban: &Ban) -> Finding {
    let message = format!("`{}`: {}", ban.word, ban.instead);
    Finding::error(&file.path, line_of(&file.text, at), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn each_ban_of_the_sans_io_crates_holds_there_and_nowhere_else() {
        for ban in IN_SANS_IO {
            let text = format!("//! A.\n{} x;\n", ban.word);
            for folder in SANS_IO {
                let found = lines(&format!("{folder}src/lib.rs"), &text);
                assert_eq!(found, [2], "{} in {folder}", ban.word);
            }
            assert_eq!(lines("tools/src/lib.rs", &text), [0; 0], "{}", ban.word);
        }
    }

    #[test]
    fn what_users_run_prints_by_what_cannot_panic() {
        for ban in IN_PRODUCTION {
            let text = format!("//! A.\n{}(\"x\");\n", ban.word);
            for path in ["tools/src/cli/mod.rs", "kv/src/bin/a.rs", "cc/src/lib.rs"] {
                assert_eq!(lines(path, &text), [2], "{} in {path}", ban.word);
            }
            let others = ["xtask/src/a.rs", "fuzz/src/a.rs", "kv/build.rs", "kv/src/a/tests.rs"];
            for path in others.into_iter().chain(["kv/examples/a.rs", "kv/tests/a.rs"]) {
                assert_eq!(lines(path, &text), [0; 0], "{} in {path}", ban.word);
            }
        }
    }

    #[test]
    fn comments_strings_and_tests_may_name_them() {
        let text = "//! Unlike std::time.\nconst A: &str = \"std::\";\n\
                    #[cfg(test)]\nmod tests {\n    use std::vec;\n}\n";
        assert_eq!(lines("cc/src/lib.rs", text), [0; 0]);
        assert_eq!(lines("cc/src/a/tests.rs", "use std::vec;\n"), [0; 0]);
    }

    #[test]
    fn a_module_declared_for_tests_only_is_a_test() {
        let declare = |mark: &str| {
            let text = format!("//! A.\n{mark}\nmod model;\n");
            check(&Tree::of(&[("cc/src/lib.rs", &text), ("cc/src/model.rs", "use std::vec;\n")]))
        };
        assert_eq!(declare("#[cfg(test)]"), []);
        assert_eq!(declare("").len(), 1);
    }

    #[test]
    fn unfinished_code_fails_everywhere_even_in_tests() {
        for ban in IN_CODE {
            let text = format!("fn a() {{ {}() }}\n", ban.word);
            assert_eq!(lines("tests/src/lib.rs", &text), [1]);
        }
        for ban in IN_TEXT {
            assert_eq!(lines("a.rs", &format!("// {}: later\n", ban.word)), [1]);
            assert_eq!(lines("a.rs", &format!("// a{}b\n", ban.word)), [0; 0]);
        }
    }

    #[test]
    fn places_of_one_machine_fail_in_documents_too() {
        for ban in PLACES {
            assert_eq!(lines("a.md", &format!("see {} x\n", ban.word)), [1], "{}", ban.word);
        }
        assert_eq!(lines("a.md", "a network/path and /tmp/x\n"), [0; 0]);
    }
}
