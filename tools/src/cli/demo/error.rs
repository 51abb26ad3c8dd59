//! Why a demo did not get to its end.

use std::io;
use std::path::PathBuf;

use towpath_chunkserver::daemon::DaemonError;
use towpath_chunkserver::store::{FlushFailed, OpenError};

use crate::child::ChildError;
use crate::cli::interrupt::Interrupted;
use crate::cli::session::SessionError;

/// Why a demo did not get to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DemoError {
    /// The second process.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The second process, from within.
    #[error(transparent)]
    Daemon(Box<DaemonError>),
    /// No directory for the store.
    #[error(
        "cannot make a directory for the store in {}; choose another with --dir or $TMPDIR",
        path.display()
    )]
    Dir {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The input cannot be read.
    #[error("cannot read the input{}", .path.as_ref().map_or_else(String::new, |path| {
        format!(" {}; give --input a regular file that stays as it is", path.display())
    }))]
    Input {
        /// Its path; none for input made from a seed.
        path: Option<PathBuf>,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Ctrl-C.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The client.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The store within this process did not close well.
    #[error("cannot close the simulated store")]
    Sealed(#[source] FlushFailed),
    /// A server within this process.
    #[error("cannot open the simulated store")]
    Store(#[from] OpenError),
    /// No thread for the store, or it does not end.
    #[error("cannot run the store's thread; raise the limit of processes (`ulimit -u`)")]
    Thread(#[from] io::Error),
    /// Kernel TCP over loopback.
    #[error("cannot measure kernel TCP over loopback")]
    Yardstick(#[source] io::Error),
}

impl From<DaemonError> for DemoError {
    fn from(error: DaemonError) -> Self {
        Self::Daemon(error.into())
    }
}
