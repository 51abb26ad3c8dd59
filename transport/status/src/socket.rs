//! The side that is asked: a socket, its thread, and a flag for the owner of the endpoint.

use crate::limits::{ANSWER_INTERVAL_MIN, OWNER_WAIT, READER_WAIT};
use crate::{Answer, ProcessStatus};
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another process answers there.
    #[error("another process answers at {}: choose another path", .0.display())]
    Taken(PathBuf),
    /// There is a file of that name, and it is no socket.
    #[error("{} is there and no socket: choose another path", .0.display())]
    NoSocket(PathBuf),
    /// The system does not give it.
    #[error("cannot make the socket {}: its folder must be there, and the path shorter than 108 \
             bytes", path.display())]
    Bind {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no thread to be had.
    #[error("cannot start a thread for the status socket; raise the limit of processes")]
    Thread(#[source] io::Error),
}

#[derive(Debug, Default)]
struct Flags {
    /// Somebody waits for a status.
    asked: AtomicBool,
    /// The socket goes away.
    stop: AtomicBool,
}

/// A socket in the file system at which a process can be asked for its [`ProcessStatus`], by its
/// own user. It goes away when this is dropped.
#[derive(Debug)]
pub struct StatusSocket {
    path: PathBuf,
    flags: Arc<Flags>,
    /// None only while it is dropped.
    answers: Option<SyncSender<ProcessStatus>>,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// A socket at `path`. One that a process left behind there is replaced.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        clear(path)?;
        let cannot = |source| SocketError::Bind { path: path.into(), source };
        let listener = UnixListener::bind(path).map_err(cannot)?;
        // Who may write to it may ask, and only the user may.
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(cannot)?;
        let flags = Arc::new(Flags::default());
        let (answers, answered) = sync_channel(1);
        let server = Server { listener, flags: Arc::clone(&flags), answered };
        let thread = thread::Builder::new().name("status".into()).spawn(move || server.run());
        match thread {
            Ok(thread) => {
                let (answers, thread) = (Some(answers), Some(thread));
                Ok(Self { path: path.into(), flags, answers, thread })
            }
            Err(source) => {
                let _ = fs::remove_file(path);
                Err(SocketError::Thread(source))
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hands `status` over when somebody asks, and otherwise looks at a flag. To be called once a
    /// turn by the owner of the endpoint; it does no input or output.
    #[inline]
    pub fn answer_when_asked(&mut self, status: impl FnOnce() -> ProcessStatus) {
        if self.flags.asked.load(Ordering::Relaxed)
            && self.flags.asked.swap(false, Ordering::AcqRel)
            && let Some(answers) = &self.answers
        {
            // It is full only when the one who asked has just stopped to wait.
            let _ = answers.try_send(status());
        }
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.flags.stop.store(true, Ordering::Release);
        // Ends the wait for a status, and then the one for somebody who asks.
        self.answers = None;
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = fs::remove_file(&self.path);
        // Without the wake, somebody has removed the socket: the thread ends with the process.
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Makes room for a socket at `path` where a dead one is.
fn clear(path: &Path) -> Result<(), SocketError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(SocketError::NoSocket(path.into()));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(SocketError::Taken(path.into()));
    }
    fs::remove_file(path).map_err(|source| SocketError::Bind { path: path.into(), source })
}

/// The thread that answers, one after the other.
struct Server {
    listener: UnixListener,
    flags: Arc<Flags>,
    answered: Receiver<ProcessStatus>,
}

impl Server {
    fn run(self) {
        loop {
            let asked = self.listener.accept();
            if self.flags.stop.load(Ordering::Acquire) {
                return;
            }
            if let Ok((stream, _)) = asked {
                // Who does not read goes without.
                let _ = write(stream, &self.answer());
            }
            // After a failure, too: out of files, say, which would come at once again.
            thread::sleep(ANSWER_INTERVAL_MIN);
        }
    }

    fn answer(&self) -> Answer {
        // What came too late for the one before is old.
        while self.answered.try_recv().is_ok() {}
        self.flags.asked.store(true, Ordering::Release);
        match self.answered.recv_timeout(OWNER_WAIT) {
            Ok(status) => Answer::Status(Box::new(status)),
            Err(_) => {
                self.flags.asked.store(false, Ordering::Release);
                Answer::Silent { waited_ms: OWNER_WAIT.as_millis() as u64 }
            }
        }
    }
}

fn write(mut stream: UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let (mut rest, until) = (line.as_slice(), Instant::now() + READER_WAIT);
    while !rest.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
