//! What kernel TCP does with the same bytes between two processes: network only, nothing is
//! checked and nothing stored.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::error::DemoError;
use crate::child::{Spawned, end_with_parent};
use crate::cli::bytes::gbps;
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::Progress;
use crate::cli::source::Source;

/// Bytes of one call: what iperf3 hands the kernel at a time.
const CALL_BYTES: usize = 128 << 10;

/// How long the peer may do nothing.
const PEER_TIMEOUT: Duration = Duration::from_secs(20);

/// What the second process says when it listens.
#[derive(Debug, Serialize, Deserialize)]
struct Listening {
    listening: SocketAddr,
}

/// Loopback.
pub(crate) fn loopback(ipv6: bool) -> IpAddr {
    if ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

/// Sends all of `source` over TCP to a second process and returns gigabits a second, from the
/// first byte until the other process says that it has the last.
pub(crate) fn measure(
    source: &Source,
    ipv6: bool,
    interrupt: &Interrupt,
) -> Result<f64, DemoError> {
    let mut args = vec!["demo-yardstick"];
    args.extend(ipv6.then_some("--ipv6"));
    let mut sink = Spawned::start("TCP", args)?;
    let Listening { listening } = sink.next(PEER_TIMEOUT)?;
    let seconds = send(source, listening, interrupt).map_err(|error| match error {
        // Its own words say more than a broken pipe.
        Failed::Tcp(source) => match sink.check() {
            Err(child) => child.into(),
            Ok(()) => DemoError::Yardstick(source),
        },
        Failed::Other(error) => error,
    })?;
    Ok(gbps(source.byte_len(), seconds))
}

enum Failed {
    Tcp(io::Error),
    Other(DemoError),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Tcp(error)
    }
}

fn send(source: &Source, to: SocketAddr, interrupt: &Interrupt) -> Result<f64, Failed> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(PEER_TIMEOUT))?;
    stream.set_write_timeout(Some(PEER_TIMEOUT))?;
    let mut buffer = vec![0; CALL_BYTES];
    let whole = source.byte_len();
    let mut progress = Progress::bytes("tcp", whole);
    let began = Instant::now();
    let mut done = 0;
    while done < whole {
        interrupt.check().map_err(|stopped| Failed::Other(stopped.into()))?;
        let len = (whole - done).min(CALL_BYTES as u64) as usize;
        source.fill(done, &mut buffer[..len]).map_err(|error| {
            Failed::Other(DemoError::Input { path: source.path().cloned(), source: error })
        })?;
        stream.write_all(&buffer[..len])?;
        done += len as u64;
        progress.at(done);
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut count = [0; 8];
    stream.read_exact(&mut count)?;
    let seconds = began.elapsed().as_secs_f64();
    if u64::from_le_bytes(count) != whole {
        return Err(Failed::Tcp(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(seconds)
}

/// The second process: takes one connection, counts its bytes, and says how many they were.
pub(crate) fn serve(ipv6: bool) -> io::Result<()> {
    end_with_parent();
    let listener = TcpListener::bind((loopback(ipv6), 0))?;
    let said = serde_json::to_string(&Listening { listening: listener.local_addr()? })?;
    let mut out = io::stdout().lock();
    writeln!(out, "{said}")?;
    out.flush()?;
    let (mut stream, _) = listener.accept()?;
    let mut buffer = vec![0; CALL_BYTES];
    let mut count = 0u64;
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            len => count += len as u64,
        }
    }
    stream.write_all(&count.to_le_bytes())
}
