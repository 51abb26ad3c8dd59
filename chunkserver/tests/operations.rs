//! Changes that are meant for a version or name a chain version, clears, and headers that name
//! another link, over the wire.

mod common;

use common::{Client, Running, config, flip_where, pattern, refusal};
use towpath_chunkserver::store::{ChunkId, slice_crc};
use towpath_ec::Sketch;
use towpath_fastpath::StorageRequest;
use towpath_fastpath::digest::{Digest, Sketches};
use towpath_fastpath::limits::CHAIN_MAX;
use towpath_fastpath::wire::{ClearHeader, ReadHeader, Sender, Why, WriteHeader, emit_crcs};
use towpath_fastpath::{
    Clear, Client as Shared, ClientConfig, ClientError, ClientSession, ErrorKind, ErrorReply,
    Method, NewChunk, Output, Terms,
};
use towpath_rpc::{Call, Outgoing, RpcClient, Status};
use towpath_transport::{Event, Nanos, RoceUdp};

const CHUNK: ChunkId = ChunkId(5);

/// The version that a change has made.
fn made(result: Result<Output, ErrorKind>) -> Result<u64, ErrorKind> {
    match result? {
        Output::Changed(_, Some(version)) => Ok(version),
        other => panic!("a change gave {other:?}"),
    }
}

fn write_on(
    client: &mut Client<RoceUdp>,
    terms: Terms,
    offset: u64,
    bytes: &[u8],
) -> Result<u64, ErrorKind> {
    let at = (CHUNK, offset);
    let op = client.chunks.start_write_copy_on(&mut client.endpoint, terms, at, bytes);
    made(client.wait(op))
}

fn clear_on(client: &mut Client<RoceUdp>, terms: Terms, clear: Clear) -> Result<u64, ErrorKind> {
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Clear(ClearHeader {
            chunk: CHUNK,
            clear,
            sender: Sender::default(),
            terms,
        }),
    );
    made(client.wait(op))
}

fn only_if(version: u64) -> Terms {
    Terms { version: Some(version), ..Terms::default() }
}

#[test]
fn each_change_tells_the_version_that_it_made_for_the_next_one_to_be_meant_for() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let mut client = Client::connect(server.addr);
    let kind = NewChunk { unfinished: true, ..NewChunk::default() };
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Create { chunk: CHUNK, limit_bytes: None, kind, stamp: 0 },
    );
    let created = made(client.wait(op)).expect("a fresh name");
    let bytes = pattern(20_000, 1);
    let written = write_on(&mut client, only_if(created), 0, &bytes).expect("it is the newest");
    let other = ErrorReply::OtherVersion { version: written };
    assert_eq!(refusal(write_on(&mut client, only_if(created), 0, &[1])), other);
    let cut = clear_on(&mut client, only_if(written), Clear::Truncate { byte_len: 10_000 });
    let cut = cut.expect("it is the newest");
    let other = ErrorReply::OtherVersion { version: cut };
    let trim = Clear::Trim { offset: 0, byte_len: 4096 };
    assert_eq!(refusal(clear_on(&mut client, only_if(written), trim)), other);
    let terms = only_if(written);
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Finish { chunk: CHUNK, byte_len: 10_000, terms },
    );
    assert_eq!(refusal(made(client.wait(op))), other);
    let terms = only_if(cut);
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Finish { chunk: CHUNK, byte_len: 10_000, terms },
    );
    let finished = made(client.wait(op)).expect("it is the newest");
    assert_eq!(client.stat(CHUNK), Ok((10_000, finished)));
    assert_eq!(client.read(CHUNK, 0, 10_000).as_deref(), Ok(&bytes[..10_000]));
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Delete { chunk: CHUNK, version: Some(cut) },
    );
    let other = ErrorReply::OtherVersion { version: finished };
    assert_eq!(refusal(made(client.wait(op))), other);
    let op = client.chunks.start_request(
        &mut client.endpoint,
        &StorageRequest::Delete { chunk: CHUNK, version: Some(finished) },
    );
    assert!(made(client.wait(op)).expect("it is the newest") > finished);
    drop(client);
    server.stop();
}

/// The version that the server names, which is not the one that the change was meant for.
fn other<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u64 {
    match result.expect_err("it is meant for another version").kind {
        ErrorKind::Refused(ErrorReply::OtherVersion { version }) => version,
        kind => panic!("{kind:?}"),
    }
}

fn shared(server: &Running) -> Shared {
    Shared::connect(server.addr, ClientConfig::new()).expect("it listens")
}

#[test]
fn a_shared_client_changes_what_it_has_seen_the_version_of_and_nothing_else() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let client = shared(&server);
    let kind = NewChunk { unfinished: true, ..NewChunk::default() };
    client.create(CHUNK, None, kind).wait().expect("a fresh name");
    let created = client.stat(CHUNK).wait().expect("it is there").version;
    let bytes = pattern(20_000, 1);
    let write = |bytes: &[u8]| client.write_as(CHUNK, 0, bytes, (created, 77)).wait();
    let written = write(&bytes).expect("it is the newest");
    assert_eq!(write(&bytes).expect("it was made"), written, "and is not made again");
    assert_eq!(other(client.write_if(CHUNK, 0, [1], created).wait()), written);
    let zero = Clear::Zero { offset: 0, byte_len: 5000 };
    assert_eq!(other(client.clear_if(CHUNK, zero, created).wait()), written);
    let zeroed = client.clear_if(CHUNK, zero, written).wait().expect("it is the newest");
    let cut = client.clear(CHUNK, Clear::Truncate { byte_len: 10_000 }).wait();
    cut.expect("whatever version it has");
    let cut = other(client.finish_if(CHUNK, 10_000, zeroed).wait());
    let finished = client.finish_if(CHUNK, 10_000, cut).wait().expect("it is the newest");
    let found = client.read(CHUNK, 0, 10_000).wait().expect("it is whole");
    assert!(found[..5000].iter().all(|byte| *byte == 0) && found[5000..] == bytes[5000..10_000]);
    assert_eq!(other(client.delete_if(CHUNK, cut).wait()), finished);
    client.delete_if(CHUNK, finished).wait().expect("it is the newest");
    client.close();
    server.stop();
}

#[test]
fn a_raised_chain_version_fences_whoever_has_an_older_layout() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let client = shared(&server);
    let kind = NewChunk { unfinished: true, resident: false, chain: 2 };
    client.create(CHUNK, None, kind).wait().expect("a fresh name");
    fn other<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u32 {
        match result.expect_err("refused").kind {
            ErrorKind::Refused(ErrorReply::OtherChain { chunk: CHUNK, chain }) => chain,
            error => panic!("refused for another reason: {error}"),
        }
    }
    let bytes = pattern(9000, 3);
    for wrong in [0, 1, 3] {
        assert_eq!(other(client.on_chain(wrong).write(CHUNK, 0, &bytes[..]).wait()), 2);
    }
    let named = client.on_chain(2);
    named.write(CHUNK, 0, &bytes[..]).wait().expect("its own");
    let zero = Clear::Zero { offset: 0, byte_len: 100 };
    assert_eq!(other(client.clear(CHUNK, zero).wait()), 2);
    assert_eq!(other(client.on_chain(1).finish(CHUNK, 9000).wait()), 2);
    named.finish(CHUNK, 9000).wait().expect("its own");
    let raised = client.raise_chain(CHUNK, 5).wait().expect("it is higher");
    assert_eq!(client.raise_chain(CHUNK, 5).wait().expect("it is so"), raised);
    assert_eq!(other(client.raise_chain(CHUNK, 4).wait()), 5);
    let refused = named.write(CHUNK, 0, &bytes[..]).wait();
    let text = refused.as_ref().expect_err("it is older").to_string();
    assert!(text.contains("get the newest layout"), "{text}");
    assert_eq!(other(refused), 5);
    let info = client.stat(CHUNK).wait().expect("it is there");
    assert_eq!((info.chain, info.version), (5, raised));
    let beyond = client.raise_chain(CHUNK, CHAIN_MAX + 1).wait();
    let beyond = beyond.expect_err("there is none so high").kind;
    assert_eq!(beyond, ErrorKind::Refused(ErrorReply::BadRequest { why: Why::Chain }));

    // All that a client changes names its chain version, beside that of the chunk.
    let raised = client.raise_chain(CHUNK, 6).wait().expect("it is higher");
    let newest = client.on_chain(6);
    let written = newest.write_if(CHUNK, 0, [1; 10], raised).wait().expect("both are right");
    let cleared = newest.clear_if(CHUNK, zero, written).wait().expect("both are right");
    newest.finish_if(CHUNK, 9000, cleared).wait().expect("both are right");
    newest.put(ChunkId(9), &bytes).expect("a fresh name");
    assert_eq!(client.stat(ChunkId(9)).wait().expect("it is there").chain, 6);
    assert_eq!(client.read(ChunkId(9), 0, 9000).wait().expect("whoever asks"), bytes);
    client.delete(CHUNK).wait().expect("a delete names none");
    drop((named, newest));
    client.close();
    server.stop();
}

#[test]
fn what_is_cleared_reads_as_zeros_and_what_is_asked_for_again_is_done_once() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, Some(1 << 20)).expect("a fresh name");
    let mut expected = pattern(40_000, 2);
    client.write(CHUNK, 0, &expected).expect("it goes");
    let (_, mut version) = client.stat(CHUNK).expect("it is there");
    let none = Terms::default();
    for (at, clear) in [
        Clear::Trim { offset: 4000, byte_len: 10_000 },
        Clear::Zero { offset: 20_000, byte_len: 9_000 },
        Clear::Truncate { byte_len: 30_001 },
        Clear::Truncate { byte_len: 39_999 },
    ]
    .into_iter()
    .enumerate()
    {
        let terms = Terms { version: Some(version), stamp: 70 + at as u64, chain: 0 };
        version = clear_on(&mut client, terms, clear).expect("it is the newest");
        assert_eq!(clear_on(&mut client, terms, clear), Ok(version), "it was done");
    }
    expected[4096..12_288].fill(0);
    expected[20_000..29_000].fill(0);
    expected[30_001..].fill(0);
    expected.truncate(39_999);
    assert_eq!(client.read(CHUNK, 0, 39_999).as_deref(), Ok(&expected[..]));
    assert_eq!(client.stat(CHUNK), Ok((39_999, version)));
    let over = clear_on(&mut client, none, Clear::Truncate { byte_len: (1 << 20) + 1 });
    assert_eq!(refusal(over), ErrorReply::PastLimit { chunk: CHUNK, limit: 1 << 20 });
    let (offset, byte_len) = (0, u64::from(u32::MAX) + 1);
    let long = clear_on(&mut client, none, Clear::Trim { offset, byte_len });
    assert!(matches!(long, Err(ErrorKind::Length { .. })), "{long:?}");
    drop(client);
    server.stop();
}

#[test]
fn a_digest_has_the_checksum_of_each_slice_and_reads_none() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let client = shared(&server);
    client.create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
    let mut expected = pattern(40_000, 3);
    client.write(CHUNK, 0, &expected[..]).wait().expect("it goes");
    client.clear(CHUNK, Clear::Trim { offset: 8_192, byte_len: 8_192 }).wait().expect("it goes");
    expected[8_192..16_384].fill(0);
    // Damage on the disk is none of its business: nothing is read.
    flip_where(&dir.path().join("disk"), &expected[4_096..8_192]);
    let slice = |index: u64| {
        &expected[index as usize * 4_096..][..4_096.min(40_000 - index as usize * 4_096)]
    };
    for (offset, length, slices) in [(0, 1, 0..1), (4_096, 20_000, 1..6), (0, 1 << 25, 0..10)] {
        let digest = client.digest(CHUNK, offset, length).wait().expect("it may be read");
        assert_eq!(digest.version(), client.stat(CHUNK).wait().expect("it is there").version);
        assert_eq!(digest.byte_len(), 40_000);
        let crcs: Vec<(u64, u32)> = digest.crcs().collect();
        let made = |index| (index, slice_crc(CHUNK, index, slice(index)));
        assert_eq!(crcs, slices.clone().map(made).collect::<Vec<_>>());
        let holes: Vec<u64> = (0..20).filter(|index| digest.is_hole(*index)).collect();
        assert_eq!(holes, slices.filter(|index| [2, 3].contains(index)).collect::<Vec<_>>());
    }
    let beyond = client.digest(CHUNK, 40_960, 4_096).wait().expect("nothing is there");
    assert_eq!((beyond.crcs().len(), beyond.byte_len()), (0, 40_000));
    let far = client.digest(CHUNK, u64::MAX - 8_191, 4_096).wait().expect("nothing is there");
    assert_eq!(far.crcs().len(), 0);
    let kind = |result: Result<_, ClientError>| result.map(|_: Digest| ()).expect_err("no").kind;
    assert_eq!(kind(client.digest(CHUNK, 1, 4_096).wait()), ErrorKind::Unaligned);
    let none = ErrorReply::NoSuchChunk { chunk: ChunkId(9) };
    assert_eq!(kind(client.digest(ChunkId(9), 0, 4_096).wait()), ErrorKind::Refused(none));
    let unfinished = NewChunk { unfinished: true, ..NewChunk::default() };
    client.create(ChunkId(6), None, unfinished).wait().expect("a fresh name");
    let refused = ErrorReply::Unfinished { chunk: ChunkId(6) };
    assert_eq!(kind(client.digest(ChunkId(6), 0, 4_096).wait()), ErrorKind::Refused(refused));
    assert_eq!(client.info().wait().expect("it runs").reads, 0);
    client.close();
    server.stop();
}

#[test]
fn a_sketch_is_made_of_slices_that_were_checked() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let client = shared(&server);
    client.create(CHUNK, None, NewChunk::default()).wait().expect("a fresh name");
    let mut expected = pattern(40_000, 4);
    client.write(CHUNK, 0, &expected[..]).wait().expect("it goes");
    client.clear(CHUNK, Clear::Trim { offset: 8_192, byte_len: 8_192 }).wait().expect("it goes");
    expected[8_192..16_384].fill(0);
    let made = |seed, bytes: &[u8]| -> Vec<[u8; 4]> {
        let sketch = Sketch::new(seed);
        bytes.chunks(4_096).map(|slice| sketch.of(slice).expect("a slice")).collect()
    };
    for (seed, offset, length) in [(1, 0, 40_000), (u64::MAX, 4_096, 20_000), (3, 36_864, 1)] {
        let sketches = client.sketch(CHUNK, offset, length, seed).wait().expect("it may be read");
        assert_eq!(sketches.version(), client.stat(CHUNK).wait().expect("it is there").version);
        let bytes = &expected[offset as usize..][..length];
        assert_eq!(sketches.sketches().collect::<Vec<_>>(), made(seed, bytes));
    }
    let kind = |result: Result<_, ClientError>| result.map(|_: Sketches| ()).expect_err("no").kind;
    let over = ErrorReply::PastEnd { chunk: CHUNK, length: 40_000 };
    assert_eq!(kind(client.sketch(CHUNK, 0, 40_001, 1).wait()), ErrorKind::Refused(over));
    assert_eq!(kind(client.sketch(CHUNK, 1, 4_096, 1).wait()), ErrorKind::Unaligned);
    let long = kind(client.sketch(CHUNK, 0, (1 << 20) + 1, 1).wait());
    assert_eq!(long, ErrorKind::Refused(ErrorReply::TooLong { max: 1 << 20 }));
    flip_where(&dir.path().join("disk"), &expected[4_096..8_192]);
    let damaged = ErrorReply::SliceCorrupt { chunk: CHUNK, slice: 1 };
    assert_eq!(kind(client.sketch(CHUNK, 0, 40_000, 1).wait()), ErrorKind::Refused(damaged));
    let sketches = client.sketch(CHUNK, 8_192, 8_192, 9).wait().expect("it may be read");
    assert_eq!(sketches.sketches().collect::<Vec<_>>(), [[0; 4]; 2], "of zeros");
    client.close();
    server.stop();
}

/// A channel of the client's link, for requests that are made by hand.
fn by_hand(client: &mut Client<RoceUdp>) -> RpcClient {
    let endpoint = &mut client.endpoint;
    let link = endpoint.links().next().expect("it is up");
    endpoint.open_channel(link, false).expect("room for a channel");
    let mut rpc = None;
    while rpc.is_none() {
        endpoint.turn(|_, event| {
            if let Event::ChannelOpened { link, channel, .. } = event {
                rpc = Some(RpcClient::new(link, channel));
            }
        });
    }
    rpc.expect("a channel")
}

/// Sends a request by hand; what the server refuses it with.
fn send(
    (client, rpc): (&mut Client<RoceUdp>, &mut RpcClient),
    method: Method,
    body: &[u8],
    data: &[u8],
) -> Option<ErrorReply> {
    let endpoint = &mut client.endpoint;
    let mut out = Outgoing::new(endpoint, body.len(), data.len()).expect("a buffer");
    out.extend(body).expect("room");
    if !data.is_empty() {
        out.set_data(endpoint.copy(data).expect("a buffer"));
    }
    let deadline = endpoint.now() + Nanos::from_secs(60);
    let call = Call { method: method as u16, token: 0, deadline, ask_fate: false };
    rpc.call(endpoint, call, out).expect("room");
    endpoint.flush();
    loop {
        if let Some(done) = rpc.poll() {
            let reply = done.result.expect("a response");
            let error = (reply.header().status != Status::OK)
                .then(|| ErrorReply::parse(reply.body()).expect("an error reply"));
            endpoint.release(reply.into_message());
            return error;
        }
        if !endpoint.turn(|endpoint, event| drop(rpc.on_event(endpoint, event))) {
            endpoint.wait(Nanos::from_millis(1));
        }
    }
}

#[test]
fn a_header_that_was_meant_for_another_link_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&config(dir.path()));
    let mut client = Client::connect(server.addr);
    let (session, epoch) = (ClientSession::new(), 1);
    let op = client.chunks.start_request(&mut client.endpoint, &session.enter());
    assert!(matches!(client.wait(op), Ok(Output::Session)));
    client.create(CHUNK, None).expect("a fresh name");
    let data = pattern(4096, 3);
    client.write(CHUNK, 0, &data).expect("its headers name the session");
    let before = client.stat(CHUNK).expect("it is there");
    let crcs = emit_crcs(&towpath_fastpath::slice::writer_crcs(CHUNK, 0, &data));
    let write = |sender| {
        let header = WriteHeader { chunk: CHUNK, length: 4096, sender, ..WriteHeader::default() };
        [&header.emit()[..], &crcs].concat()
    };
    let read = |sender| ReadHeader { chunk: CHUNK, offset: 0, length: 9, sender }.emit();
    let clear = Clear::Truncate { byte_len: 0 };
    let cut = |sender| ClearHeader { chunk: CHUNK, clear, sender, terms: Terms::default() }.emit();
    let right = Sender { epoch, tenant: 0, class: 0 };
    let mut rpc = by_hand(&mut client);
    let fenced = ErrorReply::Fenced;
    let mixed_up = ErrorReply::BadRequest { why: Why::Sender };
    for (sender, refused) in [
        (Sender { epoch: 0, ..right }, fenced),
        (Sender { epoch: 2, ..right }, fenced),
        (Sender { tenant: 7, ..right }, mixed_up),
        (Sender { class: 2, ..right }, mixed_up),
        (Sender { class: 255, ..right }, mixed_up),
    ] {
        assert_eq!(
            send((&mut client, &mut rpc), Method::Write, &write(sender), &data),
            Some(refused)
        );
        assert_eq!(send((&mut client, &mut rpc), Method::Read, &read(sender), &[]), Some(refused));
        assert_eq!(
            send((&mut client, &mut rpc), Method::Truncate, &cut(sender), &[]),
            Some(refused)
        );
    }
    assert_eq!(client.stat(CHUNK), Ok(before));
    for sender in [right, Sender { class: 1, ..right }] {
        assert_eq!(send((&mut client, &mut rpc), Method::Write, &write(sender), &data), None);
        assert_eq!(send((&mut client, &mut rpc), Method::Read, &read(sender), &[]), None);
    }
    let method = ErrorReply::BadRequest { why: Why::Header };
    assert_eq!(send((&mut client, &mut rpc), Method::Trim, &cut(right), &[]), Some(method));
    assert_eq!(send((&mut client, &mut rpc), Method::Truncate, &cut(right), &[]), None);
    assert_eq!(client.stat(CHUNK).map(|(byte_len, _)| byte_len), Ok(0));
    drop(client);
    server.stop();
}
