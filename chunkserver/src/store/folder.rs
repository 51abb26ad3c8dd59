//! Makes the folder of a store, so that it lasts.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Permissions of a folder that is made.
const FOLDER_MODE: u32 = 0o700;

/// Makes a folder with its parents, where it is not there. Nobody but their owner may enter what is
/// made.
///
/// # Errors
/// What the file system reports.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let was_there = path.is_dir();
    let parents = parents_to_flush(path);
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)?;
    for parent in parents {
        match File::open(parent) {
            Ok(parent) => parent.sync_all()?,
            // Nobody who may not open it made the folder in it.
            Err(e) if was_there && e.kind() == io::ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Has the name that a file was given last.
///
/// # Errors
/// What the file system reports.
pub(crate) fn flush_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The folders whose entries must be flushed for `path` to last once it is made.
///
/// They are the one right above, since whoever made `path` may have died before the flush, and the
/// one above each that is missing.
fn parents_to_flush(path: &Path) -> Vec<&Path> {
    let mut parents = Vec::new();
    for path in path.ancestors() {
        let Some(parent) = path.parent() else { break };
        let was_there = path.is_dir();
        if !was_there || parents.is_empty() {
            parents.push(if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        }
        if was_there {
            break;
        }
    }
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_each_folder_that_is_made_is_flushed_and_always_the_last_one() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let (a, b) = (dir.path().join("a"), dir.path().join("a/b"));
        let c = b.join("c");
        assert_eq!(parents_to_flush(&c), [&*b, &*a, dir.path()]);
        make_folder(&c).expect("they are made");
        assert_eq!(parents_to_flush(&c), [&*b]);
        assert_eq!(parents_to_flush(Path::new("no-such-folder")), [Path::new(".")]);
        assert_eq!(parents_to_flush(Path::new("src")), [Path::new(".")]);
        assert!(parents_to_flush(Path::new("/")).is_empty());
    }

    #[test]
    fn what_is_made_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("room for a folder");
        let path = dir.path().join("parent/store");
        make_folder(&path).expect("it is made");
        for name in [".", ".."] {
            let found = path.join(name).metadata().expect("it is there").permissions().mode();
            assert_eq!(found & 0o077, 0, "{name} is {found:o}");
        }
    }
}
