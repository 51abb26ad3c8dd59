//! A chunk server in memory on a thread of its own, which can be told to misbehave.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

mod direct;

#[allow(unused_imports, reason = "each test file uses its part")]
pub use direct::{Direct, endpoint};

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use towpath_fastpath::control::{
    ChunkInfo, InfoReply, ListReply, LocateReply, ScrubReply, SlotRun,
};
use towpath_fastpath::health::HealthReply;
use towpath_fastpath::qos::wire::QosReply;
use towpath_fastpath::server::{
    StorageRequest, changed_reply, done_reply, health_reply, info_reply, list_reply, locate_reply,
    parse_request, qos_reply, read_reply, respond_built, respond_error, respond_rejected,
    scrub_reply, stat_reply, verify_write,
};
use towpath_fastpath::slice::{Span, fragment_crc, slice_crc};
use towpath_fastpath::wire::{PROTOCOL, ReadHeader, ReadReplyHeader, emit_crcs};
use towpath_fastpath::{ChunkId, ErrorReply, SLICE_BYTES};
use towpath_rpc::{Fate, Incoming, NoBuffer, Outgoing, Request, RpcServer, ServerConfig, Status};
use towpath_transport::{
    Endpoint, EndpointConfig, GrantId, LinkId, Nanos, Rights, RoceUdp, SharedMemory, UdpConfig,
};

type UdpEndpoint = Endpoint<RoceUdp>;

/// What the server does wrong from now on.
#[derive(Debug, Default)]
pub struct Mischief {
    /// So many replies to reads get a bit flipped behind their checksums.
    pub corrupt_reads: AtomicU32,
    /// Writes get no answer, though they are done.
    pub mute_writes: AtomicBool,
    /// The first slice of every chunk counts as damaged on the medium.
    pub damaged: AtomicBool,
    /// It does nothing at all, as one that gets no CPU; see [`Server::stall`].
    pub stall: AtomicBool,
    /// It has seen that.
    stalled: AtomicBool,
    /// What a locate is answered with, whatever chunk it asks for; none: it has no slots.
    pub resident: Mutex<Option<Resident>>,
    /// Ends the server without a goodbye.
    pub vanish: AtomicBool,
    stop: AtomicBool,
}

/// Slots in memory that clients are granted.
#[derive(Clone, Debug)]
pub struct Resident {
    pub memory: SharedMemory,
    pub byte_len: u64,
    pub runs: Vec<SlotRun>,
    pub more: bool,
    /// Runs of one answer at most.
    pub page: usize,
    /// Added to the number of the grant.
    pub grant_off: u32,
}

pub struct Server {
    pub addr: SocketAddr,
    pub mischief: Arc<Mischief>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start() -> Self {
        Self::with(EndpointConfig::new().app_protocol(PROTOCOL))
    }

    pub fn with(config: EndpointConfig) -> Self {
        let mischief = Arc::new(Mischief::default());
        let shared = Arc::clone(&mischief);
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
            let mut endpoint = Endpoint::udp(udp, config).expect("loopback UDP");
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            send.send(endpoint.listen(any).expect("a free port")).expect("a test that waits");
            let mut service = Service {
                rpc: RpcServer::new(ServerConfig::new()),
                chunks: BTreeMap::new(),
                grants: HashMap::new(),
                mischief: shared,
            };
            service.run(&mut endpoint);
        });
        let addr = receive.recv().expect("the server's address");
        Self { addr, mischief, thread: Some(thread) }
    }

    /// Has it do nothing from now on, or everything again, and waits until it has seen that.
    pub fn stall(&self, on: bool) {
        self.mischief.stall.store(on, Ordering::Relaxed);
        while self.mischief.stalled.load(Ordering::Relaxed) != on {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.mischief.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("the server's thread").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
    }
}

struct StoredChunk {
    bytes: Vec<u8>,
    limit: u64,
    version: u64,
}

struct Service {
    rpc: RpcServer,
    chunks: BTreeMap<ChunkId, StoredChunk>,
    grants: HashMap<LinkId, GrantId>,
    mischief: Arc<Mischief>,
}

enum Answer {
    Reply(Result<Outgoing, NoBuffer>),
    Error(ErrorReply),
    Silence,
}

impl Service {
    fn run(&mut self, endpoint: &mut UdpEndpoint) {
        let on = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        while !on(&self.mischief.stop) && !on(&self.mischief.vanish) {
            let stall = on(&self.mischief.stall);
            self.mischief.stalled.store(stall, Ordering::Relaxed);
            if stall {
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            }
            let busy = endpoint.turn(|endpoint, event| {
                if let Some(Incoming::Request(request)) = self.rpc.on_event(endpoint, event) {
                    self.serve(endpoint, request);
                }
            });
            if !busy {
                endpoint.wait(Nanos::from_micros(200));
            }
        }
    }

    fn serve(&mut self, endpoint: &mut UdpEndpoint, request: Request) {
        let parsed = parse_request(&request);
        let answer = match &parsed {
            Err(_) => Answer::Silence,
            Ok(StorageRequest::Write { header, crcs }) => {
                match verify_write(&request, header, crcs) {
                    Err(error) => Answer::Error(error),
                    Ok(()) => self.write(endpoint, &request, header.chunk, header.offset),
                }
            }
            Ok(StorageRequest::Read(header)) => self.read(endpoint, header),
            Ok(StorageRequest::Locate { first_slice, .. }) => {
                self.locate(endpoint, request.link(), *first_slice)
            }
            Ok(control) => self.control(endpoint, control),
        };
        let (responder, message) = request.into_message();
        endpoint.release(message);
        let rpc = &mut self.rpc;
        match (answer, parsed) {
            (_, Err(rejection)) => respond_rejected(rpc, endpoint, responder, rejection),
            (Answer::Error(error), _) => respond_error(rpc, endpoint, responder, error),
            (Answer::Reply(reply), _) => respond_built(rpc, endpoint, responder, reply),
            (Answer::Silence, _) => rpc.abandon(endpoint, responder, Fate::Happened),
        }
    }

    fn write(
        &mut self,
        endpoint: &UdpEndpoint,
        request: &Request,
        chunk: ChunkId,
        offset: u64,
    ) -> Answer {
        let Some(stored) = self.chunks.get_mut(&chunk) else {
            return Answer::Error(ErrorReply::NoSuchChunk { chunk });
        };
        let end = offset + request.data_len() as u64;
        if end > stored.limit {
            return Answer::Error(ErrorReply::PastLimit { chunk, limit: stored.limit });
        }
        let new_len = stored.bytes.len().max(end as usize);
        stored.bytes.resize(new_len, 0);
        for (at, piece) in request.data_pieces() {
            let from = offset as usize + at;
            stored.bytes[from..from + piece.len()].copy_from_slice(piece);
        }
        stored.version += 1;
        if self.mischief.mute_writes.load(Ordering::Relaxed) {
            return Answer::Silence;
        }
        Answer::Reply(changed_reply(endpoint, stored.version))
    }

    fn read(&mut self, endpoint: &UdpEndpoint, header: &ReadHeader) -> Answer {
        let &ReadHeader { chunk, offset, length, .. } = header;
        let Some(stored) = self.chunks.get(&chunk) else {
            return Answer::Error(ErrorReply::NoSuchChunk { chunk });
        };
        let chunk_bytes = stored.bytes.len() as u64;
        let span = header.span();
        if span.end() > chunk_bytes {
            return Answer::Error(ErrorReply::PastEnd { chunk, length: chunk_bytes });
        }
        if span.first() == 0 && self.mischief.damaged.load(Ordering::Relaxed) {
            return Answer::Error(ErrorReply::SliceCorrupt { chunk, slice: 0 });
        }
        let bytes = &stored.bytes[offset as usize..span.end() as usize];
        let crcs = stored_crcs(chunk, span, bytes, chunk_bytes);
        let Ok(mut data) = endpoint.copy(bytes) else {
            return Answer::Error(ErrorReply::Busy);
        };
        let left = &self.mischief.corrupt_reads;
        let corrupt =
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
        let chunk_version = stored.version;
        let header = ReadReplyHeader { chunk, offset, length, chunk_bytes, chunk_version };
        if !corrupt {
            return Answer::Reply(read_reply(endpoint, &header, &crcs, data));
        }
        let last = data.len() - 1;
        data[last] ^= 0x10;
        // Sent as one whose checksums nobody knows: else the link would be lied to.
        let body = [&header.emit()[..], &emit_crcs(&crcs)].concat();
        Answer::Reply(Outgoing::with_body(endpoint, &body).map(|mut reply| {
            reply.set_data(data);
            reply
        }))
    }

    fn locate(&mut self, endpoint: &mut UdpEndpoint, link: LinkId, first_slice: u64) -> Answer {
        let resident = self.mischief.resident.lock().expect("no test panics in here").clone();
        let Some(resident) = resident else {
            return Answer::Reply(locate_reply(endpoint, &LocateReply::default()));
        };
        let Resident { memory, byte_len, runs, more, page, grant_off } = resident;
        let GrantId(grant) = *self.grants.entry(link).or_insert_with(|| {
            endpoint.grant(link, &memory, memory.whole(), Rights::READ).expect("a lane")
        });
        let mut runs: Vec<_> =
            runs.into_iter().filter_map(|run| behind(run, first_slice)).collect();
        let more = more || runs.len() > page;
        runs.truncate(page);
        let grant = grant.wrapping_add(grant_off);
        let reply = LocateReply { resident: true, grant, version: 1, byte_len, runs, more };
        Answer::Reply(locate_reply(endpoint, &reply))
    }

    fn control(&mut self, endpoint: &UdpEndpoint, request: &StorageRequest) -> Answer {
        match *request {
            StorageRequest::Create { chunk, limit_bytes, .. } => {
                if self.chunks.contains_key(&chunk) {
                    return Answer::Error(ErrorReply::ChunkExists { chunk });
                }
                let limit = limit_bytes.unwrap_or(1 << 30);
                self.chunks.insert(chunk, StoredChunk { bytes: Vec::new(), limit, version: 1 });
                Answer::Reply(changed_reply(endpoint, 1))
            }
            StorageRequest::Delete { chunk, .. } => match self.chunks.remove(&chunk) {
                Some(gone) => Answer::Reply(changed_reply(endpoint, gone.version + 1)),
                None => Answer::Error(ErrorReply::NoSuchChunk { chunk }),
            },
            StorageRequest::Stat { chunk } => match self.chunks.get(&chunk) {
                Some(stored) => Answer::Reply(stat_reply(endpoint, &info(chunk, stored))),
                None => Answer::Error(ErrorReply::NoSuchChunk { chunk }),
            },
            StorageRequest::List { after, .. } => {
                // Small pages, so that a listing takes several.
                let later = self.chunks.iter().filter(|(id, _)| Some(**id) > after);
                let mut chunks: Vec<_> = later.map(|(id, stored)| info(*id, stored)).collect();
                let more = chunks.len() > 3;
                chunks.truncate(3);
                Answer::Reply(list_reply(endpoint, &ListReply { chunks, more }))
            }
            StorageRequest::Scrub { budget_slices } => {
                let report =
                    ScrubReply { slices: budget_slices, pass_done: true, ..<_>::default() };
                Answer::Reply(scrub_reply(endpoint, &report))
            }
            StorageRequest::Health { .. } => {
                let health = HealthReply { slow: 3, ..HealthReply::default() };
                Answer::Reply(health_reply(endpoint, &health))
            }
            StorageRequest::Info => {
                let info = InfoReply { request_bytes_max: 200_000, ..InfoReply::default() };
                Answer::Reply(info_reply(endpoint, &info))
            }
            StorageRequest::Join(_) => Answer::Error(ErrorReply::NoReservations),
            StorageRequest::Qos => Answer::Reply(qos_reply(endpoint, &QosReply::default())),
            StorageRequest::Finish { .. } | StorageRequest::Chain { .. } => {
                Answer::Reply(changed_reply(endpoint, 9))
            }
            // One link at a time: there is no older one to refuse.
            StorageRequest::Session { .. } => Answer::Reply(done_reply(endpoint)),
            // Not done here, and said so: whoever asks waits for an answer.
            StorageRequest::Clear(_)
            | StorageRequest::Read(_)
            | StorageRequest::Write { .. }
            | StorageRequest::Digest { .. }
            | StorageRequest::Locate { .. }
            | StorageRequest::Sketch { .. }
            | StorageRequest::Forward { .. }
            | StorageRequest::Rebuild { .. }
            | StorageRequest::Revoke { .. } => Answer::Error(ErrorReply::StoreFailed),
        }
    }
}

/// What of a run is not before a slice.
fn behind(SlotRun { first_slice, slot, count }: SlotRun, from: u64) -> Option<SlotRun> {
    let skip = from.saturating_sub(first_slice);
    if skip >= count.into() {
        return None;
    }
    let (skip, first_slice) = (skip as u32, first_slice + skip);
    Some(SlotRun { first_slice, slot: slot.wrapping_add(skip), count: count - skip })
}

fn info(chunk: ChunkId, stored: &StoredChunk) -> ChunkInfo {
    let &StoredChunk { ref bytes, limit, version } = stored;
    ChunkInfo {
        chunk: chunk.into(),
        byte_len: bytes.len() as u64,
        limit_bytes: limit,
        version,
        unfinished: false,
        resident: false,
        chain: 0,
    }
}

/// The checksums of a reply, as docs/store-core.md section 11 has them.
pub fn stored_crcs(chunk: ChunkId, span: Span, bytes: &[u8], chunk_bytes: u64) -> Vec<u32> {
    (span.first()..span.first() + span.count())
        .map(|slice| {
            let (from, len) = span.part(slice);
            let start = (slice * SLICE_BYTES as u64 + from as u64 - span.start()) as usize;
            let part = &bytes[start..start + len];
            let ends = slice * SLICE_BYTES as u64 + (from + len) as u64 == chunk_bytes;
            if span.covers(slice) || from == 0 && ends {
                slice_crc(chunk, slice, part)
            } else {
                fragment_crc(chunk, slice, from as u32, part)
            }
        })
        .collect()
}

/// The status of a response, for tests that call by hand.
pub const OK: Status = Status::OK;

pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    towpath_base::Prng::new(seed).fill(&mut bytes);
    bytes
}
