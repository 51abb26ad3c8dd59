//! `cargo xtask arrows`: every crate uses only the crates that the table lets it use.

pub(crate) mod folders;
mod table;

use crate::failure::Failure;
use crate::finding::{Finding, report};
use crate::workspace::{self, Kind, Package};
use std::fmt::Write as _;
use table::{EXEMPT, MayUse, PROGRAMS, Row, TABLE};

const PREFIX: &str = "towpath-";
const DOCUMENT: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- arrows: begin, written by `cargo xtask arrows --write` -->";
const END: &str = "<!-- arrows: end -->";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the table as markdown and stop.
    #[arg(long)]
    pub(crate) print: bool,
    /// Bring the copy in ARCHITECTURE.md up to date.
    #[arg(long)]
    pub(crate) write: bool,
}

/// Checks the workspace, and the copy of the table in ARCHITECTURE.md where there is one.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.print {
        print!("{BEGIN}\n{}{END}\n", markdown());
        return Ok(());
    }
    let root = workspace::root();
    let path = root.join(DOCUMENT);
    let document = std::fs::read_to_string(&path).ok();
    if args.write {
        let missing = Failure::NoTableBlock { begin: BEGIN, end: END };
        let text = document.as_deref().and_then(|text| replaced(text, &markdown()));
        return std::fs::write(&path, text.ok_or(missing)?)
            .map_err(|source| Failure::File { path, source });
    }
    let packages = workspace::packages(&root)?;
    for (user, used) in dev_only(&packages) {
        println!("arrows: {user} uses {used} in its own tests only");
    }
    let mut findings = check(&packages, TABLE);
    findings.extend(document.as_deref().and_then(check_copy));
    report(findings, "arrows")?;
    println!("arrows: {} crates keep to the table", packages.len() - EXEMPT.len());
    Ok(())
}

fn check(packages: &[Package], table: &[Row]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages.iter().filter(|package| !EXEMPT.contains(&package.name.as_str())) {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let short = package.name.strip_prefix(PREFIX).unwrap_or(&package.name);
        let Some(row) = table.iter().find(|row| row.name == short) else {
            let message = format!("`{}` has no row in xtask/src/arrows/table.rs", package.name);
            findings.push(Finding::error(&manifest, 0, message));
            continue;
        };
        if row.folder != package.folder {
            let message = format!("`{}` belongs in the folder {}", package.name, row.folder);
            findings.push(Finding::error(&manifest, 0, message));
        }
        for used in uses(package, false).filter(|used| !may_use(row, used)) {
            let message = format!(
                "`{short}` may not use `{used}`: it may use {}; move the code or, if the design \
                 changes, the table",
                allowed(row)
            );
            findings.push(Finding::error(&manifest, 0, message));
        }
    }
    findings
}

/// The short names of our crates that a package uses, in its own tests only or otherwise.
fn uses(package: &Package, dev: bool) -> impl Iterator<Item = &str> {
    let ours = package.dependencies.iter().filter(|dependency| dependency.ours);
    ours.filter(move |dependency| (dependency.kind == Kind::Dev) == dev)
        .map(|dependency| dependency.name.strip_prefix(PREFIX).unwrap_or(&dependency.name))
}

fn may_use(row: &Row, used: &str) -> bool {
    match row.may_use {
        MayUse::Only(names) => names.contains(&used),
        MayUse::AnyLibrary => !PROGRAMS.contains(&used) && !EXEMPT.contains(&used),
        MayUse::All => !EXEMPT.contains(&used),
    }
}

fn allowed(row: &Row) -> String {
    match row.may_use {
        MayUse::Only([]) => "nothing of ours".to_owned(),
        MayUse::Only(names) => names.join(", "),
        MayUse::AnyLibrary => "any library above".to_owned(),
        MayUse::All => "all".to_owned(),
    }
}

/// Arrows that exist for tests and would be refused otherwise: user and used.
fn dev_only(packages: &[Package]) -> Vec<(&str, &str)> {
    let mut arrows = Vec::new();
    for package in packages {
        let Some(row) = TABLE.iter().find(|row| row.folder == package.folder) else { continue };
        let beyond = uses(package, true).filter(|used| !may_use(row, used));
        arrows.extend(beyond.map(|used| (row.name, used)));
    }
    arrows
}

fn markdown() -> String {
    let mut text = String::from("| crate | folder | may use (ours) | what lives there |\n");
    text.push_str("|---|---|---|---|\n");
    for row in TABLE {
        let (name, folder, what) = (row.name, row.folder, row.what);
        // The umbrella has the name of all.
        let prefix = if PREFIX.strip_suffix('-') == Some(name) { "" } else { PREFIX };
        writeln!(text, "| {prefix}{name} | `{folder}` | {} | {what} |", allowed(row))
            .expect("writing to a string does not fail");
    }
    text
}

/// The document with `table` between the marks; none without the marks.
fn replaced(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

fn check_copy(document: &str) -> Option<Finding> {
    let current = replaced(document, &markdown());
    let message = match current {
        None => format!("the table of the arrows is missing: put `{BEGIN}` and `{END}` there"),
        Some(current) if current != document => "the table of the arrows is stale".to_owned(),
        Some(_) => return None,
    };
    Some(Finding::error(DOCUMENT, 0, message + ", then run `cargo xtask arrows --write`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, folder: &str, uses: &[(&str, Kind)]) -> Package {
        let dependency = |&(name, kind): &(&str, Kind)| Dependency {
            name: name.to_owned(),
            kind,
            ours: name.starts_with(PREFIX),
        };
        Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            dependencies: uses.iter().map(dependency).collect(),
            roots: Vec::new(),
        }
    }

    #[test]
    fn an_arrow_in_the_table_passes_and_one_that_is_not_fails() {
        let good = package("towpath-cc", "cc", &[("towpath-base", Kind::Normal)]);
        assert_eq!(check(&[good], TABLE), []);
        let bad = package("towpath-cc", "cc", &[("towpath-verbs", Kind::Normal)]);
        let found = check(&[bad], TABLE);
        assert!(found.len() == 1 && found[0].message.contains("may not use `verbs`"));
        let build = package("towpath-cc", "cc", &[("towpath-verbs", Kind::Build)]);
        assert_eq!(check(&[build], TABLE).len(), 1);
    }

    #[test]
    fn tests_may_use_more_and_are_listed() {
        let dev = [package("towpath-cc", "cc", &[("towpath-sim", Kind::Dev)])];
        assert_eq!(check(&dev, TABLE), []);
        assert_eq!(dev_only(&dev), [("cc", "sim")]);
    }

    #[test]
    fn a_crate_without_a_row_or_in_another_folder_fails() {
        assert_eq!(check(&[package("towpath-new", "new", &[])], TABLE).len(), 1);
        assert_eq!(check(&[package("towpath-cc", "transport/cc", &[])], TABLE).len(), 1);
        assert_eq!(check(&[package("xtask", "xtask", &[])], TABLE), []);
    }

    #[test]
    fn tools_use_libraries_only() {
        let uses = |name| package("towpath-tools", "tools", &[(name, Kind::Normal)]);
        assert_eq!(check(&[uses("towpath-lab")], TABLE), []);
        assert_eq!(check(&[uses("towpath-tests")], TABLE).len(), 1);
    }

    #[test]
    fn the_table_names_only_its_own_rows_and_points_only_upwards() {
        for (at, row) in TABLE.iter().enumerate() {
            let MayUse::Only(names) = row.may_use else { continue };
            for name in names {
                let above = TABLE[..at].iter().any(|other| other.name == *name);
                assert!(above, "{} uses {name}, which does not stand above it", row.name);
            }
        }
    }

    #[test]
    fn a_stale_or_missing_copy_is_found_and_writing_mends_it() {
        let stale = format!("# A\n{BEGIN}\nold\n{END}\nend\n");
        assert!(check_copy(&stale).is_some());
        assert!(check_copy("# A\n").is_some());
        let mended = replaced(&stale, &markdown()).unwrap();
        assert_eq!(check_copy(&mended), None);
        assert!(mended.starts_with("# A\n") && mended.ends_with("\nend\n"));
    }
}
