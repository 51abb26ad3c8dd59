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

use crate::asks::Asks;
use crate::config::EndpointConfig;
use crate::conn::{Conn, PendingLink};
use crate::error::{ConnectError, LinkError, ListenError};
use crate::event::{Event, Peer};
use crate::ids::{ConnectId, LinkId};
use crate::limits::{
    HANDSHAKES_MAX, LISTEN_BACKLOG, LISTEN_POLL_NS, LISTENERS_MAX, SETUP_POLL_NS, WATCH_POLL_NS,
};
use crate::workers::Member;
use incoming::Incoming;
use news::News;
use outgoing::Outgoing;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use towpath_base::{Nanos, Time};
use towpath_proto::Class;
use towpath_proto::wire::Hello;
use towpath_verbs::VerbSet;
use towpath_wake::{AnyOf, Watch};
use waiting::Waiting;
use watch::{Lingering, Watched};

/// What set-up asks of whoever has the links: an [`Endpoint`](crate::Endpoint).
pub(crate) trait Host {
    fn config(&self) -> &EndpointConfig;
    /// What its device can do.
    fn verbs(&self) -> VerbSet;
    /// Its place among several workers, if it is one of them.
    fn member(&self) -> Option<&Member>;
    /// What it keeps for each link.
    fn conns(&self) -> impl Iterator<Item = &Conn>;
    /// Who is at the other end of a link.
    fn peer(&self, link: LinkId) -> Option<Peer>;

    /// Makes our half of a link that asks for this, to a peer at `dest`.
    fn offer_to(
        &mut self,
        dest: SocketAddr,
        class: Class,
        asks: Asks,
    ) -> Result<(Hello, PendingLink), LinkError>;
    /// Joins such a half with that of the peer at `addr`.
    fn join(
        &mut self,
        pending: PendingLink,
        peer: &Hello,
        addr: SocketAddr,
    ) -> Result<LinkId, LinkError>;
    /// Makes a half that answers a peer's, and joins both.
    fn welcome(&mut self, peer: &Hello, from: SocketAddr) -> Result<(LinkId, Hello), LinkError>;
    /// Gives a half up.
    fn withdraw(&mut self, pending: PendingLink);

    /// Whether a path of a link rides on its set-up connection.
    fn carries_path(&self, link: LinkId) -> bool;
    /// Gives a link its stream, on which `first` is still to be written; gives both back where it
    /// has no path that rides on it. `is_told` says that what comes on it is told of.
    fn give_stream(
        &mut self,
        link: LinkId,
        stream: TcpStream,
        first: (Vec<u8>, bool),
    ) -> Option<(TcpStream, Vec<u8>)>;
    /// The set-up connection of a link broke: the peer's process is gone.
    fn peer_gone(&mut self, link: LinkId);
    /// Ends a link whose peer was never heard of, for a newcomer.
    fn give_way(&mut self, link: LinkId, now: Time);

    /// Has each wait end for news of the sockets of this watch; of none, where there is none.
    /// False when it cannot.
    fn wait_for_news(&mut self, watch: Option<&Watch>) -> bool;
    /// Tells the application.
    fn tell(&mut self, event: Event);
}

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

    /// Listens for peers on a TCP address.
    pub(crate) fn listen(
        &mut self,
        host: &mut impl Host,
        addr: SocketAddr,
    ) -> Result<SocketAddr, ListenError> {
        if self.listeners.len() == LISTENERS_MAX {
            return Err(ListenError::TooMany { max: LISTENERS_MAX });
        }
        let at = |source| ListenError::at(addr, source);
        let listener = TcpListener::bind(addr).map_err(at)?;
        // The standard library asks for 128.
        rustix::net::listen(&listener, LISTEN_BACKLOG).map_err(|error| at(error.into()))?;
        listener.set_nonblocking(true).map_err(at)?;
        let local = listener.local_addr().map_err(at)?;
        self.news.add(host, &listener, None);
        self.listeners.push(listener);
        Ok(local)
    }

    /// Stops listening. Set-ups under way go on.
    pub(crate) fn stop_listening(&mut self) {
        self.listeners.clear();
    }

    /// Begins to connect to a peer, and to ask for this.
    pub(crate) fn connect(
        &mut self,
        (addr, class): (SocketAddr, Class),
        asks: Asks,
        now: Time,
    ) -> Result<ConnectId, ConnectError> {
        if self.outgoing.len() == HANDSHAKES_MAX {
            return Err(ConnectError::TooMany { max: HANDSHAKES_MAX });
        }
        let connect = ConnectId(self.next_connect);
        self.next_connect += 1;
        let outgoing = Outgoing::dial(connect, (addr, class), asks, self.timeout, now)
            .map_err(|source| ConnectError::Dial { addr, source })?;
        self.outgoing.push(outgoing);
        self.next_poll = now;
        Ok(connect)
    }

    /// Whether there is news of the conversations, and of which links whose set-up connections
    /// carry a path, into `streams`. `idle` says that nothing else has happened in this turn.
    pub(crate) fn take_news(&mut self, now: Time, idle: bool, streams: &mut Vec<u16>) -> bool {
        self.news.take(now, idle, streams)
    }

    /// Looks at the conversations that it is time for.
    #[inline(never)]
    pub(crate) fn go_on(&mut self, host: &mut impl Host, now: Time, has_news: bool) {
        if host.member().is_some_and(Member::has_placed) {
            self.take_placed(host, now);
        }
        if has_news || now >= self.next_poll {
            self.poll_waiting(host, now);
            let may_be_more = self.poll_incoming(host, now);
            self.poll_outgoing(host, now);
            self.lingering.retain_mut(|peer| !peer.is_done(now));
            let is_busy = may_be_more || self.is_talking();
            let pause = if is_busy { SETUP_POLL_NS } else { self.news.or(LISTEN_POLL_NS) };
            self.next_poll = now + Nanos(pause);
        }
        if has_news || now >= self.next_watch {
            let all_said = self.poll_watched(host);
            let pause = if all_said { self.news.or(WATCH_POLL_NS) } else { WATCH_POLL_NS };
            self.next_watch = now + Nanos(pause);
        }
    }

    /// A link is over: so is its set-up connection.
    pub(crate) fn forget(&mut self, link: LinkId) {
        self.watched.retain(|watched| watched.link != link);
    }
}
