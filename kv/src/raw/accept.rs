//! A server's listener: it hears out who connects, and hands on whoever has said all.

use super::counters::{RawCounters, add};
use super::hello::{End, HELLO_BYTES, HelloError, Refusal};
use super::port::Joined;
use crate::limits::{ACCEPT_PAUSE, ACCEPTS_MAX, EVENTS_MAX, RAW_HALF_OPEN_MAX, RAW_HELLO_TIME};
use crate::serve::Counters;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::sockopt::set_socket_keepalive;
use slab::Slab;
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Waker;
use towpath_base::Time;
use towpath_wake::Bell;

const BELL: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// The listener, and those who have not said all.
pub(super) struct Acceptor {
    listener: TcpListener,
    epoll: OwnedFd,
    bell: Bell,
    halves: Slab<Half>,
    /// In the order in which they came; some may be gone.
    order: VecDeque<(usize, u64)>,
    came: u64,
    counters: Arc<Counters>,
    raw: Arc<RawCounters>,
}

/// A client that has not said all.
struct Half {
    stream: TcpStream,
    bytes: Vec<u8>,
    until: Time,
    number: u64,
}

impl Acceptor {
    pub(super) fn new(
        listener: TcpListener,
        counters: Arc<Counters>,
        raw: Arc<RawCounters>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (bell, epoll) = (Bell::new()?, epoll::create(CreateFlags::CLOEXEC)?);
        epoll::add(&epoll, &bell, EventData::new_u64(BELL), EventFlags::IN)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let (halves, order) = (Slab::new(), VecDeque::new());
        Ok(Self { listener, epoll, bell, halves, order, came: 0, counters, raw })
    }

    /// Ends a wait.
    pub(super) fn waker(&self) -> Waker {
        self.bell.waker()
    }

    /// Waits for somebody, and hands on those who have said all; they are counted as connected.
    pub(super) fn turn(
        &mut self,
        now: impl Fn() -> Time,
        admit: &mut dyn FnMut(Joined),
    ) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        let buffer = rustix::buffer::spare_capacity(&mut events);
        let timeout = self.timeout(now());
        match epoll::wait(&self.epoll, buffer, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let now = now();
        for event in &events {
            match event.data.u64() {
                BELL => drop(self.bell.clear()),
                LISTENER => self.accept(now),
                place => self.hear(place as usize, admit),
            }
        }
        while let Some(&(place, number)) = self.order.front() {
            match self.halves.get(place) {
                Some(half) if half.number == number && half.until > now => break,
                Some(half) if half.number == number => self.let_go(place),
                _ => {}
            }
            self.order.pop_front();
        }
        Ok(())
    }

    fn timeout(&self, now: Time) -> Option<Timespec> {
        let (place, _) = self.order.front()?;
        let until = self.halves.get(*place).map_or(now, |half| half.until);
        Timespec::try_from(std::time::Duration::from(until.since(now))).ok()
    }

    fn accept(&mut self, now: Time) {
        for _ in 0..ACCEPTS_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted for a moment");
                    return std::thread::sleep(ACCEPT_PAUSE.into());
                }
            };
            // The kernel tells of a host that is gone without a word.
            let prepared = stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .and_then(|()| Ok(set_socket_keepalive(&stream, true)?));
            if prepared.is_err() {
                continue;
            }
            while self.halves.len() >= RAW_HALF_OPEN_MAX {
                // Who came first has had the most time.
                let Some((place, number)) = self.order.pop_front() else { break };
                if self.halves.get(place).is_some_and(|half| half.number == number) {
                    self.let_go(place);
                }
            }
            self.came += 1;
            let (bytes, until) = (Vec::with_capacity(HELLO_BYTES), now + RAW_HELLO_TIME);
            let place = self.halves.insert(Half { stream, bytes, until, number: self.came });
            self.order.push_back((place, self.came));
            let (data, stream) = (EventData::new_u64(place as u64), &self.halves[place].stream);
            if epoll::add(&self.epoll, stream, data, EventFlags::IN).is_err() {
                self.let_go(place);
            }
        }
    }

    fn let_go(&mut self, place: usize) {
        self.halves.remove(place);
        add(&self.raw.refused, 1);
    }

    /// Reads what a client says.
    fn hear(&mut self, place: usize, admit: &mut dyn FnMut(Joined)) {
        let Some(half) = self.halves.get_mut(place) else { return };
        let mut room = [0; HELLO_BYTES];
        // No more than it has to say.
        let left = HELLO_BYTES - half.bytes.len();
        match half.stream.read(&mut room[..left]) {
            Ok(0) => return self.let_go(place),
            Ok(count) => half.bytes.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(_) => return self.let_go(place),
        }
        let refusal = match End::parse(&half.bytes) {
            Err(HelloError::Short(_)) => return,
            Ok(hello) if self.counters.connect() => {
                let Half { stream, .. } = self.halves.remove(place);
                if epoll::delete(&self.epoll, &stream).is_ok() {
                    return admit(Joined { stream, hello });
                }
                return self.counters.disconnect();
            }
            Ok(_) => Refusal::TooManyClients,
            Err(error) => Refusal::to(error),
        };
        refuse(&half.stream, refusal);
        self.let_go(place);
    }
}

/// Tells a client why it is not served.
pub(super) fn refuse(mut stream: &TcpStream, refusal: Refusal) {
    let mut out = Vec::with_capacity(HELLO_BYTES);
    refusal.emit(&mut out);
    // The socket is new and has room; who is gone does not hear it.
    let _ = stream.write(&out);
}
