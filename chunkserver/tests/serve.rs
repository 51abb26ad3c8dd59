//! All operations over loopback UDP, held against a model in memory.

mod common;

use std::collections::BTreeMap;

use common::{Client, Running, config, flip_where, inline, pattern, refusal};
use towpath_base::Prng;
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::wire::Why;
use towpath_fastpath::{ErrorKind, ErrorReply, Output, StorageRequest};

const CHUNK: ChunkId = ChunkId(0xfeed_0000_0000_0000_0000_0000_0000_0001);

#[test]
fn any_range_that_was_written_reads_back_as_the_model_has_it() {
    let seed = 5;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = config(&dir.path().join("store"));
    let mut model: BTreeMap<ChunkId, Vec<u8>> = BTreeMap::new();
    // Whichever thread drives the disk.
    for config in [&config, &inline(config.clone()), &config] {
        let server = Running::start(config);
        let mut client = Client::connect(server.addr);
        for step in 0..250 {
            step_once(&mut client, &mut model, &mut prng, step);
        }
        for (chunk, bytes) in &model {
            assert_eq!(client.stat(*chunk).expect("it is there").0, bytes.len() as u64);
            for (at, part) in bytes.chunks(100_000).enumerate() {
                let read = client.read(*chunk, at as u64 * 100_000, part.len());
                assert!(read.expect("it is there") == part, "{chunk} differs");
            }
        }
        drop(client);
        assert!(server.stop().drained);
    }
}

/// One operation on server and model.
fn step_once(
    client: &mut Client<towpath_transport::RoceUdp>,
    model: &mut BTreeMap<ChunkId, Vec<u8>>,
    prng: &mut Prng,
    step: u64,
) {
    let chunk = ChunkId(prng.below(5).into());
    match (prng.below(12), model.get_mut(&chunk)) {
        (0, Some(_)) => {
            client.delete(chunk).expect("it is there");
            model.remove(&chunk);
        }
        (_, None) => {
            assert_eq!(refusal(client.read(chunk, 0, 1)), ErrorReply::NoSuchChunk { chunk });
            client.create(chunk, None).expect("a fresh name");
            model.insert(chunk, Vec::new());
        }
        (1..=7, Some(bytes)) => {
            // Aligned ones and odd ones, of a byte up to several messages' worth of slices.
            let (offset, len) = if prng.chance(0.4) {
                (4096 * prng.below(60), 4096 * (1 + prng.below(32)))
            } else {
                (prng.below(200_000), 1 + prng.below(70_000))
            };
            let data = pattern(len as usize, step);
            client.write(chunk, offset, &data).expect("there is room");
            let end = (offset + len) as usize;
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&data);
        }
        (_, Some(bytes)) if !bytes.is_empty() => {
            let offset = prng.below(bytes.len() as u64) as usize;
            let len = 1 + prng.below((bytes.len() - offset).min(150_000) as u64) as usize;
            let read = client.read(chunk, offset as u64, len).expect("it is there");
            assert!(read == bytes[offset..offset + len], "{chunk} at {offset}, {len} bytes");
        }
        (_, Some(_)) => {
            let error = refusal(client.read(chunk, 0, 1));
            assert_eq!(error, ErrorReply::PastEnd { chunk, length: 0 });
        }
    }
}

#[test]
fn many_requests_at_a_time_are_each_answered_with_their_own_outcome() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(&dir.path().join("store")));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    let slice = |index: u64| pattern(65_536, index);
    let (mut started, mut done) = (0, 0);
    while done < 300 {
        while started < 300 && started - done < 32 {
            let op = client.chunks.start_write_copy(
                &mut client.endpoint,
                CHUNK,
                started % 40 * 65_536,
                &slice(started % 40),
            );
            op.expect("room for 32");
            started += 1;
        }
        if let Some((_, result)) = client.turn() {
            result.expect("a sound write");
            done += 1;
        }
    }
    for index in 0..40 {
        let read = client.read(CHUNK, index * 65_536, 65_536).expect("it was written");
        assert!(read == slice(index), "slice {index}");
    }
    drop(client);
    let served = server.stop();
    assert_eq!(served.stats.failed, 0);
    assert_eq!(served.stats.write_bytes, 300 * 65_536);
}

#[test]
fn listings_are_paged_and_info_tells_the_state() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(&dir.path().join("store")));
    let mut client = Client::connect(server.addr);
    for name in 0..7u64 {
        client.create(ChunkId(name.into()), Some(1 << 20)).expect("a fresh name");
    }
    client.write(ChunkId(3), 0, &[1; 5000]).expect("there is room");
    let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let op = client
            .chunks
            .start_request(&mut client.endpoint, &StorageRequest::List { after, count_max: 3 });
        let Ok(Output::List(page)) = client.wait(op) else { panic!("a listing was due") };
        names.extend(page.chunks.iter().map(|info| ChunkId::from(info.chunk)));
        after = names.last().copied();
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!((names.len(), pages), (7, 3));
    assert!(names.is_sorted());
    let op = client.chunks.start_request(&mut client.endpoint, &StorageRequest::Info);
    let Ok(Output::Info(info)) = client.wait(op) else { panic!("the state was due") };
    assert_eq!((info.chunks, info.writes, info.write_bytes), (7, 1, 5000));
    assert_eq!(info.live_bytes, 8192);
    assert!(!info.read_only);
    assert_eq!(info.program_version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn wrong_requests_get_their_own_errors_and_change_nothing() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(&dir.path().join("store")));
    let mut client = Client::connect(server.addr);
    let gone = ErrorReply::NoSuchChunk { chunk: CHUNK };
    assert_eq!(refusal(client.write(CHUNK, 0, b"x")), gone);
    assert_eq!(refusal(client.stat(CHUNK)), gone);
    assert_eq!(refusal(client.delete(CHUNK)), gone);
    assert_eq!(refusal(client.create(CHUNK, Some(0))), ErrorReply::BadRequest { why: Why::Limit });
    client.create(CHUNK, Some(10_000)).expect("a fresh name");
    assert_eq!(refusal(client.create(CHUNK, None)), ErrorReply::ChunkExists { chunk: CHUNK });
    client.write(CHUNK, 0, &[7; 10_000]).expect("up to the limit");
    let before = client.stat(CHUNK).expect("it is there");
    assert_eq!(
        refusal(client.write(CHUNK, 9_999, b"xy")),
        ErrorReply::PastLimit { chunk: CHUNK, limit: 10_000 }
    );
    assert_eq!(
        refusal(client.read(CHUNK, 9_000, 1_001)),
        ErrorReply::PastEnd { chunk: CHUNK, length: 10_000 }
    );
    assert_eq!(client.stat(CHUNK).expect("it is there"), before);
}

#[test]
fn a_full_server_refuses_writes_and_serves_on() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let mut config = config(&dir.path().join("store"));
    config.store.capacity_bytes = 2 << 20;
    let server = Running::start(&config);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    let mut written = 0;
    let refused = loop {
        match client.write(CHUNK, written * 65_536, &pattern(65_536, written)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, ErrorKind::Refused(ErrorReply::NoSpace));
    assert!(written >= 16, "{written} writes of 64 KiB fitted in 2 MiB");
    for index in 0..written {
        let read = client.read(CHUNK, index * 65_536, 65_536).expect("acknowledged");
        assert!(read == pattern(65_536, index), "write {index} is lost");
    }
    client.delete(CHUNK).expect("a full store can be emptied");
    client.create(CHUNK, None).expect("and used again");
    client.write(CHUNK, 0, &[1; 65_536]).expect("there is room");
}

#[test]
fn a_byte_flipped_on_the_medium_is_told_and_never_served() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = config(&dir.path().join("store"));
    let server = Running::start(&config);
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    let bytes = pattern(10 * 4096, 9);
    client.write(CHUNK, 0, &bytes).expect("there is room");
    flip_where(&config.store.data_dir.join("disk"), &bytes[3 * 4096..3 * 4096 + 64]);
    let damaged = ErrorReply::SliceCorrupt { chunk: CHUNK, slice: 3 };
    assert_eq!(refusal(client.read(CHUNK, 0, 10 * 4096)), damaged);
    assert_eq!(refusal(client.read(CHUNK, 3 * 4096 + 5, 7)), damaged);
    let read = client.read(CHUNK, 0, 3 * 4096).expect("the slices before it");
    assert!(read == bytes[..3 * 4096]);
    let op = client
        .chunks
        .start_request(&mut client.endpoint, &StorageRequest::Scrub { budget_slices: 0 });
    let Ok(Output::Scrub(found)) = client.wait(op) else { panic!("a report was due") };
    assert_eq!((found.slices, found.damaged_count, found.pass_done), (10, 1, true));
    assert_eq!((found.damaged[0].slice, &found.damaged[0].file[..]), (3, "disk"));
    client.write(CHUNK, 3 * 4096, &bytes[..4096]).expect("whole slices heal");
    assert!(client.read(CHUNK, 3 * 4096, 4096).expect("healed") == bytes[..4096]);
}

#[test]
fn a_client_that_leaves_mid_write_leaves_the_server_whole() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(&dir.path().join("store")));
    let mut other = Client::connect(server.addr);
    other.create(CHUNK, None).expect("a fresh name");
    for round in 0..5u64 {
        let mut client = Client::connect(server.addr);
        for index in 0..16 {
            let data = pattern(65_536, round);
            let op =
                client.chunks.start_write_copy(&mut client.endpoint, CHUNK, index * 65_536, &data);
            op.expect("room for 16");
        }
        for _ in 0..round * 3 {
            client.turn();
        }
        drop(client);
        other.write(ChunkId(0), 0, b"x").expect_err("no such chunk, and an answer");
    }
    // Whole writes or none: each 64 KiB is of one round.
    let (len, _) = other.stat(CHUNK).expect("it is there");
    for index in 0..len / 65_536 {
        let read = other.read(CHUNK, index * 65_536, 65_536).expect("sound slices");
        let whole = read.iter().all(|byte| *byte == 0)
            || (0..5).any(|round| read == pattern(65_536, round));
        assert!(whole, "a torn write at {index}");
    }
    drop(other);
    assert!(server.stop().drained);
}
