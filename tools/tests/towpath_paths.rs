//! Black holes between a storage client and its server, on real sockets.

mod towpath_common;

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use towpath_chunkserver::daemon::{self, DaemonConfig, DaemonError, Served, StopFlag};
use towpath_common::{Daemon, fails, json, pattern, towpath};
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_fastpath::wire::PROTOCOL;
use towpath_fastpath::{ChunkClient, ChunkId, ClientError, NewChunk, OpId, Output, StorageRequest};
use towpath_sim::{FaultControl, FaultLink, FaultPlan};
use towpath_transport::{Endpoint, EndpointConfig, Event, LinkStats, Nanos, PATHS_MAX, UdpConfig};

const NAME: &str = "000102030405060708090a0b0c0d0e0f";
const WRITE_BYTES: usize = 64 << 10;
const WRITES: u64 = 60;
/// Of each end.
const PORTS: u16 = 2 * PATHS_MAX as u16;

type FaultyNic = RoceDevice<FaultLink<UdpLink>>;

fn nic(udp: UdpConfig, seed: u64, faults: &FaultControl) -> FaultyNic {
    let link = UdpLink::bind(udp.source_ports(PORTS)).expect("loopback UDP");
    RoceDevice::new(FaultLink::new(link, seed, faults.clone()), RoceConfig::default().seed(seed))
}

/// Everything that is sent from these ports goes nowhere.
fn hole(ports: Range<u16>) -> FaultPlan {
    FaultPlan::none().black_hole_ports(ports)
}

/// A chunk server whose sends meet `faults`.
struct Faulty {
    addr: SocketAddr,
    stop: StopFlag,
    thread: JoinHandle<Result<Served, DaemonError>>,
}

impl Faulty {
    fn start(dir: &Path, faults: &FaultControl) -> Self {
        let config = DaemonConfig::default().with(|config| {
            config.network.listen = (Ipv4Addr::LOCALHOST, 0).into();
            config.store.data_dir = dir.into();
            config.store.log_bytes = 4 << 20;
            config.store.capacity_bytes = 1 << 30;
            config.network.workers = Some(1);
            config.network.paths_max = PATHS_MAX as u32;
            config.service.slow_after_ms = 60_000;
        });
        let (stop, faults) = (StopFlag::new(), faults.clone());
        let (tell, told) = channel();
        let thread = std::thread::spawn({
            let stop = stop.clone();
            let devices =
                move |config: &_, _: &_| Ok(vec![nic(daemon::udp_config(config), 2, &faults)]);
            move || {
                daemon::run(&config, &stop, devices, |ready| {
                    tell.send(ready.listening).expect("somebody waits for it");
                    Ok(())
                })
            }
        });
        Self { addr: told.recv().expect("it starts"), stop, thread }
    }

    fn stop(self) {
        self.stop.stop();
        self.thread.join().expect("no panic").expect("a clean stop");
    }
}

/// A client whose link is looked at while it is up.
struct Client {
    endpoint: Endpoint<FaultyNic>,
    chunks: ChunkClient,
}

impl Client {
    fn connect(mut endpoint: Endpoint<FaultyNic>, addr: SocketAddr) -> Self {
        endpoint.connect(addr).expect("room for a connection");
        let mut found = None;
        while found.is_none() {
            let busy = endpoint.turn(|endpoint, event| match event {
                Event::Connected { link, .. } => {
                    endpoint.open_channel(link, false).expect("a fresh link has room");
                }
                Event::ChannelOpened { link, channel, .. } => found = Some((link, channel)),
                Event::ConnectFailed { error, .. } => panic!("{error}"),
                _ => {}
            });
            if !busy {
                endpoint.wait(Nanos::from_millis(1));
            }
        }
        let (link, channel) = found.expect("it is open");
        let chunks = ChunkClient::new(link, channel).timeout(Nanos::from_secs(60));
        Self { endpoint, chunks }
    }

    fn wait(&mut self, op: Result<OpId, ClientError>) -> Result<Output, ClientError> {
        let op = op?;
        let Self { endpoint, chunks } = self;
        endpoint.flush();
        loop {
            let busy = endpoint.turn(|endpoint, event| drop(chunks.on_event(endpoint, event)));
            chunks.expire(endpoint);
            if let Some(done) = chunks.poll(endpoint) {
                assert_eq!(done.op, op, "one at a time");
                return done.result;
            }
            if !busy {
                endpoint.wait(Nanos::from_millis(1));
            }
        }
    }

    fn link_stats(&self) -> Option<LinkStats> {
        self.endpoint.stats(self.chunks.rpc().link())
    }
}

#[test]
fn reads_and_writes_go_on_through_black_holes_of_either_way() {
    // What is swallowed of what the client sends, and of what the server does. Whoever is at no
    // port of one half is at one of the other, so each end loses something however it draws.
    let (none, low, high) = (0..0, 0..PORTS / 2, PORTS / 2..PORTS);
    let rounds = [
        (&none, &none),
        (&low, &none),
        (&high, &none),
        (&none, &low),
        (&none, &high),
        (&low, &high),
        (&none, &none),
    ];
    for paths in [1, 4, PATHS_MAX] {
        let dir = tempfile::tempdir().expect("room");
        let (to_server, to_client) =
            (FaultControl::new(FaultPlan::none()), FaultControl::new(FaultPlan::none()));
        let server = Faulty::start(&dir.path().join("store"), &to_client);
        let device = nic(UdpConfig::new(Ipv4Addr::LOCALHOST.into()), 1, &to_server);
        let of_endpoint = EndpointConfig::new().app_protocol(PROTOCOL).links_max(1).paths(paths);
        let endpoint = Endpoint::new(device, of_endpoint).expect("an endpoint");
        let mut client = Client::connect(endpoint, server.addr);
        let chunk = ChunkId(7);
        let op = client.chunks.start_request(
            &mut client.endpoint,
            &StorageRequest::Create {
                chunk,
                limit_bytes: None,
                kind: NewChunk::default(),
                stamp: 0,
            },
        );
        client.wait(op).expect("a fresh name");
        for (round, (of_client, of_server)) in rounds.into_iter().enumerate() {
            to_server.set_transmit(hole(of_client.clone()));
            to_client.set_transmit(hole(of_server.clone()));
            for index in 0..WRITES {
                let seed = round as u64 * WRITES + index;
                let (offset, data) = (index * WRITE_BYTES as u64, pattern(WRITE_BYTES, seed));
                let Client { endpoint, chunks } = &mut client;
                let op = chunks.start_write_copy(endpoint, chunk, offset, &data);
                client.wait(op).expect("there is another way");
                let Client { endpoint, chunks } = &mut client;
                let op = chunks.start_read(endpoint, chunk, offset, WRITE_BYTES);
                let read = client.wait(op).expect("there is another way");
                let Output::Read(read) = read else { panic!("a read gave {read:?}") };
                assert!(read.to_vec() == data, "{paths} paths");
                read.release(&mut client.endpoint);
            }
        }
        let stats = client.link_stats().expect("it is up");
        assert!(stats.reroutes() + stats.path_moves > 0, "{paths} paths: {stats:?}");
        for (end, faults) in [("client", &to_server), ("server", &to_client)] {
            assert!(faults.counters().lost() > 0, "{paths} paths: the {end} lost nothing");
        }
        drop(client);
        server.stop();
    }
}

#[test]
fn the_commands_take_paths_and_black_holes() {
    let dir = tempfile::tempdir().expect("room");
    let daemon = Daemon::start(&dir.path().join("store"));
    let server = daemon.addr.to_string();
    let bytes = pattern(8 << 20, 5);
    std::fs::write(dir.path().join("in"), &bytes).expect("written");
    let run = |args: &[&str]| {
        let mut command = towpath(args.iter().copied());
        command.current_dir(dir.path()).env("TOWPATH_SERVER", &server);
        command
    };
    for (paths, holes) in [("1", "0"), ("4", "0,1,2")] {
        let faulty = ["--paths", paths, "--black-hole", holes, "--json"];
        let put = json(run(&["put", "in", "--chunk", NAME]).args(faulty));
        let ways_left = |report: &serde_json::Value| {
            let count = |field: &str| report[field].as_u64().expect("a count");
            count("reroutes") + count("port_changes")
        };
        assert!(ways_left(&put) > 0, "{put}");
        json(run(&["get", NAME, "out", "--force"]).args(faulty));
        assert!(std::fs::read(dir.path().join("out")).expect("there") == bytes);
        json(&mut run(&["rm", NAME, "--json"]));
    }
    fails(&mut run(&["ls", "--paths", "5"]), 3, &["4 paths"]);
    fails(&mut run(&["ls", "--black-hole-after", "1"]), 2, &["--black-hole"]);
    fails(&mut run(&["ls", "-d", "mlx5_0", "--black-hole", "0"]), 2, &["mlx5_0", "--black-hole"]);
    daemon.stop();
}
