//! The side that asks.

use crate::limits::{ANSWER_BYTES_MAX, ASK_WAIT};
use crate::{Answer, ProcessStatus};
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// Nobody is there.
    #[error("no process answers at {}: is it running, and is this its status socket?",
            path.display())]
    Connect {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The answer does not come.
    #[error("no answer from {}; the process may be busy: ask again", path.display())]
    Read {
        /// From where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The thread that moves the data does not answer.
    #[error("the process runs, but its network thread did not react for {waited_ms} ms")]
    Silent {
        /// For so long.
        waited_ms: u64,
    },
    /// The answer is none.
    #[error("{} did not send a status: is it another program's socket?", path.display())]
    Malformed {
        /// From where.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// Asks the process whose [`StatusSocket`](crate::StatusSocket) is at `path`.
///
/// # Errors
/// [`AskError`].
pub fn ask(path: &Path) -> Result<ProcessStatus, AskError> {
    let cannot_read = |source| AskError::Read { path: path.into(), source };
    let stream = UnixStream::connect(path)
        .map_err(|source| AskError::Connect { path: path.into(), source })?;
    stream.set_read_timeout(Some(ASK_WAIT)).map_err(cannot_read)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(cannot_read)?;
    if answer.is_empty() {
        // It was about to end.
        return Err(cannot_read(io::ErrorKind::UnexpectedEof.into()));
    }
    match serde_json::from_slice(&answer) {
        Ok(Answer::Status(status)) => Ok(*status),
        Ok(Answer::Silent { waited_ms }) => Err(AskError::Silent { waited_ms }),
        Err(source) => Err(AskError::Malformed { path: path.into(), source }),
    }
}
