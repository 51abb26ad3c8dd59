//! TLS of listeners that anybody may connect to, with a client of rustls.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use towpath_secure::front::{Front, FrontFault, FrontSession};
use towpath_secure::limits::{FRONT_FILE_BYTES_MAX, FRONT_SHARES};

const CHAIN: &[u8] = include_bytes!("front/server.pem");
const KEY: &[u8] = include_bytes!("front/server.key");
const RSA_CHAIN: &[u8] = include_bytes!("front/rsa.pem");
const RSA_KEY: &[u8] = include_bytes!("front/rsa.key");
const OTHER_KEY: &[u8] = include_bytes!("front/other.key");

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

type Client = StreamOwned<ClientConnection, TcpStream>;

fn client(socket: TcpStream, root: &[u8]) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root).expect("PEM")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version that there is")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a client"), socket)
}

/// Two ends of a connection; the first does not block.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let there = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (here, _) = listener.accept().expect("it is there");
    here.set_nonblocking(true).expect("a socket");
    (here, there)
}

/// Reads until something comes, and sends what is to go.
fn read(session: &mut FrontSession, mut socket: &TcpStream, out: &mut [u8]) -> io::Result<usize> {
    loop {
        let came = session.read(&mut socket, out);
        session.flush(&mut socket)?;
        match came {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            came => return came,
        }
    }
}

/// Sends back what comes until the client ends; returns how much that was.
fn echo(front: &Front, socket: &TcpStream) -> io::Result<usize> {
    let (mut session, mut to) = (front.accept()?, socket);
    let (mut bytes, mut total) = (vec![0; 64 << 10], 0);
    loop {
        let count = read(&mut session, socket, &mut bytes)?;
        if count == 0 {
            session.close();
            session.flush(&mut to)?;
            return Ok(total);
        }
        assert!(!session.is_handshaking());
        total += count;
        let mut sent = 0;
        while sent < count || session.wants_write() {
            sent += session.write(&mut to, &bytes[sent..count])?;
        }
    }
}

#[test]
fn bytes_of_any_number_go_there_and_back_by_either_kind_of_key() {
    for (chain, key) in [(CHAIN, KEY), (RSA_CHAIN, RSA_KEY)] {
        let front = Front::from_pem(chain, key, 8).expect("a certificate and its key");
        let (here, there) = sockets();
        let server = std::thread::spawn(move || echo(&front, &here));
        let mut client = client(there, chain);
        let sizes = [1, 4096, 16_384, 16_385, 300_000];
        for size in sizes {
            let sent: Vec<u8> = (0..size).map(|at| (at * 7 + size) as u8).collect();
            // No more at a time than the sockets hold: nobody reads here while it writes.
            for part in sent.chunks(32 << 10) {
                client.write_all(part).expect("it is read");
                let mut back = vec![0; part.len()];
                client.read_exact(&mut back).expect("all of it comes back");
                assert!(back == part, "{size} bytes were changed");
            }
        }
        client.conn.send_close_notify();
        client.flush().expect("it is there");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("it ends in order");
        assert!(rest.is_empty());
        assert_eq!(server.join().expect("it ends").expect("in order"), sizes.iter().sum());
    }
}

#[test]
fn what_is_no_tls_is_refused_and_a_client_that_knows_another_certificate_refuses() {
    let front = Front::from_pem(CHAIN, KEY, 8).expect("a certificate and its key");
    let (here, mut there) = sockets();
    there.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it is taken");
    let error = echo(&front, &here).expect_err("that is no TLS");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let (here, there) = sockets();
    let server = std::thread::spawn(move || echo(&front, &here));
    let mut stranger = client(there, RSA_CHAIN);
    let refused = stranger.write_all(b"secret").and_then(|()| stranger.flush());
    assert_eq!(refused.map_err(|error| error.kind()), Err(io::ErrorKind::InvalidData));
    drop(stranger);
    assert!(server.join().expect("it ends").is_err());
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_handshake_is_gone() {
    let front = Front::from_pem(CHAIN, KEY, 8).expect("a certificate and its key");
    let (here, mut there) = sockets();
    // The beginning of a record of a handshake.
    there.write_all(&[22, 3, 1, 2, 0, 1, 0]).expect("it is taken");
    drop(there);
    assert_eq!(echo(&front, &here).expect("no error of its own"), 0);
}

#[test]
fn one_address_leaves_room_for_the_handshakes_of_others() {
    let most = 4 * FRONT_SHARES;
    let front = Front::from_pem(CHAIN, KEY, most).expect("a certificate and its key");
    let mut own: Vec<_> = std::iter::from_fn(|| front.place(LOCALHOST)).collect();
    assert_eq!(own.len(), 4, "an eighth");
    let mapped = IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    assert!(front.place(mapped).is_none(), "the same address");
    own.pop();
    assert!(front.clone().place(mapped).is_some(), "a place that was given back");
    let others = (0..1000u128).map(|number| IpAddr::V6(Ipv6Addr::from(number << 64 | 1)));
    let all: Vec<_> = others.filter_map(|source| front.place(source)).collect();
    assert_eq!(own.len() + all.len(), most, "and no more in all");
}

#[test]
fn each_fault_of_the_files_is_told_with_the_file_and_what_helps() {
    let fault = |chain, key| Front::from_pem(chain, key, 1).expect_err("it cannot serve");
    assert_eq!(fault(KEY, KEY), FrontFault::Chain);
    assert_eq!(fault(b"", KEY), FrontFault::Chain);
    assert_eq!(fault(CHAIN, CHAIN), FrontFault::Key);
    for other in [OTHER_KEY, RSA_KEY] {
        assert!(matches!(fault(CHAIN, other), FrontFault::Pair(_)));
    }
    let dir = tempfile::tempdir().expect("room for a folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("room for a file");
        path
    };
    let (chain, key) = (file("chain.pem", CHAIN), file("key.pem", KEY));
    assert!(Front::from_files(&chain, &key, 1).is_ok());
    let said = |chain: &Path, key: &Path| {
        Front::from_files(chain, key, 1).expect_err("it cannot serve").to_string()
    };
    let gone = dir.path().join("gone.pem");
    assert!(said(&gone, &key).contains("gone.pem: it cannot be read"));
    assert!(said(&chain, &gone).contains("must be allowed to"));
    let long = file("long.pem", &vec![b' '; FRONT_FILE_BYTES_MAX + 1]);
    assert!(said(&chain, &long).contains("long.pem: it has more than"));
    let other = file("other.pem", OTHER_KEY);
    assert!(said(&chain, &other).contains("other.pem: the key is not that of the first"));
}
