//! Clients that come and go, as files that a thread waits for beside its device.

use super::{Joined, Port, Work};
use crate::limits::EVENTS_MAX;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io::{self, Read as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use towpath_memory::Region;
use towpath_verbs::Device;
use towpath_wake::Bell;

/// Token of the bell; clients have their place.
const BELL: u64 = u64::MAX;

/// Clients that were heard out for a device, and how many it has.
#[derive(Debug)]
pub(in super::super) struct Inbox {
    arrived: Mutex<Vec<Joined>>,
    waker: Waker,
    load: AtomicUsize,
}

impl Inbox {
    /// A client that is to be served there.
    pub(in super::super) fn put(&self, joined: Joined) {
        self.load.fetch_add(1, Relaxed);
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(joined);
        self.wake();
    }

    /// Ends a wait.
    pub(in super::super) fn wake(&self) {
        self.waker.wake_by_ref();
    }

    /// Clients that are there, or are to be.
    pub(in super::super) fn load(&self) -> usize {
        self.load.load(Relaxed)
    }

    pub(in super::super) fn left(&self) {
        self.load.fetch_sub(1, Relaxed);
    }

    /// Those who came and were not taken in yet.
    pub(in super::super) fn take(&self) -> Vec<Joined> {
        std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The files: readable as a whole when one is.
#[derive(Debug)]
pub(in super::super) struct Doors {
    epoll: OwnedFd,
    bell: Bell,
    pub(in super::super) inbox: Arc<Inbox>,
}

impl Doors {
    pub(super) fn new() -> io::Result<Self> {
        let bell = Bell::new()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let (arrived, load) = (Mutex::default(), AtomicUsize::new(0));
        let inbox = Arc::new(Inbox { arrived, waker: bell.waker(), load });
        Ok(Self { epoll, bell, inbox })
    }

    /// What is readable when a client came or went.
    pub(in super::super) fn file(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Watches a client's connection.
    pub(super) fn watch(&self, stream: &TcpStream, place: usize) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, stream, EventData::new_u64(place as u64), EventFlags::IN)?)
    }
}

impl<D: Device<Memory = Region>> Port<D> {
    /// Takes in who came, and lets go who went. Requests may be taken in beside them.
    pub(in super::super) fn look(&mut self, work: &mut Work) {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        // Whatever ends it early is there the next time as well.
        let _ = epoll::wait(&self.doors.epoll, buffer, Some(&Timespec::default()));
        for event in events {
            match event.data.u64() {
                BELL => drop(self.doors.bell.clear()),
                place => self.hear(place as usize),
            }
        }
        self.mend_queue();
        self.mend();
        self.clear_remains(work);
        for joined in self.doors.inbox.take() {
            self.join(joined);
        }
    }

    /// A client has gone, or says what it should not.
    fn hear(&mut self, place: usize) {
        let Some(peer) = self.peers.get_mut(place) else { return };
        match peer.stream.read(&mut [0; 64]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => self.close(place),
        }
    }
}
