//! `cargo xtask lines`: code by crate, the largest structs, the longest files, circles of imports.
//!
//! Tests are left out: folders `tests`, `benches` and `examples`, files `tests.rs`, and what is
//! compiled for tests only. So is what is blank or a comment.

mod print;
mod structs;

use crate::arrows::folders::{Circle, circles};
use crate::failure::Failure;
use crate::source::{Code, is_in_module};
use crate::tree::{File, Tree};
use crate::{process, workspace};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use structs::{Struct, structs};

/// How many structs and files are listed.
const LISTED: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Count this revision too, and print both and the difference.
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    /// Print one JSON object in place of tables.
    #[arg(long)]
    json: bool,
}

/// What a tree of files holds.
#[derive(Debug, Default)]
struct Size {
    /// In the order of their names.
    crates: Vec<Crate>,
    /// The structs with most fields, the largest first.
    structs: Vec<(String, Struct)>,
    /// All files with their lines of code, the longest first.
    files: Vec<(String, usize)>,
    /// With the crate of each.
    circles: Vec<(String, Circle)>,
}

#[derive(Debug)]
struct Crate {
    name: String,
    folder: String,
    lines: usize,
}

/// Counts, and prints.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace::root();
    let now = Size::of(&Tree::read(&root)?);
    let base = args.base.as_deref().map(|rev| at_revision(&root, rev)).transpose()?;
    if args.json {
        println!("{:#}", print::to_json(&now, base.as_ref()));
    } else {
        print!("{}", print::tables(&now, base.as_ref()));
    }
    Ok(())
}

/// The size of another revision, whose files are unpacked below `target` for the time.
fn at_revision(root: &Path, rev: &str) -> Result<Size, Failure> {
    let folder = root.join("target/lines");
    workspace::remove_dir(&folder)?;
    fs::create_dir_all(&folder).map_err(|source| Failure::File { path: folder.clone(), source })?;
    let archive = folder.join("tree.tar");
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", "--output"]).arg(&archive);
    process::run(git.args(["--end-of-options", rev]).current_dir(root))?;
    let tree = folder.join("tree");
    fs::create_dir(&tree).map_err(|source| Failure::File { path: tree.clone(), source })?;
    process::run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&tree))?;
    let size = Size::of(&Tree::read(&tree)?);
    workspace::remove_dir(&folder)?;
    Ok(size)
}

impl Size {
    fn of(tree: &Tree) -> Self {
        let tests = tree.test_modules();
        let packages = packages(tree);
        let mut size = Self::default();
        for (name, folder) in &packages {
            let mut lines = 0;
            let mut codes = Vec::new();
            for file in files(tree, &packages, folder, &tests) {
                let code = Code::read(&file.path, &file.text);
                let of_file = code.lines(&file.text);
                lines += of_file;
                size.files.push((file.path.clone(), of_file));
                codes.push((file.path.as_str(), code));
            }
            size.structs.extend(structs(&codes).into_iter().map(|found| (name.clone(), found)));
            let found = circles(tree, folder, &tests);
            size.circles.extend(found.into_iter().map(|circle| (name.clone(), circle)));
            size.crates.push(Crate { name: name.clone(), folder: folder.clone(), lines });
        }
        size.structs.sort_by(|(_, a), (_, b)| (b.fields, &a.name).cmp(&(a.fields, &b.name)));
        size.files.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        size
    }

    fn total(&self) -> usize {
        self.crates.iter().map(|found| found.lines).sum()
    }
}

/// The name and the folder of each package, in the order of their names.
fn packages(tree: &Tree) -> Vec<(String, String)> {
    let mut packages: Vec<_> = tree.files.iter().filter_map(package).collect();
    packages.sort();
    packages
}

/// The manifest is read by lines, since no cargo runs for the files of another revision.
fn package(file: &File) -> Option<(String, String)> {
    let folder = file.path.strip_suffix("/Cargo.toml")?;
    let (_, package) = file.text.split_once("[package]\n")?;
    let name = package.lines().find_map(|line| line.strip_prefix("name = \""))?;
    Some((name.strip_suffix('"')?.to_owned(), folder.to_owned()))
}

/// The files of one package that are not for tests only: those of no package further in.
fn files<'a>(
    tree: &'a Tree,
    packages: &'a [(String, String)],
    folder: &'a str,
    tests: &'a HashSet<String>,
) -> impl Iterator<Item = &'a File> {
    let is_below = |path: &str, folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    };
    tree.rust().filter(move |file| {
        let owner = packages.iter().map(|(_, folder)| folder.as_str());
        let owner = owner.filter(|folder| is_below(&file.path, folder)).max_by_key(|f| f.len());
        owner == Some(folder) && !is_in_module(&file.path, tests)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate, one within its folder, and tests of each kind.
    fn tree() -> Tree {
        Tree::of(&[
            ("Cargo.toml", "[workspace]\n"),
            ("rpc/Cargo.toml", "[package]\nname = \"towpath-rpc\"\n"),
            ("rpc/src/lib.rs", "//! R.\nmod a;\nmod b;\n#[cfg(test)]\nmod model;\n"),
            ("rpc/src/a.rs", "use crate::b::B;\nstruct A { a: u8, b: B }\n"),
            ("rpc/src/b.rs", "use crate::a::A;\n\nimpl A { fn c(&self) {} }\n"),
            ("rpc/src/model.rs", "fn not() {}\n"),
            ("rpc/src/a/tests.rs", "fn not() {}\n"),
            ("rpc/tests/b.rs", "fn not() {}\n"),
            ("rpc/inner/Cargo.toml", "[package]\nname = \"towpath-inner\"\n"),
            ("rpc/inner/src/lib.rs", "fn one() {}\n"),
        ])
    }

    #[test]
    fn each_crate_has_its_own_lines_and_none_of_tests() {
        let size = Size::of(&tree());
        let lines: Vec<_> = size.crates.iter().map(|c| (c.name.as_str(), c.lines)).collect();
        assert_eq!(lines, [("towpath-inner", 1), ("towpath-rpc", 6)]);
        assert_eq!(size.total(), 7);
        let longest: Vec<_> = size.files.iter().take(2).map(|file| file.0.as_str()).collect();
        assert_eq!(longest, ["rpc/src/a.rs", "rpc/src/b.rs"]);
    }

    #[test]
    fn structs_and_circles_are_told_with_their_crate() {
        let size = Size::of(&tree());
        let [(of, a)] = size.structs.as_slice() else { panic!("{:?}", size.structs) };
        assert_eq!((of.as_str(), a.fields, a.methods), ("towpath-rpc", 2, 1));
        let [(of, circle)] = size.circles.as_slice() else { panic!("{:?}", size.circles) };
        assert_eq!((of.as_str(), circle.modules.len()), ("towpath-rpc", 2));
    }
}
