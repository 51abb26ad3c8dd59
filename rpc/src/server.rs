//! The server end: takes requests out of events, sends responses, now or later.

mod config;
mod push;
mod streams;
mod unasked;

pub use config::ServerConfig;

use crate::fate::{Fate, Fates};
use crate::limits::{FATE_WAIT, FATES_MAX, HEADER_BYTES, NOTES_MAX, TIMEOUT_DEFAULT, TIMEOUT_MAX};
use crate::parcel::{Fields, Outgoing, Parcel};
use crate::request::{Incoming, Request, RequestKey, Responder};
use crate::stats::ServerStats;
use crate::wire::{Header, HeaderError, Kind, Status};
use slab::Slab;
use std::collections::VecDeque;
use streams::{Of, Streams};
use towpath_transport::{
    ChannelId, Device, Endpoint, Event, LinkId, Message, Nanos, Outcome, Region, SendId,
    SendOptions, Time,
};
use unasked::{Dropped, Unasked};

/// The token of refusals and fates: no place of a request is so high.
const NOTE_TOKEN: u64 = u64::MAX;

#[derive(Debug)]
struct Slot {
    serial: u64,
    link: LinkId,
    channel: ChannelId,
    request: u64,
    method: u16,
    deadline: Time,
    cancelled: bool,
    /// The response that is under way.
    send: Option<SendId>,
    /// What became of the request, once it is known.
    fate: Fate,
    began: Time,
    /// When it counts as slow is counted from here.
    slow_from: Time,
    /// It has been told as slow.
    slow: bool,
}

/// The server end of every channel that peers open on an endpoint.
///
/// Call order: [`on_event`](Self::on_event) for each event of a turn; [`respond`](Self::respond)
/// whenever an answer is there, before the endpoint's flush.
#[derive(Debug, Default)]
pub struct RpcServer {
    config: ServerConfig,
    slots: Slab<Slot>,
    serial: u64,
    /// The places of requests under way, by the dense index of their link.
    per_link: Vec<Vec<usize>>,
    fates: Fates,
    pushes: Unasked,
    /// Refusals and fates.
    notes: Unasked,
    /// Refusals and fates that were not sent.
    dropped: Dropped,
    streams: Streams,
    /// What streams have made, for [`next_incoming`](Self::next_incoming).
    ready: VecDeque<Incoming>,
    stats: ServerStats,
}

impl RpcServer {
    /// A server without requests.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.stats
    }

    /// Requests that have no response yet, or whose response has no outcome yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.slots.len()
    }

    /// Fates kept of requests that ended without their clients having the response; at most
    /// [`FATES_MAX`].
    #[must_use]
    pub fn fates_kept(&self) -> usize {
        self.fates.len()
    }

    /// Counts the age of a request from `from` on, in [`note_slow`](Self::note_slow): until then it
    /// had to wait, or could not be done sooner. With [`Time::NEVER`] it is never slow.
    pub fn excuse(&mut self, responder: &Responder, from: Time) {
        let slot = self.slots.get_mut(responder.key);
        if let Some(slot) = slot.filter(|slot| slot.serial == responder.serial) {
            slot.slow_from = from;
        }
    }

    /// The link for which most refusals and fates were not sent
    /// ([`notes_dropped`](ServerStats::notes_dropped)), of those that are up, and how many.
    #[must_use]
    pub fn most_dropped(&self) -> Option<(LinkId, u64)> {
        self.dropped.most()
    }

    /// Tells link and age of each request whose response has not arrived `after` the request did,
    /// and whether it is told for the first time.
    pub fn note_slow(
        &mut self,
        now: Time,
        after: Nanos,
        mut tell: impl FnMut(LinkId, Nanos, bool),
    ) {
        for (_, slot) in &mut self.slots {
            let age = now.since(slot.slow_from);
            if age >= after {
                tell(slot.link, age, !slot.slow);
                slot.slow = true;
            }
        }
    }

    /// When the oldest request under way arrived.
    #[must_use]
    pub fn oldest(&self) -> Option<Time> {
        self.slots.iter().map(|(_, slot)| slot.began).min()
    }

    /// More of what the event before made: to be called until there is none after each
    /// [`on_event`](Self::on_event) of a server that takes [streams](ServerConfig::streams).
    #[must_use]
    pub fn next_incoming(&mut self) -> Option<Incoming> {
        self.ready.pop_front()
    }

    /// Takes an event in. Every message is a request, whatever its channel; malformed ones are
    /// counted and answered here.
    pub fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) -> Option<Incoming> {
        match event {
            Event::Message(message) => return self.on_message(endpoint, message),
            Event::StreamChunk { link, channel, stream, chunk, message_len, end }
                if self.config.streams =>
            {
                let of = Of { way: (link, channel), stream, message_len, end };
                self.on_stream_chunk(endpoint, &of, chunk);
                return self.ready.pop_front();
            }
            Event::StreamAborted { link, stream, .. } if self.config.streams => {
                self.on_stream_aborted(link, stream);
                return self.ready.pop_front();
            }
            Event::StreamChunk { link, channel, chunk, .. } => {
                // Longer than what the link holds whole (docs/storage-protocol.md section 3).
                if chunk.offset() == 0 {
                    self.stats.too_long += 1;
                    if let Ok(header @ Header { kind: Kind::Request, .. }) = Header::parse(&chunk) {
                        self.refuse(endpoint, (link, channel), &header, Status::TOO_LONG);
                    }
                }
                endpoint.release_chunk(chunk);
                return None;
            }
            Event::Sent { send, token, outcome, .. } if self.is_response(send, token) => {
                self.on_response_sent(token as usize, outcome);
                return None;
            }
            Event::Sent { send, token, outcome, .. }
                if self.on_push_sent(send, token, outcome)
                    || token == NOTE_TOKEN && self.notes.leave(send) =>
            {
                return None;
            }
            Event::LinkDown { link, .. } => {
                self.forget(link, None);
                self.dropped.forget(link);
            }
            Event::ChannelClosed { link, channel, .. } => self.forget(link, Some(channel)),
            _ => {}
        }
        Some(Incoming::Other(event))
    }

    fn on_message<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        message: Message,
    ) -> Option<Incoming> {
        let way = (message.link(), message.channel());
        let parcel = match Parcel::new(message) {
            Ok(parcel) => parcel,
            Err((message, error)) => {
                let mut bytes = [0; HEADER_BYTES];
                message.copy_to(&mut bytes);
                self.on_malformed(endpoint, way, &bytes, error);
                endpoint.release(message);
                return None;
            }
        };
        let header = *parcel.header();
        let status = match header.kind {
            Kind::Request if parcel.message().len() > self.config.message_bytes_max => {
                self.stats.too_long += 1;
                Status::TOO_LONG
            }
            Kind::Request => match self.check_room(way.0) {
                Err(status) => status,
                Ok(()) => {
                    let deadline = deadline(endpoint.now(), header.timeout_us);
                    let responder = self.take_slot(way, &header, endpoint.now(), deadline);
                    return Some(Incoming::Request(Request { parcel, responder, deadline }));
                }
            },
            Kind::Cancel => {
                endpoint.release(parcel.into_message());
                return self.on_cancel(endpoint, way, &header);
            }
            Kind::Response | Kind::Fate | Kind::Push => {
                self.stats.malformed += 1;
                endpoint.release(parcel.into_message());
                return None;
            }
        };
        endpoint.release(parcel.into_message());
        self.refuse(endpoint, way, &header, status);
        None
    }

    /// Sends a response to a request of which only the length or a reserved field may be wrong:
    /// whatever has a request number can be told.
    fn on_malformed<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        way: (LinkId, ChannelId),
        bytes: &[u8; HEADER_BYTES],
        error: HeaderError,
    ) {
        self.stats.malformed += 1;
        let is_short = matches!(error, HeaderError::Short { .. });
        // What makes an endless exchange impossible: only requests are answered.
        if is_short || bytes[1] != Kind::Request as u8 {
            return;
        }
        let status = match error {
            HeaderError::Version(_) => Status::VERSION,
            _ => Status::MALFORMED,
        };
        let header = Header {
            kind: Kind::Request,
            method: u16::from_le_bytes([bytes[2], bytes[3]]),
            status: Status::OK,
            inline: false,
            request: bytes[8..16].iter().rev().fold(0, |id, byte| id << 8 | u64::from(*byte)),
            body_len: 0,
            data_len: 0,
            timeout_us: 0,
        };
        self.refuse(endpoint, way, &header, status);
    }

    /// Answers a request that never got a place.
    fn refuse<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (link, channel): (LinkId, ChannelId),
        header: &Header,
        status: Status,
    ) {
        let &Header { method, request, .. } = header;
        let fields = Fields { kind: Kind::Response, method, status, request, timeout_us: 0 };
        let deadline = deadline(endpoint.now(), header.timeout_us);
        let sent = self.send_note(endpoint, (link, channel), fields, deadline);
        *(if sent { &mut self.stats.responses } else { &mut self.stats.responses_dropped }) += 1;
    }

    /// Sends a refusal or a fate. It is dropped where its link has too many under way, or holds its
    /// share of the buffers: a client that takes none in shall keep none from others.
    fn send_note<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (link, channel): (LinkId, ChannelId),
        fields: Fields,
        deadline: Time,
    ) -> bool {
        let has_room = self.notes.of_link(link) < NOTES_MAX;
        let out = has_room.then(|| Outgoing::new(&endpoint.buffers_of(link), 0, 0));
        let Some(Ok(out)) = out else {
            self.stats.notes_dropped += 1;
            self.dropped.add(link);
            return false;
        };
        let options = SendOptions::new().token(NOTE_TOKEN).deadline(deadline);
        let sent = endpoint.send(link, channel, out.finish(fields), options);
        sent.map(|send| self.notes.put(send, channel)).is_ok()
    }

    /// Sends the response to a request. It is dropped, and counted, when nobody waits for it any
    /// more: the client gave up, its time is over, or the link is down.
    pub fn respond<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        responder: Responder,
        status: Status,
        response: Outgoing,
    ) {
        let Responder { key, serial, method, .. } = responder;
        let Some(slot) = self.slots.get_mut(key).filter(|slot| slot.serial == serial) else {
            self.stats.responses_dropped += 1;
            return;
        };
        if slot.fate == Fate::Unknown {
            slot.fate = status.fate();
        }
        let &mut Slot { link, channel, request, deadline, cancelled, .. } = slot;
        if !cancelled && endpoint.now() < deadline {
            let fields = Fields { kind: Kind::Response, method, status, request, timeout_us: 0 };
            let options = SendOptions::new().token(key as u64).deadline(deadline);
            if let Ok(send) = endpoint.send(link, channel, response.finish(fields), options) {
                slot.send = Some(send);
                self.stats.responses += 1;
                return;
            }
        }
        self.stats.responses_dropped += 1;
        self.end_without_response(endpoint, key);
    }

    /// Says what became of a request where the status of its response does not: to be called
    /// before [`respond`](Self::respond).
    pub fn set_fate(&mut self, responder: &Responder, fate: Fate) {
        let slot = self.slots.get_mut(responder.key);
        if let Some(slot) = slot.filter(|slot| slot.serial == responder.serial) {
            slot.fate = fate;
        }
    }

    /// Whether somebody waits for the response still: the request is neither cancelled nor gone
    /// with its link. A service that asks before it begins saves the work.
    #[must_use]
    pub fn is_wanted(&self, responder: &Responder) -> bool {
        let slot = self.slots.get(responder.key).filter(|slot| slot.serial == responder.serial);
        slot.is_some_and(|slot| !slot.cancelled)
    }

    /// Ends a request without a response: nobody waits for it, or no buffer was left for one.
    /// `fate` is what became of it; a client that gave it up is told.
    pub fn abandon<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        responder: Responder,
        fate: Fate,
    ) {
        self.stats.responses_dropped += 1;
        let slot = self.slots.get_mut(responder.key);
        if let Some(slot) = slot.filter(|slot| slot.serial == responder.serial) {
            slot.fate = fate;
            self.stats.cancelled_unbegun += u64::from(slot.cancelled && fate == Fate::DidNotHappen);
            self.end_without_response(endpoint, responder.key);
        }
    }

    /// The client is told what became of its request if it has asked, or when it asks later.
    fn end_without_response<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        key: usize,
    ) {
        let Slot { link, channel, request, method, cancelled, fate, .. } = self.free(key);
        if cancelled {
            self.tell_fate(endpoint, (link, channel), method, request, fate);
        } else {
            self.fates.put((link, channel), request, fate, FATES_MAX);
        }
    }

    fn on_response_sent(&mut self, key: usize, outcome: Outcome) {
        let Slot { link, channel, request, cancelled, fate, .. } = self.free(key);
        if outcome == Outcome::Delivered {
            return;
        }
        self.stats.responses_given_up += 1;
        if !cancelled {
            self.fates.put((link, channel), request, fate, FATES_MAX);
        }
    }

    fn tell_fate<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        way: (LinkId, ChannelId),
        method: u16,
        request: u64,
        fate: Fate,
    ) {
        let status = Status(fate.code());
        let fields = Fields { kind: Kind::Fate, method, status, request, timeout_us: 0 };
        let deadline = endpoint.now() + FATE_WAIT;
        self.send_note(endpoint, way, fields, deadline);
    }

    /// Responds with a status and nothing else: [`Status::UNSUPPORTED`] for an unknown method.
    pub fn respond_status<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        responder: Responder,
        status: Status,
    ) {
        match Outgoing::new(&endpoint.buffers_of(responder.link), 0, 0) {
            Ok(response) => self.respond(endpoint, responder, status, response),
            Err(_) => self.abandon(endpoint, responder, status.fate()),
        }
    }

    fn take_slot(
        &mut self,
        (link, channel): (LinkId, ChannelId),
        header: &Header,
        began: Time,
        deadline: Time,
    ) -> Responder {
        self.stats.requests += 1;
        self.serial += 1;
        let serial = self.serial;
        if self.per_link.len() <= link.index() {
            self.per_link.resize_with(link.index() + 1, Vec::new);
        }
        let &Header { request, method, .. } = header;
        let slot = Slot {
            serial,
            link,
            channel,
            request,
            method,
            deadline,
            cancelled: false,
            send: None,
            fate: Fate::Unknown,
            began,
            slow_from: began,
            slow: false,
        };
        let key = self.slots.insert(slot);
        self.per_link[link.index()].push(key);
        Responder { key, serial, link, channel, method }
    }

    /// A client has given a request up (docs/storage-protocol.md section 3).
    fn on_cancel<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        way: (LinkId, ChannelId),
        header: &Header,
    ) -> Option<Incoming> {
        let (link, channel) = way;
        let &Header { request, method, .. } = header;
        let places = self.per_link.get(link.index()).into_iter().flatten();
        let found = places.copied().find(|&key| {
            let slot = &self.slots[key];
            slot.channel == channel && slot.request == request
        });
        let Some(key) = found else {
            self.stats.cancels_late += 1;
            let fate = self.fates.find(way, request);
            self.tell_fate(endpoint, way, method, request, fate);
            return None;
        };
        let slot = &mut self.slots[key];
        if slot.cancelled {
            self.stats.cancels_late += 1;
            return None;
        }
        slot.cancelled = true;
        self.stats.cancelled += 1;
        let (serial, fate) = (slot.serial, slot.fate);
        if let Some(send) = slot.send {
            // The place is free when the device has returned the buffers of the response.
            let _ = endpoint.cancel(send);
            self.tell_fate(endpoint, way, method, request, fate);
            return None;
        }
        Some(Incoming::Cancelled { link, request: RequestKey { key, serial } })
    }

    /// Whether a link may have one more request under way.
    fn check_room(&mut self, link: LinkId) -> Result<(), Status> {
        if self.requests_of(link) < self.config.requests_max {
            return Ok(());
        }
        self.stats.busy += 1;
        Err(Status::BUSY)
    }

    fn requests_of(&self, link: LinkId) -> usize {
        self.per_link.get(link.index()).map_or(0, Vec::len)
    }

    fn is_response(&self, send: SendId, token: u64) -> bool {
        usize::try_from(token)
            .ok()
            .and_then(|key| self.slots.get(key))
            .is_some_and(|slot| slot.send == Some(send))
    }

    fn free(&mut self, key: usize) -> Slot {
        let slot = self.slots.remove(key);
        if let Some(places) = self.per_link.get_mut(slot.link.index())
            && let Some(place) = places.iter().position(|&other| other == key)
        {
            places.swap_remove(place);
        }
        slot
    }

    /// Ends every request of a link, or of one channel of it.
    fn forget(&mut self, link: LinkId, channel: Option<ChannelId>) {
        let gone = |slot: &Slot| slot.link == link && channel.is_none_or(|c| c == slot.channel);
        let keys: Vec<usize> =
            self.slots.iter().filter(|(_, slot)| gone(slot)).map(|(key, _)| key).collect();
        for key in keys {
            self.free(key);
        }
        self.fates.forget(link, channel);
        self.streams.forget(link, channel);
    }
}

fn deadline(now: Time, timeout_us: u32) -> Time {
    let timeout = match timeout_us {
        0 => TIMEOUT_DEFAULT,
        us => Nanos::from_micros(us.into()),
    };
    now + timeout.min(TIMEOUT_MAX)
}
