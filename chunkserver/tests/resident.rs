//! Resident chunks of a running server: clients read them by READs, whatever else goes on.

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Client, LONG, Process, Running, config, flip_where, loopback_udp, pattern, refusal};
use towpath_base::Prng;
use towpath_chunkserver::daemon::{DaemonConfig, PlaceBy};
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{
    ErrorKind, ErrorReply, Method, NewChunk, Output, ReadData, SLICE_BYTES, StorageRequest, Terms,
};
use towpath_transport::{Endpoint, EndpointConfig, RoceUdp};

const CHUNK: ChunkId = ChunkId(21);

fn with_memory(dir: &Path, slices: u64) -> DaemonConfig {
    config(&dir.join("store"))
        .with(|config| config.store.resident_bytes = slices * SLICE_BYTES as u64)
}

fn create(client: &mut Client<RoceUdp>, chunk: ChunkId) -> Result<(), ErrorKind> {
    let kind = NewChunk { resident: true, ..NewChunk::default() };
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Create { chunk, limit_bytes: None, kind, stamp: 0 },
    );
    client.wait(op).map(drop)
}

fn read(
    client: &mut Client<RoceUdp>,
    chunk: ChunkId,
    offset: u64,
    len: usize,
) -> Result<ReadData, ErrorKind> {
    let op = client.chunks.start_resident_read(&mut client.endpoint, chunk, offset, len);
    match client.wait(op)? {
        Output::Read(data) => Ok(data),
        other => panic!("a read gave {other:?}"),
    }
}

/// A read that must be made by READs.
fn read_here(client: &mut Client<RoceUdp>, chunk: ChunkId, offset: u64, len: usize) -> Vec<u8> {
    let data = read(client, chunk, offset, len).expect("it is readable");
    assert!(data.is_resident(), "{:?}", client.chunks.resident_stats());
    data.to_vec()
}

#[test]
fn writes_of_any_range_are_read_by_reads_as_soon_as_they_are_answered() {
    let seed = 61;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_memory(dir.path(), 64));
    let mut client = Client::connect(server.addr);
    create(&mut client, CHUNK).expect("room");
    let mut model: Vec<u8> = Vec::new();
    for round in 0..300 {
        let offset = prng.below(model.len() as u64 + 5000).min(200_000);
        let bytes = pattern(prng.between(1, 20_000) as usize, round);
        client.write(CHUNK, offset, &bytes).expect("there is room");
        let end = offset as usize + bytes.len();
        model.resize(model.len().max(end), 0);
        model[offset as usize..end].copy_from_slice(&bytes);
        let from = prng.below(model.len() as u64) as usize;
        let len = prng.between(1, (model.len() - from) as u64) as usize;
        // Where the chunk has grown, a read of what is new has the server read once.
        let data = read(&mut client, CHUNK, from as u64, len).expect("readable");
        assert!(data.to_vec() == model[from..from + len], "round {round}");
        let again = read_here(&mut client, CHUNK, from as u64, len);
        assert!(again == model[from..from + len], "round {round}");
    }
    let stats = client.chunks.resident_stats();
    assert_eq!((stats.torn, stats.moved, stats.changed), (0, 0, 0), "{stats:?}");
    client.delete(CHUNK).expect("it is there");
    let gone = read(&mut client, CHUNK, 0, 10).map(drop);
    assert_eq!(refusal(gone), ErrorReply::NoSuchChunk { chunk: CHUNK });
    assert_eq!(client.chunks.resident_stats().moved, 1);
    drop(client);
    server.stop();
}

#[test]
fn a_full_memory_refuses_new_chunks_and_growth_and_says_what_is_left() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_memory(dir.path(), 4));
    let mut client = Client::connect(server.addr);
    create(&mut client, CHUNK).expect("room");
    client.write(CHUNK, 0, &pattern(3 * 4096, 1)).expect("room");
    let left = |left| ErrorReply::ResidentFull { left };
    assert_eq!(refusal(client.write(CHUNK, 3 * 4096, &pattern(4097, 2))), left(4096));
    client.write(CHUNK, 3 * 4096, &pattern(4096, 3)).expect("room");
    assert_eq!(refusal(create(&mut client, ChunkId(2))), left(0));
    client.create(ChunkId(2), None).expect("another kind of chunk has room");
    let info = |client: &mut Client<RoceUdp>| {
        let op = client.chunks.start_request(&mut client.endpoint, &StorageRequest::Info);
        let Ok(Output::Info(info)) = client.wait(op) else { panic!("the state was due") };
        (info.resident_bytes, info.resident_bytes_max)
    };
    assert_eq!(info(&mut client), (4 * 4096, 4 * 4096));
    assert!(read_here(&mut client, CHUNK, 0, 4096) == pattern(3 * 4096, 1)[..4096]);
    client.delete(CHUNK).expect("it is there");
    assert_eq!(info(&mut client), (0, 4 * 4096));
    create(&mut client, ChunkId(3)).expect("room");
    drop(client);
    server.stop();
    let server = Running::start(&with_memory(dir.path(), 0));
    let mut client = Client::connect(server.addr);
    assert_eq!(refusal(create(&mut client, CHUNK)), left(0));
    client.write(ChunkId(3), 0, &[5; 9000]).expect("it is served from the disk");
    let data = read(&mut client, ChunkId(3), 0, 9000).expect("readable");
    assert!(!data.is_resident() && data.to_vec() == [5; 9000]);
}

#[test]
fn an_unfinished_chunk_is_not_located_and_a_finished_one_is() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_memory(dir.path(), 16));
    let mut client = Client::connect(server.addr);
    let kind = NewChunk { resident: true, unfinished: true, chain: 0 };
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Create { chunk: CHUNK, limit_bytes: None, kind, stamp: 0 },
    );
    assert!(matches!(client.wait(op), Ok(Output::Changed(Method::Create, _))));
    client.write(CHUNK, 0, &[6; 5000]).expect("room");
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Locate { chunk: CHUNK, first_slice: 0 },
    );
    assert_eq!(refusal(client.wait(op)), ErrorReply::Unfinished { chunk: CHUNK });
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Finish { chunk: CHUNK, byte_len: 5000, terms: Terms::default() },
    );
    assert!(matches!(client.wait(op), Ok(Output::Changed(Method::Finish, _))));
    assert_eq!(read_here(&mut client, CHUNK, 0, 5000), [6; 5000]);
    let op =
        client.chunks.start_request(&mut client.endpoint, &StorageRequest::Stat { chunk: CHUNK });
    let Ok(Output::Stat(info)) = client.wait(op) else { panic!("a state was due") };
    assert!(info.resident && !info.unfinished);
}

#[test]
fn a_client_in_the_place_of_one_that_left_is_granted_the_memory_for_itself() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(
        &with_memory(dir.path(), 16).with(|config| config.network.workers = Some(1)),
    );
    let mut client = Client::connect(server.addr);
    create(&mut client, CHUNK).expect("room");
    client.write(CHUNK, 0, &[4; 5000]).expect("room");
    for _ in 0..3 {
        for _ in 0..2 {
            assert_eq!(read_here(&mut client, CHUNK, 0, 5000), [4; 5000]);
        }
        assert_eq!(client.chunks.resident_stats().locates, 1);
        let links: Vec<_> = client.endpoint.links().collect();
        links.into_iter().for_each(|link| client.endpoint.close(link));
        while client.endpoint.links().next().is_some() {
            client.turn();
        }
        client = Client::connect(server.addr);
    }
    drop(client);
    server.stop();
}

#[test]
fn a_file_is_put_and_fetched_by_reads_alone() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_memory(dir.path(), 800));
    let mut client = Client::connect(server.addr);
    let data = pattern(3_000_000, 9);
    let kind = NewChunk { unfinished: true, resident: true, chain: 0 };
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Create { chunk: CHUNK, limit_bytes: None, kind, stamp: 0 },
    );
    client.wait(op).expect("room");
    let part = 128 << 10;
    for (index, bytes) in data.chunks(part).enumerate() {
        client.write(CHUNK, (index * part) as u64, bytes).expect("room");
    }
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Finish {
            chunk: CHUNK,
            byte_len: data.len() as u64,
            terms: Terms::default(),
        },
    );
    client.wait(op).expect("all of it is there");
    for (index, bytes) in data.chunks(part).enumerate() {
        let offset = (index * part) as u64;
        assert!(read_here(&mut client, CHUNK, offset, bytes.len()) == bytes, "at {offset}");
    }
    let stats = client.chunks.resident_stats();
    let reads = data.len().div_ceil(part) as u64;
    assert_eq!((stats.reads, stats.by_read, stats.locates), (reads, reads, 1), "{stats:?}");
    assert!(read_here(&mut client, CHUNK, 100_000, 5000) == data[100_000..105_000]);
    drop(client);
    server.stop();
}

#[test]
fn a_killed_server_has_its_resident_chunks_in_memory_again() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = with_memory(dir.path(), 64);
    let data = pattern(100_000, 7);
    for round in 0..3 {
        let server = Process::start(&config);
        let mut client = Client::connect(server.addr);
        if round == 0 {
            create(&mut client, CHUNK).expect("room");
            client.write(CHUNK, 0, &data).expect("room");
        } else {
            assert!(read_here(&mut client, CHUNK, 0, data.len()) == data);
            let op = client.chunks.start_request(
                &mut client.endpoint,
                &StorageRequest::List { after: None, count_max: 0 },
            );
            let Ok(Output::List(list)) = client.wait(op) else { panic!("a listing was due") };
            assert!(list.chunks.iter().all(|info| info.resident));
        }
        // Killed when dropped.
    }
}

#[test]
fn a_slice_that_is_damaged_on_the_disk_is_not_read_from_memory() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = with_memory(dir.path(), 64);
    let data = pattern(5 * 4096, 7);
    let server = Running::start(&config);
    let mut client = Client::connect(server.addr);
    create(&mut client, CHUNK).expect("room");
    client.write(CHUNK, 0, &data).expect("room");
    drop(client);
    server.stop();
    flip_where(&config.store.data_dir.join("disk"), &data[2 * 4096..3 * 4096]);
    let server = Running::start(&config);
    let mut client = Client::connect(server.addr);
    assert!(read_here(&mut client, CHUNK, 0, 8192) == data[..8192]);
    assert!(read_here(&mut client, CHUNK, 3 * 4096, 8192) == data[3 * 4096..]);
    let refused = read(&mut client, CHUNK, 8192, 10).map(drop);
    assert_eq!(refusal(refused), ErrorReply::SliceCorrupt { chunk: CHUNK, slice: 2 });
    drop(client);
    server.stop();
}

/// Slices of each chunk that is written and read at once.
const SLICES: u64 = 6;
const CHUNKS: u64 = 2;

/// The bytes of a slice at its write `number`: every word of them tells.
fn content(chunk: ChunkId, slice: u64, number: u64) -> Vec<u8> {
    let mut bytes = pattern(SLICE_BYTES, chunk.0 as u64 * 1_000_003 + slice * 7919 + number);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// What writers have begun and what was acknowledged, slice by slice.
#[derive(Default)]
struct Ledger {
    begun: Vec<AtomicU64>,
    answered: Vec<AtomicU64>,
    stop: AtomicBool,
}

impl Ledger {
    fn new() -> Self {
        let words = || (0..CHUNKS * SLICES).map(|_| AtomicU64::new(0)).collect();
        Self { begun: words(), answered: words(), stop: AtomicBool::new(false) }
    }

    fn at(chunk: u64, slice: u64) -> usize {
        (chunk * SLICES + slice) as usize
    }
}

/// Writes runs of whole slices, so that a slice that is whole is of one write.
fn write_on(addr: std::net::SocketAddr, ledger: &Ledger, seed: u64) {
    let mut prng = Prng::new(seed);
    let mut client = Client::connect(addr);
    while !ledger.stop.load(Ordering::Relaxed) {
        let (chunk, first) = (prng.below(CHUNKS), prng.below(SLICES));
        let name = ChunkId(100 + u128::from(chunk));
        let last = prng.between(first, SLICES - 1);
        let mut bytes = Vec::new();
        for slice in first..=last {
            let number = 1 + ledger.begun[Ledger::at(chunk, slice)].fetch_add(1, Ordering::SeqCst);
            bytes.extend_from_slice(&content(name, slice, number));
        }
        client.write(name, first * SLICE_BYTES as u64, &bytes).expect("room");
        for slice in first..=last {
            ledger.answered[Ledger::at(chunk, slice)].fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Reads and checks that each slice is some write of it that may be seen at that time.
fn read_on(client: &mut Client<RoceUdp>, ledger: &Ledger, rounds: u64, seed: u64) {
    let mut prng = Prng::new(seed);
    for round in 0..rounds {
        let (chunk, first) = (prng.below(CHUNKS), prng.below(SLICES));
        let name = ChunkId(100 + u128::from(chunk));
        let last = prng.between(first, SLICES - 1);
        let answered: Vec<u64> = (first..=last)
            .map(|slice| ledger.answered[Ledger::at(chunk, slice)].load(Ordering::SeqCst))
            .collect();
        let len = (last - first + 1) as usize * SLICE_BYTES;
        let data = read(client, name, first * SLICE_BYTES as u64, len).expect("readable");
        let bytes = data.to_vec();
        for (slice, (bytes, answered)) in
            (first..).zip(bytes.chunks_exact(SLICE_BYTES).zip(answered))
        {
            let number = u64::from_le_bytes(*bytes.first_chunk().expect("a slice"));
            let begun = ledger.begun[Ledger::at(chunk, slice)].load(Ordering::SeqCst);
            assert!(
                (answered..=begun).contains(&number),
                "round {round}: write {number} of slice {slice} where {answered} to {begun} may be"
            );
            assert!(bytes == content(name, slice, number), "round {round}: a torn slice");
        }
    }
}

fn reader(addr: std::net::SocketAddr, by_messages: bool) -> Client<RoceUdp> {
    let config = EndpointConfig::new()
        .app_protocol(PROTOCOL)
        .links_max(2)
        .connect_timeout(LONG)
        .lanes_by_messages(by_messages);
    let endpoint = Endpoint::udp(loopback_udp(), config).expect("loopback UDP");
    Client::on(endpoint, addr)
}

/// Readers at several workers, by queue pairs and by messages, while a writer writes.
#[test]
fn every_slice_that_is_read_is_one_that_was_committed_however_it_is_rewritten_meanwhile() {
    let seed = 71;
    println!("seed {seed}");
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = with_memory(dir.path(), CHUNKS * SLICES);
    let config = config.with(|config| {
        config.network.workers = Some(2);
        config.network.place_by = PlaceBy::Links;
    });
    let server = Running::start(&config);
    let mut first = Client::connect(server.addr);
    for chunk in 0..CHUNKS {
        let name = ChunkId(100 + u128::from(chunk));
        create(&mut first, name).expect("room");
        let bytes: Vec<u8> = (0..SLICES).flat_map(|slice| content(name, slice, 0)).collect();
        first.write(name, 0, &bytes).expect("room");
    }
    let ledger = Ledger::new();
    let totals = std::thread::scope(|scope| {
        let (ledger, addr) = (&ledger, server.addr);
        let writer = scope.spawn(move || write_on(addr, ledger, seed));
        let readers: Vec<_> = (0..3)
            .map(|at| {
                scope.spawn(move || {
                    let mut client = reader(addr, at == 2);
                    read_on(&mut client, ledger, 1500, seed + 1 + at);
                    let link = client.chunks.rpc().link();
                    let lane = client.endpoint.lane(link).expect("it has read by the lane");
                    assert_eq!(lane.is_by_messages, at == 2);
                    client.chunks.resident_stats()
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        // Whatever they found, nobody writes on.
        ledger.stop.store(true, Ordering::Relaxed);
        writer.join().expect("it wrote on");
        let totals = ended.into_iter().map(|stats| stats.expect("all it read was right"));
        totals.collect::<Vec<_>>()
    });
    for stats in totals {
        println!("{stats:?}");
        assert_eq!((stats.reads, stats.locates, stats.moved), (1500, CHUNKS, 0));
        assert_eq!(stats.by_read + stats.fallen_back, 1500);
        assert!(stats.by_read > 1000, "{stats:?}");
    }
    drop(first);
    server.stop();
}

/// A chunk is deleted and others take its slots, again and again.
#[test]
fn a_slot_that_others_use_again_never_gives_their_bytes() {
    let seed = 81;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&with_memory(dir.path(), 12));
    let mut writer = Client::connect(server.addr);
    let mut reader = reader(server.addr, false);
    let mut lengths: HashMap<ChunkId, (u64, u64)> = HashMap::new();
    for round in 1..600 {
        let name = ChunkId(100 + u128::from(prng.below(4)));
        if lengths.remove(&name).is_some() {
            writer.delete(name).expect("it is there");
        } else if create(&mut writer, name).is_ok() {
            let slices = prng.between(1, 4);
            let bytes: Vec<u8> =
                (0..slices).flat_map(|slice| content(name, slice, round)).collect();
            match writer.write(name, 0, &bytes) {
                Ok(()) => drop(lengths.insert(name, (slices, round))),
                Err(ErrorKind::Refused(ErrorReply::ResidentFull { .. })) => {
                    writer.delete(name).expect("it is there");
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        for at in 0..4 {
            let name = ChunkId(100 + at);
            let slice = prng.below(4);
            let found = read(&mut reader, name, slice * SLICE_BYTES as u64, SLICE_BYTES);
            match lengths.get(&name) {
                Some((slices, written)) if slice < *slices => {
                    let data = found.expect("readable").to_vec();
                    assert!(data == content(name, slice, *written), "round {round}");
                }
                Some((slices, _)) => {
                    let length = slices * SLICE_BYTES as u64;
                    let refused = refusal(found.map(drop));
                    assert_eq!(refused, ErrorReply::PastEnd { chunk: name, length });
                }
                None => {
                    let refused = refusal(found.map(drop));
                    assert_eq!(refused, ErrorReply::NoSuchChunk { chunk: name });
                }
            }
        }
    }
    let stats = reader.chunks.resident_stats();
    println!("{stats:?}");
    assert!(stats.moved > 20 && stats.by_read > 100, "{stats:?}");
}
