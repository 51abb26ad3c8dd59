//! Set-up over TCP: HELLOs there and back, and the connection as a sign of life
//! (docs/protocol.md section 8).
//!
//! | file | what it does |
//! |---|---|
//! | `wire` | whole set-up messages out of and into a non-blocking socket |
//! | `incoming` | listeners, and peers that connect |
//! | `crowd` | who gives way when too many do |
//! | `waiting` | peers for whom a place comes free |
//! | `outgoing` | dialling, and the answer |
//! | `news` | when there is something to look at |
//! | `watch` | the connections of links that are up, and of peers that were refused |

mod crowd;
mod incoming;
mod news;
mod outgoing;
mod waiting;
mod watch;
mod wire;

use crate::endpoint::Endpoint;
use crate::error::{ConnectError, ListenError};
use crate::ids::{ConnectId, LinkId};
use crate::limits::{
    HANDSHAKES_MAX, LISTEN_BACKLOG, LISTEN_POLL_NS, LISTENERS_MAX, SETUP_POLL_NS, WATCH_POLL_NS,
};
use crate::workers::Member;
use incoming::Incoming;
use news::News;
use outgoing::Outgoing;
use std::io;
use std::net::{SocketAddr, TcpListener};
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::Class;
use towpath_verbs::Device;
use towpath_wake::AnyOf;
use waiting::Waiting;
use watch::{Lingering, Watched};

/// All set-up conversations of an endpoint.
#[derive(Default)]
pub(crate) struct Setup {
    timeout: Nanos,
    listeners: Vec<TcpListener>,
    incoming: Vec<Incoming>,
    waiting: Vec<Waiting>,
    outgoing: Vec<Outgoing>,
    watched: Vec<Watched>,
    lingering: Vec<Lingering>,
    next_connect: u64,
    next_poll: Time,
    next_watch: Time,
    news: News,
    /// Empty between two looks.
    streams_with_news: Vec<u16>,
}

impl Setup {
    pub(crate) fn new(timeout: Nanos) -> Self {
        Self { timeout, ..Self::default() }
    }

    /// When it wants to be looked at again.
    pub(crate) fn next_due(&self) -> Time {
        let watch = if self.watched.is_empty() { Time::NEVER } else { self.next_watch };
        let polls = self.is_talking() || !self.listeners.is_empty();
        if polls { self.next_poll.min(watch) } else { watch }
    }

    /// A wait of the device has ended before its time.
    pub(crate) fn wake(&mut self) {
        self.news.wake();
    }

    /// So it does not have to ask the system whether a wait ended because of it.
    pub(crate) fn packets_came(&mut self) {
        self.news.packets_came();
    }

    /// Adds what tells of news to files that somebody waits for.
    pub(crate) fn add_news_to(&self, files: &AnyOf) -> io::Result<()> {
        self.news.add_to(files)
    }

    fn is_talking(&self) -> bool {
        let accepts = !self.incoming.is_empty() || !self.waiting.is_empty();
        accepts || !self.outgoing.is_empty() || !self.lingering.is_empty()
    }
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Listens for peers on a TCP address; port 0 is any free one. Returns the address with its
    /// port. Peers that connect are told of with [`Event::Accepted`](crate::Event::Accepted).
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(&mut self, addr: SocketAddr) -> Result<SocketAddr, ListenError> {
        if self.setup().listeners.len() == LISTENERS_MAX {
            return Err(ListenError::TooMany { max: LISTENERS_MAX });
        }
        let at = |source| ListenError::at(addr, source);
        let listener = TcpListener::bind(addr).map_err(at)?;
        // The standard library asks for 128.
        rustix::net::listen(&listener, LISTEN_BACKLOG).map_err(|error| at(error.into()))?;
        listener.set_nonblocking(true).map_err(at)?;
        let local = listener.local_addr().map_err(at)?;
        self.tell_news_of(&listener);
        self.setup().listeners.push(listener);
        Ok(local)
    }

    /// Stops listening. Links that are up, and set-ups under way, go on.
    pub fn stop_listening(&mut self) {
        self.setup().listeners.clear();
    }

    /// Begins to connect to a peer that listens on a TCP address.
    /// [`Event::Connected`](crate::Event::Connected) or
    /// [`Event::ConnectFailed`](crate::Event::ConnectFailed) follows.
    ///
    /// # Errors
    /// [`ConnectError::TooMany`], [`ConnectError::Dial`] when no thread could be had for dialling.
    pub fn connect(&mut self, addr: SocketAddr) -> Result<ConnectId, ConnectError> {
        self.connect_as(addr, self.config().class.own)
    }

    /// The same with a link of another class than
    /// [`EndpointConfig::class`](crate::EndpointConfig::class). Classes to one peer have links of
    /// their own.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_as(
        &mut self,
        addr: SocketAddr,
        class: Class,
    ) -> Result<ConnectId, ConnectError> {
        let now = self.now();
        let asks = self.asks(addr.ip());
        let setup = self.setup();
        if setup.outgoing.len() == HANDSHAKES_MAX {
            return Err(ConnectError::TooMany { max: HANDSHAKES_MAX });
        }
        let connect = ConnectId(setup.next_connect);
        setup.next_connect += 1;
        let outgoing = Outgoing::dial(connect, (addr, class), asks, setup.timeout, now)
            .map_err(|source| ConnectError::Dial { addr, source })?;
        setup.outgoing.push(outgoing);
        setup.next_poll = now;
        Ok(connect)
    }

    /// Whether there is news of set-up conversations. Streams that have something are looked at in
    /// this turn. `idle` says that nothing else has happened in it.
    pub(crate) fn take_news(&mut self, now: Time, idle: bool) -> bool {
        let setup = self.setup();
        let mut streams = std::mem::take(&mut setup.streams_with_news);
        let has_news = setup.news.take(now, idle, &mut streams);
        streams.drain(..).for_each(|link| self.hurry_stream(link, now));
        self.setup().streams_with_news = streams;
        has_news
    }

    /// Looks at the set-up conversations when it is time to.
    pub(crate) fn poll_setup(&mut self, now: Time, has_news: bool) {
        let has_placed = self.member().is_some_and(Member::has_placed);
        let setup = self.setup();
        if has_placed || has_news || now >= setup.next_due() {
            self.go_on_with_setup(now, has_placed, has_news);
        }
    }

    #[inline(never)]
    fn go_on_with_setup(&mut self, now: Time, has_placed: bool, has_news: bool) {
        let mut setup = std::mem::take(self.setup());
        if has_placed {
            self.take_placed(&mut setup, now);
        }
        if has_news || now >= setup.next_poll {
            self.poll_waiting(&mut setup, now);
            let may_be_more = self.poll_incoming(&mut setup, now);
            self.poll_outgoing(&mut setup, now);
            setup.lingering.retain_mut(|peer| !peer.is_done(now));
            let is_busy = may_be_more || setup.is_talking();
            let pause = if is_busy { SETUP_POLL_NS } else { setup.news.or(LISTEN_POLL_NS) };
            setup.next_poll = now + Nanos(pause);
        }
        if has_news || now >= setup.next_watch {
            let all_said = self.poll_watched(&mut setup);
            let pause = if all_said { setup.news.or(WATCH_POLL_NS) } else { WATCH_POLL_NS };
            setup.next_watch = now + Nanos(pause);
        }
        *self.setup() = setup;
    }

    /// A link is over: so is its set-up connection.
    pub(crate) fn close_setup(&mut self, link: LinkId) {
        self.setup().watched.retain(|watched| watched.link != link);
    }
}
