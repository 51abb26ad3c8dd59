//! A bell that any thread rings to end the wait of the one that owns it.

use crate::sync::AtomicBool;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};

/// The owner's side: a file that is readable once the bell was rung, for whoever waits on files.
///
/// However often it is rung, at most one byte waits to be read, so ringing never blocks.
///
/// ```
/// let mut bell = towpath_wake::Bell::new()?;
/// bell.waker().wake();
/// assert!(bell.clear());
/// assert!(!bell.clear());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Bell {
    readable: UnixStream,
    rope: Arc<Rope>,
    /// Bytes of rings that were taken in, which were still on their way then.
    bytes_due: usize,
}

#[derive(Debug)]
struct Rope {
    rung: Rung,
    writable: UnixStream,
}

/// Whether a bell was rung and not yet cleared: a byte waits to be read then, or is on its way.
#[derive(Debug, Default)]
pub(crate) struct Rung(AtomicBool);

impl Rung {
    /// Rings the bell; where it was not, by letting `write` write a byte.
    pub(crate) fn ring(&self, write: impl FnOnce()) {
        if !self.0.swap(true, Ordering::SeqCst) {
            write();
        }
    }

    /// Takes the rings in, and by `read` the bytes; whether there were any.
    pub(crate) fn clear(&self, read: impl FnOnce()) -> bool {
        if !self.0.load(Ordering::SeqCst) {
            return false;
        }
        // The byte may still be on its way: it wakes in vain once, and the next call reads it.
        read();
        // In this order: a ring between the two is one that this call answers for.
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // It cannot be full, and when the owner is gone nobody waits.
        self.rung.ring(|| drop((&self.writable).write(&[1])));
    }
}

impl Bell {
    /// A bell that was not rung.
    ///
    /// # Errors
    /// The system has no more files to give.
    pub fn new() -> io::Result<Self> {
        let (readable, writable) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        writable.set_nonblocking(true)?;
        let rope = Arc::new(Rope { rung: Rung::default(), writable });
        Ok(Self { readable, rope, bytes_due: 0 })
    }

    /// What rings it, from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.rope))
    }

    /// Takes the rings in; says whether there were any. What a ringer did before it rang is seen
    /// after this, also when its ring found the bell rung already.
    pub fn clear(&mut self) -> bool {
        let Self { readable, rope, bytes_due } = self;
        let mut read = || {
            let (mut bytes, mut count) = ([0; 8], 0);
            while let Ok(more @ 1..) = readable.read(&mut bytes) {
                count += more;
            }
            count
        };
        let mut count = 0;
        let was_rung = rope.rung.clear(|| count = read());
        if !was_rung && *bytes_due > 0 {
            count = read();
        }
        // From the first ring to the one that takes it in, one byte is written.
        *bytes_due = (*bytes_due + usize::from(was_rung)).saturating_sub(count);
        was_rung
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Bell;
    use std::io::{self, Read, Write};
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_byte_that_comes_after_its_ring_was_taken_in_is_read_the_next_time() {
        let mut bell = Bell::new().expect("two sockets");
        // The ringer has told of its ring, and is yet to write.
        bell.rope.rung.ring(|| ());
        assert!(bell.clear());
        bell.waker().wake();
        assert!(bell.clear(), "a ring of its own");
        (&bell.rope.writable).write_all(&[1]).expect("there is room");
        assert!(!bell.clear(), "that was known");
        let left = bell.readable.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(left, Err(io::ErrorKind::WouldBlock), "else each wait ends at once");
    }

    #[test]
    fn what_was_done_before_a_ring_is_seen_when_it_is_cleared() {
        let mut bell = Bell::new().expect("two sockets");
        let (done, waker) = (AtomicU32::new(0), bell.waker());
        const ROUNDS: u32 = 10_000;
        std::thread::scope(|scope| {
            let done = &done;
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    done.store(round, Ordering::SeqCst);
                    waker.wake_by_ref();
                }
            });
            // Were a ring lost, the last of them never came.
            while done.load(Ordering::SeqCst) < ROUNDS || !bell.clear() {
                std::thread::yield_now();
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), ROUNDS);
    }
}
