//! What kernel TCP does with the same bytes between two processes: over the network alone, and into
//! a file that is flushed at the end. Nothing is checked.

use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
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

/// How long a flush of all the bytes may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(600);

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
/// first byte until the other process says that it has the last; with `store` that it is durable
/// in a file there.
pub(crate) fn measure(
    source: &Source,
    ipv6: bool,
    store: Option<&Path>,
    interrupt: &Interrupt,
) -> Result<f64, DemoError> {
    let mut args = vec![OsStr::new("demo-yardstick")];
    args.extend(ipv6.then_some(OsStr::new("--ipv6")));
    if let Some(dir) = store {
        args.extend([OsStr::new("--store"), dir.as_os_str()]);
    }
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
    stream.set_read_timeout(Some(FLUSH_TIMEOUT))?;
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

/// The second process: takes one connection, counts its bytes, and says how many they were. With
/// `store` it writes them to a file without a name in that folder, and says so when it is flushed.
pub(crate) fn serve(ipv6: bool, store: Option<&Path>) -> io::Result<()> {
    end_with_parent();
    let mut file = store.map(tempfile::tempfile_in).transpose()?;
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
            len => {
                count += len as u64;
                file.as_mut().map_or(Ok(()), |file| file.write_all(&buffer[..len]))?;
            }
        }
    }
    file.map_or(Ok(()), |file| file.sync_data())?;
    stream.write_all(&count.to_le_bytes())
}
