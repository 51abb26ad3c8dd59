//! docs/dependencies.md gives one line of reason for each third-party crate.

use crate::finding::Finding;
use crate::tree::Tree;
use crate::workspace::Package;
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = "docs/dependencies.md";
const MANIFEST: &str = "Cargo.toml";
const OURS: &str = "towpath-";

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let Some(document) = tree.text(DOCUMENT) else {
        return vec![Finding::error(DOCUMENT, 0, "the document is missing")];
    };
    let mut findings = Vec::new();
    let mut reasons = BTreeMap::new();
    for (line, name, reason) in reasoned(document) {
        if reason.len() < 10 {
            findings.push(Finding::error(DOCUMENT, line, format!("`{name}` has no reason")));
        }
        if reasons.insert(name, line).is_some() {
            findings.push(Finding::error(DOCUMENT, line, format!("`{name}` has a second line")));
        }
    }
    let used = used(packages);
    let agreed: BTreeSet<&str> = agreed(tree.text(MANIFEST).unwrap_or_default()).collect();
    for (name, users) in &used {
        if !reasons.contains_key(name) {
            let users = users.join(", ");
            let message = format!("`{name}`, used by {users}, has no line that gives its reason");
            findings.push(Finding::error(DOCUMENT, 0, message));
        }
    }
    for (name, &line) in reasons.iter().filter(|(name, _)| !used.contains_key(*name)) {
        findings.push(if agreed.contains(name) {
            let message = format!("`{name}` stands in {MANIFEST} but no crate uses it");
            Finding::warning(DOCUMENT, line, message)
        } else {
            Finding::error(DOCUMENT, line, format!("`{name}` is used by no crate: a stale line"))
        });
    }
    findings
}

/// The lines that begin with a name in backticks: line, name, what follows.
fn reasoned(document: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    document.lines().enumerate().filter_map(|(at, line)| {
        let rest = line.strip_prefix("- ").unwrap_or(line).strip_prefix('`')?;
        let (name, reason) = rest.split_once('`')?;
        Some((at + 1, name, reason.trim_start_matches(':').trim()))
    })
}

/// Third-party crates by name, each with the packages that use it directly.
fn used(packages: &[Package]) -> BTreeMap<&str, Vec<&str>> {
    let mut used: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.ours) {
            let users = used.entry(&dependency.name).or_default();
            if !users.contains(&package.name.as_str()) {
                users.push(&package.name);
            }
        }
    }
    used
}

/// The third-party names in `[workspace.dependencies]`.
fn agreed(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[workspace.dependencies]");
    section.skip(1).take_while(|line| !line.starts_with('[')).filter_map(|line| {
        let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)))?;
        (end > 0 && !line.starts_with(OURS)).then_some(&line[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Dependency, Kind};

    const CARGO: &str = "[workspace]\n[workspace.dependencies]\ntowpath-base = { path = \"b\" }\n\
                         slab = \"0.4\"\ntoml = \"1\"\n[profile.dev]\nopt = 1\n";

    fn found(document: &str) -> Vec<(usize, bool)> {
        let dependency =
            |name: &str, ours| Dependency { name: name.to_owned(), kind: Kind::Dev, ours };
        let package = Package {
            name: "towpath-proto".to_owned(),
            folder: "transport/proto".to_owned(),
            dependencies: vec![dependency("slab", false), dependency("towpath-base", true)],
            roots: Vec::new(),
        };
        let tree = Tree::of(&[(DOCUMENT, document), (MANIFEST, CARGO)]);
        let mut findings = check(&tree, &[package]);
        findings.sort();
        findings.iter().map(|finding| (finding.line, finding.warning)).collect()
    }

    #[test]
    fn one_line_with_a_reason_for_each_passes() {
        assert_eq!(found("# D\n\n- `slab`: stable keys without a map\n"), []);
        assert_eq!(found("`slab`: stable keys without a map\n"), []);
    }

    #[test]
    fn a_missing_line_a_second_line_and_an_empty_reason_fail() {
        assert_eq!(found("# D\n"), [(0, false)]);
        let line = "- `slab`: stable keys without a map\n";
        assert_eq!(found(&line.repeat(2)), [(2, false)]);
        assert_eq!(found("- `slab`: yes\n"), [(1, false)]);
    }

    #[test]
    fn a_stale_line_fails_unless_the_workspace_still_names_the_crate() {
        let slab = "- `slab`: stable keys without a map\n";
        assert_eq!(found(&format!("{slab}- `rand`: numbers to be had\n")), [(2, false)]);
        assert_eq!(found(&format!("{slab}- `toml`: the config of the server\n")), [(2, true)]);
    }

    #[test]
    fn a_missing_document_fails() {
        assert_eq!(check(&Tree::default(), &[]).len(), 1);
    }
}
