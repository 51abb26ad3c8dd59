//! Many files, and one that is readable once any of them has something new.

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Taken from the system at a time.
const EVENTS_AT_A_TIME: usize = 32;

/// Files of which somebody wants to know when there is something new to read: bytes, a connection,
/// an end. It is a file itself, readable from then on until that was [taken](Self::take).
///
/// ```
/// use std::io::Write;
/// let (near, mut far) = std::os::unix::net::UnixStream::pair()?;
/// let watch = towpath_wake::Watch::new()?;
/// watch.add(&near, 7)?;
/// let taken = || {
///     let mut numbers = Vec::new();
///     watch.take(|number| numbers.push(number));
///     numbers
/// };
/// assert_eq!(taken(), []);
/// far.write_all(b"new")?;
/// assert_eq!(taken(), [7]);
/// assert_eq!(taken(), [], "it is as unread as before, but not new");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Watch {
    epoll: OwnedFd,
}

impl Watch {
    /// Of no file yet.
    ///
    /// # Errors
    /// The system has no more files to give.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Adds a file, until it is closed, by a number of the caller's choice. What it has already is
    /// new, and each thing that comes is told of once: who is told reads until there is no more, or
    /// comes back unasked.
    ///
    /// # Errors
    /// It is watched already, or the system has no room.
    pub fn add(&self, file: &impl AsFd, number: u64) -> io::Result<()> {
        let events = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, file, EventData::new_u64(number), events)?)
    }

    /// Calls `tell` with the number of each file that has had anything new since the last time.
    pub fn take(&self, mut tell: impl FnMut(u64)) {
        let at_once = Timespec::default();
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [none; EVENTS_AT_A_TIME];
        loop {
            match epoll::wait(&self.epoll, &mut events, Some(&at_once)) {
                Ok(count) => {
                    events[..count].iter().for_each(|event| tell(event.data.u64()));
                    if count < EVENTS_AT_A_TIME {
                        return;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                // It cannot fail otherwise; should it, looking at the files does no harm.
                Err(_) => return tell(0),
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{EVENTS_AT_A_TIME, Watch};
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    fn has_news(watch: &Watch) -> bool {
        let mut found = false;
        watch.take(|_| found = true);
        found
    }

    #[test]
    fn bytes_ends_and_connections_are_new_once_and_closed_files_are_forgotten() {
        let watch = Watch::new().expect("a file");
        let dir = tempfile::tempdir().expect("room for a directory");
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a fresh path");
        watch.add(&listener, 0).expect("room");
        assert!(watch.add(&listener, 0).is_err(), "it is watched already");
        assert!(!has_news(&watch));
        let mut far = UnixStream::connect(&path).expect("it listens");
        assert!(has_news(&watch));
        let (mut near, _) = listener.accept().expect("a connection");
        watch.add(&near, 0).expect("room");
        assert!(!has_news(&watch));
        far.write_all(b"a").expect("room");
        assert!(has_news(&watch));
        far.write_all(b"b").expect("room");
        assert!(has_news(&watch), "more is new, although what came before was not read");
        near.read_exact(&mut [0; 2]).expect("two bytes");
        drop(far);
        assert!(has_news(&watch));
        drop(near);
        assert!(!has_news(&watch));
    }

    #[test]
    fn however_many_files_have_something_one_look_takes_all_of_it() {
        let watch = Watch::new().expect("a file");
        let pairs: Vec<_> =
            (0..3 * EVENTS_AT_A_TIME).map(|_| UnixStream::pair().expect("two sockets")).collect();
        for (near, far) in &pairs {
            watch.add(near, 0).expect("room");
            (&mut &*far).write_all(b"a").expect("room");
        }
        assert!(has_news(&watch));
        assert!(!has_news(&watch));
    }
}
