//! The files of the repository, read once.

use crate::failure::Failure;
use crate::source::test_modules;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;

/// Folders that hold no source of ours.
const SKIPPED: [&str; 4] = [".git", "target", "fuzz/corpus", "fuzz/artifacts"];

/// A text file, by its path from the root with `/` between the parts.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// The path from the root.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
}

/// The repository as the checks see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The text files that the checks read, in the order of their paths.
    pub(crate) files: Vec<File>,
    /// Every file and folder there is.
    pub(crate) paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the tree below `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let mut tree = Self::default();
        tree.walk(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn walk(&mut self, folder: &Path, prefix: &str) -> Result<(), Failure> {
        let failed = |source| Failure::File { path: folder.to_owned(), source };
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if SKIPPED.contains(&name.as_str()) || SKIPPED.contains(&path.as_str()) {
                continue;
            }
            let full = entry.path();
            if entry.file_type().map_err(failed)?.is_dir() {
                self.walk(&full, &format!("{path}/"))?;
            } else if is_text(&path) {
                let bytes =
                    fs::read(&full).map_err(|source| Failure::File { path: full, source })?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                self.files.push(File { path: path.clone(), text });
            }
            self.paths.insert(path);
        }
        Ok(())
    }

    /// The text of the file at `path`.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// The Rust sources.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// The modules in files of their own that are compiled for tests only, as paths without `.rs`.
    pub(crate) fn test_modules(&self) -> HashSet<String> {
        test_modules(self.rust().map(|file| (file.path.as_str(), file.text.as_str())))
    }

    /// The documents.
    pub(crate) fn markdown(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".md"))
    }

    /// A tree of the given paths and texts, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.files.push(File { path: (*path).to_owned(), text: (*text).to_owned() });
            for (at, _) in path.match_indices('/') {
                tree.paths.insert(path[..at].to_owned());
            }
            tree.paths.insert((*path).to_owned());
        }
        tree
    }
}

fn is_text(path: &str) -> bool {
    let dotted = [".rs", ".md", ".toml", ".sh", ".proto", ".yml"];
    dotted.iter().any(|end| path.ends_with(end)) || path.starts_with(".ci/")
}
