//! What comments in the code cite from our documents is there.

use super::headings::headings;
use crate::finding::Finding;
use crate::source::{line_of, without_literals};
use crate::tree::{File, Tree};

/// A document, and the number of its section where one is cited.
#[derive(Debug, PartialEq, Eq)]
struct Citation<'a> {
    at: usize,
    document: &'a str,
    section: Option<&'a str>,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust().flat_map(|file| check_file(tree, file)).collect()
}

fn check_file(tree: &Tree, file: &File) -> Vec<Finding> {
    let text = unwrapped(&without_literals(&file.text));
    let mut findings = Vec::new();
    for Citation { at, document, section } in citations(&text) {
        let line = line_of(&file.text, at);
        let Some(target) = tree.text(document) else {
            let message = format!("{document} is cited and does not exist");
            findings.push(Finding::error(&file.path, line, message));
            continue;
        };
        if let Some(section) = section
            && !headings(target).any(|heading| number(heading) == Some(section))
        {
            let message = format!("{document} has no section {section}");
            findings.push(Finding::error(&file.path, line, message));
        }
    }
    findings
}

/// The text with line ends and the comment marks behind them blanked, so that a citation may
/// run over two lines; offsets stay.
fn unwrapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let body = line.trim_start();
        let mark = ["///", "//!", "//"].into_iter().find(|mark| body.starts_with(mark));
        let skipped = line.len() - body.len() + mark.map_or(0, str::len);
        out.extend(std::iter::repeat_n(' ', skipped));
        out.push_str(&line[skipped..].replace('\n', " "));
    }
    out
}

fn citations(text: &str) -> Vec<Citation<'_>> {
    const FOLDER: &str = "docs/";
    const SUFFIX: &str = ".md";
    let mut citations = Vec::new();
    for (at, _) in text.match_indices(FOLDER) {
        let part_of_longer = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '/');
        let name = |c: char| c.is_ascii_alphanumeric() || "-_/".contains(c);
        let stem = &text[at + FOLDER.len()..];
        let stem = &stem[..stem.find(|c| !name(c)).unwrap_or(stem.len())];
        let end = at + FOLDER.len() + stem.len();
        if part_of_longer || stem.is_empty() || !text[end..].starts_with(SUFFIX) {
            continue;
        }
        let end = end + SUFFIX.len();
        let document = &text[at..end];
        citations.push(Citation { at, document, section: section(&text[end..]) });
    }
    citations
}

/// The number behind ` section `, allowing for a closing quote or a comma.
fn section(after: &str) -> Option<&str> {
    let rest = after.trim_start_matches(['`', '\'', '"', ',', ')']).trim_start();
    let rest = rest.strip_prefix("section")?.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let number = rest[..end].trim_end_matches('.');
    (!number.is_empty()).then_some(number)
}

/// The number that a heading begins with.
fn number(heading: &str) -> Option<&str> {
    let first = heading.split(' ').next()?.trim_end_matches(['.', ':']);
    first.starts_with(|c: char| c.is_ascii_digit()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            ("cc/src/lib.rs", text),
            ("docs/protocol.md", "# P\n## 3. Headers\n### 3.1 Chunk\n```\n## 9. no\n```\n"),
        ]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn what_exists_may_be_cited_even_over_two_lines() {
        assert_eq!(found("//! As docs/protocol.md section 3 says.\n"), [0; 0]);
        assert_eq!(found("//! See `docs/protocol.md`, section 3.1.\n"), [0; 0]);
        assert_eq!(found("/// See docs/protocol.md\n    /// section 3.1: x\n"), [0; 0]);
        assert_eq!(found("// https://example.org/docs/other.md section 5\n"), [0; 0]);
    }

    #[test]
    fn what_does_not_exist_may_not() {
        assert_eq!(found("//! A.\n//! docs/protocol.md section 4\n"), [2]);
        assert_eq!(found("//! docs/protocol.md section 9\n"), [1]);
        assert_eq!(found("//! docs/protocol.md\n//! section 3.2\n"), [1]);
        assert_eq!(found("//! docs/protokol.md\n"), [1]);
    }
}
