//! The client end: calls, deadlines, and what is known of requests that got no response.

mod given_up;
mod growing;
mod push;

pub use push::Push;

use crate::error::{CallError, Refused, RpcError};
use crate::fate::Fate;
use crate::limits::{HEADER_BYTES, OUTCOME_GRACE, REQUESTS_MAX, REQUESTS_MAX_DEFAULT};
use crate::parcel::{Outgoing, Parcel};
use crate::wire::{Header, HeaderError, Kind, Status};
use given_up::GivenUp;
use slab::Slab;
use std::collections::VecDeque;
use towpath_transport::{
    ChannelId, Device, Endpoint, Event, LinkId, Message, Nanos, Outcome, Region, SendId,
    SubmitError, Time,
};

/// A request under way; never reused within one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// Its number, which the server knows it by ([`Head::id`](crate::Head::id)).
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What to ask for, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method.
    pub method: u16,
    /// The caller's own word: it comes back in the [`Completion`].
    pub token: u64,
    /// When to stop waiting, on the endpoint's clock.
    pub deadline: Time,
    /// When it is given up, whether to ask the server what became of it, for up to
    /// [`RpcClient::outcome_grace`] before the completion. Without it the completion comes at once:
    /// for what changes nothing and may simply be asked again.
    pub ask_fate: bool,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub request: RequestId,
    /// The caller's own word.
    pub token: u64,
    /// The response, whatever its status; or why there is none.
    pub result: Result<Parcel, RpcError>,
}

/// What a client counts; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Requests sent.
    pub requests: u64,
    /// Responses that completed one.
    pub responses: u64,
    /// Responses to requests that had ended, or were never made.
    pub late: u64,
    /// Messages that are neither a sound response nor a sound push.
    pub malformed: u64,
    /// Requests that ran out of time.
    pub timeouts: u64,
    /// Requests that were given up, whether out of time or by the caller.
    pub given_up: u64,
    /// Of those, had not happened and never will.
    pub not_happened: u64,
    /// Of those, had happened, as the server said.
    pub happened: u64,
    /// Cancels sent.
    pub cancels: u64,
    /// Pushes that arrived.
    pub pushes: u64,
    /// Of those, dropped because newer ones came before they were taken.
    pub pushes_dropped: u64,
}

#[derive(Debug)]
struct Pending {
    id: RequestId,
    method: u16,
    token: u64,
    deadline: Time,
    send: SendId,
    /// Bytes of data that are still to be supplied.
    missing: u32,
    /// How sending ended, once it has.
    outcome: Option<Outcome>,
    given_up: Option<GivenUp>,
    ask_fate: bool,
    /// The server was told, and has not said what became of it.
    asked: bool,
    /// The caller has its completion; the rest is for the server's sake.
    told: bool,
    began: Time,
    /// It has been told as slow.
    slow: bool,
}

/// The client end of one channel.
///
/// Call order, each turn: [`on_event`](Self::on_event) for each event,
/// [`expire`](Self::expire), then [`poll`](Self::poll) until it is empty, all before the
/// endpoint's flush.
#[derive(Debug)]
pub struct RpcClient {
    link: LinkId,
    channel: ChannelId,
    requests_max: usize,
    /// The longest request, where that is more than our settings would hold whole.
    longest: usize,
    outcome_grace: Nanos,
    pending: Slab<Pending>,
    /// How many of them have had their completion.
    told: usize,
    sequence: u64,
    next_deadline: Time,
    completions: VecDeque<Completion>,
    pushes: VecDeque<Push>,
    down: bool,
    stats: ClientStats,
}

impl RpcClient {
    /// A client on an open channel.
    #[must_use]
    pub fn new(link: LinkId, channel: ChannelId) -> Self {
        Self {
            link,
            channel,
            requests_max: REQUESTS_MAX_DEFAULT,
            longest: 0,
            outcome_grace: OUTCOME_GRACE,
            pending: Slab::new(),
            told: 0,
            sequence: 0,
            next_deadline: Time::NEVER,
            completions: VecDeque::new(),
            pushes: VecDeque::new(),
            down: false,
            stats: ClientStats::default(),
        }
    }

    /// Requests under way at a time. Default 256, at most 1,024.
    #[must_use]
    pub fn requests_max(mut self, requests: usize) -> Self {
        self.requests_max = requests.clamp(1, REQUESTS_MAX);
        self
    }

    /// How long a request that was given up waits to learn what became of it. Default
    /// [`OUTCOME_GRACE`]; longer where the host of the server may be busy for longer.
    #[must_use]
    pub fn outcome_grace(mut self, span: impl Into<Nanos>) -> Self {
        self.outcome_grace = span.into();
        self
    }

    /// Its link.
    #[must_use]
    pub fn link(&self) -> LinkId {
        self.link
    }

    /// Its channel.
    #[must_use]
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// Requests that have no completion yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pending.len() - self.told
    }

    /// Requests of which anything is kept: those under way, and those given up whose server is
    /// still to be told, for [`outcome_grace`](Self::outcome_grace) at most.
    #[must_use]
    pub fn held(&self) -> usize {
        self.pending.len()
    }

    /// The most requests under way at a time.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.requests_max
    }

    /// Whether the link or the channel is gone.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        self.stats
    }

    /// The longest body and data together that go in one request: what an end with our settings
    /// holds whole, or what was [set](Self::set_longest_request), less the header. A peer with a
    /// smaller quota says so in its own way.
    #[must_use]
    pub fn request_bytes_max<D: Device<Memory = Region>>(&self, endpoint: &Endpoint<D>) -> usize {
        let whole = endpoint.whole_bytes_max(self.link).unwrap_or(0) as usize;
        whole.max(self.longest).saturating_sub(HEADER_BYTES)
    }

    /// Takes requests of up to so many bytes, header included, even where an end with our settings
    /// would not hold them whole: the server [streams](crate::ServerConfig::streams) them, and has
    /// said how long they may be.
    pub fn set_longest_request(&mut self, bytes: usize) {
        self.longest = bytes;
    }

    /// Sends a request. Its [`Completion`] follows whatever happens.
    ///
    /// # Errors
    /// [`Refused`]; nothing was sent.
    pub fn call<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        call: Call,
        outgoing: Outgoing,
    ) -> Result<RequestId, Refused> {
        self.begin(endpoint, call, outgoing, 0)
    }

    /// Whether a request of so many bytes may be sent.
    fn admit<D: Device<Memory = Region>>(
        &self,
        endpoint: &Endpoint<D>,
        call: &Call,
        now: Time,
        bytes: usize,
    ) -> Result<(), CallError> {
        if self.down {
            return Err(SubmitError::NoSuchLink.into());
        }
        if self.pending.len() >= self.requests_max {
            return Err(CallError::Full { max: self.requests_max });
        }
        if call.deadline <= now {
            return Err(CallError::Expired);
        }
        let max = self.request_bytes_max(endpoint) + HEADER_BYTES;
        if bytes > max {
            return Err(CallError::TooLong { bytes, max });
        }
        Ok(())
    }

    /// Gives a request up: stops sending it, and has the server leave it. Its completion follows,
    /// as soon as it is known what became of it, or at once where the call did not want to know;
    /// nothing happens when it has ended already.
    pub fn cancel<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        request: RequestId,
    ) {
        if let Some(key) = self.find(request.0) {
            self.give_up(endpoint, key, GivenUp::Cancel);
        }
    }

    /// Takes an event in; gives back what is not this client's.
    pub fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) -> Option<Event> {
        match event {
            Event::Message(message) if self.is_mine(message.link(), message.channel()) => {
                self.on_message(endpoint, message);
            }
            Event::StreamChunk { link, channel, chunk, .. } if self.is_mine(link, channel) => {
                if chunk.offset() == 0 {
                    self.on_too_long(Header::parse(&chunk));
                }
                endpoint.release_chunk(chunk);
            }
            Event::StreamAborted { link, channel, .. } if self.is_mine(link, channel) => {}
            Event::Sent { send, token, outcome, .. } if send.link() == self.link => {
                if !self.on_sent(endpoint, send, token, outcome) {
                    return Some(event);
                }
            }
            Event::ChannelClosed { link, channel, .. } if self.is_mine(link, channel) => {
                self.on_down();
            }
            Event::LinkDown { link, .. } if link == self.link => {
                self.on_down();
                return Some(event);
            }
            other => return Some(other),
        }
        None
    }

    /// Gives up what is out of time.
    pub fn expire<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        let now = endpoint.now();
        if now < self.next_deadline {
            return;
        }
        let due = |pending: &Pending| pending.deadline <= now;
        while let Some(key) = self.pending.iter().find(|(_, p)| due(p)).map(|(key, _)| key) {
            match self.pending[key].given_up {
                None => self.give_up(endpoint, key, GivenUp::Deadline),
                Some(_) => self.end_given_up(key, Fate::Unknown),
            }
        }
        let rest = self.pending.iter().map(|(_, pending)| pending.deadline).min();
        self.next_deadline = rest.unwrap_or(Time::NEVER);
    }

    /// When [`expire`](Self::expire) next has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        self.next_deadline
    }

    /// Tells the age of each request that has waited for `after`, and whether it is told for the
    /// first time.
    pub fn note_slow(&mut self, now: Time, after: Nanos, mut tell: impl FnMut(Nanos, bool)) {
        for (_, pending) in &mut self.pending {
            let age = now.since(pending.began);
            if age >= after && !pending.told {
                tell(age, !pending.slow);
                pending.slow = true;
            }
        }
    }

    /// The next request that has ended.
    pub fn poll(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn is_mine(&self, link: LinkId, channel: ChannelId) -> bool {
        (link, channel) == (self.link, self.channel)
    }

    fn find(&self, id: u64) -> Option<usize> {
        let key = (id & 0xffff) as usize;
        self.pending.get(key).is_some_and(|pending| pending.id.0 == id).then_some(key)
    }

    fn on_message<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        message: Message,
    ) {
        let parcel = match Parcel::new(message) {
            Ok(parcel) => parcel,
            Err((message, _)) => return self.on_foreign(endpoint, message),
        };
        let &Header { kind, status, request, method, .. } = parcel.header();
        let known = self.find(request).filter(|&key| self.pending[key].method == method);
        match (kind, known) {
            (Kind::Response, Some(key)) if !self.pending[key].told => {
                self.stats.responses += 1;
                let Pending { send, outcome, missing, .. } = self.pending[key];
                if outcome.is_none() && (status != Status::OK || missing > 0) {
                    // It was answered before all of it was there: nobody wants the rest.
                    let _ = endpoint.cancel(send);
                }
                self.complete(key, Ok(parcel));
                return;
            }
            (Kind::Response, Some(key)) => {
                // It crossed the cancel; nothing more comes.
                self.end_given_up(key, Fate::Unknown);
                self.stats.late += 1;
            }
            (Kind::Fate, Some(key)) if self.pending[key].asked => {
                self.end_given_up(key, Fate::of_code(status.0).unwrap_or(Fate::Unknown));
            }
            (Kind::Response | Kind::Fate, _) => self.stats.late += 1,
            (Kind::Push, _) => self.on_push(&parcel),
            (Kind::Request | Kind::Cancel, _) => self.stats.malformed += 1,
        }
        endpoint.release(parcel.into_message());
    }

    /// The header of a message that the link does not hold whole: a response may be so long.
    fn on_too_long(&mut self, header: Result<Header, HeaderError>) {
        let Ok(header @ Header { kind: Kind::Response, .. }) = header else {
            self.stats.malformed += 1;
            return;
        };
        if let Some(key) = self.find(header.request).filter(|&key| !self.pending[key].told) {
            self.complete(key, Err(RpcError::ResponseTooLong));
        }
    }

    fn on_foreign<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        message: Message,
    ) {
        self.stats.malformed += 1;
        endpoint.release(message);
    }

    /// Notes how sending a request ended; false when the message is none of this client's.
    fn on_sent<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        send: SendId,
        token: u64,
        outcome: Outcome,
    ) -> bool {
        let Some(key) = self.find(token).filter(|&key| self.pending[key].send == send) else {
            // Its request may have had its response first. It needs nothing more: the buffers go
            // home by themselves, whoever drops the event.
            return false;
        };
        let now = endpoint.now();
        let pending = &mut self.pending[key];
        pending.outcome = Some(outcome);
        if pending.given_up.is_some() {
            self.on_given_up_sent(endpoint, key, outcome);
        } else if outcome == Outcome::Abandoned && pending.deadline <= now {
            self.give_up(endpoint, key, GivenUp::Deadline);
        }
        true
    }

    fn on_down(&mut self) {
        self.down = true;
        let keys: Vec<usize> = self.pending.iter().map(|(key, _)| key).collect();
        for key in keys {
            // Every message has had its outcome before its link went down; one that has none was
            // delivered or not, nobody knows.
            let fate = self.pending[key].outcome.map_or(Fate::Unknown, Fate::of_send);
            self.pending[key].given_up = None;
            self.end_given_up(key, fate);
        }
        self.next_deadline = Time::NEVER;
    }

    fn complete(&mut self, key: usize, result: Result<Parcel, RpcError>) {
        let Pending { id, token, .. } = self.pending.remove(key);
        self.completions.push_back(Completion { request: id, token, result });
    }
}
