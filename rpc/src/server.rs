//! The server end: takes requests out of events, sends responses, now or later.

use crate::limits::{
    MESSAGE_BYTES_MAX_DEFAULT, REQUESTS_MAX, REQUESTS_MAX_DEFAULT, TIMEOUT_DEFAULT, TIMEOUT_MAX,
};
use crate::parcel::{Fields, Outgoing, Parcel, Pieces};
use crate::wire::{Header, HeaderError, Kind, Status};
use slab::Slab;
use towpath_transport::{
    ChannelId, Cut, Device, Endpoint, Event, LinkId, Message, Nanos, Region, SendId, SendOptions,
    Time,
};

/// Settings of an [`RpcServer`]. The defaults are tuned for a few clients, each some dozen
/// requests deep.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    requests_max: usize,
    message_bytes_max: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { requests_max: REQUESTS_MAX_DEFAULT, message_bytes_max: MESSAGE_BYTES_MAX_DEFAULT }
    }
}

impl ServerConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests of one link that are under way at a time, from their arrival until the outcome of
    /// the response; more are answered [`Status::BUSY`]. Default 256, at most 1,024.
    #[must_use]
    pub fn requests_max(mut self, requests: usize) -> Self {
        self.requests_max = requests.clamp(1, REQUESTS_MAX);
        self
    }

    /// The longest request in bytes, header included; longer ones are answered
    /// [`Status::TOO_LONG`]. Default 16 MiB; what the link holds whole bounds it further.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }
}

/// What a server did beside serving; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Requests handed to the service.
    pub requests: u64,
    /// Messages that are no sound request.
    pub malformed: u64,
    /// Requests turned away because their link had too many under way.
    pub busy: u64,
    /// Requests too long to be held whole.
    pub too_long: u64,
    /// Requests that their client gave up while they were served.
    pub cancelled: u64,
    /// Responses sent.
    pub responses: u64,
    /// Responses that nobody waits for any more, or that could not be sent.
    pub responses_dropped: u64,
}

/// Where the response to one request goes. It can be kept, and sent to other threads.
#[derive(Debug)]
#[must_use = "a request without a response holds its place until the link goes down"]
pub struct Responder {
    key: usize,
    serial: u64,
    link: LinkId,
    method: u16,
}

impl Responder {
    /// The link of the client.
    #[must_use]
    pub fn link(&self) -> LinkId {
        self.link
    }

    /// What was asked for.
    #[must_use]
    pub fn method(&self) -> u16 {
        self.method
    }
}

/// A request as it arrived, with the way back.
#[derive(Debug)]
pub struct Request {
    parcel: Parcel,
    responder: Responder,
    deadline: Time,
}

impl Request {
    /// The link it came over.
    #[must_use]
    pub fn link(&self) -> LinkId {
        self.responder.link
    }

    /// The channel it came over.
    #[must_use]
    pub fn channel(&self) -> ChannelId {
        self.parcel.message().channel()
    }

    /// The client's number for it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.parcel.header().request
    }

    /// What is asked for.
    #[must_use]
    pub fn method(&self) -> u16 {
        self.parcel.header().method
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.parcel.body()
    }

    /// Bytes of data.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.parcel.data_len()
    }

    /// The data; see [`Parcel::data_pieces`].
    pub fn data_pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.parcel.data_pieces()
    }

    /// When its client stops waiting, on the endpoint's clock, but at most
    /// [`TIMEOUT_MAX`] after its arrival; no response goes after that.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// The way back, and the data in its buffers. Dropping those gives the credit back.
    pub fn into_data(self) -> (Responder, Pieces) {
        (self.responder, self.parcel.into_data())
    }

    /// The way back, and the message to [release](Endpoint::release).
    pub fn into_message(self) -> (Responder, Message) {
        (self.responder, self.parcel.into_message())
    }
}

/// What [`RpcServer::on_event`] made of an event.
#[derive(Debug)]
pub enum Incoming {
    /// A request to serve.
    Request(Request),
    /// An event that does not concern requests; some of these have been noted here as well.
    Other(Event),
}

#[derive(Debug)]
struct Slot {
    serial: u64,
    link: LinkId,
    channel: ChannelId,
    request: u64,
    deadline: Time,
    cancelled: bool,
    /// The response that is under way.
    send: Option<SendId>,
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
    /// Requests under way, by the dense index of their link.
    per_link: Vec<usize>,
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

    /// Takes an event in. Every message is a request, whatever its channel; malformed ones are
    /// counted and answered here.
    pub fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) -> Option<Incoming> {
        match event {
            Event::Message(message) => {
                return self.on_message(endpoint, message).map(Incoming::Request);
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
            Event::Sent { send, token, .. } if self.is_response(send, token) => {
                self.free(token as usize);
                return None;
            }
            Event::LinkDown { link, .. } => self.forget(|slot| slot.link == link),
            Event::ChannelClosed { link, channel, .. } => {
                self.forget(|slot| slot.link == link && slot.channel == channel);
            }
            _ => {}
        }
        Some(Incoming::Other(event))
    }

    fn on_message<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        message: Message,
    ) -> Option<Request> {
        let way = (message.link(), message.channel());
        let parcel = match Parcel::new(message) {
            Ok(parcel) => parcel,
            Err((message, error)) => {
                self.on_malformed(endpoint, way, &message, error);
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
            Kind::Request if self.requests_of(way.0) >= self.config.requests_max => {
                self.stats.busy += 1;
                Status::BUSY
            }
            Kind::Request => {
                let deadline = deadline(endpoint.now(), header.timeout_us);
                let responder = self.take_slot(way, &header, deadline);
                return Some(Request { parcel, responder, deadline });
            }
            Kind::Cancel => {
                self.on_cancel(way, header.request);
                endpoint.release(parcel.into_message());
                return None;
            }
            Kind::Response => {
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
        message: &Message,
        error: HeaderError,
    ) {
        self.stats.malformed += 1;
        let mut bytes = [0; crate::limits::HEADER_BYTES];
        let copied = message.copy_to(&mut bytes);
        // What makes an endless exchange impossible: only requests are answered.
        if copied < bytes.len() || bytes[1] != Kind::Request as u8 {
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
        let options = SendOptions::new()
            .token(u64::MAX)
            .deadline(deadline(endpoint.now(), header.timeout_us));
        let sent = Outgoing::new(endpoint, 0, 0)
            .is_ok_and(|out| endpoint.send(link, channel, out.finish(fields), options).is_ok());
        *(if sent { &mut self.stats.responses } else { &mut self.stats.responses_dropped }) += 1;
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
        let &mut Slot { link, channel, request, deadline, cancelled, .. } = slot;
        if !cancelled && endpoint.now() < deadline {
            let fields = Fields { kind: Kind::Response, method, status, request, timeout_us: 0 };
            let options = SendOptions::new().token(key as u64).deadline(deadline).cut(Cut::Slices);
            if let Ok(send) = endpoint.send(link, channel, response.finish(fields), options) {
                slot.send = Some(send);
                self.stats.responses += 1;
                return;
            }
        }
        self.stats.responses_dropped += 1;
        self.free(key);
    }

    /// Whether somebody waits for the response still: the request is neither cancelled nor gone
    /// with its link. A service that asks before it begins saves the work.
    #[must_use]
    pub fn is_wanted(&self, responder: &Responder) -> bool {
        let slot = self.slots.get(responder.key).filter(|slot| slot.serial == responder.serial);
        slot.is_some_and(|slot| !slot.cancelled)
    }

    /// Gives a request's place up without a response: where no buffer was left for one.
    pub fn abandon(&mut self, responder: Responder) {
        self.stats.responses_dropped += 1;
        if self.slots.get(responder.key).is_some_and(|slot| slot.serial == responder.serial) {
            self.free(responder.key);
        }
    }

    /// Responds with a status and nothing else: [`Status::UNSUPPORTED`] for an unknown method.
    pub fn respond_status<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        responder: Responder,
        status: Status,
    ) {
        match Outgoing::new(endpoint, 0, 0) {
            Ok(response) => self.respond(endpoint, responder, status, response),
            Err(_) => self.abandon(responder),
        }
    }

    fn take_slot(
        &mut self,
        (link, channel): (LinkId, ChannelId),
        header: &Header,
        deadline: Time,
    ) -> Responder {
        self.stats.requests += 1;
        self.serial += 1;
        let serial = self.serial;
        if self.per_link.len() <= link.index() {
            self.per_link.resize(link.index() + 1, 0);
        }
        self.per_link[link.index()] += 1;
        let request = header.request;
        let slot = Slot { serial, link, channel, request, deadline, cancelled: false, send: None };
        let key = self.slots.insert(slot);
        Responder { key, serial, link, method: header.method }
    }

    fn on_cancel(&mut self, (link, channel): (LinkId, ChannelId), request: u64) {
        let wanted =
            |slot: &Slot| (slot.link, slot.channel, slot.request) == (link, channel, request);
        if let Some((_, slot)) = self.slots.iter_mut().find(|(_, slot)| wanted(slot)) {
            slot.cancelled = true;
            self.stats.cancelled += 1;
        }
    }

    fn requests_of(&self, link: LinkId) -> usize {
        self.per_link.get(link.index()).copied().unwrap_or(0)
    }

    fn is_response(&self, send: SendId, token: u64) -> bool {
        usize::try_from(token)
            .ok()
            .and_then(|key| self.slots.get(key))
            .is_some_and(|slot| slot.send == Some(send))
    }

    fn free(&mut self, key: usize) {
        let slot = self.slots.remove(key);
        if let Some(count) = self.per_link.get_mut(slot.link.index()) {
            *count = count.saturating_sub(1);
        }
    }

    fn forget(&mut self, gone: impl Fn(&Slot) -> bool) {
        let keys: Vec<usize> =
            self.slots.iter().filter(|(_, slot)| gone(slot)).map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.free(key));
    }
}

fn deadline(now: Time, timeout_us: u32) -> Time {
    let timeout = match timeout_us {
        0 => TIMEOUT_DEFAULT,
        us => Nanos::from_micros(us.into()),
    };
    now + timeout.min(TIMEOUT_MAX)
}
