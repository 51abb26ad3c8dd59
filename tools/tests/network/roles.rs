//! What this program is when the suite starts it in a namespace.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use towpath_base::Prng;
use towpath_chunkserver::daemon;
use towpath_fastpath::{ChunkId, Client, ClientConfig};
use towpath_kv::client as kv;
use towpath_spread::{PutOptions, Servers};
use towpath_transport::{CarrierChoice, EndpointConfig, Nanos};

/// Where the chunk server listens, in a.
pub(crate) const CHUNK_SERVER: &str = "10.0.0.1:7400";

/// Where three of them listen, in a.
pub(crate) const CHUNK_SERVERS: [&str; 3] = [CHUNK_SERVER, "10.0.0.1:7410", "10.0.0.1:7420"];

/// Bytes of a file of the roles `library_client` and `library_servers`.
const FILE_BYTES: usize = 8 << 20;

/// Where the TCP server listens, in a.
pub(crate) const TCP_SERVER: &str = "10.0.0.1:7401";

/// Where the key-value store listens for links, in a.
pub(crate) const KV_SERVER: &str = "10.0.0.1:7501";

/// Bytes of a value of the role `kv_client`.
const VALUE_BYTES: usize = 64 << 10;

/// What goes over TCP in each direction.
const TCP_BYTES: usize = 2 << 20;

/// Datagrams of the role `datagrams`, small and large.
pub(crate) const DATAGRAMS: u64 = 40;

const SEED: u64 = 7;

fn words(variable: &str) -> Option<Vec<String>> {
    let text = std::env::var(variable).ok()?;
    Some(text.split(' ').map(str::to_owned).collect())
}

/// The chunk server, whole, with the flags of `NETWORK_SERVER_FLAGS`, at `NETWORK_LISTEN` or at its
/// usual place.
#[test]
#[ignore = "the suite starts it"]
fn chunk_server() {
    let Some(flags) = words("NETWORK_SERVER_FLAGS") else { return };
    let listen = std::env::var("NETWORK_LISTEN").unwrap_or_else(|_| CHUNK_SERVER.into());
    let args = ["towpath-chunkserver", "--listen", &listen, "--log", "error"];
    let args = args.into_iter().map(str::to_owned).chain(flags);
    daemon::main(args.map(Into::into)).expect("a clean stop");
}

fn content() -> Vec<u8> {
    let mut bytes = vec![0; TCP_BYTES];
    Prng::new(SEED).fill(&mut bytes);
    bytes
}

/// Sends back over kernel TCP what it receives.
#[test]
#[ignore = "the suite starts it"]
fn tcp_server() {
    let Ok(listener) = TcpListener::bind(TCP_SERVER) else { return };
    let (mut stream, _) = listener.accept().expect("a client");
    let mut bytes = vec![0; TCP_BYTES];
    stream.read_exact(&mut bytes).expect("all of it");
    stream.write_all(&bytes).expect("all of it");
    // Until the client has it.
    let _ = stream.read(&mut bytes);
}

/// Sends bytes over kernel TCP and has them back.
#[test]
#[ignore = "the suite starts it"]
fn tcp_client() {
    let Ok(mut stream) = TcpStream::connect(TCP_SERVER) else { return };
    let sent = content();
    stream.write_all(&sent).expect("all of it");
    let mut bytes = vec![0; TCP_BYTES];
    stream.read_exact(&mut bytes).expect("all of it");
    assert!(bytes == sent, "seed {SEED}: TCP gave other bytes");
    println!("equal");
}

/// Sends datagrams of 1,000 and of 8,000 bytes to a, where nobody wants them.
#[test]
#[ignore = "the suite starts it"]
fn datagrams() {
    let Ok(socket) = UdpSocket::bind("10.0.0.2:0") else { return };
    for _ in 0..DATAGRAMS {
        for bytes in [1_000, 8_000] {
            // Answers that nobody is there are errors of the next send.
            while socket.send_to(&vec![0; bytes], "10.0.0.1:9").is_err() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
    std::thread::sleep(Duration::from_millis(200));
}

/// The key-value store, whole.
#[test]
#[ignore = "the suite starts it"]
fn kv_server() {
    let Some(flags) = words("NETWORK_SERVER_FLAGS") else { return };
    let args = ["towpath-kv", "--resp", "10.0.0.1:7500", "--links", KV_SERVER];
    let args = args.into_iter().map(str::to_owned).chain(flags);
    towpath_kv::daemon::main(args.map(Into::into));
}

/// Stores values over a link, has them back, and counts, as often as `NETWORK_ROUNDS` says.
#[test]
#[ignore = "the suite starts it"]
fn kv_client() {
    let Some(rounds) = words("NETWORK_ROUNDS") else { return };
    let rounds: i64 = rounds[0].parse().expect("a number");
    let addr: SocketAddr = KV_SERVER.parse().expect("an address");
    let (soon, carrier) = (Duration::from_secs(20), CarrierChoice::Uc);
    let from = [10, 0, 0, 2].into();
    let channel = kv::ChannelTransport::connect(from, addr, carrier, kv::Waiting::Blocking, soon);
    let mut client = kv::Client::new(channel.expect("it listens"), kv::ClientConfig::for_losses());
    let (mut prng, mut value) = (Prng::new(SEED), vec![0; VALUE_BYTES]);
    let (mut last, mut quiet) = (Instant::now(), Duration::ZERO);
    for round in 1..=rounds {
        prng.fill(&mut value);
        client.set(b"value", &value).expect("an answer");
        let got = client.get(b"value").expect("an answer");
        assert!(got.as_ref() == Some(&value), "seed {SEED}: other bytes in round {round}");
        assert_eq!(client.incr(b"rounds", 1).expect("an answer"), round, "once each");
        quiet = quiet.max(last.elapsed());
        last = Instant::now();
    }
    let repeated = client.stats().repeated;
    for ride in client.transport().rides().after(0) {
        println!("the link {ride}");
    }
    println!("equal; the longest round took {} ms, {repeated} repeated", quiet.as_millis());
}

/// Settings of a client that takes a silent server for gone soon, and waits for it.
fn quick_to_notice() -> ClientConfig {
    let endpoint = EndpointConfig::new()
        .links_max(4)
        .send_pools(&[(384, 256), (4 << 10, 256), (256 << 10, 64)])
        .tune_links(|link| link.peer_timeout(Nanos::from_secs(1)));
    ClientConfig::new().endpoint(endpoint).timeout(Nanos::from_secs(2)).on_ride(|server, ride| {
        println!("the link to {server} {ride}");
    })
}

fn file() -> Vec<u8> {
    let mut bytes = vec![0; FILE_BYTES];
    Prng::new(SEED).fill(&mut bytes);
    bytes
}

/// Stores bytes with the shared client of the library, and has them back.
#[test]
#[ignore = "the suite starts it"]
fn library_client() {
    if words("NETWORK_ROUNDS").is_none() {
        return;
    }
    let addr = CHUNK_SERVER.parse().expect("an address");
    let client = Client::connect(addr, quick_to_notice()).expect("it listens");
    let (bytes, chunk) = (file(), ChunkId(1));
    client.put(chunk, &bytes).expect("the server is back");
    const AT_A_TIME: usize = 128 << 10;
    let mut read = Vec::new();
    for offset in (0..bytes.len()).step_by(AT_A_TIME) {
        let part = client.read(chunk, offset as u64, AT_A_TIME.min(bytes.len() - offset));
        read.extend(part.wait().expect("the server is back"));
    }
    assert!(read == bytes, "seed {SEED}: other bytes");
    println!("equal; {:?}", client.stats());
    client.close();
}

/// Stores a file on three servers with the library, and has it back.
#[test]
#[ignore = "the suite starts it"]
fn library_servers() {
    if words("NETWORK_ROUNDS").is_none() {
        return;
    }
    let servers = Servers::new(quick_to_notice()).on_notice(|notice| println!("{notice}"));
    let places = CHUNK_SERVERS.map(|place| place.parse().expect("an address"));
    let options = PutOptions::new("rs:2+1".parse().expect("a policy")).least(3);
    let bytes = file();
    let layout = servers.put(&places, &options, &mut &bytes[..], |_| {});
    let (layout, mut read) = (layout.expect("the servers are back"), Vec::new());
    servers.get(&layout, &mut read, |_| {}).expect("the servers are back");
    assert!(read == bytes, "seed {SEED}: other bytes");
    println!("equal");
}
