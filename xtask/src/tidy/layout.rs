//! The shape of files: first line, width, characters, length.

use crate::finding::Finding;
use crate::tree::{File, Tree};

/// Widest line of Rust, characters; rustfmt leaves comments and strings to us.
const COLUMNS_MAX: usize = 100;
/// Longest Rust file, lines.
const LINES_MAX: usize = 800;
/// From here on a Rust file should be split, lines.
const LINES_WANTED_MAX: usize = 500;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        check_every(file, &mut findings);
        if file.path.ends_with(".rs") {
            check_rust(file, &mut findings);
        }
    }
    findings
}

fn check_every(file: &File, findings: &mut Vec<Finding>) {
    let mut error = |line, message: &str| findings.push(Finding::error(&file.path, line, message));
    for (at, line) in file.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            error(at + 1, "blanks at the end of the line");
        }
        if line.trim_end().contains('\t') {
            error(at + 1, "a tab: use spaces");
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        error(0, "the last line has no newline");
    }
    if file.text.ends_with("\n\n") {
        error(0, "empty lines at the end");
    }
}

fn check_rust(file: &File, findings: &mut Vec<Finding>) {
    let first = file.text.lines().next().unwrap_or_default();
    if first.strip_prefix("//! ").is_none_or(|sentence| sentence.trim().is_empty()) {
        let message = "the first line must be `//!` and say what the file is";
        findings.push(Finding::error(&file.path, 1, message));
    }
    for (at, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            let message = format!("{columns} columns; {COLUMNS_MAX} are allowed");
            findings.push(Finding::error(&file.path, at + 1, message));
        }
        if let Some(odd) = line.chars().find(|&c| !matches!(c, ' '..='~' | '\t')) {
            let message = format!("{odd:?} is not printable ASCII: escape it or write it out");
            findings.push(Finding::error(&file.path, at + 1, message));
        }
    }
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        let message = format!("{lines} lines; {LINES_MAX} are allowed: split the file");
        findings.push(Finding::error(&file.path, 0, message));
    } else if lines > LINES_WANTED_MAX {
        let message = format!("{lines} lines: past {LINES_WANTED_MAX}, look for the seam");
        findings.push(Finding::warning(&file.path, 0, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let findings = check(&Tree::of(&[(path, text)]));
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_file_in_order_passes() {
        assert_eq!(found("a/src/lib.rs", "//! What it is.\n\nfn a() {}\n"), [""; 0]);
        assert_eq!(found("a.md", "# Any width \u{e9}\n"), [""; 0]);
    }

    #[test]
    fn the_first_line_must_say_something() {
        assert_eq!(found("a.rs", "fn a() {}\n").len(), 1);
        assert_eq!(found("a.rs", "//!\n").len(), 1);
        assert_eq!(found("a.rs", "").len(), 1);
    }

    #[test]
    fn the_hundredth_column_passes_and_the_next_does_not() {
        let wide = |columns: usize| format!("//! {}\n", "x".repeat(columns - 4));
        assert_eq!(found("a.rs", &wide(100)), [""; 0]);
        assert_eq!(found("a.rs", &wide(101)), ["101 columns; 100 are allowed"]);
    }

    #[test]
    fn tabs_trailing_blanks_and_characters_beyond_ascii_fail() {
        for text in
            ["//! A.\n\tb\n", "//! A. \n", "//! A.\r\n", "//! \u{e9}.\n", "//! A.", "//! A.\n\n"]
        {
            assert!(!found("a.rs", text).is_empty(), "{text:?}");
        }
        assert_eq!(found("a.toml", "a = 1 \n").len(), 1);
    }

    #[test]
    fn long_files_are_warned_of_and_then_refused() {
        let long = |lines: usize| Tree::of(&[("a.rs", &"//! A.\n".repeat(lines))]);
        assert_eq!(check(&long(500)), []);
        assert!(check(&long(501))[0].warning && check(&long(800))[0].warning);
        assert!(!check(&long(801))[0].warning);
    }
}
