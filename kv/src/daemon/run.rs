//! How the program begins, serves and ends.

use super::args::{Args, StoreChoice};
use super::fronts;
use crate::execute::Service;
use crate::limits::HANDSHAKES_MAX;
use crate::published::{PublishError, Published};
use crate::raw::{RawError, RawServer};
use crate::serve::{Counters, LinkServer, Server, ServerConfig, ServerError};
use crate::store::{Buckets, Store, Table};
use clap::Parser as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use towpath_base::Nanos;
use towpath_clock::Clock;
use towpath_secure::front::{Front as Tls, FrontError};
use towpath_status::{Stderr, say};
use towpath_transport::EndpointError;

/// How often what has expired is removed, where nobody asks for it.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Of the time that a sweep took, how much passes before the next: it is a small part of all.
const SWEEP_REST: u32 = 20;

/// Why the program ended in failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Nobody can be served there.
    #[error("cannot listen on {address}: {why}; set another --{flag}")]
    Listen {
        /// Of which flag.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        why: String,
    },
    /// The certificate or the key does not serve.
    #[error("no TLS: {0}; set another --tls-cert or --tls-key")]
    Tls(#[from] FrontError),
    /// No endpoint can be had.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Raw queue pairs cannot be served.
    #[error(transparent)]
    Raw(#[from] RawError),
    /// Nothing can be published.
    #[error("{0}; set another --publish-mib or --publish-slot-bytes")]
    Publish(#[from] PublishError),
    /// The server does not start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The system failed otherwise.
    #[error("the system failed: {0}")]
    System(#[from] io::Error),
}

impl DaemonError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Tls(_) => 2,
            Self::Listen { .. } => 3,
            Self::Publish(_)
            | Self::Server(_)
            | Self::Endpoint(_)
            | Self::Raw(_)
            | Self::System(_) => 6,
        }
    }
}

/// Runs the program; the first argument is its name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            // It is also how help is printed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // A log that cannot be written is lost, and stops nothing.
    tracing_subscriber::fmt().with_writer(|| Stderr).log_internal_errors(false).init();
    match serve(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("towpath-kv: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Serves until SIGTERM or SIGINT comes.
///
/// # Errors
/// [`DaemonError`]
pub fn serve(args: &Args) -> Result<(), DaemonError> {
    let (mut signals, writer) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        pipe::register(signal, writer.try_clone()?)?;
    }
    raise_descriptors_for(args.connections_max);
    let store = store(args)?;
    let counters = Arc::new(Counters::new(args.connections_max as usize));
    let service = Service::new(Arc::clone(&store));
    let config = ServerConfig {
        workers: args.worker_count(),
        worker_per_client: args.worker_per_client,
        polls: args.poll,
        buffers_bytes_max: args.buffers_bytes(),
        stall: Nanos::from_secs(args.stall_s),
    };
    let clock = Clock::start();
    let tls = tls(args)?;
    let is_tls = tls.is_some();
    let (resp, resp_at) = fronts::resp(args.resp, tls, &store, &counters)?;
    let mut ready =
        json!({ "event": "ready", "workers": config.workers, "resp": resp_at, "tls": is_tls });
    let mut listeners = vec![resp];
    if let Some(address) = args.requests {
        let (front, at) = fronts::requests(address, &service)?;
        ready["requests"] = at.into();
        listeners.push(front);
    }
    let links = match args.links {
        Some(address) => {
            let (server, at) = fronts::links(address, args, &service, &counters, &clock)?;
            ready["links"] = at.into();
            Some(server)
        }
        None => None,
    };
    let raw = match args.raw {
        Some(address) => {
            let (server, at) = fronts::raw(address, args, (&service, &counters, &clock))?;
            ready["raw"] = at.into();
            Some(server)
        }
        None => None,
    };
    let server = Server::start(listeners, config, counters, &clock)?;
    say_ready(args, &ready)?;
    sweep_until(&mut signals, &*store, &clock)?;
    say_end(args, &server, &service, raw.as_ref())?;
    links.map_or(Ok(()), LinkServer::stop)?;
    raw.map_or(Ok(()), RawServer::stop)?;
    Ok(server.stop()?)
}

/// The certificate of the RESP front, where it has one.
fn tls(args: &Args) -> Result<Option<Tls>, FrontError> {
    let files = args.tls_cert.as_ref().zip(args.tls_key.as_ref()).filter(|_| args.tls);
    files.map(|(chain, key)| Tls::from_files(chain, key, HANDSHAKES_MAX)).transpose()
}

fn store(args: &Args) -> Result<Arc<dyn Store>, DaemonError> {
    let (bytes, evict) = (args.store_bytes(), args.evict.into());
    Ok(match args.store {
        StoreChoice::Table if args.publish_mib > 0 => {
            let memory = (args.publish_mib as usize) << 20;
            let published = Published::new(memory, args.publish_slot_bytes as usize)?;
            Arc::new(Table::publishing(bytes, evict, Arc::new(published)))
        }
        StoreChoice::Table => Arc::new(Table::new(bytes, evict)),
        // It publishes nothing: it is as it was measured.
        StoreChoice::Buckets => Arc::new(Buckets::new(bytes)),
    })
}

/// Removes what has expired, now and then, until a signal comes.
fn sweep_until(signals: &mut UnixStream, store: &dyn Store, clock: &Clock) -> io::Result<()> {
    let mut rest = SWEEP_EVERY;
    loop {
        signals.set_read_timeout(Some(rest))?;
        match signals.read(&mut [0]) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let began = Instant::now();
                store.sweep(clock.now());
                rest = SWEEP_EVERY.max(began.elapsed() * SWEEP_REST);
            }
            Err(error) => return Err(error),
        }
    }
}

fn say_ready(args: &Args, ready: &serde_json::Value) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if args.json {
        writeln!(stdout, "{ready}")?;
    } else {
        let fields = ["requests", "links", "raw"].map(|field| (field, field));
        let resp = if ready["tls"] == true { "RESP2 over TLS" } else { "RESP2" };
        for (field, what) in [("resp", resp)].into_iter().chain(fields) {
            if let Some(at) = ready[field].as_str() {
                writeln!(stdout, "{what} on {at}")?;
            }
        }
    }
    stdout.flush()
}

fn say_end(
    args: &Args,
    server: &Server,
    service: &Service,
    raw: Option<&RawServer>,
) -> io::Result<()> {
    let (counted, figures) = (server.counters().counted(), service.store().figures());
    let mut stdout = io::stdout().lock();
    if !args.json {
        let (requests, accepted) = (counted.requests, counted.accepted);
        return writeln!(stdout, "{requests} requests of {accepted} connections");
    }
    let mut end = json!({
        "event": "end",
        "requests": counted.requests,
        "connections": counted.accepted,
        "turned_away": counted.turned_away,
        "malformed": counted.malformed,
        "slow": counted.slow,
        "tls_failed": counted.tls_failed,
        "crowded": counted.crowded,
        "keys": figures.keys,
        "bytes": figures.bytes,
        "evicted": figures.evicted,
        "expired": figures.expired,
        "refused": figures.refused,
        "repeated": service.sessions().repeated(),
    });
    if let Some(published) = service.store().published() {
        let counts = published.counts();
        end["published"] = json!({
            "put": counts.published,
            "displaced": counts.displaced,
            "unpublished": counts.unpublished,
        });
    }
    if let Some(raw) = raw {
        let counted = raw.counters().counted();
        end["raw"] = json!({
            "failed": counted.failed,
            "strangers": counted.strangers,
            "oversized": counted.oversized,
            "too_long": counted.too_long,
            "refused": counted.refused,
            "wakes": counted.wakes,
        });
    }
    writeln!(stdout, "{end}")
}

/// Raises the soft limit of descriptors to the hard one, which is told where there is one: each
/// connection has a descriptor, and the soft limit of most systems is 1,024.
///
/// # Errors
/// The system refuses.
pub fn raise_descriptors() -> io::Result<Option<u64>> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum)
}

/// The same, and a warning where so many connections need more.
fn raise_descriptors_for(connections_max: u32) {
    match raise_descriptors() {
        Ok(Some(most)) if most < u64::from(connections_max) => tracing::warn!(
            limit = most,
            connections_max,
            "all connections may need more descriptors than the limit: raise it (ulimit -n)"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit of descriptors cannot be raised"),
    }
}
