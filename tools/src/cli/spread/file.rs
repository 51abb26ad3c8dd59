//! The file of a layout: it takes its name when it is whole, and has it after a crash.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::cli::error::{CliError, FileVerb};

/// What is said where a new layout finds a file of its name.
const THERE: &str = "there is a file where the layout belongs: --layout names another";

/// A layout that is to be kept: its file is made before anything is stored, so that a folder that
/// takes none is noticed first.
#[derive(Debug)]
pub(super) struct LayoutFile {
    partial: NamedTempFile,
    path: PathBuf,
    /// It takes the place of another.
    replaces: bool,
}

/// Why a layout was not kept.
#[derive(Debug)]
pub(super) struct Unkept {
    pub(super) error: Box<CliError>,
    /// It is in its place, and may not be after a crash.
    pub(super) in_place: bool,
}

impl LayoutFile {
    /// One at a name that nothing has.
    pub(super) fn create(path: &Path) -> Result<Self, CliError> {
        if path.symlink_metadata().is_ok() {
            return Err(CliError::Put(THERE));
        }
        Self::beside(path.into(), None)
    }

    /// One in place of another, whose permissions it has. A symbolic link goes on to lead to it.
    pub(super) fn instead_of(path: &Path) -> Result<Self, CliError> {
        let read = |error| CliError::file(FileVerb::Read, path, error);
        let place = path.canonicalize().map_err(read)?;
        let permissions = place.metadata().map_err(read)?.permissions();
        Self::beside(place, Some(permissions))
    }

    fn beside(path: PathBuf, permissions: Option<Permissions>) -> Result<Self, CliError> {
        let failed = |error| CliError::file(FileVerb::Create, &path, error);
        let replaces = permissions.is_some();
        let mut builder = tempfile::Builder::new();
        let partial = builder.prefix(".towpath-layout-").tempfile_in(folder(&path));
        let partial = partial.map_err(failed)?;
        if let Some(permissions) = permissions {
            partial.as_file().set_permissions(permissions).map_err(failed)?;
        }
        Ok(Self { partial, path, replaces })
    }

    /// Writes the text and gives the file its name. A new one that is not kept leaves no file.
    pub(super) fn keep(mut self, text: &str) -> Result<(), Unkept> {
        let written = self.partial.write_all(text.as_bytes());
        let written = written.and_then(|()| self.partial.as_file().sync_all());
        let Self { partial, path, replaces } = self;
        let named = written.and_then(|()| {
            let named = match replaces {
                true => partial.persist(&path),
                false => partial.persist_noclobber(&path),
            };
            named.map(drop).map_err(|error| error.error)
        });
        let failed = |error: io::Error, in_place| {
            let error = match error.kind() {
                io::ErrorKind::AlreadyExists => CliError::Put(THERE),
                _ => CliError::file(FileVerb::Write, &path, error),
            };
            Unkept { error: error.into(), in_place }
        };
        named.map_err(|error| failed(error, false))?;
        // The name is in the folder, and must be on the disk as well.
        File::open(folder(&path)).and_then(|folder| folder.sync_all()).map_err(|error| {
            if !replaces {
                let _ = fs::remove_file(&path);
            }
            failed(error, replaces)
        })
    }
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_new_layout_takes_no_name_that_something_has() {
        let dir = tempfile::tempdir().expect("room");
        let path = dir.path().join("layout");
        let file = LayoutFile::create(&path).expect("nothing is there");
        fs::write(&path, "another").expect("written");
        assert!(matches!(LayoutFile::create(&path), Err(CliError::Put(_))));
        let unkept = file.keep("text").expect_err("somebody was faster");
        assert!(matches!(*unkept.error, CliError::Put(_)) && !unkept.in_place);
        assert_eq!(fs::read_to_string(&path).expect("there"), "another");
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 1, "nothing else is left");
    }

    #[test]
    fn a_folder_that_takes_no_file_is_noticed_before_there_is_a_text() {
        let dir = tempfile::tempdir().expect("room");
        let made = LayoutFile::create(&dir.path().join("none").join("layout"));
        assert!(matches!(made, Err(CliError::File { .. })), "{made:?}");
    }

    #[test]
    fn a_layout_that_replaces_another_has_its_permissions_and_its_place() {
        let dir = tempfile::tempdir().expect("room");
        let (path, link) = (dir.path().join("layout"), dir.path().join("link"));
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("ours");
        symlink(&path, &link).expect("a link");
        let file = LayoutFile::instead_of(&link).expect("it is there");
        file.keep("new").expect("writable");
        assert_eq!(fs::read_to_string(&path).expect("there"), "new");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o640);
        assert!(link.symlink_metadata().expect("there").is_symlink());
    }
}
