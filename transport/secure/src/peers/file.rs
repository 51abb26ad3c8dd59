//! The file `authorized_peers`, which is read again when it changed.

use super::line::Peer;
use super::{Peers, PeersError};
use crate::clock::WallTime;
use crate::identity::PublicKey;
use crate::identity::files::{self, FileError, Stamp};
use crate::limits::PEERS_FILE_BYTES_MAX;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that was written less than this before it was read may have been written again without a
/// change of its stamp, because file systems keep times in steps.
const UNSURE_MS: u64 = 2_000;

/// Why the file was not taken. The peers of its last good version stay trusted meanwhile.
#[derive(Debug, thiserror::Error)]
pub enum PeersFileError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its text.
    #[error("{}: {error}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: PeersError,
    },
}

/// `authorized_peers`, and what was last read of it.
#[derive(Debug)]
pub struct PeersFile {
    path: PathBuf,
    peers: Arc<Peers>,
    stamp: Stamp,
    /// The file may have changed without a change of its stamp.
    is_unsure: bool,
}

/// What a new version of the file changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Keys whose line is new.
    pub added: Vec<PublicKey>,
    /// Keys whose line is gone: their links end.
    pub removed: Vec<PublicKey>,
    /// Keys whose line says something else: their links are asked about again.
    pub altered: Vec<PublicKey>,
}

impl PeersFile {
    /// Reads the file.
    ///
    /// # Errors
    /// [`PeersFileError`].
    pub fn open(path: &Path, now: WallTime) -> Result<Self, PeersFileError> {
        let (peers, stamp) = read(path)?;
        let is_unsure = is_unsure(&stamp, now);
        Ok(Self { path: path.to_owned(), peers: Arc::new(peers), stamp, is_unsure })
    }

    /// The peers of the last good version.
    #[must_use]
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Reads the file again if it changed, and says what changed. It costs one `stat` while nothing
    /// did, so it may be called several times a second.
    ///
    /// # Errors
    /// [`PeersFileError`]: the peers stay as they were, and the next call tries again.
    pub fn refresh(&mut self, now: WallTime) -> Result<Option<Change>, PeersFileError> {
        if !self.is_unsure && Stamp::read(&self.path)? == self.stamp {
            return Ok(None);
        }
        let (peers, stamp) = read(&self.path)?;
        let change = change(&self.peers, &peers);
        self.peers = Arc::new(peers);
        self.stamp = stamp;
        self.is_unsure = is_unsure(&stamp, now);
        Ok((change != Change::default()).then_some(change))
    }

    /// Adds a peer to the file, which is made if there is none. Its other lines stay as they are.
    ///
    /// # Errors
    /// [`PeersFileError`]: the file stays as it was.
    pub fn add(path: &Path, peer: &Peer) -> Result<(), PeersFileError> {
        let old = match files::read_trusted(path, PEERS_FILE_BYTES_MAX) {
            Ok((old, _)) => text(path, &old)?.to_owned(),
            Err(FileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                String::new()
            }
            Err(error) => return Err(error.into()),
        };
        let gap = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
        let new = format!("{old}{gap}{peer}\n");
        parse(path, &new)?;
        files::replace(path, new.as_bytes())?;
        Ok(())
    }
}

fn read(path: &Path) -> Result<(Peers, Stamp), PeersFileError> {
    let (bytes, stamp) = files::read_trusted(path, PEERS_FILE_BYTES_MAX)?;
    let peers = parse(path, text(path, &bytes)?)?;
    Ok((peers.with_evidence(WallTime(stamp.modified_ms())), stamp))
}

fn text<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, PeersFileError> {
    let error = PeersError::NotText;
    core::str::from_utf8(bytes).map_err(|_| PeersFileError::Text { path: path.to_owned(), error })
}

fn parse(path: &Path, text: &str) -> Result<Peers, PeersFileError> {
    Peers::parse(text).map_err(|error| PeersFileError::Text { path: path.to_owned(), error })
}

fn is_unsure(stamp: &Stamp, now: WallTime) -> bool {
    now.0.abs_diff(stamp.modified_ms()) < UNSURE_MS
}

fn change(old: &Peers, new: &Peers) -> Change {
    let mut change = Change::default();
    for (key, peer) in &new.by_key {
        match old.find(key) {
            None => change.added.push(*key),
            Some(before) if before != peer => change.altered.push(*key),
            Some(_) => {}
        }
    }
    change.removed.extend(old.by_key.keys().filter(|key| new.find(key).is_none()));
    for keys in [&mut change.added, &mut change.removed, &mut change.altered] {
        keys.sort_unstable();
    }
    change
}

#[cfg(test)]
mod tests {
    use super::super::{LineError, PeerName, Role, Roles};
    use super::*;
    use std::fs;

    fn peer(byte: u8) -> Peer {
        let name = PeerName::parse(&format!("host{byte}")).expect("a name");
        Peer::new(PublicKey::from_bytes([byte; 32]), name)
    }

    #[test]
    fn a_change_is_seen_without_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("authorized_peers");
        PeersFile::add(&path, &peer(1)).expect("a new file");
        PeersFile::add(&path, &peer(2)).expect("a second line");
        let now = WallTime::now();
        let mut file = PeersFile::open(&path, now).expect("the file");
        assert_eq!(file.peers().len(), 2);
        assert_eq!(file.refresh(now).expect("the file"), None);

        let kept = Peer { roles: Roles::only(Role::Client), ..peer(1) };
        files::replace(&path, format!("{kept}\n{}\n", peer(3)).as_bytes()).expect("the file");
        let change = file.refresh(now).expect("the file").expect("a change");
        assert_eq!(change.added, [peer(3).key]);
        assert_eq!(change.removed, [peer(2).key]);
        assert_eq!(change.altered, [peer(1).key]);
        assert_eq!(file.peers().len(), 2);
    }

    #[test]
    fn a_change_within_one_step_of_the_file_system_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("authorized_peers");
        let mut file = {
            PeersFile::add(&path, &peer(1)).expect("a new file");
            PeersFile::open(&path, WallTime::now()).expect("the file")
        };
        // As many bytes, in the same file, at once.
        fs::write(&path, format!("{}\n", peer(2))).expect("the file");
        file.stamp = Stamp::read(&path).expect("a stamp");
        let change = file.refresh(WallTime::now()).expect("the file").expect("a change");
        assert_eq!((change.added, change.removed), (vec![peer(2).key], vec![peer(1).key]));
    }

    #[test]
    fn a_broken_file_changes_nothing_until_it_is_mended() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("authorized_peers");
        PeersFile::add(&path, &peer(1)).expect("a new file");
        let now = WallTime::now();
        let mut file = PeersFile::open(&path, now).expect("the file");
        files::replace(&path, format!("{}\nnonsense\n", peer(1)).as_bytes()).expect("the file");
        for _ in 0..2 {
            let refused = file.refresh(now).expect_err("a broken file");
            assert!(refused.to_string().contains("line 2"), "{refused}");
            assert_eq!(file.peers().len(), 1);
        }
        let added = PeersFile::add(&path, &peer(2));
        assert!(matches!(added, Err(PeersFileError::Text { .. })), "{added:?}");
        files::replace(&path, b"\xff").expect("the file");
        let refused = file.refresh(now);
        let error = PeersError::NotText;
        assert!(matches!(refused, Err(PeersFileError::Text { error: of, .. }) if of == error));
        fs::remove_file(&path).expect("the file");
        assert!(matches!(file.refresh(now), Err(PeersFileError::File(FileError::Io { .. }))));
        files::replace(&path, b"").expect("the file");
        let change = file.refresh(now).expect("the file").expect("a change");
        assert_eq!(change.removed, [peer(1).key]);
    }

    #[test]
    fn a_key_is_added_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("authorized_peers");
        fs::write(&path, "# ours").expect("a new file");
        PeersFile::add(&path, &peer(1)).expect("a line");
        let text = fs::read_to_string(&path).expect("the file");
        assert_eq!(text, format!("# ours\n{}\n", peer(1)));
        let again = PeersFile::add(&path, &peer(1));
        let is_twice = |error: &PeersError| *error == PeersError::Twice { line: 3, first: 2 };
        assert!(matches!(&again, Err(PeersFileError::Text { error, .. }) if is_twice(error)));
        let error = Peer::parse("x").expect_err("no line");
        assert!(matches!(error, LineError::Key(_)));
    }
}
