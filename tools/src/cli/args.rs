//! The subcommands and their flags.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Parser, Subcommand};
use towpath_fastpath::{ChunkId, HedgeAfter};

use super::bench::BenchArgs;
use super::bytes::parse_size;
use super::cap::CapArgs;
use super::chunk::LsArgs;
use super::qos::QosArgs;
use super::secure::{KeygenArgs, SecureArgs, TrustArgs};
use super::sim::SimArgs;
use super::spread::{RepairArgs, ScrubArgs, SpreadArgs};
#[cfg(feature = "baseline")]
use crate::bench::fastpath;
use crate::bench::{classes, haechi, kv};
use crate::device::{DEVICE, DeviceArgs};
use crate::ways::WayArgs;
use towpath_transport::{Class, DeviceName, Icrc, Mtu};

const AFTER_HELP: &str = "\
Start with `towpath demo`: it needs no server, no privileges and no RDMA hardware.

The environment variable TOWPATH_SERVER names the server where no argument does.

Exit codes:
  0    done (demo: every byte was verified as well)
  1    bytes came back changed, slices are damaged on the server's disk, or parts of a file on
       several servers are missing, damaged or do not belong together
  2    wrong flags
  3    the server (for `paths` and `links`, the process) cannot be reached, or is of another version
  4    there is no such chunk, or a chunk of that name exists already
  5    the server refused: no capability allows it, it is full, busy or read-only, or two scrubs ran
       at once
  6    unknown whether it was done: the server went away, did not answer, or failed; what it had
       acknowledged is safe
  7    a local file cannot be read or written
  8    this program got no sockets, memory or processes; sim: a run broke a promise
  9    sim, bench: a target was missed; the figures are printed all the same
  10   stat of a layout: parts of the file are missing, and it can be read without them
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP)";

/// Seed of the losses of a trial unless told otherwise.
const SEED_DEFAULT: u64 = 1;

/// Requests in flight unless told otherwise.
const DEPTH_DEFAULT: u32 = 16;

/// Bytes of one request unless told otherwise.
const OP_SIZE_DEFAULT: u64 = 128 << 10;

/// Headings of the flags that most commands have, below those of a command's own.
const REQUESTS: &str = "Requests";
const TRIALS: &str = "Faults, for trials";

/// What the demo loses unless told otherwise: one packet in a hundred.
const LOSS_DEFAULT: f64 = 0.01;

/// Stores and fetches data over software-reliable RDMA
#[derive(Debug, Parser)]
#[command(name = "towpath", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send a file to a chunk server and back over a network that loses packets
    ///
    /// It starts its own server, measures kernel TCP without loss for comparison, and needs no
    /// privileges and no RDMA hardware.
    Demo(DemoArgs),
    /// Run a study in virtual time: goodput against loss, late packets and more
    Sim(SimArgs),
    /// Measure this machine: shared links, classes, erasure coding, the fast path, reservations,
    /// the key-value store, writes to several servers; or a running chunk server
    ///
    /// Each subcommand is one benchmark with its own --help. `store` puts load on a server that
    /// runs anywhere; all processes of the others run on this machine, over loopback.
    Bench(BenchArgs),
    /// Store files, each as a chunk, and print the names of the chunks
    Put(PutArgs),
    /// Fetch a chunk into a file or to stdout
    Get(GetArgs),
    /// List the chunks of a server
    Ls(LsArgs),
    /// Show one chunk
    Stat(ChunkArgs),
    /// Remove a chunk
    Rm(ChunkArgs),
    /// Have the server check the checksum of every slice on its disk
    ///
    /// Run one scrub of a server at a time. Two at once each check a part of the slices; then the
    /// exit code is 5.
    ///
    /// Of a layout, as `towpath put --servers` makes it, all servers of the file do that, and the
    /// parts are compared by 4 bytes of each slice.
    Scrub(ScrubArgs),
    /// Make the parts of a file whole that servers have lost, or that are damaged or out of date
    ///
    /// Takes a layout, as `towpath put --servers` makes it.
    Repair(RepairArgs),
    /// Show the state of a server: version, space, chunks, reads and writes
    Info(ServerArgs),
    /// Show the network between a server and each of its clients, and slow requests
    Health(HealthArgs),
    /// Show who has reserved what of a server, and who gets it
    Qos(QosArgs),
    /// Make keys and capabilities, which say who may do what with which chunks; show and revoke
    /// them
    Cap(CapArgs),
    /// Make the key of this host, with which its links are encrypted
    ///
    /// Chunk servers take it by --host-key, and the commands here by --key. Each host has its own.
    Keygen(KeygenArgs),
    /// Show the fingerprint of a host's key, and trust that host from now on
    Trust(TrustArgs),
    /// Show the paths of each link of a running process on this machine
    Paths(StatusArgs),
    /// Show what each worker and link of a running process on this machine uses, and the limits
    ///
    /// Processor time is in seconds and credit in pieces of messages: `credit given` is what the
    /// peer may have sent or held here, `left` is what may still be sent to the peer. `messages`
    /// are those that are not finished, `queued` those that still wait to be sent.
    Links(StatusArgs),
    #[cfg(feature = "baseline")]
    #[command(hide = true)]
    BenchFastpathClient(fastpath::ClientArgs),
    #[cfg(feature = "baseline")]
    #[command(hide = true)]
    BenchFastpathServer(fastpath::ServerArgs),
    #[command(hide = true)]
    BenchClass(classes::ClassArgs),
    #[command(hide = true)]
    BenchKvClient(kv::ClientArgs),
    #[command(hide = true)]
    BenchKvServer(kv::ServerArgs),
    #[command(hide = true)]
    BenchServer(haechi::ServerArgs),
    #[command(hide = true)]
    BenchTenant(haechi::TenantArgs),
    #[command(hide = true)]
    DemoServer(DemoServerArgs),
    #[command(hide = true)]
    DemoYardstick {
        #[arg(long)]
        ipv6: bool,
        #[arg(long)]
        store: Option<PathBuf>,
    },
}

/// Flags of `towpath demo`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// File to send; without it, input is made from the seed
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    pub(super) input: Option<PathBuf>,
    /// Bytes of input to make [default: 256M, with --virtual 16M]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(super) size: Option<u64>,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    /// RDMA device of the server [default: the same]
    #[arg(long, value_name = "DEV")]
    pub(super) server_device: Option<DeviceName>,
    /// Share of packets that the userspace NIC drops in each direction, 0 to 0.5 [default: 0.01,
    /// which is 1 %]
    #[arg(long, value_name = "P", value_parser = parse_loss)]
    pub(super) loss: Option<f64>,
    /// Seed of the input and of the losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// RDMA path MTU in bytes: 256, 512, 1024, 2048 or 4096 [default: the largest that the
    /// interface carries]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub(super) mtu: Option<Mtu>,
    /// Requests in flight at a time, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) depth: u32,
    /// Bytes of one request, 4K to 1M, a multiple of 4,096; the server may take less at a time
    #[arg(long, value_name = "BYTES", default_value = "128K", value_parser = parse_op)]
    pub(super) op_size: u64,
    /// How many 4 KiB requests measure the latency, one at a time
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) latency_requests: u32,
    /// Use IPv6 loopback (::1)
    #[arg(long)]
    pub(super) ipv6: bool,
    /// Directory for the chunk store [default: a fresh one among the temporary files, removed
    /// at the end]
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
    /// Keep the store at the end
    #[arg(long)]
    pub(super) keep: bool,
    /// Run in virtual time, in one process: the same seed gives the same packets. Prints a hash of
    /// all packets
    #[arg(long = "virtual", conflicts_with_all = ["ipv6", "dir", "keep", "device"])]
    pub(super) virtual_time: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl DemoArgs {
    /// Whether the device loses packets on purpose.
    pub(super) fn loses(&self) -> bool {
        self.device.device.is_roce()
    }

    /// The share of packets that it loses on purpose.
    pub(super) fn loss(&self) -> f64 {
        if self.loses() { self.loss.unwrap_or(LOSS_DEFAULT) } else { 0.0 }
    }
}

/// How a server is named.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ServerArgs {
    /// The chunk server as HOST or HOST:PORT [default: $TOWPATH_SERVER, or 127.0.0.1:7400]
    #[arg(value_name = "SERVER")]
    pub(super) server: Option<String>,
    #[command(flatten)]
    pub(super) link: LinkArgs,
}

/// Flags of `towpath health`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct HealthArgs {
    /// Show where the time of operations goes instead: client, network, and each part of the
    /// server. For that it writes and reads a chunk of its own, which it removes
    #[arg(long)]
    pub(super) breakdown: bool,
    /// How long it writes and reads for the breakdown, 0 to 60; with 0 it shows what the server
    /// knows of all requests, and writes nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 2, requires = "breakdown",
          value_parser = clap::value_parser!(u32).range(0..=60))]
    pub(super) seconds: u32,
    /// Bytes of each read and write of the breakdown, 4K to 1M, a multiple of 4,096
    #[arg(long, value_name = "BYTES", default_value = "4K", requires = "breakdown",
          value_parser = parse_op)]
    pub(super) block: u64,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Which process is asked, on this machine.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct StatusArgs {
    /// Status socket of the process, or the directory that holds it, such as the data directory of
    /// a chunk server
    #[arg(value_name = "SOCKET")]
    pub(super) socket: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// How to talk to it.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct LinkArgs {
    #[command(flatten)]
    pub(super) device: DeviceArgs,
    /// Local address of the userspace NIC [default: the one from which the system reaches the
    /// server]
    #[arg(long, value_name = "IP", help_heading = DEVICE)]
    pub(super) device_ip: Option<std::net::IpAddr>,
    /// Largest RDMA path MTU to try in bytes: 256, 512, 1024, 2048 or 4096; paths that drop such
    /// packets use smaller ones [default: the largest that the interface and the way to the server
    /// carry]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu, help_heading = DEVICE)]
    pub(super) mtu: Option<Mtu>,
    /// Traffic class: gold (monitoring and administration), silver (online) or copper (offline).
    /// Each class has its own links, queues and DSCP
    #[arg(long, value_name = "CLASS", default_value_t = Class::Silver, help_heading = REQUESTS)]
    pub(super) class: Class,
    /// Tenant whose tokens the requests use, where the server keeps reservations [default: those
    /// that nobody has reserved]
    #[arg(long, value_name = "NAME", help_heading = REQUESTS)]
    pub(super) tenant: Option<String>,
    /// File of the capability to show, as `towpath cap mint` prints it, where the server wants one
    /// [default: $TOWPATH_CAPABILITY, or none]
    #[arg(long, value_name = "FILE", help_heading = REQUESTS)]
    pub(super) capability: Option<PathBuf>,
    /// How long the server may be out of reach before the command gives up, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, help_heading = REQUESTS,
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(super) patience: u64,
    /// How long to wait for one answer, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 30_000, help_heading = REQUESTS,
          value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(super) timeout_ms: u64,
    #[command(flatten)]
    pub(super) ways: WayArgs,
    #[command(flatten)]
    pub(super) secure: SecureArgs,
    /// Share of packets that the userspace NIC drops on this side in each direction, 0
    /// to 0.5 [default: 0]
    #[arg(long, value_name = "P", value_parser = parse_loss, help_heading = TRIALS,
          hide_short_help = true)]
    pub(super) loss: Option<f64>,
    /// Drop all packets that this side sends from these source ports of the userspace
    /// NIC, as in 0 or 0,3. Path N starts on port N
    #[arg(long, value_name = "PORTS", value_delimiter = ',', help_heading = TRIALS,
          hide_short_help = true)]
    pub(super) black_hole: Vec<u16>,
    /// Seconds until --black-hole begins [default: at once]
    #[arg(long, value_name = "SECONDS", requires = "black_hole", value_parser = parse_seconds,
          help_heading = TRIALS, hide_short_help = true)]
    pub(super) black_hole_after: Option<f64>,
    /// Seed of the losses
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT, help_heading = TRIALS,
          hide_short_help = true)]
    pub(super) seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl ServerArgs {
    /// The layout that stands where a server could.
    pub(super) fn layout(&self) -> Option<&Path> {
        self.server.as_deref().map(Path::new).filter(|path| path.is_file())
    }
}

impl LinkArgs {
    /// Whether something of it is for one server alone.
    pub(super) fn is_for_trials(&self) -> bool {
        let Self { device, mtu, class, loss, black_hole, seed, .. } = self;
        let is_default = device.device == DeviceName::default()
            && device.ib_port == 1
            && device.gid_index.is_none()
            && !device.foreign_peers
            && device.icrc == Icrc::Auto;
        let has_faults = loss.is_some() || !black_hole.is_empty() || *seed != SEED_DEFAULT;
        !is_default || mtu.is_some() || *class != Class::Silver || has_faults
    }
}

/// Flags of `towpath put`.
#[derive(Clone, Debug, ClapArgs)]
#[command(override_usage = "towpath put [OPTIONS] FILE... [SERVER]")]
pub(crate) struct PutArgs {
    /// Files to store, each as a chunk of its own; - is stdin. The last of several words is the
    /// server, as HOST or HOST:PORT, unless a file of that name exists
    #[arg(value_name = "FILE", required = true, num_args = 1..)]
    pub(super) words: Vec<PathBuf>,
    /// The chunk server as HOST or HOST:PORT; all words are files then [default: the last word,
    /// or $TOWPATH_SERVER, or 127.0.0.1:7400]
    #[arg(long, value_name = "SERVER")]
    pub(super) server: Option<String>,
    /// Name of the new chunk, 32 hexadecimal digits; for one file [default: a random one]
    #[arg(long, value_name = "ID", value_parser = parse_chunk)]
    pub(super) chunk: Option<ChunkId>,
    /// Have the server keep the chunks in memory too, so that clients read them by themselves; it
    /// needs `resident_bytes` at the server
    #[arg(long)]
    pub(super) resident: bool,
    #[command(flatten)]
    pub(super) spread: SpreadArgs,
    #[command(flatten)]
    pub(super) pipeline: PipelineArgs,
    #[command(flatten)]
    pub(super) link: LinkArgs,
}

/// What a command is about: a chunk of one server, or a file on several.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Chunk(ChunkId),
    Layout(PathBuf),
}

/// Flags of `towpath get`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct GetArgs {
    /// Chunk to fetch, 32 hexadecimal digits; or the layout of a file on several servers
    #[arg(value_name = "CHUNK", value_parser = parse_target)]
    pub(super) what: Target,
    /// File to make; - is stdout
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) hedge: HedgeArgs,
    #[command(flatten)]
    pub(super) pipeline: PipelineArgs,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// A second server for reads that are late.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct HedgeArgs {
    /// A second server that holds the same chunk, as HOST or HOST:PORT. A read that is late is sent
    /// to it as well, and the first good answer wins
    #[arg(long, value_name = "SERVER")]
    pub(super) hedge: Option<String>,
    /// When a read counts as late: after this many microseconds, or with pN after the time within
    /// which N per cent of the recent reads were answered
    #[arg(long, value_name = "US|pN", default_value = "p95", requires = "hedge")]
    pub(super) hedge_after: HedgeAfter,
    /// Most second requests for each hundred reads, 0 to 100
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, requires = "hedge",
          value_parser = parse_percent)]
    pub(super) hedge_budget: f64,
}

/// How much is in flight.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct PipelineArgs {
    /// Requests in flight at a time, 1 to 64
    #[arg(long, value_name = "N", default_value_t = DEPTH_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) depth: u32,
    /// Bytes of one request, 4K to 1M, a multiple of 4,096; the server may take less at a time
    #[arg(long, value_name = "BYTES", default_value = "128K", value_parser = parse_op)]
    pub(super) op_size: u64,
}

impl PipelineArgs {
    /// Whether it is what it is where nothing is given.
    pub(super) fn is_default(self) -> bool {
        self.depth == DEPTH_DEFAULT && self.op_size == OP_SIZE_DEFAULT
    }
}

/// Flags of `towpath stat` and `towpath rm`.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ChunkArgs {
    /// The chunk, 32 hexadecimal digits; or the layout of a file on several servers
    #[arg(value_name = "CHUNK", value_parser = parse_target)]
    pub(super) what: Target,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// Flags of the demo's own server process.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DemoServerArgs {
    #[arg(long)]
    pub(super) dir: PathBuf,
    #[arg(long)]
    pub(super) loss: f64,
    #[arg(long)]
    pub(super) seed: u64,
    #[arg(long, value_parser = parse_mtu)]
    pub(super) mtu: Option<Mtu>,
    #[arg(long, default_value_t = 1 << 30)]
    pub(super) capacity: u64,
    #[arg(long)]
    pub(super) preallocate: bool,
    #[arg(long)]
    pub(super) temporary: bool,
    /// On which port of loopback; 0 is any
    #[arg(long, default_value_t = 0)]
    pub(super) port: u16,
    #[arg(long)]
    pub(super) ipv6: bool,
    #[command(flatten)]
    pub(super) device: DeviceArgs,
}

fn parse_loss(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(loss) if (0.0..=0.5).contains(&loss) => Ok(loss),
        _ => Err("a share from 0 to 0.5: 0.01 is 1 %"),
    }
}

fn parse_seconds(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("seconds, more than 0 and at most 86,400"),
    }
}

fn parse_percent(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("per cent, 0 to 100"),
    }
}

fn parse_mtu(text: &str) -> Result<Mtu, &'static str> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or("256, 512, 1024, 2048 or 4096")
}

fn parse_op(text: &str) -> Result<u64, &'static str> {
    match parse_size(text) {
        Ok(bytes) if (4096..=1 << 20).contains(&bytes) && bytes.is_multiple_of(4096) => Ok(bytes),
        _ => Err("4K to 1M, a multiple of 4,096"),
    }
}

fn parse_target(text: &str) -> Result<Target, String> {
    let path = Path::new(text);
    match parse_chunk(text) {
        Ok(chunk) => Ok(Target::Chunk(chunk)),
        Err(_) if path.is_file() => Ok(Target::Layout(path.into())),
        Err(error) => Err(format!("{error}, and there is no layout of that name")),
    }
}

pub(super) fn parse_chunk(text: &str) -> Result<ChunkId, String> {
    text.parse().map_err(|error: towpath_fastpath::slice::ParseChunkIdError| error.to_string())
}

#[cfg(test)]
mod tests;
