//! `cargo xtask tidy`: every file is as the house style wants it.
//!
//! Each check is a function of the tree in memory that returns what it found.

mod citations;
mod dependencies;
mod headings;
mod layout;
mod links;
mod unsafety;
mod words;

use crate::failure::Failure;
use crate::finding::{Finding, report};
use crate::tree::Tree;
use crate::workspace::{self, Package};

/// Reads the repository and reports what its files do wrong.
pub(crate) fn run() -> Result<(), Failure> {
    let root = workspace::root();
    let tree = Tree::read(&root)?;
    let packages = workspace::packages(&root)?;
    report(check(&tree, &packages), "tidy")?;
    println!("tidy: {} files are in order", tree.files.len());
    Ok(())
}

fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = layout::check(tree);
    findings.extend(words::check(tree));
    findings.extend(unsafety::check(tree, packages));
    findings.extend(links::check(tree));
    findings.extend(citations::check(tree));
    findings.extend(dependencies::check(tree, packages));
    findings
}
