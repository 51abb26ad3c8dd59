//! The demo over sockets, with the chunk server as a second process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tempfile::TempDir;
use towpath_base::Prng;
use towpath_fastpath::ClientConfig;
use towpath_fastpath::resident::slots_bytes;
use towpath_fastpath::wire::PROTOCOL;
use towpath_sim::{FaultControl, FaultPlan};
use towpath_transport::{DeviceName, EndpointConfig, Mtu, Nanos, UdpConfig};

use super::error::DemoError;
use super::journey::Journey;
use super::report::{DemoReport, EndReport, show_percent};
use super::server::{AnyDevice, open_device};
use super::steps::Steps;
use super::yardstick::{self, loopback};
use crate::child::Spawned;
use crate::cli::args::DemoArgs;
use crate::cli::bytes::show_size;
use crate::cli::interrupt::Interrupt;
use crate::cli::session::{Pipeline, Server, Session, WallClock};
use crate::cli::source::Source;
use crate::random::random;

/// How long the server may take to open its store.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the server may take to stop: what it has taken is finished first.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The most room that is taken before the start; a larger input waits less that way.
const PREALLOCATE_MAX: u64 = 4 << 30;

/// Room of a store in a directory that the user names: it may be used again for larger inputs.
const KEPT_CAPACITY: u64 = 1 << 40;

/// How long one request may take: a slow disk that flushes, at 50 % loss, and more.
const REQUEST_TIMEOUT: Nanos = Nanos::from_secs(60);

/// What the server says when it takes clients.
#[derive(Debug, Deserialize)]
struct Ready {
    listening: std::net::SocketAddr,
}

/// Makes servers, one after the other on the same store, and clients for them.
struct Ground<'a> {
    args: &'a DemoArgs,
    dir: PathBuf,
    control: FaultControl,
    interrupt: &'a Interrupt,
    /// Room of the store.
    capacity_bytes: u64,
    lives: u64,
}

type RealSession = Session<AnyDevice, WallClock>;

impl Ground<'_> {
    fn start(&mut self) -> Result<(Spawned, RealSession), DemoError> {
        let args = self.args;
        let seed = self.args.seed.wrapping_add(self.lives << 32);
        self.lives += 1;
        let mut words = vec![
            String::from("demo-server"),
            format!("--loss={}", args.loss()),
            format!("--seed={}", seed ^ 1 << 63),
            format!("--capacity={}", self.capacity_bytes),
            format!("--device={}", args.server_device.as_ref().unwrap_or(&args.device.device)),
            format!("--ib-port={}", args.device.ib_port),
        ];
        let temporary = args.dir.is_none() && !args.keep;
        words.extend(temporary.then(|| String::from("--temporary")));
        let takes_room = self.capacity_bytes <= PREALLOCATE_MAX;
        words.extend(takes_room.then(|| String::from("--preallocate")));
        words.extend(args.mtu.map(|mtu| format!("--mtu={mtu}")));
        words.extend(args.device.gid_index.map(|index| format!("--gid-index={index}")));
        words.push(format!("--icrc={}", args.device.icrc));
        words.extend(args.ipv6.then(|| String::from("--ipv6")));
        let words = words.iter().map(AsRef::as_ref);
        let dir = ["--dir".as_ref(), self.dir.as_os_str()];
        let mut server = Spawned::start("server", words.chain(dir))?;
        let Ready { listening } = server.next(READY_TIMEOUT)?;
        let udp = UdpConfig::new(loopback(args.ipv6));
        let device = open_device(&args.device.choice(), udp, seed, &self.control)
            .map_err(crate::cli::session::SessionError::from)?;
        let pace = WallClock::new(self.interrupt.clone());
        let config = endpoint_config(args.mtu, args.depth, args.op_size).icrc(args.device.icrc);
        let client =
            ClientConfig::new().timeout(REQUEST_TIMEOUT).patience(Nanos::ZERO).patience_is_limit();
        let session = Session::connect(device, config, pace, Server(listening), &client);
        // A server that ended has said why.
        let session = session.map_err(|error| match server.check() {
            Ok(()) => DemoError::from(error),
            Err(ended) => ended.into(),
        })?;
        Ok((server, session))
    }
}

/// How a client's endpoint is set up.
pub(crate) fn endpoint_config(mtu: Option<Mtu>, depth: u32, op_bytes: u64) -> EndpointConfig {
    let depth = depth as usize;
    with_mtu(EndpointConfig::new(), mtu)
        .app_protocol(PROTOCOL)
        .links_max(1)
        // Data stays in its buffer until it is acknowledged, which may be after the reply.
        .send_pools(&[(256, 1024), (4096, 1024), (slots_bytes(op_bytes as usize), 2 * depth)])
}

/// `config` with an MTU to ask for, where there is one.
pub(super) fn with_mtu(config: EndpointConfig, mtu: Option<Mtu>) -> EndpointConfig {
    mtu.into_iter().fold(config, EndpointConfig::mtu_max)
}

/// Makes the journey; returns what was found, and the first byte that was not as sent.
pub(crate) fn run(
    args: &DemoArgs,
    source: &Source,
    mut steps: Steps,
    interrupt: &Interrupt,
) -> Result<(DemoReport, Option<u64>), DemoError> {
    let (dir, temporary) = store_dir(args)?;
    let control = FaultControl::new(FaultPlan::none().drop(args.loss()));
    let lost = || control.counters().lost();
    let mut ground = Ground {
        args,
        dir: dir.clone(),
        control: control.clone(),
        interrupt,
        capacity_bytes: capacity_bytes(args, source),
        lives: 0,
    };
    steps.say(&headline(args, source, &dir));

    steps.begin("kernel TCP, no loss, network only");
    let tcp = yardstick::measure(source, args.ipv6, None, interrupt)?;
    steps.done(&format!("{tcp:.1} Gb/s"));
    steps.begin("kernel TCP, no loss, durable in a file");
    // The store's own folder may not be there yet.
    let beside = dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("."));
    let tcp_durable = yardstick::measure(source, args.ipv6, Some(beside), interrupt)?;
    steps.done(&format!("{tcp_durable:.1} Gb/s"));

    steps.begin("server started, room for the input made");
    let began = Instant::now();
    let (server, mut session) = ground.start()?;
    steps.done(&format!("{:.1} s", began.elapsed().as_secs_f64()));
    let mtu = session.mtu();
    let pipeline = Pipeline::fitting(&mut session, args.depth, args.op_size)?;
    // Names of chunks must not meet those of an earlier run in the same directory.
    let mut journey = Journey::new(source, pipeline, Prng::new(random()));
    let found = journey.first_life(&mut session, args.latency_requests, &mut steps)?;

    steps.begin("server stopped with SIGTERM and started again");
    let mut client = end_report(&mut session)?;
    let mut served: EndReport = server.stop(STOP_TIMEOUT)?;
    let (server, mut session) = ground.start()?;
    let sampled = journey.sample(&mut session)?;
    if temporary.is_none() && !args.keep {
        journey.clean_up(&mut session)?;
    }
    client += end_report(&mut session)?;
    client.packets_dropped = lost();
    served += server.stop::<EndReport>(STOP_TIMEOUT)?;
    steps.done(&format!("{} read again", show_size(sampled)));
    if let Some(kept) = temporary.filter(|_| args.keep).map(TempDir::keep) {
        steps.say(&format!("\nThe store stays in {}.", kept.display()));
    }
    let mut report = DemoReport::new(args, &journey, found, client, served);
    report.mtu_bytes = mtu;
    report.tcp_lossless_gbps = Some(tcp);
    report.tcp_durable_gbps = Some(tcp_durable);
    Ok((report, journey.changed_at))
}

/// Room of the store: that of the input twice, since a write takes fresh pages before it gives the
/// old ones back. The server takes it before it takes clients: else the figures were those of a
/// file system that gives out its space.
fn capacity_bytes(args: &DemoArgs, source: &Source) -> u64 {
    let small = u64::from(args.latency_requests) * 4096;
    match &args.dir {
        Some(_) => source.byte_len().saturating_mul(2).max(KEPT_CAPACITY),
        None => (2 * (source.byte_len() + small)).next_multiple_of(1 << 20),
    }
}

/// Where the store is, and what removes it at the end.
fn store_dir(args: &DemoArgs) -> Result<(PathBuf, Option<TempDir>), DemoError> {
    if let Some(dir) = &args.dir {
        return Ok((dir.clone(), None));
    }
    let path = std::env::temp_dir();
    let made = tempfile::Builder::new().prefix("towpath-demo-").tempdir_in(&path);
    let made = made.map_err(|source| DemoError::Dir { path, source })?;
    Ok((made.path().into(), Some(made)))
}

fn headline(args: &DemoArgs, source: &Source, dir: &Path) -> String {
    let what = match source.path() {
        Some(path) => format!("{} ({})", path.display(), show_size(source.byte_len())),
        None => format!("{} made from seed {}", show_size(source.byte_len()), args.seed),
    };
    let network = match &args.device.device {
        DeviceName::Roce(_) => {
            format!("{} of all packets are lost, both ways", show_percent(args.loss()))
        }
        name => format!("The device is {name}, and loses what its network loses"),
    };
    format!(
        "{what}, to a chunk server in a second process and back.\n\
         {network}. The store is in {}.\n",
        dir.display()
    )
}

/// Leaves the server, and says what this end did.
fn end_report(session: &mut RealSession) -> Result<EndReport, DemoError> {
    session.close()?;
    Ok(EndReport::of(session.stats(), 0))
}
