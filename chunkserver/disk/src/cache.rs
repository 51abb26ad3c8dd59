//! What a device keeps in a cache that power cuts empty.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

/// The cache of the device that a disk is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cache {
    /// The system does not tell: the file system is on no block device, or on several.
    Unknown,
    /// It has none that power cuts empty: what it has taken lasts.
    None,
    /// A write can pass it by.
    PassedBy,
    /// It has to be flushed, and all of it at once.
    Flushed,
}

impl Cache {
    /// That of the device of an open file, or of the device that is open.
    pub(crate) fn of(file: &File) -> Self {
        let Ok(found) = file.metadata() else { return Self::Unknown };
        let device = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
        let device = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        // A part of a device has the queue of the whole.
        let queues = [format!("{device}/queue"), format!("{device}/../queue")];
        queues.iter().find_map(|queue| Self::of_queue(Path::new(queue))).unwrap_or(Self::Unknown)
    }

    fn of_queue(queue: &Path) -> Option<Self> {
        let cache = fs::read_to_string(queue.join("write_cache")).ok()?;
        let passed = fs::read_to_string(queue.join("fua")).unwrap_or_default();
        Some(match (cache.trim(), passed.trim()) {
            ("write through", _) => Self::None,
            (_, "1") => Self::PassedBy,
            _ => Self::Flushed,
        })
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "a device whose cache is not known",
            Self::None => "a device without a cache that power cuts empty",
            Self::PassedBy => "a device whose cache writes pass by",
            Self::Flushed => "a device whose cache is flushed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_of_a_queue_is_understood() {
        for (cache, passed, wanted) in [
            (Some("write through\n"), Some("0\n"), Some(Cache::None)),
            (Some("write back\n"), Some("1\n"), Some(Cache::PassedBy)),
            (Some("write back\n"), Some("0\n"), Some(Cache::Flushed)),
            (Some("write back\n"), None, Some(Cache::Flushed)),
            (None, None, None),
        ] {
            let dir = tempfile::tempdir().expect("a folder for a test");
            for (name, content) in [("write_cache", cache), ("fua", passed)] {
                let put = |content| fs::write(dir.path().join(name), content).expect("it is ours");
                content.into_iter().for_each(put);
            }
            assert_eq!(Cache::of_queue(dir.path()), wanted);
        }
    }
}
