//! Writes that servers pass on, along rings and trees.

mod common;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Client, LONG, Process, Running, config, pattern, refusal};
use tempfile::TempDir;
use towpath_base::Prng;
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_chunkserver::service::StopReason;
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::cap::{Capability, Denied, Grant, KeyRing, Rights, Scope};
use towpath_fastpath::{
    ClientConfig, ErrorKind, ErrorReply, Helper, NewChunk, ROUTE_MAX, Rebuild, Rebuilt, Route,
    RouteKind, SLICE_BYTES, StorageRequest, Terms,
};
use towpath_rpc::Fate;
use towpath_transport::{Nanos, RoceUdp};

const CHUNK: ChunkId = ChunkId(0x00f0_0d11);
const KINDS: [RouteKind; 2] = [RouteKind::Ring, RouteKind::Tree];

/// Servers, and a client of each.
struct Row {
    _folders: TempDir,
    servers: Vec<Running>,
    clients: Vec<Client<RoceUdp>>,
}

impl Row {
    fn new(count: usize, with: impl Fn(&Path) -> DaemonConfig) -> Self {
        let folders = tempfile::tempdir().expect("room for a folder");
        let at = |number: usize| folders.path().join(number.to_string());
        let servers: Vec<Running> =
            (0..count).map(|number| Running::start(&with(&at(number)))).collect();
        let clients = servers.iter().map(|server| Client::connect(server.addr)).collect();
        Self { _folders: folders, servers, clients }
    }

    fn places(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|server| server.addr).collect()
    }

    fn route(&self, kind: RouteKind, count: usize) -> Route {
        Route::new(kind, &self.places()[..count]).expect("a route")
    }

    fn create(&mut self, chunk: ChunkId) {
        self.clients.iter_mut().for_each(|client| client.create(chunk, None).expect("a chunk"));
    }

    fn forward(
        &mut self,
        route: &Route,
        chunk: ChunkId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), ErrorKind> {
        forward(&mut self.clients[0], route, chunk, offset, bytes)
    }

    fn versions(&mut self, chunk: ChunkId) -> Vec<u64> {
        let version = |client: &mut Client<RoceUdp>| client.stat(chunk).map_or(0, |(_, v)| v);
        self.clients.iter_mut().map(version).collect()
    }
}

fn forward(
    client: &mut Client<RoceUdp>,
    route: &Route,
    chunk: ChunkId,
    offset: u64,
    bytes: &[u8],
) -> Result<(), ErrorKind> {
    let (endpoint, along) = (&mut client.endpoint, (route, Terms::default()));
    let op = client.chunks.start_forward_copy(endpoint, along, (chunk, offset), bytes);
    client.wait(op).map(drop)
}

#[test]
fn every_server_of_a_route_has_what_was_written_when_that_is_answered() {
    let seed = 31;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut row = Row::new(ROUTE_MAX, config);
    // Longer than what a link holds whole.
    row.clients[0].chunks.set_longest_request(2 << 20);
    for kind in KINDS {
        for count in 1..=ROUTE_MAX {
            let chunk = ChunkId(u128::from(prng.next_u64()));
            row.create(chunk);
            let route = row.route(kind, count);
            for len in [1, 100, SLICE_BYTES, 5_000, 64 << 10, 240 << 10, 1 << 20] {
                // What is longer than a link holds whole has whole slices.
                let step = if len > 256 << 10 { SLICE_BYTES as u64 } else { 1_000 };
                let offset = prng.below(3) * step;
                let bytes = pattern(len, prng.next_u64());
                row.forward(&route, chunk, offset, &bytes).expect("it is written");
                for client in &mut row.clients[..count] {
                    for (at, part) in (offset..).step_by(64 << 10).zip(bytes.chunks(64 << 10)) {
                        let read = client.read(chunk, at, part.len()).expect("it is there");
                        assert!(read == part, "{route} {len}");
                    }
                }
            }
            let untouched = &mut row.clients[count..];
            assert!(untouched.iter_mut().all(|client| client.stat(chunk).expect("there").0 == 0));
        }
    }
}

#[test]
fn nobody_makes_a_write_that_somebody_else_refuses() {
    let mut row = Row::new(5, config);
    for kind in KINDS {
        for refusing in 0..5 {
            let chunk = ChunkId(refusing as u128 * 10 + kind as u128);
            row.create(chunk);
            row.clients[refusing].delete(chunk).expect("it is there");
            let before = row.versions(chunk);
            let route = row.route(kind, 5);
            for len in [100, 200 << 10] {
                let refused = refusal(row.forward(&route, chunk, 0, &pattern(len, 1)));
                let expected = match refusing {
                    0 => ErrorReply::NoSuchChunk { chunk },
                    rank => ErrorReply::ReplicaRefused { rank: rank as u64, code: 1 },
                };
                assert_eq!(refused, expected, "{route} without {refusing}");
                assert_eq!(row.versions(chunk), before, "{route} without {refusing}");
            }
            // It is free for the next one, and so are its bytes.
            row.clients[refusing].create(chunk, None).expect("it was deleted");
            row.forward(&route, chunk, 0, &pattern(100, 1)).expect("all have it");
        }
    }
    row.clients.clear();
    let stopped: Vec<_> =
        row.servers.into_iter().map(|server| server.stop().stats.stopped).collect();
    // Of two kinds two writes each; the last of a ring refuses when all of it is there.
    let refused: Vec<u64> = stopped.iter().map(|of| of[StopReason::Refused as usize]).collect();
    assert_eq!(refused, [4, 4, 4, 4, 2]);
    assert_eq!(stopped[0][StopReason::Chain as usize], 16);
}

#[test]
fn a_writer_is_told_in_time_of_a_server_that_is_gone_or_hangs() {
    let folders = tempfile::tempdir().expect("room for a folder");
    let of = |number: usize| config(&folders.path().join(number.to_string()));
    let mut servers: Vec<Process> = (0..3).map(|number| Process::start(&of(number))).collect();
    let mut clients: Vec<_> = servers.iter().map(|server| Client::connect(server.addr)).collect();
    clients.iter_mut().for_each(|client| client.create(CHUNK, None).expect("a chunk"));
    let places: Vec<SocketAddr> = servers.iter().map(|server| server.addr).collect();
    let route = Route::new(RouteKind::Ring, &places).expect("a route");
    let first = &mut clients[0];
    forward(first, &route, CHUNK, 0, &pattern(9_000, 1)).expect("all are there");
    let before = first.stat(CHUNK).expect("it is there");
    // It takes packets and says nothing.
    servers[2].signal("STOP");
    let hasty = ClientConfig::new().timeout(Nanos::from_secs(4));
    let client = towpath_fastpath::Client::connect(places[0], hasty).expect("a server");
    let written = client.write_along(Arc::new(route.clone()), CHUNK, 0, pattern(9_000, 2)).wait();
    let error = written.expect_err("one of them hangs").kind;
    assert_ne!(error.fate(), Fate::Happened, "{error}");
    servers[2].signal("CONT");
    // Dead, it is known at once, or when its link is given up.
    servers.truncate(2);
    let written = client.write_along(Arc::new(route), CHUNK, 0, pattern(9_000, 3)).wait();
    let error = written.expect_err("one of them is gone").kind;
    assert_ne!(error.fate(), Fate::Happened, "{error}");
    // The first one makes nothing that those behind have not made, and takes other writes.
    let first = &mut clients[0];
    assert_eq!(first.stat(CHUNK).expect("it is there"), before);
    let alone = Route::new(RouteKind::Ring, &places[..2]).expect("a route");
    let mut tries = 0;
    // What those behind still have of it holds its bytes until its time is over.
    while let Err(error) = forward(first, &alone, CHUNK, 0, &pattern(9_000, 4)) {
        assert!(matches!(error, ErrorKind::Refused(ErrorReply::Busy)), "{error}");
        std::thread::sleep(Duration::from_millis(50));
        tries += 1;
        assert!(tries < 1_000, "its bytes are claimed for good");
    }
}

#[test]
fn a_write_for_which_two_copies_are_enough_waits_for_no_third() {
    let folders = tempfile::tempdir().expect("room for a folder");
    let of = |number: usize| config(&folders.path().join(number.to_string()));
    let mut servers: Vec<Process> = (0..3).map(|number| Process::start(&of(number))).collect();
    let mut clients: Vec<_> = servers.iter().map(|server| Client::connect(server.addr)).collect();
    let places: Vec<SocketAddr> = servers.iter().map(|server| server.addr).collect();
    for kind in KINDS {
        let chunk = ChunkId(CHUNK.0 + kind as u128);
        clients.iter_mut().for_each(|client| client.create(chunk, None).expect("a chunk"));
        let all = Route::new(kind, &places).expect("a route");
        let two = all.clone().acked_by(2).expect("of three");
        let hasty = ClientConfig::new().timeout(Nanos::from_secs(4));
        let client = towpath_fastpath::Client::connect(places[0], hasty).expect("a server");
        let write = |route: &Route, offset, seed| {
            client.write_along(Arc::new(route.clone()), chunk, offset, pattern(9_000, seed)).wait()
        };
        let is_there = |client: &mut Client<RoceUdp>, offset, seed| {
            client.read(chunk, offset, 9_000).is_ok_and(|read| read == pattern(9_000, seed))
        };
        write(&two, 0, 1).expect("two are there");
        // The third one gets it too, by and by.
        while !is_there(&mut clients[2], 0, 1) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // It takes packets and says nothing.
        servers[2].signal("STOP");
        write(&two, 16_384, 2).expect("two are enough");
        for client in &mut clients[..2] {
            assert!(is_there(client, 16_384, 2), "{two}");
        }
        write(&all, 32_768, 3).expect_err("all have to make it");
        servers[2].signal("CONT");
    }
    servers.truncate(2);
    let chunk = ChunkId(CHUNK.0 + RouteKind::Ring as u128);
    let two = Route::new(RouteKind::Ring, &places).expect("a route").acked_by(2).expect("of three");
    forward(&mut clients[0], &two, chunk, 65_536, &pattern(9_000, 4)).expect("two are enough");
    assert_eq!(clients[1].read(chunk, 65_536, 9_000), Ok(pattern(9_000, 4)));
}

#[test]
fn servers_that_do_not_answer_hold_up_nothing_else() {
    let mut row = Row::new(1, config);
    row.create(CHUNK);
    // They take connections and say nothing.
    let mute: Vec<TcpListener> =
        (0..6).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    let mute = mute.iter().map(|mute| mute.local_addr().expect("it is bound"));
    let places: Vec<SocketAddr> = row.places().into_iter().chain(mute).collect();
    let tree = Route::new(RouteKind::Tree, &places).expect("a route");
    let first = &mut row.clients[0];
    let (endpoint, along) = (&mut first.endpoint, (&tree, Terms::default()));
    let op = first.chunks.start_forward_copy(endpoint, along, (CHUNK, 0), &[1; 100]);
    let op = op.expect("it is sent");
    let mut other = Client::connect(row.servers[0].addr);
    let chunk = ChunkId(CHUNK.0 + 1);
    other.create(chunk, None).expect("a chunk");
    let mut ended = None;
    for round in 0.. {
        // What waits for them takes no more work with each turn.
        other.write(chunk, 0, &[round as u8; 100]).expect("it is served");
        ended = row.clients[0].turn();
        if ended.is_some() {
            break;
        }
    }
    let (which, how) = ended.expect("it ends");
    assert_eq!(which, op);
    let error = refusal(how.map(drop).map_err(|error| error.kind));
    assert!(matches!(error, ErrorReply::ReplicaRefused { code: 0, .. }), "{error}");
}

#[test]
fn two_who_write_the_same_bytes_leave_the_same_at_every_server() {
    let seed = 33;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let mut row = Row::new(3, config);
    for kind in KINDS {
        let chunk = ChunkId(kind as u128);
        row.create(chunk);
        let route = Arc::new(row.route(kind, 3));
        let connect = |_| {
            let config = ClientConfig::new().timeout(LONG).depth(8);
            towpath_fastpath::Client::connect(row.servers[0].addr, config).expect("a server")
        };
        let writers: Vec<towpath_fastpath::Client> = (0..2).map(connect).collect();
        for _ in 0..8 {
            let mut asked = Vec::new();
            for writer in &writers {
                for _ in 0..4 {
                    let offset = prng.below(4) * 4_096 + prng.below(2) * 100;
                    let len = 1 + prng.below(20_000) as usize;
                    let bytes = pattern(len, prng.next_u64());
                    asked.push(writer.write_along(Arc::clone(&route), chunk, offset, bytes));
                }
            }
            asked.into_iter().for_each(|asked| asked.wait().expect("it is repeated while busy"));
            let len = row.clients[0].stat(chunk).expect("it is there").0 as usize;
            let read = |client: &mut Client<RoceUdp>| client.read(chunk, 0, len).expect("there");
            let all: Vec<Vec<u8>> = row.clients.iter_mut().map(read).collect();
            assert!(all.iter().all(|copy| *copy == all[0]));
        }
    }
}

#[test]
fn a_layout_that_is_older_than_one_of_the_chunks_writes_to_none() {
    let row = Row::new(4, config);
    let client = |at: usize| {
        let config = ClientConfig::new().timeout(LONG);
        towpath_fastpath::Client::connect(row.servers[at].addr, config).expect("a server")
    };
    let clients: Vec<towpath_fastpath::Client> = (0..4).map(client).collect();
    for kind in KINDS {
        let chunk = ChunkId(100 + kind as u128);
        let of = |chain| NewChunk { chain, ..NewChunk::default() };
        clients.iter().for_each(|client| client.create(chunk, None, of(1)).wait().expect("new"));
        let route = Arc::new(row.route(kind, 4));
        let write = |chain: u32, seed| {
            let client = clients[0].on_chain(chain);
            client.write_along(Arc::clone(&route), chunk, 0, pattern(9_000, seed)).wait()
        };
        write(1, 1).expect("the layout is that of all");
        let version = |client: &towpath_fastpath::Client| client.stat(chunk).wait().expect("it");
        // The last one has a newer layout.
        clients[3].raise_chain(chunk, 2).wait().expect("it rises");
        let before: Vec<u64> = clients.iter().map(|client| version(client).version).collect();
        let refused = write(1, 2).expect_err("an older layout").kind;
        let is_it = |error| matches!(error, ErrorReply::OtherChain { chain: 2, .. });
        assert!(matches!(refused, ErrorKind::Refused(error) if is_it(error)), "{refused}");
        let after: Vec<u64> = clients.iter().map(|client| version(client).version).collect();
        assert_eq!(before, after);
        clients[..3].iter().for_each(|client| {
            client.raise_chain(chunk, 2).wait().expect("it rises");
        });
        write(2, 3).expect("the layout is that of all");
    }
}

#[test]
fn a_server_passes_writes_on_to_those_that_its_settings_name_and_to_no_others() {
    let mut row = Row::new(2, config);
    let [named, other] = [row.places()[0], row.places()[1]];
    let folders = tempfile::tempdir().expect("room for a folder");
    let peers = named.to_string().parse().expect("a list");
    let careful = Running::start(
        &config(&folders.path().join("careful")).with(|config| config.service.peers = peers),
    );
    let mut client = Client::connect(careful.addr);
    client.create(CHUNK, None).expect("a chunk");
    row.create(CHUNK);
    for kind in KINDS {
        let route = |places: &[SocketAddr]| Route::new(kind, places).expect("a route");
        let first = careful.addr;
        forward(&mut client, &route(&[first, named]), CHUNK, 0, b"to him").expect("he is named");
        let before = client.stat(CHUNK).expect("it is there");
        let refused = refusal(forward(&mut client, &route(&[first, other]), CHUNK, 0, b"to her"));
        assert_eq!(refused, ErrorReply::PeerNotAllowed { rank: 1 });
        assert_eq!(client.stat(CHUNK).expect("it is there"), before);
    }
    let ring = Route::new(RouteKind::Ring, &[named, careful.addr, other]).expect("a route");
    let refused = refusal(forward(&mut row.clients[0], &ring, CHUNK, 0, b"behind it"));
    assert_eq!(refused, ErrorReply::ReplicaRefused { rank: 1, code: 30 });
    let helper = Helper { server: careful.addr, chunk: CHUNK, version: 1, coefficient: 1 };
    let (offset, length, terms) = (0, SLICE_BYTES as u32, Terms::default());
    let target = Rebuilt { server: other, chunk: CHUNK, offset, length, terms };
    let plan = Rebuild::new(&[helper], target).expect("a plan");
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Rebuild { plan: plan.clone(), crcs: Vec::new() },
    );
    let refused = refusal(client.wait(op).map(drop));
    assert_eq!(refused, ErrorReply::PeerNotAllowed { rank: 1 });
}

fn keys() -> String {
    KeyRing::line(1, &[1; 32])
}

fn grant(capability: Capability) -> Grant {
    KeyRing::parse(&keys()).expect("a key").mint(capability).expect("a grant")
}

fn with_keys(folder: &Path) -> DaemonConfig {
    let key_file = folder.with_extension("keys");
    std::fs::write(&key_file, keys()).expect("written");
    config(folder).with(|config| config.service.key_file = Some(key_file))
}

#[test]
fn each_server_asks_for_leave_and_shows_the_next_one_that_it_has_it() {
    let mut row = Row::new(3, with_keys);
    let showing = |client: Client<RoceUdp>, capability| Client {
        endpoint: client.endpoint,
        chunks: client.chunks.capability(grant(capability)),
    };
    let clients = std::mem::take(&mut row.clients);
    let all = |client| showing(client, Capability::everything());
    row.clients = clients.into_iter().map(all).collect();
    row.create(CHUNK);
    let address = row.servers[0].addr;
    for kind in KINDS {
        let route = row.route(kind, 3);
        let layout = route.digest(0);
        let (rights, scope) = (Rights::WRITE, Scope::chunk(CHUNK.0));
        let of_layout = Capability { rights, scope, layout, ..Capability::everything() };
        let mut writer = showing(Client::connect(address), of_layout);
        for len in [100, 100_000] {
            let bytes = pattern(len, len as u64);
            forward(&mut writer, &route, CHUNK, 0, &bytes).expect("it is allowed");
            for client in &mut row.clients {
                assert!(client.read(CHUNK, 0, len).expect("it is there") == bytes);
            }
        }
        let denied = |result| match refusal(result) {
            ErrorReply::Denied { why } => why,
            other => panic!("{other}"),
        };
        let other = row.route(kind, 2);
        let refused = forward(&mut writer, &other, CHUNK, 0, b"elsewhere");
        assert_eq!(denied(refused), Denied::Layout);
        let op = writer.chunks.start_write_copy(&mut writer.endpoint, CHUNK, 0, b"here alone");
        assert_eq!(denied(writer.wait(op).map(drop)), Denied::Layout);
        let refused = forward(&mut writer, &route, ChunkId(7), 0, b"another chunk");
        assert_eq!(denied(refused), Denied::OutOfRange);
        let mut nobody = Client::connect(address);
        assert_eq!(denied(forward(&mut nobody, &route, CHUNK, 0, b"x")), Denied::Missing);
        let reader = Capability { rights: Rights::READ, ..of_layout };
        let mut reader = showing(Client::connect(address), reader);
        assert_eq!(denied(forward(&mut reader, &route, CHUNK, 0, b"x")), Denied::Rights);
    }
}
