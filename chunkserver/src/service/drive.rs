//! The stores that the network thread drives itself, where no core is to spare for other threads.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_rpc::Piece;
use towpath_transport::{Buf, Device, Endpoint, Nanos, Region};

use super::limits::{STOP_LOOK, STORE_WAIT};
use super::server::ChunkServer;
use crate::store::Completion;
use crate::store::core::StoreDriver;
use crate::store::disks::Closed;

/// A store that it drives.
struct Own {
    /// Its disk's name.
    disk: String,
    driver: StoreDriver<Piece>,
}

/// The stores, and what the network thread sleeps by.
#[derive(Default)]
pub(super) struct Drive {
    stores: Vec<Own>,
    /// Readable when there is something for the endpoint; none where its device has no files.
    endpoint: Option<OwnedFd>,
}

impl Drive {
    fn is_none(&self) -> bool {
        self.stores.is_empty()
    }

    fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.stores.iter().flat_map(|own| own.driver.files()).flatten()
    }

    /// A turn of each store. Whether anything happened.
    fn turn(&mut self) -> bool {
        let mut any = false;
        // One that fails has told why; the next look for ends finds it.
        self.stores.retain_mut(|own| match own.driver.turn() {
            Ok(happened) => {
                any |= happened;
                true
            }
            Err(_) => {
                any = true;
                false
            }
        });
        any
    }

    /// Somebody is about to wait: how long at most. None where there is something to do now.
    fn begin_wait(&mut self) -> Option<Duration> {
        let mut most = Some(Duration::MAX);
        self.stores.retain_mut(|own| match own.driver.begin_wait() {
            Ok(wait) => {
                most = most.zip(wait).map(|(most, wait)| most.min(wait));
                true
            }
            Err(_) => {
                most = None;
                false
            }
        });
        most
    }

    /// Asks nothing more, and seals the stores, as [`StoreDriver::stop_by`]. Gives the one that did
    /// worst, of these and `others`.
    pub(super) fn stop_by(mut self, end: Instant, others: Closed) -> Closed {
        // All are driven: an asker of one store may wait for the answer of another one first.
        while self.stores.iter().any(|own| own.driver.can_be_asked()) && Instant::now() < end {
            if !self.turn()
                && let Some(most) = self.begin_wait()
            {
                // Not each of those who ask says when it is done.
                let most = most.min(STOP_LOOK).min(end.saturating_duration_since(Instant::now()));
                wait_for(self.files(), most);
            }
        }
        let stop = |Own { disk, driver }| Closed { disk, sealed: driver.stop_by(end) };
        self.stores.into_iter().map(stop).fold(others, Closed::or_worse)
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Has this server's thread, which opened these stores, drive them too. Others may ask them as
    /// well, and other threads drive the rest of its disks.
    #[must_use]
    pub fn driving(mut self, drivers: impl IntoIterator<Item = StoreDriver<Piece>>) -> Self {
        let own = |driver| Own { disk: self.store.drive_here(&driver), driver };
        let stores = drivers.into_iter().map(own).collect();
        self.drive = Drive { stores, endpoint: self.endpoint.poll_fd().ok() };
        self
    }

    /// Whether this thread drives a store.
    pub(crate) fn drives_store(&self) -> bool {
        !self.drive.is_none()
    }

    /// A turn of the stores that this thread drives. Whether anything happened.
    pub(super) fn drive_store(&mut self) -> bool {
        self.drive.turn()
    }

    /// Has the stores take what they were just asked. Where this thread drives them, what is
    /// answered at once is taken in: whether there was anything.
    pub(super) fn pass_on(&mut self) -> bool {
        let answered = self.store.ring() && self.drive_store() && self.take_completions();
        if answered {
            self.send_answers();
        }
        answered
    }

    /// Sleeps until there is something for the endpoint or from a store, for `span` at most.
    pub(super) fn sleep(&mut self, span: Nanos) {
        if self.drive.is_none() {
            self.endpoint.wait(span);
        } else if let Some(most) = self.drive.begin_wait() {
            let span = span.min(Nanos(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)));
            sleep_for(&mut self.endpoint, &self.drive, span);
            self.drive.stores.iter_mut().for_each(|own| own.driver.end_wait());
        }
    }

    /// Waits for an answer of the stores; none where they have nothing to answer.
    pub(super) fn wait_for_store(&mut self) -> Option<Completion<Piece, Buf>> {
        while self.drives_store() {
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
fn sleep_for<D: Device<Memory = Region>>(endpoint: &mut Endpoint<D>, drive: &Drive, span: Nanos) {
    let Some(file) = &drive.endpoint else {
        // What the disk has done does not end a wait of this device.
        endpoint.wait(span.min(STORE_WAIT));
        return;
    };
    let span = endpoint.prepare_wait(span.into());
    wait_for(std::iter::once(file.as_fd()).chain(drive.files()), span);
}

/// Waits until one of the files is readable. Where that fails, the next turn looks at all of them.
fn wait_for<'a>(files: impl Iterator<Item = BorrowedFd<'a>>, most: Duration) {
    let Ok(timeout) = Timespec::try_from(most) else { return };
    let files = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
    let _ = poll(&mut files.collect::<Vec<_>>(), Some(&timeout));
}
