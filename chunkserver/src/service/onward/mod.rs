//! Writes that servers pass on (docs/storage-protocol.md section 11).
//!
//! A server passes the data of such a write on while it comes, but for what comes last: that goes
//! on when everything else is here and checked, and the store has said that it would make the
//! write. Once all behind have made it, the store is asked. So nobody has made a write that
//! somebody before them would refuse, and what a server has made all behind it have made.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | what becomes of such a write, event by event |
//! | `allowed` | the servers that anything may be passed on to |
//! | `along` | one write: who has how much of it, and what each has said |
//! | `hop` | one server that something is passed on to, and how it is asked |
//! | `adding` | data parts of a stripe that are added up to a parity part |
//! | `trailing` | writes that go on after they were answered, to servers that are not waited for |
//! | `rebuild` | ranges of lost parts that are made anew on their way, event by event |
//! | `rebuilding` | one of them: what this server adds, and how far it has gone |
//! | `peers` | links to the servers that writes are passed on to |
//! | `by_hand` | the same links, where the owner of a server makes them |

mod adding;
mod allowed;
mod along;
mod by_hand;
mod hop;
mod peers;
mod rebuild;
mod rebuilding;
#[cfg(test)]
mod tests;
mod trailing;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use towpath_fastpath::cap::Capability;
use towpath_fastpath::wire::{ChangeReply, WriteHeader};
use towpath_fastpath::{ErrorKind, ErrorReply, Method, Route, RouteKind};
use towpath_rpc::{Completion, Fate, Piece, PushError, RequestKey, Status};
use towpath_transport::{
    Buf, ChannelId, Device, Endpoint, Event, LinkId, Nanos, Region, SendBuffers as _, Time,
};

pub(super) use adding::Adding;
pub use allowed::{AllowedPeers, AllowedPeersError};
use along::Next;
pub(super) use along::{Along, Part, Passed, Trailing};
pub(super) use hop::Hop;
use hop::{Asking, Sent};
pub(super) use peers::PeerId;
use peers::{News, Peers};
pub(super) use rebuilding::Rebuilding;

use super::answer::Answer;
use super::ask::{Ask, Asked};
use super::errors::of_change;
use super::limits::READY_MAX;
use super::open::{Begun, What};
use super::server::ChunkServer;
use super::trace::Came;
use crate::guard::Guard;
use crate::store::disks::Target;
use crate::store::{ChangeError, Fenced, Request};

/// Of the time that a write has, the part that those behind may take: one in so many is left to
/// tell the server before how it ended.
const TIME_SHARE: u64 = 8;

/// What a worker has for the writes that it passes on.
#[derive(Debug)]
pub(super) struct Onward {
    peers: Peers,
    /// Those that wait for a link, a buffer, a place or another worker, by their numbers, so that
    /// the oldest is looked at first.
    waiting: BTreeMap<u64, RequestKey>,
    /// Clients to be told that this server is ready for the last bytes of a request: their link,
    /// their channel's number for it, and until when.
    ready: Vec<Ready>,
    /// Those that anything may be passed on to.
    allowed: AllowedPeers,
    /// Which write has which request at which server behind.
    sent: HashMap<(PeerId, u64), RequestKey>,
    /// Servers that said nothing to a write that does not wait for them, and until when they get no
    /// other such write.
    silent: HashMap<PeerId, Time>,
    /// Bytes of all that are made anew.
    rebuilding_bytes: usize,
}

/// A client that is to be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) request: RequestKey,
    pub(super) way: (LinkId, ChannelId),
    pub(super) number: u64,
    pub(super) deadline: Time,
}

impl Onward {
    /// `seed` is for the waits before those that could not be reached are tried again.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            peers: Peers::new(seed),
            waiting: BTreeMap::new(),
            ready: Vec::new(),
            allowed: AllowedPeers::default(),
            sent: HashMap::new(),
            silent: HashMap::new(),
            rebuilding_bytes: 0,
        }
    }

    /// Looks at a request again in the next turn.
    fn wait(&mut self, request: RequestKey) {
        self.waiting.insert(request.serial(), request);
    }

    /// Whether something waits here, for what another worker does among others.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether nothing is passed on, and no link to a server is kept for that.
    pub(super) fn is_idle(&self) -> bool {
        self.peers.is_empty() && self.ready.is_empty() && self.waiting.is_empty()
    }

    /// Takes an event in; gives back what is for others too.
    pub(super) fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) -> Option<Event> {
        if self.peers.is_empty() { Some(event) } else { self.peers.on_event(endpoint, event) }
    }

    /// Sends a write on to one server, as far as that is possible now.
    fn send<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        guard: Option<&Guard>,
        along: &mut Along,
        (at, request, deadline): (usize, RequestKey, Time),
    ) -> Result<Sent, ErrorReply> {
        let Along { next, capability, body, byte_len, .. } = along;
        let Next { route, hop, queue, .. } = &mut next[at];
        if hop.has_ended() {
            queue.clear();
            return Ok(Sent::All);
        }
        if hop.request().is_none() {
            let asking = Asking {
                of: (Method::Forward, *byte_len),
                parts: &[&route.emit()[..], body],
                capability: capability.as_ref(),
                deadline,
            };
            if self.ask(endpoint, guard, (hop, request), asking)?.is_none() {
                return Ok(Sent::Waits);
            }
        }
        while let Some(part) = queue.pop_front() {
            self.supply(endpoint, hop, part)?;
        }
        Ok(Sent::All)
    }
}

/// The bytes of a piece as they go on, without a copy where it can be helped.
pub(super) fn part_of<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    link: LinkId,
    offset: usize,
    piece: Piece,
) -> Result<(Piece, Option<Part>), ErrorReply> {
    let crcs = piece.page_crcs().iter().copied().collect();
    let (piece, shared) = piece.share();
    let bytes = match shared {
        Some(shared) => shared,
        None => {
            let copied = endpoint.buffers_of(link).copy(&piece);
            copied.map(Buf::freeze).map_err(|_| ErrorReply::Busy)?
        }
    };
    Ok((piece, Some(Part { offset, bytes, crcs })))
}

/// Whether a client asks again after that, whoever of a route has said it.
fn is_for_later(error: ErrorReply) -> bool {
    matches!(error, ErrorReply::Busy | ErrorReply::NoSums | ErrorReply::WireCorrupt { .. })
}

/// How a request ended that was passed on to the server of a rank: with which version there.
fn outcome_of(rank: u8, completion: Completion) -> Result<u64, ErrorReply> {
    let rank = u64::from(rank);
    let lost = ErrorReply::ReplicaLost { rank };
    let parcel = completion.result.map_err(|error| match ErrorKind::from(error).fate() {
        Fate::DidNotHappen => ErrorReply::ReplicaRefused { rank, code: 0 },
        _ => lost,
    })?;
    match parcel.header().status {
        Status::OK => {
            ChangeReply::parse(parcel.body()).map(|reply| reply.chunk_version).map_err(|_| lost)
        }
        Status::APPLICATION => Err(match ErrorReply::parse(parcel.body()) {
            // The client does with it what it does with this server's own.
            Ok(error) if is_for_later(error) => error,
            Ok(
                error @ (ErrorReply::ReplicaRefused { .. }
                | ErrorReply::ReplicaLost { .. }
                | ErrorReply::OtherChain { .. }),
            ) => error,
            Ok(error) if error.fate() == Fate::DidNotHappen => {
                ErrorReply::ReplicaRefused { rank, code: error.code() }
            }
            _ => lost,
        }),
        Status::BUSY => Err(ErrorReply::Busy),
        status if status.fate() == Fate::DidNotHappen => {
            Err(ErrorReply::ReplicaRefused { rank, code: 0 })
        }
        _ => Err(lost),
    }
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// What a write that is passed on has from its header on.
    pub(super) fn begin_along(
        &mut self,
        link: LinkId,
        route: Route,
        (header, crcs): (&WriteHeader, &[u32]),
        capability: Option<Capability>,
    ) -> Result<Along, Answer> {
        let busy = || Answer::Error(ErrorReply::Busy);
        for (next, server) in route.onward() {
            self.check_peer(next.rank(), server).map_err(Answer::Error)?;
        }
        let (chunk, bytes) = (header.chunk, header.span());
        let claim = self.store.claims().take(chunk, bytes.start()..bytes.end());
        let claim = claim.ok_or_else(busy)?;
        self.check_price(link, header.length)?;
        let leave = self.clients.begin(link).map_err(|Fenced| {
            self.stats.fenced += 1;
            Answer::Error(ErrorReply::Fenced)
        })?;
        let (class, now) = (self.class_of(link), self.endpoint.now());
        let mut peers: Vec<PeerId> = Vec::new();
        for (next, server) in route.onward() {
            let is_stripe = next.kind() == RouteKind::Stripe;
            let rank = if is_stripe { 0 } else { next.rank() };
            match self.onward.peers.hold((server, class, rank), now) {
                Some(peer) => peers.push(peer),
                None => {
                    peers.into_iter().for_each(|peer| self.onward.peers.release(peer));
                    return Err(busy());
                }
            }
        }
        let (of, held) = ((class, capability), (claim, leave));
        let mut along = Along::new(route, peers, (header, crcs), of, held);
        along.skip_trailing(|peer| self.onward.silent.get(&peer).is_some_and(|until| now < *until));
        Ok(along)
    }

    /// Whether a server, which has that rank, may be passed anything.
    fn check_peer(&self, rank: u8, server: SocketAddr) -> Result<(), ErrorReply> {
        if self.onward.allowed.allows(server) {
            return Ok(());
        }
        tracing::debug!(%server, "nothing is passed on to a server that `peers` does not name");
        Err(ErrorReply::PeerNotAllowed { rank: rank.into() })
    }

    /// Passes things on to these servers alone. Default: to none.
    #[must_use]
    pub fn peers(mut self, allowed: AllowedPeers) -> Self {
        self.onward.allowed = allowed;
        self
    }

    /// A write that is passed on has begun: it goes out to those behind, and the store is asked
    /// whether it would make it.
    pub(super) fn set_out(&mut self, request: RequestKey, header: &WriteHeader) {
        let Some(along) = self.open.along(request) else { return };
        if along.asks_store() {
            let &WriteHeader { chunk, offset, length, terms, .. } = header;
            let (class, target) = (along.class(), Target::Chunk(chunk));
            if !self.store.has_room_for(class, target, true) {
                return self.refuse_begun(request, Answer::Error(ErrorReply::Busy));
            }
            let asked = Request::MayWrite { chunk, offset, byte_len: length.into(), terms };
            if let Err(error) = self.send(class, Asked::MayWrite { request }, asked) {
                return self.refuse_begun(request, Answer::Error(error));
            }
        }
        self.advance(request);
    }

    /// The store has said whether it would make a write.
    pub(super) fn on_may_write(&mut self, request: RequestKey, may: Result<(), ChangeError>) {
        let Some(chunk) = self.open.along(request).map(|along| along.chunk()) else { return };
        match may {
            Ok(()) => {
                self.open.along(request).into_iter().for_each(Along::allow);
                self.advance(request);
            }
            Err(error) => self.refuse_begun(request, Answer::Error(of_change(chunk, error))),
        }
    }

    /// Goes on with what is passed on, as far as what is known of it allows.
    pub(super) fn advance(&mut self, request: RequestKey) {
        match self.open.get(request).map(|begun| &begun.what) {
            Some(What::Adding(_)) => self.settle_sum(request),
            Some(What::Rebuilding(_)) => self.advance_rebuilding(request),
            _ => self.advance_along(request),
        }
    }

    /// Goes on with a write that is passed on.
    pub(super) fn advance_along(&mut self, request: RequestKey) {
        let room = self.has_trailing_room(request);
        let Some((along, ready)) = self.open.passed_on(request) else { return };
        along.release();
        if along.tells_now() {
            self.onward.ready.push(ready);
        }
        let now = self.endpoint.now();
        let until = now + Nanos(ready.deadline.since(now).0 / TIME_SHARE * (TIME_SHARE - 1));
        let mut waits = false;
        for at in 0..along.next.len() {
            let guard = self.gate.guard();
            match self.onward.send(&mut self.endpoint, guard, along, (at, request, until)) {
                Ok(Sent::All) => {}
                Ok(Sent::Waits) => waits = true,
                Err(error) => {
                    let Next { hop, queue, .. } = &mut along.next[at];
                    self.onward.cancel(&mut self.endpoint, hop);
                    hop.end(Err(error));
                    queue.clear();
                }
            }
        }
        if waits | along.waits_for_room(room) {
            self.onward.wait(request);
        }
        match along.outcome(room) {
            None => self.end_trailing(request),
            Some(Ok(ask)) => self.make_passed(request, ask),
            Some(Err(answer)) => self.refuse_begun(request, answer),
        }
    }

    /// All behind that are waited for have made a write: now it is made here.
    fn make_passed(&mut self, request: RequestKey, ask: Ask) {
        let Some(to) = self.open.passed_on(request).map(|(_, to)| to) else { return };
        let Some(begun) = self.open.take(request) else { return };
        let Begun { responder, deadline, began, along: Some(along), .. } = begun else { return };
        let servers = along.next.len() - along.behind();
        if servers > 0 {
            self.stats.passed_on += 1;
            self.stats.passed_on_bytes += along.byte_len() * servers as u64;
        }
        let (came, passed) = (Came { began, taken: self.endpoint.now() }, along.passed());
        self.open.trail(request, Trailing { along, to });
        self.end_trailing(request);
        self.take_in_new(responder, deadline, ask, came, Some(passed));
    }

    pub(super) fn leave(&mut self, along: &Along) {
        let Self { onward, endpoint, .. } = self;
        along.next.iter().for_each(|next| onward.leave(endpoint, &next.hop));
    }

    /// What those behind have said since the last turn, and what waits for them.
    pub(super) fn turn_onward(&mut self) {
        if !self.onward.peers.is_empty() {
            self.onward.peers.turn(&mut self.endpoint);
        }
        while let Some(news) = self.onward.peers.news() {
            match news {
                News::Ended(peer, completion) => self.on_ended(peer, completion),
                News::Ready(peer, numbers) => {
                    for number in numbers {
                        let sent = (peer, number);
                        let Some(&request) = self.onward.sent.get(&sent) else { continue };
                        let along = self.open.along(request);
                        along.into_iter().for_each(|along| along.note_ready(sent));
                        self.advance(request);
                    }
                }
                News::Gone(peer) => self.on_gone(peer),
            }
        }
        for request in std::mem::take(&mut self.onward.waiting).into_values() {
            self.advance(request);
        }
        self.tell_ready();
    }

    fn on_ended(&mut self, peer: PeerId, completion: Completion) {
        let sent = (peer, completion.request.number());
        let request = self.onward.sent.remove(&sent);
        match request.and_then(|request| self.open.hop(request, sent)) {
            Some(hop) => hop.end(outcome_of(hop.rank(), completion)),
            None => {
                if let Ok(parcel) = completion.result {
                    self.endpoint.release(parcel.into_message());
                }
            }
        }
        request.into_iter().for_each(|request| self.advance(request));
    }

    /// A server cannot be reached: what was not sent to it is refused.
    fn on_gone(&mut self, peer: PeerId) {
        for request in self.open.unsent_to(peer) {
            if let Some((rebuilding, ..)) = self.open.rebuilding(request) {
                rebuilding.hop.refuse();
            }
            if let Some(along) = self.open.along(request) {
                along.give_up(peer);
            }
            self.advance(request);
        }
    }

    /// Tells the servers before that this one is ready for the last bytes of their writes.
    fn tell_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.onward.ready);
        // Nobody waits to hear of those that have ended.
        ready.retain(|one| self.open.along(one.request).is_some());
        ready.sort_unstable_by_key(|one| (one.way.0.index(), one.number));
        while let Some(&Ready { way, deadline, .. }) = ready.first() {
            let is_same = |other: &&Ready| other.way == way;
            let count = ready.iter().take_while(is_same).take(READY_MAX).count();
            let told: Vec<Ready> = ready.drain(..count).collect();
            let body: Vec<u8> = told.iter().flat_map(|one| one.number.to_le_bytes()).collect();
            let latest = told.iter().map(|one| one.deadline).max().unwrap_or(deadline);
            let method = Method::Forward as u16;
            let pushed = self.rpc.push(&mut self.endpoint, way, method, &body, latest);
            if let Err(PushError::Full { .. } | PushError::NoBuffer(_)) = pushed {
                self.onward.ready.extend(told);
            }
            // Otherwise its link is gone, or its time is over.
        }
    }
}
