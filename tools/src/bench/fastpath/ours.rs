//! The fast path: its client, a server that keeps nothing, and the driver of both ends that
//! protobuf over our rpc has as well.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::baseline::{Bytes, apart};
use towpath_chunkserver::daemon::StopFlag;
use towpath_fastpath::server::{
    StorageRequest, changed_reply, parse_request, respond_built, respond_error, respond_rejected,
    verify_write,
};
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{ChunkClient, Done, ErrorReply, NewChunk, OpId, SLICE_BYTES};
use towpath_rpc::{Incoming, Request, RpcClient, RpcServer, ServerConfig, Status};
use towpath_transport::{
    Buf, ChannelId, Endpoint, EndpointConfig, Event, LinkId, Nanos, RoceUdp, UdpConfig,
};

use super::load::{CHUNK, Did, Load, LoadError, Meter, say};
use super::server::Ready;

pub(super) type Udp = Endpoint<RoceUdp>;

/// The longest sleep: how soon a wish to stop is seen.
const IDLE: Nanos = Nanos::from_millis(20);

/// What holds a message of protobuf beside its data.
const MESSAGE_BYTES: usize = 4096;

/// One end of a way over our rpc, as its client.
pub(super) trait Writer {
    /// Begins a write.
    fn start(
        &mut self,
        to: &mut Udp,
        offset: u64,
        data: Bytes,
        token: u64,
    ) -> Result<(), LoadError>;
    /// Takes an event in.
    fn on_event(&mut self, endpoint: &mut Udp, event: Event);
    /// A write that has ended well.
    fn poll(&mut self, endpoint: &mut Udp) -> Result<Option<u64>, LoadError>;
}

/// Buffers for so many requests and answers of so many bytes.
pub(super) fn config(depth: usize, bytes: usize) -> EndpointConfig {
    let heads = 2 * depth + 64;
    let data = (bytes + MESSAGE_BYTES).next_multiple_of(SLICE_BYTES);
    EndpointConfig::new()
        .app_protocol(PROTOCOL)
        .links_max(4)
        // A message may come in pieces of 16 KiB, half as many of which as these are one message.
        .quota_chunks(256)
        .whole_bytes_max(2 << 20)
        .send_pools(&[(1024, heads), (8192, heads), (data, 2 * depth + 8)])
}

/// An endpoint that is connected to a server, with an open channel.
pub(super) fn connect(
    config: EndpointConfig,
    server: SocketAddr,
) -> Result<(Udp, LinkId, ChannelId), LoadError> {
    let mut endpoint = Endpoint::udp(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), config)?;
    endpoint.connect(server)?;
    let (mut open, mut failed) = (None, None);
    loop {
        let busy = endpoint.turn(|endpoint, event| match event {
            Event::Connected { link, .. } => {
                failed = endpoint.open_channel(link, false).err().map(LoadError::from);
            }
            Event::ChannelOpened { link, channel, .. } => open = Some((link, channel)),
            Event::ConnectFailed { error, .. } => failed = Some(error.into()),
            Event::LinkDown { .. } => failed = Some(LoadError::Gone),
            _ => {}
        });
        match (failed.take(), open) {
            (Some(error), _) => return Err(error),
            (None, Some((link, channel))) => return Ok((endpoint, link, channel)),
            (None, None) => {}
        }
        if !busy {
            endpoint.wait(Nanos::from_millis(1));
        }
    }
}

/// Sleeps when there was no work for a while.
pub(super) struct Pace {
    spin: Duration,
    idle_since: Option<Instant>,
}

impl Pace {
    pub(super) fn new(spin: Duration) -> Self {
        Self { spin, idle_since: None }
    }

    pub(super) fn after(&mut self, endpoint: &mut Udp, busy: bool) {
        if busy {
            self.idle_since = None;
            return;
        }
        if !self.spin.is_zero() {
            let now = Instant::now();
            let since = *self.idle_since.get_or_insert(now);
            if now - since < self.spin {
                return std::hint::spin_loop();
            }
        }
        endpoint.wait(IDLE);
    }
}

/// Writes until the meter has enough.
pub(super) fn drive(
    mut meter: Meter,
    endpoint: &mut Udp,
    writer: &mut impl Writer,
) -> Result<Did, LoadError> {
    let Load { depth, batch, .. } = *meter.load();
    let mut pace = Pace::new(meter.load().spin);
    let mut began: Vec<Option<Instant>> = vec![None; depth];
    loop {
        let mut busy = endpoint.poll() > 0;
        while let Some(event) = endpoint.next_event() {
            busy = true;
            if matches!(event, Event::LinkDown { .. }) {
                return Err(LoadError::Gone);
            }
            writer.on_event(endpoint, event);
        }
        while let Some(token) = writer.poll(endpoint)? {
            busy = true;
            let began = began.get_mut(token as usize).and_then(Option::take);
            if let Some(did) = meter.ended(began.unwrap_or_else(Instant::now))? {
                return Ok(did);
            }
        }
        let places = began.iter_mut().enumerate().filter(|(_, place)| place.is_none());
        for (count, (token, place)) in (1..).zip(places) {
            *place = Some(Instant::now());
            let offset = meter.next_offset();
            writer.start(endpoint, offset, meter.data(), token as u64)?;
            if usize::is_multiple_of(count, batch) {
                endpoint.flush();
            }
        }
        endpoint.flush();
        pace.after(endpoint, busy);
    }
}

/// The client of the fast path.
struct Fast {
    chunks: ChunkClient,
    under_way: Vec<(OpId, u64)>,
}

/// A buffer of the endpoint with a copy of bytes.
fn filled(endpoint: &Udp, bytes: &[u8]) -> Result<Buf, LoadError> {
    let wanted = bytes.len();
    let none = |_| LoadError::Call(towpath_rpc::NoBuffer { wanted }.into());
    endpoint.copy(bytes).map_err(none)
}

impl Writer for Fast {
    fn start(
        &mut self,
        endpoint: &mut Udp,
        offset: u64,
        data: Bytes,
        token: u64,
    ) -> Result<(), LoadError> {
        let op = self.chunks.start_write_copy(endpoint, CHUNK, offset, &data)?;
        self.under_way.push((op, token));
        Ok(())
    }

    fn on_event(&mut self, endpoint: &mut Udp, event: Event) {
        self.chunks.on_event(endpoint, event);
    }

    fn poll(&mut self, endpoint: &mut Udp) -> Result<Option<u64>, LoadError> {
        let Some(Done { op, result }) = self.chunks.poll(endpoint) else { return Ok(None) };
        result?;
        let place = self.under_way.iter().position(|(other, _)| *other == op);
        Ok(place.map(|place| self.under_way.swap_remove(place).1))
    }
}

/// Writes by the fast path, to a chunk that is made first where there is to be one.
pub(super) fn write(meter: Meter, server: SocketAddr, create: bool) -> Result<Did, LoadError> {
    let load = *meter.load();
    let (mut endpoint, link, channel) = connect(config(load.depth, load.bytes), server)?;
    let mut chunks = ChunkClient::new(link, channel);
    if create {
        chunks.start_request(
            &mut endpoint,
            &StorageRequest::Create {
                chunk: CHUNK,
                limit_bytes: None,
                kind: NewChunk::default(),
                stamp: 0,
            },
        )?;
        while chunks.under_way() > 0 {
            let busy = endpoint.turn(|endpoint, event| drop(chunks.on_event(endpoint, event)));
            while let Some(Done { result, .. }) = chunks.poll(&mut endpoint) {
                result?;
            }
            if !busy {
                endpoint.wait(IDLE);
            }
        }
    }
    drive(meter, &mut endpoint, &mut Fast { chunks, under_way: Vec::new() })
}

/// As [`Fast`], with checksums in passes of their own.
struct Apart(RpcClient);

impl Writer for Apart {
    fn start(
        &mut self,
        endpoint: &mut Udp,
        offset: u64,
        data: Bytes,
        token: u64,
    ) -> Result<(), LoadError> {
        let data = filled(endpoint, &data)?;
        Ok(apart::start_write((&mut self.0, endpoint), (CHUNK, offset), data, token)?)
    }

    fn on_event(&mut self, endpoint: &mut Udp, event: Event) {
        self.0.on_event(endpoint, event);
    }

    fn poll(&mut self, endpoint: &mut Udp) -> Result<Option<u64>, LoadError> {
        let Some(ended) = self.0.poll() else { return Ok(None) };
        let parcel = ended.result?;
        let status = parcel.header().status;
        endpoint.release(parcel.into_message());
        if status == Status::OK { Ok(Some(ended.token)) } else { Err(LoadError::Status(status)) }
    }
}

/// Writes as [`Way::Apart`](super::way::Way::Apart) says.
pub(super) fn write_apart(meter: Meter, server: SocketAddr) -> Result<Did, LoadError> {
    let load = *meter.load();
    let (mut endpoint, link, channel) = connect(config(load.depth, load.bytes), server)?;
    drive(meter, &mut endpoint, &mut Apart(RpcClient::new(link, channel)))
}

/// Serves writes of the fast path that nobody keeps, until it is to stop.
pub(super) fn serve_null(
    stop: &StopFlag,
    spin: Duration,
    (bytes, is_apart): (usize, bool),
) -> Result<(), LoadError> {
    let mut rpc = RpcServer::new(ServerConfig::new());
    serve(stop, spin, bytes, |_| {
        move |endpoint: &mut Udp, event: Option<Event>| {
            let incoming = event.and_then(|event| rpc.on_event(endpoint, event));
            if let Some(Incoming::Request(request)) = incoming {
                answer(&mut rpc, endpoint, request, is_apart);
            }
            false
        }
    })
}

/// Serves on a free port until it is to stop: `make` gives what each event goes to, and `None` once
/// a turn; it says whether it did something then.
pub(super) fn serve<F: FnMut(&mut Udp, Option<Event>) -> bool>(
    stop: &StopFlag,
    spin: Duration,
    bytes: usize,
    make: impl FnOnce(&Udp) -> F,
) -> Result<(), LoadError> {
    let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let mut endpoint = Endpoint::udp(udp, config(64, bytes))?;
    let listening = endpoint.listen((Ipv4Addr::LOCALHOST, 0).into())?;
    let mut on_event = make(&endpoint);
    say(&Ready { listening })?;
    let mut pace = Pace::new(spin);
    while !stop.is_stopped() {
        let mut busy = endpoint.poll() > 0;
        while let Some(event) = endpoint.next_event() {
            busy = true;
            on_event(&mut endpoint, Some(event));
        }
        busy |= on_event(&mut endpoint, None);
        endpoint.flush();
        pace.after(&mut endpoint, busy);
    }
    Ok(())
}

/// What the fast path does with a write, up to the store.
fn answer(rpc: &mut RpcServer, endpoint: &mut Udp, request: Request, is_apart: bool) {
    let verified = match parse_request(&request) {
        Ok(StorageRequest::Write { header, crcs }) => Ok(match is_apart {
            true => apart::verify_write(&request, &header, &crcs),
            false => verify_write(&request, &header, &crcs),
        }),
        Ok(_) => Ok(Err(ErrorReply::Busy)),
        Err(rejection) => Err(rejection),
    };
    let (responder, message) = request.into_message();
    endpoint.release(message);
    match verified {
        Ok(Ok(())) => {
            let reply = changed_reply(endpoint, 1);
            respond_built(rpc, endpoint, responder, reply);
        }
        Ok(Err(error)) => respond_error(rpc, endpoint, responder, error),
        Err(rejection) => respond_rejected(rpc, endpoint, responder, rejection),
    }
}
