//! The side that is asked: a socket, its thread, and a flag for the owner of the endpoint.

use crate::limits::{ANSWER_INTERVAL_MIN, OWNER_WAIT, OWNERS_MAX, READER_WAIT};
use crate::{Answer, ProcessStatus};
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
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
    #[error("{} exists and is not a socket: choose another path", .0.display())]
    NoSocket(PathBuf),
    /// The system does not give it.
    #[error("cannot make the socket {}: its folder must exist, and the path must have less than \
         108 bytes", path.display())]
    Bind {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No owner, or more than there may be.
    #[error("{wanted} threads cannot share one status socket: use 1 to {OWNERS_MAX}")]
    Owners {
        /// How many were asked for.
        wanted: usize,
    },
    /// There is no thread to be had.
    #[error("cannot start a thread for the status socket; raise the limit of processes")]
    Thread(#[source] io::Error),
}

#[derive(Debug, Default)]
struct Flags {
    /// The owners from whom somebody waits for a status, a bit each.
    asked: AtomicU64,
    /// What wakes those of them that sleep for longer.
    wakers: Mutex<Vec<Waker>>,
    /// The socket goes away.
    stop: AtomicBool,
}

/// The side of one of the threads that own an endpoint.
#[derive(Debug)]
pub struct StatusDesk {
    flags: Arc<Flags>,
    answers: SyncSender<(usize, ProcessStatus)>,
    owner: usize,
}

impl StatusDesk {
    /// Has the owner's `waker` woken when somebody asks. Without it the owner is to come by often.
    pub fn wakes(&self, waker: Waker) {
        self.flags.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    /// Hands `status` over when somebody asks, and otherwise looks at a flag. To be called once a
    /// turn by the owner of the endpoint; it does no input or output.
    #[inline]
    pub fn answer_when_asked(&mut self, status: impl FnOnce() -> ProcessStatus) {
        let ours = 1 << self.owner;
        if self.flags.asked.load(Ordering::Relaxed) & ours != 0
            && self.flags.asked.fetch_and(!ours, Ordering::AcqRel) & ours != 0
        {
            // It is full only when the one who asked has just stopped to wait.
            let _ = self.answers.try_send((self.owner, status()));
        }
    }
}

/// A socket in the file system at which a process can be asked for its [`ProcessStatus`], by its
/// own user. It goes away when this is dropped.
#[derive(Debug)]
pub struct StatusSocket {
    path: PathBuf,
    flags: Arc<Flags>,
    /// That of the first owner; none only while it is dropped.
    desk: Option<StatusDesk>,
    thread: Option<JoinHandle<()>>,
}

impl StatusSocket {
    /// A socket at `path`. One that a process left behind there is replaced.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        Ok(Self::bind_for(path, 1)?.0)
    }

    /// The same for a process with several threads that own an endpoint each, at most
    /// [`OWNERS_MAX`]: the first one has the socket, the others a desk. What they tell is one
    /// answer, in which each link has the number of its owner.
    ///
    /// # Errors
    /// [`SocketError`].
    pub fn bind_for(path: &Path, owners: usize) -> Result<(Self, Vec<StatusDesk>), SocketError> {
        if owners == 0 || owners > OWNERS_MAX {
            return Err(SocketError::Owners { wanted: owners });
        }
        clear(path)?;
        let cannot = |source| SocketError::Bind { path: path.into(), source };
        let listener = UnixListener::bind(path).map_err(cannot)?;
        // Who may write to it may ask, and only the user may.
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(cannot)?;
        let flags = Arc::new(Flags::default());
        let (answers, answered) = sync_channel(owners);
        let desk =
            |owner| StatusDesk { flags: Arc::clone(&flags), answers: answers.clone(), owner };
        let (first, others) = (desk(0), (1..owners).map(desk).collect());
        let server = Server { listener, flags: Arc::clone(&flags), owners, answered };
        let thread = thread::Builder::new().name("status".into()).spawn(move || server.run());
        match thread {
            Ok(thread) => {
                let (desk, thread) = (Some(first), Some(thread));
                Ok((Self { path: path.into(), flags, desk, thread }, others))
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

    /// See [`StatusDesk::wakes`].
    pub fn wakes(&self, waker: Waker) {
        self.desk.iter().for_each(|desk| desk.wakes(waker.clone()));
    }

    /// See [`StatusDesk::answer_when_asked`].
    #[inline]
    pub fn answer_when_asked(&mut self, status: impl FnOnce() -> ProcessStatus) {
        if let Some(desk) = &mut self.desk {
            desk.answer_when_asked(status);
        }
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.flags.stop.store(true, Ordering::Release);
        // Ends the wait for a status, where no other owner is left, and then the one for somebody
        // who asks.
        self.desk = None;
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
    owners: usize,
    answered: Receiver<(usize, ProcessStatus)>,
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
        self.flags.asked.store(u64::MAX >> (OWNERS_MAX - self.owners), Ordering::SeqCst);
        let wakers = self.flags.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.iter().for_each(Waker::wake_by_ref);
        drop(wakers);
        let until = Instant::now() + OWNER_WAIT;
        let mut told = Vec::<(usize, ProcessStatus)>::new();
        while told.len() < self.owners && !self.flags.stop.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(status) = self.answered.recv_timeout(left) else { break };
            // One that was late for the one before may come by twice.
            told.retain(|&(owner, _)| owner != status.0);
            told.push(status);
        }
        self.flags.asked.store(0, Ordering::Release);
        match ProcessStatus::merge(told, self.owners) {
            Some(status) => Answer::Status(Box::new(status)),
            None => Answer::Silent { waited_ms: OWNER_WAIT.as_millis() as u64 },
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
