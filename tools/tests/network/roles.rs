//! What this program is when the suite starts it in a namespace.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use towpath_base::Prng;
use towpath_chunkserver::daemon;

/// Where the chunk server listens, in a.
pub(crate) const CHUNK_SERVER: &str = "10.0.0.1:7400";

/// Where the TCP server listens, in a.
pub(crate) const TCP_SERVER: &str = "10.0.0.1:7401";

/// What goes over TCP in each direction.
const TCP_BYTES: usize = 2 << 20;

/// Datagrams of the role `datagrams`, small and large.
pub(crate) const DATAGRAMS: u64 = 40;

const SEED: u64 = 7;

fn words(variable: &str) -> Option<Vec<String>> {
    let text = std::env::var(variable).ok()?;
    Some(text.split(' ').map(str::to_owned).collect())
}

/// The chunk server, whole, with the flags of `NETWORK_SERVER_FLAGS`.
#[test]
#[ignore = "the suite starts it"]
fn chunk_server() {
    let Some(flags) = words("NETWORK_SERVER_FLAGS") else { return };
    let args = ["towpath-chunkserver", "--listen", CHUNK_SERVER, "--log", "error"];
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
