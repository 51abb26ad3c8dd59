//! The file of keys, which is read again when it changes, and that of what is revoked.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use towpath_fastpath::cap::limits::KEY_FILE_BYTES_MAX;
use towpath_fastpath::cap::{Checker, KeyError, KeyRing, Revoked, RevokedError};

use super::Revocation;
use crate::store::folder::flush_folder_of;

/// How often the file of keys is read: 16 KiB at most.
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
    /// The text of the file of keys when it was last looked at, or why it could not be read.
    seen: Result<String, String>,
    /// The file has no key, so nothing that needs one is allowed.
    is_locked: bool,
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
        let path = || keys.to_path_buf();
        let text = read_keys(keys).map_err(|source| GuardError::Read { path: path(), source })?;
        let ring = KeyRing::parse(&text);
        let ring = ring.map_err(|error| GuardError::Keys { path: path(), error })?;
        let checker = Arc::new(Checker::new(ring, clock()));
        checker.set_revoked(read_revoked(revoked)?);
        let files = Self {
            keys: path(),
            seen: Ok(text),
            is_locked: false,
            revoked: revoked.into(),
            checker: Arc::clone(&checker),
            clock,
        };
        Ok((files, checker))
    }

    /// Does what is asked for, and looks at the file of keys, until nobody can ask any more.
    pub(super) fn look_after(mut self, wishes: &Receiver<Wish>) {
        let mut next_look = Instant::now() + LOOK_EVERY;
        loop {
            match wishes.recv_timeout(next_look.saturating_duration_since(Instant::now())) {
                Ok(wish) => {
                    let done = self.revoke(&wish);
                    // Nobody hears it where the client's time is over.
                    let _ = wish.tell.try_send(done);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= next_look {
                self.look();
                next_look = Instant::now() + LOOK_EVERY;
            }
        }
    }

    fn revoke(&self, wish: &Wish) -> Revocation {
        let mut revoked = Revoked::clone(&self.checker.revoked());
        if revoked.revoke((self.clock)(), wish.serial, wish.until_ms).is_err() {
            return Revocation::Full;
        }
        let text = revoked.to_text();
        // Whatever becomes of the file: who asks for it has a reason.
        self.checker.set_revoked(revoked);
        tracing::info!(serial = wish.serial, "a capability is revoked");
        match write(&self.revoked, &text) {
            Ok(()) => Revocation::Done,
            Err(error) => {
                let path = self.revoked.display();
                tracing::error!(%error, %path, "it is revoked until the server ends, not durably");
                Revocation::Failed
            }
        }
    }

    /// Takes the keys of the file where it has changed. One that is wrong changes nothing, and is
    /// told of once. One that is still empty at the next look was emptied on purpose, and not by
    /// somebody who is writing it: nobody has a key then.
    fn look(&mut self) {
        let text = read_keys(&self.keys).map_err(|error| error.to_string());
        if text == self.seen {
            let is_empty =
                text.is_ok_and(|text| KeyRing::parse(&text).is_err_and(KeyError::is_empty));
            if is_empty && !self.is_locked {
                let path = self.keys.display();
                tracing::error!(%path, "the file of keys is empty: every request is refused");
                self.checker.set_keys(KeyRing::none());
                self.is_locked = true;
            }
            return;
        }
        self.is_locked = false;
        let ring = text.as_ref().map_err(String::clone);
        match ring.and_then(|text| KeyRing::parse(text).map_err(|error| error.to_string())) {
            Ok(ring) => {
                tracing::info!(keys = ?ring, "the keys have changed");
                self.checker.set_keys(ring);
            }
            Err(error) => {
                let path = self.keys.display();
                tracing::error!(%error, %path, "the keys stay as they are");
            }
        }
        self.seen = text;
    }
}

/// The text of the file of keys. It is a few lines, so that it is compared, and not its time.
fn read_keys(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // One byte more than it may have: it is refused as too long then.
    File::open(path)?.take(KEY_FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn read_revoked(path: &Path) -> Result<Revoked, GuardError> {
    let text = match fs::read(path) {
        // What is no text has not its checksum.
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
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
    flush_folder_of(path)
}
