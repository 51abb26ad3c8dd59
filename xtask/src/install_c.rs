//! `cargo xtask install-c`: the library for C, its headers and what finds them, below a prefix.

use crate::failure::Failure;
use crate::{process, workspace};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The crate.
const FOLDER: &str = "transport/capi";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to: lib, include and share/man come to lie below it.
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
}

/// A file to copy: from where in the repository or the build, and to where below the prefix.
struct Copied {
    from: PathBuf,
    to: String,
}

/// A second name of an installed file.
struct Alias {
    name: String,
    of: String,
}

/// Builds the library and installs it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let root = workspace::root();
    let prefix = std::path::absolute(&args.prefix)
        .map_err(|source| Failure::File { path: args.prefix.clone(), source })?;
    let mut build = process::cargo();
    // Of these kinds alone, so that it is optimised as a whole: a library for Rust forbids that.
    build.args(["rustc", "--profile", process::DIST, "-p", "towpath-capi", "--lib"]);
    build.args(["--crate-type", "cdylib,staticlib"]).current_dir(&root);
    process::run(&mut build)?;
    let target = workspace::target_directory(&root)?.join(process::DIST);
    let version = env!("CARGO_PKG_VERSION");
    for Copied { from, to } in copies(&root.join(FOLDER), &target, version) {
        let to = prefix.join(to);
        make_folder(&to)?;
        fs::copy(&from, &to).map_err(|source| Failure::File { path: from, source })?;
    }
    for Alias { name, of } in aliases(version) {
        let name = prefix.join("lib").join(name);
        match fs::remove_file(&name) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(Failure::File { path: name, source });
            }
            _ => {}
        }
        symlink(of, &name).map_err(|source| Failure::File { path: name, source })?;
    }
    let template = root.join(FOLDER).join("towpath.pc.in");
    let text =
        fs::read_to_string(&template).map_err(|source| Failure::File { path: template, source })?;
    let to = prefix.join("lib/pkgconfig/towpath.pc");
    make_folder(&to)?;
    fs::write(&to, filled(&text, &prefix, version))
        .map_err(|source| Failure::File { path: to, source })?;
    println!("installed libtowpath {version} below {}", prefix.display());
    Ok(())
}

fn make_folder(of: &Path) -> Result<(), Failure> {
    let folder = of.parent().unwrap_or(of);
    fs::create_dir_all(folder).map_err(|source| Failure::File { path: folder.to_owned(), source })
}

fn copies(folder: &Path, target: &Path, version: &str) -> Vec<Copied> {
    let copied = |from: PathBuf, to: &str| Copied { from, to: to.to_owned() };
    vec![
        copied(target.join("libtowpath_capi.so"), &format!("lib/libtowpath.so.{version}")),
        copied(target.join("libtowpath_capi.a"), "lib/libtowpath.a"),
        copied(folder.join("include/towpath.h"), "include/towpath.h"),
        copied(folder.join("include/towpath.hpp"), "include/towpath.hpp"),
        copied(folder.join("man/towpath.3"), "share/man/man3/towpath.3"),
    ]
}

/// What the linker and the loader look for: the latter by the name that the crate's build script
/// puts into the library, which has the part of the version that promises something.
fn aliases(version: &str) -> [Alias; 2] {
    let major = version.split('.').next().unwrap_or_default();
    let soname = format!("libtowpath.so.{major}");
    [
        Alias { name: soname.clone(), of: format!("libtowpath.so.{version}") },
        Alias { name: "libtowpath.so".to_owned(), of: soname },
    ]
}

fn filled(template: &str, prefix: &Path, version: &str) -> String {
    template.replace("@prefix@", &prefix.display().to_string()).replace("@version@", version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        let path = workspace::root().join(FOLDER).join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn the_loader_finds_the_library_by_the_name_that_is_in_it() {
        let [soname, linked] = aliases(env!("CARGO_PKG_VERSION"));
        assert!(read("build.rs").contains(&format!("-soname,{}\"", soname.name)));
        assert_eq!(linked.of, soname.name);
        let library = &copies(Path::new("a"), Path::new("b"), env!("CARGO_PKG_VERSION"))[0];
        assert_eq!(library.to, format!("lib/{}", soname.of));
    }

    #[test]
    fn the_file_for_pkg_config_is_filled_in() {
        let text = filled(&read("towpath.pc.in"), Path::new("/opt/towpath"), "1.2.3");
        assert!(text.starts_with("prefix=/opt/towpath\n") && text.contains("\nVersion: 1.2.3\n"));
        assert!(!text.contains('@'), "{text}");
    }

    #[test]
    fn all_that_is_copied_from_the_repository_is_there() {
        let target = Path::new("target");
        for Copied { from, .. } in copies(&workspace::root().join(FOLDER), target, "1") {
            assert!(from.starts_with(target) || from.exists(), "{}", from.display());
        }
    }
}
