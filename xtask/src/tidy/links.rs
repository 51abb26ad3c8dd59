//! Links between documents lead somewhere.

use super::headings::{anchor, headings, prose};
use crate::finding::Finding;
use crate::tree::{File, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.markdown() {
        for (line, text) in prose(&file.text) {
            for target in targets(text) {
                if let Some(message) = dead(tree, file, target) {
                    findings.push(Finding::error(&file.path, line, message));
                }
            }
        }
    }
    findings
}

/// The targets of the inline links in a line; code spans are not links.
fn targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    // A `](` inside of a code span stands in an odd part.
    for text in line.split('`').step_by(2) {
        for (at, mark) in text.match_indices("](") {
            let rest = &text[at + mark.len()..];
            if let Some(end) = rest.find([')', ' ']) {
                targets.push(&rest[..end]);
            }
        }
    }
    targets
}

fn dead(tree: &Tree, file: &File, target: &str) -> Option<String> {
    if ["http:", "https:", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return None;
    }
    let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
    let Some(path) = resolve(&file.path, path) else {
        return Some(format!("`{target}` leads out of the repository"));
    };
    if !path.is_empty() && !tree.paths.contains(&path) {
        return Some(format!("`{target}` leads nowhere: there is no {path}"));
    }
    let text = tree.text(&path).filter(|_| path.ends_with(".md"))?;
    if fragment.is_empty() || headings(text).any(|heading| anchor(heading) == fragment) {
        return None;
    }
    Some(format!("`{target}` leads to no heading of {path}"))
}

/// The path from the root that a link in `from` means; none when it climbs out.
fn resolve(from: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if link.starts_with('/') {
        parts.clear();
    }
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(link: &str) -> usize {
        let text = format!("# Top\nsee [it]({link}) and `[not](a.md)`\n");
        let tree = Tree::of(&[
            ("docs/from.md", text.as_str()),
            ("docs/to.md", "# Top\n## 2. The end\n"),
            ("README.md", "# R\n"),
            ("cc/src/lib.rs", "//! A.\n"),
        ]);
        check(&tree).len()
    }

    #[test]
    fn links_to_files_folders_and_headings_that_exist_pass() {
        for link in
            ["to.md", "to.md#2-the-end", "#top", "../README.md", "../cc", "../cc/src/lib.rs"]
        {
            assert_eq!(found(link), 0, "{link}");
        }
        assert_eq!(found("https://example.org/x"), 0);
    }

    #[test]
    fn links_to_what_does_not_exist_fail() {
        for link in ["none.md", "to.md#3-the-end", "#bottom", "../../README.md", "cc"] {
            assert_eq!(found(link), 1, "{link}");
        }
    }
}
