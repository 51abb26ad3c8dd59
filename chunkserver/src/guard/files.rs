//! The file of keys, which is read again when it changes, and that of what is revoked.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, SystemTime};

use towpath_fastpath::cap::limits::KEY_FILE_BYTES_MAX;
use towpath_fastpath::cap::{Checker, KeyError, KeyRing, Revoked, RevokedError};

use super::Revocation;

/// How often the file of keys is looked at: one call of the system.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a server cannot check its requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of keys is not one.
    #[error("the keys in {}: {error}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: KeyError,
    },
    /// What was revoked cannot be known, so nothing may be allowed.
    #[error("what was revoked, in {}: {error}", path.display())]
    Revoked {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: RevokedError,
    },
    /// No thread.
    #[error("no thread to look after the keys: {0}")]
    Thread(io::Error),
}

/// Something to be revoked.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) serial: u64,
    pub(super) until_ms: u64,
    pub(super) tell: SyncSender<Revocation>,
}

/// Both files, and the checker that goes by them.
#[derive(Debug)]
pub(super) struct Files {
    keys: PathBuf,
    /// When the file of keys was changed last, and its length.
    seen: Option<(SystemTime, u64)>,
    revoked: PathBuf,
    checker: Arc<Checker>,
    clock: fn() -> u64,
}

impl Files {
    pub(super) fn open(
        keys: &Path,
        revoked: &Path,
        clock: fn() -> u64,
    ) -> Result<(Self, Arc<Checker>), GuardError> {
        let seen = stamp(keys);
        let checker = Arc::new(Checker::new(read_keys(keys)?, clock()));
        checker.set_revoked(read_revoked(revoked)?);
        let files = Self {
            keys: keys.into(),
            seen,
            revoked: revoked.into(),
            checker: Arc::clone(&checker),
            clock,
        };
        Ok((files, checker))
    }

    /// Does what is asked for, and looks at the file of keys, until nobody can ask any more.
    pub(super) fn look_after(mut self, wishes: &Receiver<Wish>) {
        loop {
            match wishes.recv_timeout(LOOK_EVERY) {
                Ok(wish) => {
                    let done = self.revoke(&wish);
                    // Nobody hears it where the client's time is over.
                    let _ = wish.tell.try_send(done);
                }
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn revoke(&self, wish: &Wish) -> Revocation {
        let mut revoked = self.checker.revoked();
        if revoked.revoke((self.clock)(), wish.serial, wish.until_ms).is_err() {
            return Revocation::Full;
        }
        match write(&self.revoked, &revoked.to_text()) {
            Ok(()) => {
                self.checker.set_revoked(revoked);
                tracing::info!(serial = wish.serial, "a capability is revoked");
                Revocation::Done
            }
            Err(error) => {
                tracing::error!(%error, path = %self.revoked.display(), "nothing is revoked");
                Revocation::Failed
            }
        }
    }

    /// Reads the file of keys again when it has changed. One that is wrong changes nothing.
    fn look(&mut self) {
        let stamp = stamp(&self.keys);
        if stamp == self.seen {
            return;
        }
        self.seen = stamp;
        match read_keys(&self.keys) {
            Ok(ring) => {
                tracing::info!(keys = ?ring, "the keys have changed");
                self.checker.set_keys(ring);
            }
            Err(error) => tracing::error!(%error, "the keys stay as they are"),
        }
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read_keys(path: &Path) -> Result<KeyRing, GuardError> {
    let failed = |source| GuardError::Read { path: path.into(), source };
    let mut text = String::new();
    // One byte more than it may have: it is refused as too long then.
    let bytes_max = KEY_FILE_BYTES_MAX as u64 + 1;
    File::open(path).map_err(failed)?.take(bytes_max).read_to_string(&mut text).map_err(failed)?;
    KeyRing::parse(&text).map_err(|error| GuardError::Keys { path: path.into(), error })
}

fn read_revoked(path: &Path) -> Result<Revoked, GuardError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        // Nothing was revoked yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Revoked::default()),
        Err(source) => return Err(GuardError::Read { path: path.into(), source }),
    };
    Revoked::parse(&text).map_err(|error| GuardError::Revoked { path: path.into(), error })
}

/// Puts a text on stable media in place of what a file has: wholly, or not at all.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
