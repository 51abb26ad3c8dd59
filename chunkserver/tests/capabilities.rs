//! A server with keys: it does what capabilities allow, and nothing else.

mod common;

use common::{Client, Running, config, pattern, refusal};
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use towpath_base::Prng;
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_chunkserver::store::{ChunkId, writer_crcs};
use towpath_fastpath::cap::{Capability, Denied, Grant, KeyRing, Prover, Rights, Scope};
use towpath_fastpath::digest::SliceRange;
use towpath_fastpath::proof::system_ms;
use towpath_fastpath::wire::{ReadHeader, WriteHeader};
use towpath_fastpath::{ErrorKind, ErrorReply, Method, Output, StorageRequest};
use towpath_rpc::{Header, Kind, Status};
use towpath_transport::{Nanos, RoceUdp, SendOptions};

/// Kilobytes of memory of this process, both ends in it.
fn rss_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("this process runs");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number") * 4
}

/// The test that measures memory runs with none of this file beside it: it is one process.
static MEMORY: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    MEMORY.read().unwrap_or_else(PoisonError::into_inner)
}

/// How many hostile requests to throw; a million takes a minute.
const REQUESTS_VARIABLE: &str = "TOWPATH_HOSTILE_REQUESTS";
const REQUESTS: u64 = 20_000;

/// What a server may come to hold while it refuses: buffers of a link, and the allocator's slack.
const GROWTH_KIB_MAX: u64 = 16 << 10;

const CHUNK: ChunkId = ChunkId(0xca9);
const OTHER: ChunkId = ChunkId(0xbad);

fn ring(id: u32) -> KeyRing {
    KeyRing::parse(&KeyRing::line(id, &[id as u8; 32])).expect("a key")
}

/// A server whose file of keys has the first one.
fn with_keys(folder: &Path) -> DaemonConfig {
    let keys = folder.join("keys");
    std::fs::write(&keys, KeyRing::line(1, &[1; 32])).expect("written");
    config(&folder.join("store")).with(|config| config.service.key_file = Some(keys))
}

fn grant(capability: Capability) -> Grant {
    ring(1).mint(capability).expect("a grant")
}

fn everything() -> Grant {
    grant(Capability::everything())
}

fn for_chunk(rights: Rights) -> Capability {
    let (scope, serial) = (Scope::chunk(CHUNK.0), 7);
    Capability { rights, scope, serial, ..Capability::everything() }
}

fn showing(addr: std::net::SocketAddr, grant: Grant) -> Client<RoceUdp> {
    let Client { endpoint, chunks } = Client::connect(addr);
    Client { endpoint, chunks: chunks.capability(grant) }
}

fn denied<T: std::fmt::Debug>(result: Result<T, ErrorKind>) -> Denied {
    match refusal(result) {
        ErrorReply::Denied { why } => why,
        other => panic!("refused for another reason: {other}"),
    }
}

/// Asks for something, and waits for the answer.
fn ask(client: &mut Client<RoceUdp>, request: &StorageRequest) -> Result<Output, ErrorKind> {
    let op = client.chunks.start_request(&mut client.endpoint, request);
    client.wait(op)
}

#[test]
fn a_server_with_keys_does_what_is_allowed_and_nothing_else() {
    let _beside = beside_others();
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_keys(dir.path()));
    let mut nobody = Client::connect(server.addr);
    assert_eq!(denied(nobody.create(CHUNK, None)), Denied::Missing);
    assert_eq!(denied(nobody.stat(CHUNK)), Denied::Missing);
    let list = StorageRequest::List { after: None, count_max: 0 };
    assert_eq!(denied(ask(&mut nobody, &list)), Denied::Missing);
    nobody.info().expect("how the server is may be asked by anybody");

    let rights = Rights::CREATE | Rights::WRITE | Rights::READ;
    let mut writer = showing(server.addr, grant(for_chunk(rights)));
    writer.create(CHUNK, None).expect("it is allowed");
    let data = pattern(10_000, 1);
    writer.write(CHUNK, 100, &data).expect("it is allowed");
    assert_eq!(writer.read(CHUNK, 100, data.len()).expect("it is allowed"), data);
    writer.stat(CHUNK).expect("it is allowed");
    assert_eq!(denied(writer.delete(CHUNK)), Denied::Rights);
    assert_eq!(denied(writer.create(OTHER, None)), Denied::OutOfRange);
    assert_eq!(denied(ask(&mut writer, &list)), Denied::OutOfRange, "a listing is of all chunks");

    let part = Capability { offset: 4_096, byte_len: 4_096, ..for_chunk(Rights::READ) };
    let mut reader = showing(server.addr, grant(part));
    assert_eq!(reader.read(CHUNK, 4_096, 4_096).expect("it is allowed"), data[3_996..8_092]);
    assert_eq!(denied(reader.read(CHUNK, 4_095, 2)), Denied::OutOfRange);
    assert_eq!(denied(reader.write(CHUNK, 4_096, &[1])), Denied::Rights);
    let digest = |length| {
        let range = SliceRange { offset: 4_096, length };
        StorageRequest::Digest { chunk: CHUNK, range }
    };
    assert!(
        matches!(ask(&mut reader, &digest(4_096)), Ok(Output::Digest(_))),
        "it may read as much"
    );
    assert_eq!(denied(ask(&mut reader, &digest(4_097))), Denied::OutOfRange);
    let range = SliceRange { offset: 0, length: 4_096 };
    let sketch = StorageRequest::Sketch { chunk: CHUNK, range, seed: 1 };
    assert_eq!(denied(ask(&mut reader, &sketch)), Denied::OutOfRange);
    let chain = StorageRequest::Chain { chunk: CHUNK, chain: 1, version: None, stamp: 0 };
    assert_eq!(denied(ask(&mut reader, &chain)), Denied::Rights, "who may write may raise it");
    let over = Capability { expires_ms: 1, ..for_chunk(Rights::ALL) };
    assert_eq!(denied(showing(server.addr, grant(over)).stat(CHUNK)), Denied::Expired);
    let elsewhere = Capability { layout: 5, ..for_chunk(Rights::ALL) };
    let mut elsewhere = showing(server.addr, grant(elsewhere));
    assert_eq!(denied(elsewhere.write(CHUNK, 0, &[1])), Denied::Layout);
    let other_key = ring(2).mint(Capability::everything()).expect("a grant");
    assert_eq!(denied(showing(server.addr, other_key).stat(CHUNK)), Denied::Key);
    drop((nobody, writer, reader, elsewhere));
    let denied = server.stop().stats.denied;
    assert_eq!(denied[Denied::Missing as usize], 3);
    assert_eq!(denied[Denied::OutOfRange as usize], 5);
    assert_eq!(denied[Denied::Rights as usize], 3);
}

#[test]
fn what_is_revoked_is_refused_after_a_restart_as_well() {
    let _beside = beside_others();
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = with_keys(dir.path());
    let server = Running::start(&config);
    let mut writer = showing(server.addr, grant(for_chunk(Rights::ALL)));
    writer.create(CHUNK, None).expect("it is allowed");
    let mut admin = showing(server.addr, everything());
    let op = writer.chunks.start_request(
        &mut writer.endpoint,
        &StorageRequest::Revoke { serial: 7, until_ms: u64::MAX },
    );
    assert_eq!(denied(writer.wait(op)), Denied::OutOfRange, "it is for one chunk");
    let op = admin.chunks.start_request(
        &mut admin.endpoint,
        &StorageRequest::Revoke { serial: 7, until_ms: u64::MAX },
    );
    assert!(matches!(admin.wait(op), Ok(Output::Revoked)), "it has that right");
    assert_eq!(denied(writer.stat(CHUNK)), Denied::Revoked);
    admin.stat(CHUNK).expect("others are as they were");
    let mut user = showing(server.addr, grant(for_chunk(Rights::READ)));
    let op = user.chunks.start_request(
        &mut user.endpoint,
        &StorageRequest::Revoke { serial: 0, until_ms: u64::MAX },
    );
    assert_eq!(denied(user.wait(op)), Denied::Rights);
    drop((writer, admin, user));
    server.stop();
    let server = Running::start(&config);
    let mut writer = showing(server.addr, grant(for_chunk(Rights::ALL)));
    assert_eq!(denied(writer.stat(CHUNK)), Denied::Revoked);
    drop(writer);
    server.stop();
}

/// A write that is long enough to be staged piece by piece.
#[test]
fn nothing_of_a_write_that_is_not_allowed_is_staged() {
    let _beside = beside_others();
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_keys(dir.path()));
    let data = pattern(48 << 12, 2);
    let mut owner = showing(server.addr, everything());
    owner.create(CHUNK, None).expect("it is allowed");
    for capability in [for_chunk(Rights::READ), for_chunk(Rights::WRITE)] {
        let capability = Capability { byte_len: (48 << 12) - 1, ..capability };
        let mut writer = showing(server.addr, grant(capability));
        let why = denied(writer.write(CHUNK, 0, &data));
        assert!(matches!(why, Denied::Rights | Denied::OutOfRange), "{why}");
    }
    let (byte_len, _) = owner.stat(CHUNK).expect("it is allowed");
    drop(owner);
    let stats = server.stop().stats;
    assert_eq!((byte_len, stats.staged_bytes, stats.write_bytes), (0, 0, 0));
    assert_eq!(stats.denied.iter().sum::<u64>(), 2);
}

/// An open server takes requests that show something as well: for laboratories.
#[test]
fn a_server_without_keys_looks_at_no_capability() {
    let _beside = beside_others();
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(&dir.path().join("store")));
    let nothing = Capability { rights: Rights::NONE, ..Capability::everything() };
    let mut client = showing(server.addr, grant(nothing));
    client.create(CHUNK, None).expect("it is open");
    client.write(CHUNK, 0, &[1, 2, 3]).expect("it is open");
    assert_eq!(client.read(CHUNK, 1, 2).expect("it is open"), [2, 3]);
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Revoke { serial: 0, until_ms: u64::MAX },
    );
    assert_eq!(denied(client.wait(op)), Denied::Key, "it has none");
    drop(client);
    server.stop();
}

/// A request as it is sent, with a proof.
fn request(method: Method, proof: &[u8], body: &[u8], data: &[u8]) -> Vec<u8> {
    let header = Header {
        kind: Kind::Request,
        method: method as u16 | 0x8000,
        status: Status::OK,
        inline: !data.is_empty(),
        request: 1 << 40,
        body_len: (proof.len() + body.len()) as u32,
        data_len: data.len() as u32,
        timeout_us: 0,
    };
    [&header.emit()[..], proof, body, data].concat()
}

/// Makes requests that are refused, each for its own reason.
struct Forger {
    data: Vec<u8>,
    fair: Prover,
    expired: Prover,
    narrow: Prover,
    reader: Prover,
    elsewhere: Prover,
}

impl Forger {
    fn new(prng: &mut Prng) -> Self {
        let mut of = |capability| Prover::new(grant(capability), prng.next_u64());
        Self {
            fair: of(for_chunk(Rights::ALL)),
            expired: of(Capability { expires_ms: 1, ..for_chunk(Rights::ALL) }),
            narrow: of(Capability { byte_len: 10, ..for_chunk(Rights::ALL) }),
            reader: of(for_chunk(Rights::READ)),
            elsewhere: of(Capability { layout: 5, ..for_chunk(Rights::ALL) }),
            data: pattern(3_000, 1),
        }
    }

    fn write(&self) -> Vec<u8> {
        let length = self.data.len() as u32;
        let header = WriteHeader { chunk: CHUNK, offset: 0, length, ..WriteHeader::default() };
        let mut body = header.emit().to_vec();
        let crcs = writer_crcs(CHUNK, 0, &self.data);
        crcs.iter().for_each(|crc| body.extend(crc.to_le_bytes()));
        body
    }

    fn make(&mut self, kind: Denied, prng: &mut Prng) -> Vec<u8> {
        let (body, now) = (self.write(), system_ms());
        let data_len = self.data.len() as u32;
        let prover = match kind {
            Denied::Expired => &mut self.expired,
            Denied::OutOfRange => &mut self.narrow,
            Denied::Rights => &mut self.reader,
            Denied::Layout => &mut self.elsewhere,
            _ => &mut self.fair,
        };
        let mut proof = prover.prove(now, Method::Write as u16, data_len, &[&body]);
        if kind == Denied::Forged {
            // Of its number, its time or its tag: another key is another reason.
            let at = 80 + prng.below(40) as usize;
            proof[at] ^= 1 << prng.below(8);
        }
        request(Method::Write, &proof, &body, &self.data)
    }
}

/// A read that is answered once, and then thrown again and again.
fn used_up(client: &mut Client<RoceUdp>, prng: &mut Prng) -> Vec<u8> {
    let header = ReadHeader { chunk: CHUNK, offset: 0, length: 1, ..ReadHeader::default() };
    let mut prover = Prover::new(everything(), prng.next_u64());
    let body = header.emit();
    let proof = prover.prove(system_ms(), Method::Read as u16, 0, &[&body]);
    let bytes = request(Method::Read, &proof, &body, &[]);
    while !throw(client, &bytes) {
        client.turn();
    }
    bytes
}

fn throw(client: &mut Client<RoceUdp>, bytes: &[u8]) -> bool {
    let link = client.endpoint.links().next().expect("it is up");
    let channel = client.chunks.rpc().channel();
    let buf = client.endpoint.copy(bytes);
    buf.is_ok_and(|buf| client.endpoint.send(link, channel, buf, SendOptions::new()).is_ok())
}

#[test]
fn hostile_requests_are_refused_by_name_and_leave_nothing_behind() {
    let _alone = MEMORY.write().unwrap_or_else(PoisonError::into_inner);
    let seed = 30;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let wanted = std::env::var(REQUESTS_VARIABLE).ok();
    let requests = wanted.map_or(REQUESTS, |text| text.parse().expect("a number"));
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_keys(dir.path()));
    let mut owner = showing(server.addr, everything());
    owner.create(CHUNK, None).expect("it is allowed");
    owner.write(CHUNK, 0, &[7; 100]).expect("it is allowed");
    let before_version = owner.stat(CHUNK).expect("it is allowed");
    let mut hostile = Client::connect(server.addr);
    let replayed = used_up(&mut hostile, &mut prng);
    let mut forger = Forger::new(&mut prng);
    let kinds = [
        Denied::Forged,
        Denied::Expired,
        Denied::OutOfRange,
        Denied::Rights,
        Denied::Layout,
        Denied::Replayed,
    ];
    let (mut thrown, mut warm) = ([0_u64; Denied::ALL.len()], None);
    while thrown.iter().sum::<u64>() < requests {
        let kind = kinds[prng.below(kinds.len() as u64) as usize];
        let bytes = match kind {
            Denied::Replayed => replayed.clone(),
            _ => forger.make(kind, &mut prng),
        };
        while !throw(&mut hostile, &bytes) {
            hostile.turn();
        }
        hostile.turn();
        thrown[kind as usize] += 1;
        let all = thrown.iter().sum::<u64>();
        if all == requests / 10 {
            warm = Some(rss_kib());
        }
        if all.is_multiple_of(1_000) {
            let found = owner.stat(CHUNK).expect("others are served meanwhile");
            assert_eq!(found, before_version, "nothing has changed");
        }
    }
    let mut quiet = 0;
    while quiet < 200 {
        quiet = if hostile.endpoint.poll() > 0 { 0 } else { quiet + 1 };
        while hostile.endpoint.next_event().is_some() {}
        hostile.endpoint.wait(Nanos::from_millis(1));
    }
    let (warm, after) = (warm.expect("a tenth was thrown"), rss_kib());
    println!("{thrown:?}; memory {warm} KiB after a tenth, {after} KiB at the end");
    assert!(after.saturating_sub(warm) < GROWTH_KIB_MAX, "{warm} KiB, then {after}");
    assert_eq!(owner.stat(CHUNK).expect("it is allowed"), before_version, "nothing has changed");
    assert_eq!(owner.read(CHUNK, 0, 100).expect("it is allowed"), [7; 100]);
    drop((owner, hostile));
    let stats = server.stop().stats;
    let denied: u64 = stats.denied.iter().sum();
    println!("{:?} denied, {} before that: too many at a time", stats.denied, stats.rpc.busy);
    assert_eq!(denied + stats.rpc.busy, requests);
    assert!(denied > requests / 2, "most were looked at");
    for why in Denied::ALL {
        let (denied, thrown) = (stats.denied[why as usize], thrown[why as usize]);
        assert!(denied <= thrown && (denied > 0) == (thrown > 0), "{why}: {denied} of {thrown}");
    }
    assert_eq!(stats.staged_bytes, 0);
}
