//! Set-up over TCP: HELLOs there and back (docs/protocol.md section 8).
//!
//! The endpoint takes the conversations on (`endpoint/hosting.rs`), and makes links of them. Their
//! connections are the links' then (`tcp`).
//!
//! | file | what it does |
//! |---|---|
//! | `wire` | whole set-up messages out of and into a non-blocking socket |
//! | `incoming` | listeners, and peers that connect |
//! | `crowd` | who gives way when too many do |
//! | `outgoing` | dialling, and the answer |
//! | `news` | when there is something to look at |
//! | `lingering` | the connections of peers that were refused |

mod crowd;
mod incoming;
mod lingering;
mod news;
mod outgoing;
mod wire;

pub(crate) use crowd::first_to_go;
pub(crate) use outgoing::{Offer, Step};
pub(crate) use wire::Outbox;

use crate::asks::Asks;
use crate::error::{ConnectError, ListenError};
use crate::ids::ConnectId;
use crate::limits::{
    HANDSHAKES_MAX, LISTEN_BACKLOG, LISTEN_POLL_NS, LISTENERS_MAX, NO_NEWS_POLL_NS, SETUP_POLL_NS,
};
use crate::secure::{Secure, TRUST_POLL};
use crate::workers::Placed;
use incoming::Incoming;
use lingering::Lingering;
use news::News;
use outgoing::Outgoing;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use towpath_base::{Nanos, Time};
use towpath_proto::Class;
use towpath_wake::Watch;

/// All set-up conversations of an endpoint.
pub(crate) struct Setup {
    timeout: Nanos,
    listeners: Vec<TcpListener>,
    incoming: Vec<Incoming>,
    /// Peers whose HELLOs are whole, and for whom there is no link yet, until when.
    waiting: VecDeque<(Placed, Time)>,
    outgoing: Vec<Outgoing>,
    lingering: Vec<Lingering>,
    next_connect: u64,
    next_poll: Time,
    secure: Option<Secure>,
    /// When it is looked whether peers are trusted still.
    next_trust: Time,
    pub(crate) news: News,
}

impl Setup {
    pub(crate) fn new(timeout: Nanos, secure: Option<Secure>) -> Self {
        Self {
            timeout,
            listeners: Vec::new(),
            incoming: Vec::new(),
            waiting: VecDeque::new(),
            outgoing: Vec::new(),
            lingering: Vec::new(),
            next_connect: 0,
            next_poll: Time::default(),
            next_trust: if secure.is_some() { Time::ZERO } else { Time::NEVER },
            secure,
            news: News::default(),
        }
    }

    /// When it wants to be looked at again.
    pub(crate) fn next_due(&self) -> Time {
        let polls = self.is_talking() || !self.listeners.is_empty();
        if polls { self.next_poll.min(self.next_trust) } else { self.next_trust }
    }

    /// The keys of the host, when it is time to look whether its peers are trusted still.
    pub(crate) fn take_trust_due(&mut self, now: Time) -> Option<Secure> {
        if now < self.next_trust {
            return None;
        }
        self.next_trust = now + TRUST_POLL;
        self.secure.clone()
    }

    fn is_talking(&self) -> bool {
        let accepts = !self.incoming.is_empty() || !self.waiting.is_empty();
        accepts || !self.outgoing.is_empty() || !self.lingering.is_empty()
    }

    /// Listens for peers on a TCP address; `wait` as for [`News::add`].
    pub(crate) fn listen(
        &mut self,
        addr: SocketAddr,
        wait: impl FnMut(Option<&Watch>) -> bool,
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
        self.news.add(&listener, None, wait);
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
        self.outgoing.push(Outgoing::dial(connect, (addr, class), asks, now + self.timeout));
        self.next_poll = now;
        Ok(connect)
    }

    /// The peer that has waited longest for the place of a link, and until when it does.
    pub(crate) fn next_waiting(&mut self) -> Option<(Placed, Time)> {
        self.waiting.pop_front()
    }

    /// That peer waits on.
    pub(crate) fn wait_on(&mut self, peer: Placed, deadline: Time) {
        self.waiting.push_front((peer, deadline));
    }

    /// How many peers wait for the place of a link.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// A peer waits for the place of a link, behind the others. Gives back the one that goes for
    /// it when there are too many.
    pub(crate) fn await_place(&mut self, peer: Placed, now: Time) -> Option<Placed> {
        let all = self.waiting.iter().enumerate();
        let all = all.map(|(place, (peer, _))| (peer.from.ip(), place));
        let goes = if all.len() == HANDSHAKES_MAX { first_to_go(all) } else { None };
        let goes = goes.and_then(|place| self.waiting.remove(place));
        self.waiting.push_back((peer, now + self.timeout));
        self.next_poll = now;
        goes.map(|(peer, _)| peer)
    }

    /// All conversations were looked at; more peers may be waiting to be accepted.
    pub(crate) fn end_look(&mut self, now: Time, may_be_more: bool) {
        self.lingering.retain_mut(|peer| !peer.is_done(now));
        let pause = if may_be_more || self.is_talking() {
            SETUP_POLL_NS
        } else if self.news.are_told() {
            NO_NEWS_POLL_NS
        } else {
            LISTEN_POLL_NS
        };
        self.next_poll = now + Nanos(pause);
    }
}
