//! A server with hardly any buffers for reads, and one whose store's thread ends.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc;

use common::gate::{Gate, Position, gated_store};
use common::{Client, LONG, Running, config, loopback_udp, pattern};
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_chunkserver::service::{ChunkServer, ServiceConfig};
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{ErrorKind, Output};
use towpath_rpc::Fate;
use towpath_transport::{Endpoint, EndpointConfig, RoceUdp};

const CHUNK: ChunkId = ChunkId(3);

fn one_buffer_of_each(dir: &Path) -> DaemonConfig {
    config(dir).with(|config| {
        config.network.read_buffers_small = 1;
        config.network.read_buffers_large = 1;
    })
}

/// Starts so many reads at once; each has to give what was written.
fn reads_at_once(client: &mut Client<RoceUdp>, count: u64, byte_len: usize) {
    for index in 0..count {
        let offset = index * byte_len as u64;
        client.write(CHUNK, offset, &pattern(byte_len, index)).expect("there is room");
    }
    let mut under_way = Vec::new();
    for index in 0..count {
        let offset = index * byte_len as u64;
        let op = client.chunks.start_read(&mut client.endpoint, CHUNK, offset, byte_len);
        under_way.push((op.expect("room for a few"), index));
    }
    while client.chunks.under_way() > 0 {
        let Some((op, result)) = client.turn() else { continue };
        let place = under_way.iter().position(|(started, _)| *started == op).expect("a read");
        let (_, index) = under_way.swap_remove(place);
        match result {
            Ok(Output::Read(data)) => assert!(data.to_vec() == pattern(byte_len, index)),
            other => panic!("read {index} gave {other:?}"),
        }
    }
}

#[test]
fn concurrent_reads_are_all_answered_with_one_buffer_of_each_size() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let server = Running::start(&one_buffer_of_each(dir.path()));
    let mut client = Client::connect(server.addr);
    client.create(CHUNK, None).expect("a fresh name");
    reads_at_once(&mut client, 3, 8192);
    drop(client);
    assert_eq!(server.stop().stats.rpc.responses_dropped, 0);
}

/// A server that ends itself when its store does; says whether the drain went well.
fn serve_until_the_store_ends(
    dir: &Path,
    gate: &Gate,
    endpoint_config: EndpointConfig,
) -> (SocketAddr, std::thread::JoinHandle<bool>, mpsc::Sender<()>) {
    let store = gated_store(dir, gate, 8);
    let (tell, told) = mpsc::channel();
    let (stop, stopped) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut endpoint = Endpoint::udp(loopback_udp(), endpoint_config).expect("loopback UDP");
        let addr = endpoint.listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let mut server = ChunkServer::new(endpoint, store, &ServiceConfig::new());
        tell.send(addr).expect("the test waits");
        while server.store_is_running() && stopped.try_recv().is_err() {
            server.turn_or_wait();
        }
        server.drain(LONG)
    });
    (told.recv().expect("it starts"), thread, stop)
}

#[test]
fn reads_leave_a_buffer_for_their_answers_where_all_share_two() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let pools = EndpointConfig::new().app_protocol(PROTOCOL).send_pools(&[(64 << 10, 2)]);
    let (addr, thread, stop) = serve_until_the_store_ends(dir.path(), &Gate::new(), pools);
    let mut client = Client::connect(addr);
    client.create(CHUNK, None).expect("a fresh name");
    for byte_len in [8192, 100] {
        reads_at_once(&mut client, 6, byte_len);
    }
    stop.send(()).expect("it serves");
    assert!(thread.join().expect("it ends"), "all is answered");
}

#[test]
fn when_the_stores_thread_ends_what_it_had_is_given_up_without_an_answer() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let gate = Gate::new();
    let (addr, thread, _stop) =
        serve_until_the_store_ends(dir.path(), &gate, EndpointConfig::new().app_protocol(PROTOCOL));
    let mut client = Client::connect(addr);
    client.create(CHUNK, None).expect("a fresh name");
    gate.set(Position::Deadly);
    match client.write(CHUNK, 0, &[1; 9000]) {
        Err(ErrorKind::PeerGone { fate: Fate::Unknown }) => {}
        other => panic!("nobody knows, but the answer was {other:?}"),
    }
    assert!(thread.join().expect("the network's thread is whole"), "nothing is left under way");
}
