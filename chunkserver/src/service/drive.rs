//! The store that the network thread drives itself, where no core is to spare for another thread.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_rpc::Piece;
use towpath_transport::{Buf, Device, Endpoint, Nanos, Region};

use super::limits::STORE_WAIT;
use super::server::ChunkServer;
use crate::store::core::StoreDriver;
use crate::store::{Completion, FlushFailed};

/// The driver, and what the network thread sleeps by.
pub(super) struct Drive {
    driver: StoreDriver<Piece>,
    /// Readable when there is something for the endpoint; none where its device has no files.
    endpoint: Option<OwnedFd>,
}

impl Drive {
    /// Asks nothing more, and seals the store, as [`StoreDriver::stop_by`].
    pub(super) fn stop_by(self, end: Instant) -> Option<Result<(), FlushFailed>> {
        self.driver.stop_by(end)
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Has this server's thread, which opened the store, drive it too: the only one of its disks.
    /// Others may ask it as well. With none another thread drives it.
    #[must_use]
    pub fn driving(mut self, driver: Option<StoreDriver<Piece>>) -> Self {
        let Some(driver) = driver else { return self };
        // It finds the answers by itself.
        self.store.wake(None);
        let endpoint = self.endpoint.poll_fd().ok();
        self.drive = Some(Drive { driver, endpoint });
        self
    }

    /// Whether this thread drives the store.
    pub(crate) fn drives_store(&self) -> bool {
        self.drive.is_some()
    }

    /// A turn of the store, where this thread drives it. Whether anything happened.
    pub(super) fn drive_store(&mut self) -> bool {
        let Some(drive) = &mut self.drive else { return false };
        drive.driver.turn().unwrap_or_else(|_| {
            // It has told why; the next look for ends finds it.
            self.drive = None;
            true
        })
    }

    /// Has the store take what it was just asked. Where this thread drives it, what is answered at
    /// once is taken in: whether there was anything.
    pub(super) fn pass_on(&mut self) -> bool {
        if !self.drives_store() {
            self.store.ring();
            return false;
        }
        let answered = self.store.has_queued() && self.drive_store() && self.take_completions();
        if answered {
            self.send_answers();
        }
        answered
    }

    /// Sleeps until there is something for the endpoint or from the store, for `span` at most.
    pub(super) fn sleep(&mut self, span: Nanos) {
        let Some(Drive { driver, endpoint: file }) = &mut self.drive else {
            self.endpoint.wait(span);
            return;
        };
        match driver.begin_wait() {
            Ok(Some(most)) => {
                let span = span.min(Nanos(most.as_nanos() as u64));
                sleep_for(&mut self.endpoint, file.as_ref(), driver, span);
                driver.end_wait();
            }
            Ok(None) => {}
            Err(_) => self.drive = None,
        }
    }

    /// Waits for an answer of the store; none where it has nothing to answer.
    pub(super) fn wait_for_store(&mut self) -> Option<Completion<Piece, Buf>> {
        while self.drive.is_some() {
            if let Some(answer) = self.store.try_next() {
                return Some(answer);
            }
            if self.sched.at_store() == 0 {
                return None;
            }
            if !self.drive_store() {
                self.sleep(STORE_WAIT);
            }
        }
        self.store.wait_next()
    }
}

/// Sleeps until one of them has something.
fn sleep_for<D: Device<Memory = Region>>(
    endpoint: &mut Endpoint<D>,
    file: Option<&OwnedFd>,
    driver: &StoreDriver<Piece>,
    span: Nanos,
) {
    let Some(file) = file else {
        // What the disk has done does not end a wait of this device.
        endpoint.wait(span.min(STORE_WAIT));
        return;
    };
    let span = endpoint.prepare_wait(span.into());
    let Ok(timeout) = Timespec::try_from(span) else { return };
    let [bell, disk] = driver.files();
    let files = [Some(file.as_fd()), bell, disk];
    let files = files.iter().flatten().map(|file| PollFd::new(file, PollFlags::IN));
    // Where it fails, the next turn looks at all of them.
    let _ = poll(&mut files.collect::<Vec<_>>(), Some(&timeout));
}
