//! Where a fetched chunk goes: whole to its name, or not at all.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::cli::error::{CliError, FileVerb};

/// A file that takes its name when it is whole, or stdout.
#[derive(Debug)]
pub(crate) enum Output {
    /// Written as bytes come.
    Stdout,
    /// Written beside its place under a name of its own, then renamed.
    File {
        /// Removed when dropped.
        partial: NamedTempFile,
        /// Its place.
        path: PathBuf,
        /// A file that is there may be replaced.
        force: bool,
    },
}

impl Output {
    /// An output at `path`; `-` is stdout.
    pub(in crate::cli) fn create(path: &Path, force: bool) -> Result<Self, CliError> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        if path.is_dir() {
            let source = io::ErrorKind::IsADirectory.into();
            return Err(CliError::file(FileVerb::Create, path, source));
        }
        if !force && path.symlink_metadata().is_ok() {
            return Err(CliError::FileExists { path: path.into() });
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        // The umask takes from these what it takes from every new file.
        let partial = tempfile::Builder::new()
            .prefix(".towpath-get-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(dir.unwrap_or(Path::new(".")))
            .map_err(|source| CliError::file(FileVerb::Create, path, source))?;
        Ok(Self::File { partial, path: path.into(), force })
    }

    /// Appends bytes.
    pub(in crate::cli) fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        match self {
            Self::Stdout => io::stdout().lock().write_all(bytes).map_err(CliError::Stdout),
            Self::File { partial, path, .. } => partial
                .write_all(bytes)
                .map_err(|source| CliError::file(FileVerb::Write, path, source)),
        }
    }

    /// All is there: gives the file its name.
    pub(in crate::cli) fn finish(self) -> Result<(), CliError> {
        match self {
            Self::Stdout => io::stdout().lock().flush().map_err(CliError::Stdout),
            Self::File { partial, path, force } => {
                let kept =
                    if force { partial.persist(&path) } else { partial.persist_noclobber(&path) };
                kept.map(drop).map_err(|error| match error.error.kind() {
                    io::ErrorKind::AlreadyExists => CliError::FileExists { path: path.clone() },
                    _ => CliError::file(FileVerb::Create, &path, error.error),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).expect("readable").flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let dir = tempfile::tempdir().expect("room");
        let path = dir.path().join("chunk");
        let mut output = Output::create(&path, false).expect("writable");
        output.write(b"half").expect("written");
        assert!(!path.exists());
        drop(output);
        assert!(names(dir.path()).is_empty(), "nothing is left of what was not finished");

        let mut output = Output::create(&path, false).expect("writable");
        output.write(b"whole").expect("written");
        output.finish().expect("renamed");
        assert_eq!(fs::read(&path).expect("there"), b"whole");
        assert_eq!(names(dir.path()), ["chunk"]);
    }

    #[test]
    fn a_file_that_exists_is_replaced_only_by_force() {
        let dir = tempfile::tempdir().expect("room");
        let path = dir.path().join("chunk");
        let mut late = Output::create(&path, false).expect("nothing there yet");
        late.write(b"late").expect("written");
        fs::write(&path, b"old").expect("written");
        let early = Output::create(&path, false).expect_err("there");
        assert!(matches!(early, CliError::FileExists { .. }));
        let error = late.finish().expect_err("somebody was faster");
        assert!(matches!(error, CliError::FileExists { .. }));
        assert_eq!(fs::read(&path).expect("there"), b"old");

        let mut forced = Output::create(&path, true).expect("forced");
        forced.write(b"new").expect("written");
        forced.finish().expect("renamed");
        assert_eq!(fs::read(&path).expect("there"), b"new");
    }
}
