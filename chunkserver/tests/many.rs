//! A thousand clients at once, at the server's default settings.

mod common;

use std::collections::HashMap;

use common::{LONG, Process, config, loopback_udp, pattern};
use towpath_chunkserver::daemon::DaemonConfig;
use towpath_chunkserver::store::ChunkId;
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{ChunkClient, Method, NewChunk, Output, StorageRequest};
use towpath_transport::{Endpoint, EndpointConfig, Event, LinkId, Nanos, RoceUdp};

const CLIENTS: usize = 1000;
/// Links of one endpoint, which stand for as many clients: all at the server are alike.
const OF_ENDPOINT: usize = 125;
/// Connections of one endpoint that are set up at a time.
const AT_A_TIME: usize = 4;
const CHUNK_BYTES: usize = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Write,
    Read,
    Done,
}

struct Client {
    chunks: ChunkClient,
    number: usize,
    step: Step,
}

impl Client {
    fn start(&mut self, endpoint: &mut Endpoint<RoceUdp>) {
        let Self { chunks, number, step } = self;
        let chunk = ChunkId(*number as u128);
        let started = match step {
            Step::Create => chunks.start_request(
                endpoint,
                &StorageRequest::Create {
                    chunk,
                    limit_bytes: None,
                    kind: NewChunk::default(),
                    stamp: 0,
                },
            ),
            Step::Write => {
                let bytes = pattern(CHUNK_BYTES, *number as u64);
                chunks.start_write_copy(endpoint, chunk, 0, &bytes)
            }
            Step::Read => chunks.start_read(endpoint, chunk, 0, CHUNK_BYTES),
            Step::Done => return,
        };
        started.expect("room for one operation");
    }

    /// Takes in what has ended and starts what comes next; whether all is done.
    fn go_on(&mut self, endpoint: &mut Endpoint<RoceUdp>) -> bool {
        while let Some(ended) = self.chunks.poll(endpoint) {
            self.step = match ended.result.expect("the server has room") {
                Output::Changed(Method::Create, _) => Step::Write,
                Output::Changed(Method::Write, _) => Step::Read,
                Output::Read(data) => {
                    assert!(data.to_vec() == pattern(CHUNK_BYTES, self.number as u64));
                    data.release(endpoint);
                    Step::Done
                }
                other => panic!("{other:?} was not asked for"),
            };
            self.start(endpoint);
        }
        self.step == Step::Done
    }
}

/// Clients on one endpoint.
struct Host {
    endpoint: Endpoint<RoceUdp>,
    clients: HashMap<LinkId, Client>,
    first: usize,
    /// Connections that were begun.
    begun: usize,
}

impl Host {
    fn new(server: &Process, first: usize) -> Self {
        let config = EndpointConfig::new()
            .app_protocol(PROTOCOL)
            .links_max(OF_ENDPOINT)
            .connect_timeout(LONG);
        let config = config.send_pools(&[(256, 1024), (4096, 256), (32 << 10, 2 * OF_ENDPOINT)]);
        let mut endpoint = Endpoint::udp(loopback_udp(), config).expect("loopback UDP");
        for _ in 0..AT_A_TIME {
            endpoint.connect(server.addr).expect("room for a connection");
        }
        Self { endpoint, clients: HashMap::new(), first, begun: AT_A_TIME }
    }

    fn turn(&mut self, server: &Process) {
        let Self { endpoint, clients, first, begun } = self;
        let busy = endpoint.turn(|endpoint, event| match event {
            Event::Connected { link, .. } => {
                endpoint.open_channel(link, false).expect("a fresh link has room");
                if *begun < OF_ENDPOINT {
                    *begun += 1;
                    endpoint.connect(server.addr).expect("room for a connection");
                }
            }
            Event::ChannelOpened { link, channel, .. } => {
                let chunks = ChunkClient::new(link, channel).timeout(LONG);
                let number = *first + clients.len();
                clients.insert(link, Client { chunks, number, step: Step::Create });
            }
            Event::ConnectFailed { error, .. } => panic!("{error:?}"),
            Event::LinkDown { reason, .. } => panic!("a link is down: {reason:?}"),
            event => {
                let link = match &event {
                    Event::Message(message) => Some(message.link()),
                    Event::Sent { send, .. } => Some(send.link()),
                    _ => None,
                };
                if let Some(client) = link.and_then(|link| clients.get_mut(&link)) {
                    client.chunks.on_event(endpoint, event);
                }
            }
        });
        if !busy {
            endpoint.wait(Nanos::from_micros(100));
        }
    }
}

#[test]
fn a_thousand_clients_connected_at_once_each_put_and_get() {
    let dir = tempfile::tempdir().expect("room for a directory");
    let small = config(&dir.path().join("store"));
    let server = Process::start(&small.with(|config| {
        config.network.links_max = DaemonConfig::default().network.links_max;
        config.store.capacity_bytes = 1 << 30;
        config.store.log_bytes = 16 << 20;
    }));
    let firsts = (0..CLIENTS).step_by(OF_ENDPOINT);
    let mut hosts: Vec<_> = firsts.map(|first| Host::new(&server, first)).collect();
    let connected = |hosts: &[Host]| hosts.iter().map(|host| host.clients.len()).sum::<usize>();
    while connected(&hosts) < CLIENTS {
        hosts.iter_mut().for_each(|host| host.turn(&server));
    }
    println!("{CLIENTS} clients are connected: {} KiB at the server", server.rss_kib());
    for Host { endpoint, clients, .. } in &mut hosts {
        clients.values_mut().for_each(|client| client.start(endpoint));
    }
    let mut done = 0;
    while done < CLIENTS {
        done = 0;
        for host in &mut hosts {
            host.turn(&server);
            let Host { endpoint, clients, .. } = host;
            done += clients.values_mut().filter_map(|c| c.go_on(endpoint).then_some(())).count();
        }
    }
    println!("all have put and got: {} KiB at the server", server.rss_kib());
}
