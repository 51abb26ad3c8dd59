//! Writes whose slices are stored while the rest of their data is still on its way.

mod common;

use std::time::Duration;

use common::{Client, LONG, Running, config, pattern, refusal};
use towpath_base::Prng;
use towpath_chunkserver::service::StopReason;
use towpath_chunkserver::store::{ChunkId, writer_crcs};
use towpath_fastpath::control::InfoReply;
use towpath_fastpath::wire::WriteHeader;
use towpath_fastpath::{ErrorReply, Method};
use towpath_rpc::{Call, Completion, Outgoing, RpcClient};
use towpath_transport::{Event, Nanos, RoceUdp};

const CHUNK: ChunkId = ChunkId(0xfeed_0000_0000_0000_0000_0000_0000_0002);

/// A client that sends what the server says that it takes.
fn connect(server: &Running) -> Client<RoceUdp> {
    let mut client = Client::connect(server.addr);
    let longest = client.info().expect("info").stream_bytes_max;
    client.chunks.set_longest_request(longest as usize);
    client
}

/// Writes with a checksum that one slice does not have; gives the refusal.
fn write_damaged(client: &mut Client<RoceUdp>, bytes: &[u8], slice: u64) -> ErrorReply {
    let endpoint = &mut client.endpoint;
    let link = endpoint.links().next().expect("it is connected");
    let channel = endpoint.open_channel(link, false).expect("room for a channel");
    let mut rpc = RpcClient::new(link, channel);
    rpc.set_longest_request(2 << 20);
    let mut crcs = writer_crcs(CHUNK, 0, bytes);
    crcs[slice as usize] ^= 1;
    let header = WriteHeader { chunk: CHUNK, length: bytes.len() as u32, ..WriteHeader::default() };
    let mut is_open = false;
    while !is_open {
        endpoint.turn(|_, event| is_open |= matches!(event, Event::ChannelOpened { .. }));
    }
    let mut out = Outgoing::new(endpoint, 64 + 4 * crcs.len(), bytes.len()).expect("a buffer");
    out.extend(&header.emit()).expect("room");
    crcs.iter().for_each(|crc| out.extend(&crc.to_le_bytes()).expect("room"));
    out.set_data(endpoint.copy(bytes).expect("a buffer"));
    let deadline = endpoint.now() + LONG;
    let call = Call { method: Method::Write as u16, token: 1, deadline, ask_fate: false };
    rpc.call(endpoint, call, out).expect("it is sent");
    loop {
        let busy = endpoint.turn(|endpoint, event| drop(rpc.on_event(endpoint, event)));
        if let Some(Completion { result, .. }) = rpc.poll() {
            let response = result.expect("a response");
            let refused = ErrorReply::parse(response.body()).expect("an error reply");
            endpoint.release(response.into_message());
            return refused;
        }
        if !busy {
            endpoint.wait(Nanos::from_millis(1));
        }
    }
}

#[test]
fn writes_longer_than_a_link_holds_read_back_wherever_they_begin() {
    let seed = 9;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    let dir = tempfile::tempdir().expect("room for a directory");
    let config = config(&dir.path().join("store"));
    let mut model = vec![0; 3 << 20];
    let (mut staged, mut len) = (0, 0);
    for round in 0..2 {
        let server = Running::start(&config);
        let mut client = connect(&server);
        if round == 0 {
            client.create(CHUNK, None).expect("a fresh name");
        }
        for step in 0..20 {
            // Long ones of whole slices, and odd ones that a link holds.
            let (from, count) = match prng.chance(0.7) {
                true => (4096 * prng.below(500), 4096 * prng.between(32, 255)),
                false => (prng.below(2 << 20), prng.between(1, 240_000)),
            };
            let data = pattern(count as usize, 100 * round + step);
            client.write(CHUNK, from, &data).expect("there is room");
            model[from as usize..][..data.len()].copy_from_slice(&data);
            len = len.max(from as usize + data.len());
        }
        for (at, part) in model[..len].chunks(200_000).enumerate() {
            let read = client.read(CHUNK, at as u64 * 200_000, part.len()).expect("it is there");
            assert!(read == part, "part {at} differs");
        }
        drop(client);
        staged += server.stop().stats.staged_bytes;
    }
    assert!(staged > 1 << 20, "{staged} bytes were stored early");
}

#[test]
fn a_long_write_that_cuts_slices_is_refused_and_told_how_long_it_may_be() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(&dir.path().join("store")));
    let mut client = connect(&server);
    client.create(CHUNK, None).expect("a fresh name");
    let InfoReply { request_bytes_max, .. } = client.info().expect("info");
    let refused = refusal(client.write(CHUNK, 100, &pattern(1_000_000, 1)));
    assert_eq!(refused, ErrorReply::TooLong { max: request_bytes_max });
    assert_eq!(client.stat(CHUNK).expect("it is there").0, 0);
    // The link goes on.
    client.write(CHUNK, 100, &pattern(200_000, 1)).expect("a link holds that");
    drop(client);
    server.stop();
}

#[test]
fn a_long_write_with_a_damaged_slice_changes_nothing_and_leaves_no_page() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(&dir.path().join("store")));
    let mut client = connect(&server);
    client.create(CHUNK, None).expect("a fresh name");
    let old = pattern(1 << 20, 1);
    client.write(CHUNK, 0, &old).expect("there is room");
    let free = client.info().expect("info").free_bytes;
    for slice in [0, 100, 255] {
        let refused = write_damaged(&mut client, &pattern(1 << 20, 2), slice);
        assert_eq!(refused, ErrorReply::WireCorrupt { chunk: CHUNK, slice });
    }
    let is_free = |client: &mut Client<_>| client.info().expect("info").free_bytes == free;
    let found = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_free(&mut client)
    });
    assert!(found, "pages are missing");
    let part = client.read(CHUNK, 400_000, 200_000).expect("it is there");
    assert!(part == old[400_000..600_000]);
    drop(client);
    let stats = server.stop().stats;
    assert_eq!((stats.wire_corrupt, stats.stopped[StopReason::Damaged as usize]), (3, 3));
}

#[test]
fn a_client_that_goes_away_in_the_middle_leaves_nothing_of_its_write() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(&dir.path().join("store")));
    let mut watcher = connect(&server);
    watcher.create(CHUNK, None).expect("a fresh name");
    let free = watcher.info().expect("info").free_bytes;
    let data = pattern(1 << 20, 3);
    for turns in [1, 5, 20, 60] {
        let mut client = connect(&server);
        let Client { endpoint, chunks } = &mut client;
        chunks.start_write_copy(endpoint, CHUNK, 0, &data).expect("it is sent");
        for _ in 0..turns {
            endpoint.turn(|endpoint, event| drop(chunks.on_event(endpoint, event)));
        }
    }
    let found = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        let info = watcher.info().expect("info");
        // One of them may have come whole.
        info.free_bytes == free || info.free_bytes == free - data.len() as u64
    });
    assert!(found, "pages are missing");
    watcher.write(CHUNK, 0, &data).expect("there is room");
    drop(watcher);
    server.stop();
}
