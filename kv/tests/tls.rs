//! RESP over TLS: what a client is served, and what those that are half through can take.

mod common;

use common::process::Process;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use towpath_kv::limits::HANDSHAKES_MAX;
use towpath_secure::limits::FRONT_SHARES;

const CERTIFICATE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../transport/secure/tests/front/server.pem");
const KEY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../transport/secure/tests/front/server.key");
const OTHER_KEY: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../transport/secure/tests/front/other.key");

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const FLAGS: [&str; 7] =
    ["--resp", "127.0.0.1:0", "--tls", "--tls-cert", CERTIFICATE, "--tls-key", KEY];

type Client = StreamOwned<ClientConnection, TcpStream>;

/// A connection from that address of this host.
fn stream_from(source: [u8; 4], to: &str) -> TcpStream {
    let made = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&made, &SocketAddr::from((Ipv4Addr::from(source), 0))).expect("a loopback address");
    connect(&made, &to.parse::<SocketAddr>().expect("an address")).expect("it listens");
    let stream = TcpStream::from(made);
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

fn client_from(source: [u8; 4], to: &str) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(CERTIFICATE).expect("PEM")).expect("a certificate");
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("a version that there is")
            .with_root_certificates(roots)
            .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = ClientConnection::new(Arc::new(config), name).expect("a client");
    StreamOwned::new(tls, stream_from(source, to))
}

fn client(to: &str) -> Client {
    client_from([127, 0, 0, 1], to)
}

/// What is answered to these commands, until the server ends the connection in order.
fn ask(client: &mut Client, commands: &[u8]) -> String {
    client.write_all(commands).expect("it reads");
    client.write_all(b"QUIT\r\n").expect("it reads");
    let mut replies = String::new();
    client.read_to_string(&mut replies).expect("text, and an end in order");
    replies.strip_suffix("+OK\r\n").expect("a farewell").to_owned()
}

/// Asks until the count of handshakes that failed is so high.
fn wait_for_failed(to: &str, count: u64) {
    let began = Instant::now();
    loop {
        let info = ask(&mut client_from([127, 0, 0, 9], to), b"INFO\r\n");
        let found = info.lines().find_map(|line| line.strip_prefix("tls_handshakes_failed:"));
        if found.and_then(|found| found.parse().ok()).is_some_and(|found: u64| found >= count) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{info}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn commands_and_long_values_are_served_over_tls_by_each_way_to_have_threads() {
    for more in [&["--workers", "2"][..], &["--worker-per-client"]] {
        let process = Process::start(&[&FLAGS[..], more].concat());
        assert_eq!(process.ready["tls"], true);
        let to = process.address("resp");
        let mut clients: Vec<_> = (0..4).map(|_| client(&to)).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let value = vec![b'a' + number as u8; 1 << 20];
            let mut set = format!("*3\r\n$3\r\nSET\r\n$1\r\n{number}\r\n${}\r\n", value.len());
            set.push_str(std::str::from_utf8(&value).expect("letters"));
            set.push_str("\r\n");
            client.write_all(set.as_bytes()).expect("it reads");
            let mut done = [0; 5];
            client.read_exact(&mut done).expect("an answer");
            assert_eq!(&done, b"+OK\r\n");
        }
        for (number, client) in clients.iter_mut().enumerate() {
            // Three of them wait behind each other, while the socket is full.
            let get = format!("GET {}\r\n", (number + 1) % 4);
            let found = ask(client, get.repeat(3).as_bytes());
            let letter = char::from(b'a' + ((number + 1) % 4) as u8);
            let one = format!("$1048576\r\n{}\r\n", String::from(letter).repeat(1 << 20));
            assert!(found == one.repeat(3), "{} bytes of {number}", found.len());
        }
        let (code, end) = process.stop();
        assert_eq!((code, &end["tls_failed"]), (Some(0), &0.into()), "{end}");
    }
}

#[test]
fn what_is_no_tls_ends_and_is_counted_and_a_handshake_that_goes_on_too_long_does_as_well() {
    let process = Process::start(&FLAGS);
    let to = process.address("resp");
    let mut plain = stream_from([127, 0, 0, 1], &to);
    plain.write_all(b"PING\r\nSET k v\r\n").expect("it is taken");
    let mut heard = Vec::new();
    // An alert, and the end; or a reset, where it had not read all.
    let _ = plain.read_to_end(&mut heard);
    assert!(!heard.starts_with(b"+PONG"), "{heard:?}");
    wait_for_failed(&to, 1);
    // One that leaves at once, and one that says nothing more: it has five seconds.
    drop(stream_from([127, 0, 0, 1], &to));
    let mut silent = stream_from([127, 0, 0, 1], &to);
    silent.write_all(&[22, 3, 1, 2, 0]).expect("it is taken");
    wait_for_failed(&to, 3);
    assert!(matches!(silent.read(&mut [0; 64]), Ok(0) | Err(_)));
    assert_eq!(ask(&mut client(&to), b"GET k\r\n"), "$-1\r\n", "nothing was carried out");
    process.stop();
}

#[test]
fn who_only_begins_handshakes_leaves_room_for_others() {
    let process = Process::start(&FLAGS);
    let to = process.address("resp");
    let share = HANDSHAKES_MAX.div_ceil(FRONT_SHARES);
    let mut silent: Vec<_> = (0..2 * share).map(|_| stream_from([127, 0, 0, 1], &to)).collect();
    // Whoever comes from elsewhere is served, and tells that half of these were turned away. They
    // may have been served late, so that others had been closed by then.
    let info = ask(&mut client_from([127, 0, 0, 2], &to), b"INFO\r\n");
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.parse::<usize>().ok()).expect("a count")
    };
    let (away, failed) = (field("rejected_connections:"), field("tls_handshakes_failed:"));
    assert!(away + failed >= share, "{info}");
    assert!(field("connected_clients:") <= share + 1, "{info}");
    silent.clear();
    // Their places come back.
    wait_for_failed(&to, 1);
    assert_eq!(ask(&mut client_from([127, 0, 0, 3], &to), b"PING\r\n"), "+PONG\r\n");
    process.stop();
}

#[test]
fn files_that_do_not_serve_are_named_with_what_helps() {
    let run = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath-kv"));
        let output = command.args(["--resp", "127.0.0.1:0"]).args(flags).output().expect("built");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (flags, words) in [
        (&["--tls", "--tls-cert", CERTIFICATE, "--tls-key", OTHER_KEY][..], "the key is not that"),
        (&["--tls", "--tls-cert", KEY, "--tls-key", KEY], "server.key: there is no `CERTIFICATE`"),
        (&["--tls", "--tls-cert", "/gone.pem", "--tls-key", KEY], "/gone.pem: it cannot be read"),
        (&["--tls"], "--tls-cert"),
        (&["--tls-cert", CERTIFICATE, "--tls-key", KEY], "--tls"),
    ] {
        let (code, said) = run(flags);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
