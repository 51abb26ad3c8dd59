//! Many files, and one that is readable while any of them is.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A file that is readable while any of the files that were added is: for whoever can wait for one
/// file only, or hands it to another loop.
///
/// ```
/// let mut bell = towpath_wake::Bell::new()?;
/// let any = towpath_wake::AnyOf::new()?;
/// any.add(&bell)?;
/// assert!(!any.is_ready());
/// bell.waker().wake();
/// assert!(any.is_ready() && any.is_ready(), "for as long as there is something");
/// bell.clear();
/// assert!(!any.is_ready());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AnyOf {
    epoll: OwnedFd,
}

impl AnyOf {
    /// Of no file yet.
    ///
    /// # Errors
    /// The system has no more files to give.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Adds a file, until it is closed.
    ///
    /// # Errors
    /// It was added before, or the system has no room.
    pub fn add(&self, file: &impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, file, EventData::new_u64(0), EventFlags::IN)?)
    }

    /// Whether any of the files is readable now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let mut files = [rustix::event::PollFd::new(&self.epoll, rustix::event::PollFlags::IN)];
        let at_once = rustix::event::Timespec::default();
        matches!(rustix::event::poll(&mut files, Some(&at_once)), Ok(1..))
    }
}

impl AsFd for AnyOf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
