//! What Cargo says about the workspace: its packages, their folders and what they depend on.

use crate::failure::Failure;
use crate::process;
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Why one package depends on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Build,
    Dev,
    Normal,
}

/// A dependency as a manifest names it.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// The name of the package, whatever it is renamed to.
    pub(crate) name: String,
    /// Why.
    pub(crate) kind: Kind,
    /// Whether it lies in this repository.
    pub(crate) ours: bool,
}

/// A package of ours.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its folder from the root of the repository.
    pub(crate) folder: String,
    /// What it depends on.
    pub(crate) dependencies: Vec<Dependency>,
    /// The first file of each of its libraries and programs.
    pub(crate) roots: Vec<String>,
}

/// The root of the repository: the folder above this tool's own.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("this package lies in a folder of the repository").to_owned()
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory(root: &Path) -> Result<PathBuf, Failure> {
    let mut command = process::cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root);
    let text = process::output(&mut command)?;
    let metadata: Value = serde_json::from_str(&text)
        .map_err(|source| Failure::Json { command: process::line(&command), source })?;
    Ok(PathBuf::from(string(&metadata["target_directory"])))
}

/// Removes a folder with all that is in it, if it is there.
pub(crate) fn remove_dir(path: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(Failure::File { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// The packages of the workspace and of the two crates that stand outside it.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>, Failure> {
    let mut packages = Vec::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml", "xtask/no-std-proof/Cargo.toml"] {
        let mut command = process::cargo();
        command.args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"]);
        command.arg(root.join(manifest));
        let text = process::output(&mut command)?;
        packages.extend(
            parse(&text, root)
                .map_err(|source| Failure::Json { command: process::line(&command), source })?,
        );
    }
    Ok(packages)
}

fn parse(text: &str, root: &Path) -> Result<Vec<Package>, serde_json::Error> {
    let metadata: Value = serde_json::from_str(text)?;
    Ok(list(&metadata["packages"]).iter().map(|package| parse_package(package, root)).collect())
}

fn parse_package(package: &Value, root: &Path) -> Package {
    let manifest = relative(&package["manifest_path"], root);
    let folder = manifest.strip_suffix("/Cargo.toml").unwrap_or_default().to_owned();
    let dependencies = list(&package["dependencies"])
        .iter()
        .map(|dependency| Dependency {
            name: string(&dependency["name"]),
            kind: match dependency["kind"].as_str() {
                Some("dev") => Kind::Dev,
                Some("build") => Kind::Build,
                _ => Kind::Normal,
            },
            ours: dependency["source"].is_null(),
        })
        .collect();
    let is_root = |target: &&Value| {
        let kinds = list(&target["kind"]);
        kinds.iter().any(|kind| ["lib", "bin", "staticlib"].contains(&kind.as_str().unwrap_or("")))
    };
    let roots = list(&package["targets"])
        .iter()
        .filter(is_root)
        .map(|target| relative(&target["src_path"], root))
        .collect();
    Package { name: string(&package["name"]), folder, dependencies, roots }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn relative(path: &Value, root: &Path) -> String {
    let path = Path::new(path.as_str().unwrap_or_default());
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_with_their_folders_roots_and_kinds_of_dependency() {
        let text = r#"{"packages": [{
            "name": "towpath-cc", "manifest_path": "/r/cc/Cargo.toml",
            "targets": [
                {"kind": ["lib"], "src_path": "/r/cc/src/lib.rs"},
                {"kind": ["test"], "src_path": "/r/cc/tests/a.rs"}],
            "dependencies": [
                {"name": "towpath-base", "kind": null, "source": null},
                {"name": "proptest", "kind": "dev", "source": "registry"}]}]}"#;
        let packages = parse(text, Path::new("/r")).unwrap();
        let [cc] = packages.as_slice() else { panic!("one package") };
        assert_eq!((cc.name.as_str(), cc.folder.as_str()), ("towpath-cc", "cc"));
        assert_eq!(cc.roots, ["cc/src/lib.rs"]);
        assert!(cc.dependencies[0].ours && cc.dependencies[0].kind == Kind::Normal);
        assert!(!cc.dependencies[1].ours && cc.dependencies[1].kind == Kind::Dev);
    }

    #[test]
    fn what_is_not_json_is_refused() {
        assert!(parse("packages", Path::new("/r")).is_err());
    }
}
