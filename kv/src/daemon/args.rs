//! The command line.

use crate::limits::{
    BUFFERS_BYTES_DEFAULT, CONNECTIONS_MAX_DEFAULT, PUBLISHED_BYTES_MAX,
    PUBLISHED_SLOT_BYTES_DEFAULT, PUBLISHED_SLOT_BYTES_MAX, RAW_UNDER_WAY_DEFAULT,
    RAW_VALUE_BYTES_DEFAULT, STALL_DEFAULT, STORE_BYTES_DEFAULT, STORE_BYTES_MIN, UNDER_WAY_MAX,
    VALUE_BYTES_MAX, WORKERS_MAX,
};
use crate::raw::{RawConfig, RawKind};
use crate::store::Evict;
use clap::{Parser, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use towpath_transport::{CarrierChoice, DeviceName, Fallback, resolve};

const MIB: u64 = 1 << 20;

/// An address with a port.
fn parse_addr(text: &str) -> Result<SocketAddr, String> {
    let found = resolve(text, None).map_err(|error| error.to_string())?;
    found.first().copied().ok_or_else(|| String::from("the name has no address"))
}

/// Which table serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreChoice {
    /// A concurrent hash table whose readers take no lock.
    Table,
    /// The baseline: 1,024 lists, a mutex each.
    Buckets,
}

/// What becomes of entries when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EvictChoice {
    /// They stay, and writes are refused.
    Never,
    /// Approximately the least recently used go.
    Lru,
}

impl From<EvictChoice> for Evict {
    fn from(choice: EvictChoice) -> Self {
        match choice {
            EvictChoice::Never => Self::Never,
            EvictChoice::Lru => Self::LeastRecentlyUsed,
        }
    }
}

/// What carries links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CarrierArg {
    /// Unreliable connections: lost packets are sent again in software.
    Uc,
    /// Reliable connections: the device sends lost packets again.
    Rc,
    /// Kernel TCP.
    Tcp,
}

impl From<CarrierArg> for CarrierChoice {
    fn from(arg: CarrierArg) -> Self {
        match arg {
            CarrierArg::Uc => Self::Uc,
            CarrierArg::Rc => Self::Rc,
            CarrierArg::Tcp => Self::Tcp,
        }
    }
}

/// What carries requests over raw queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RawArg {
    /// Reliable connections: the device sends lost packets again.
    Rc,
    /// Unreliable connections: clients repeat what is lost.
    Uc,
    /// Datagrams: one queue pair for all clients; a message is one packet.
    Ud,
}

impl From<RawArg> for RawKind {
    fn from(arg: RawArg) -> Self {
        match arg {
            RawArg::Rc => Self::Rc,
            RawArg::Uc => Self::Uc,
            RawArg::Ud => Self::Ud,
        }
    }
}

const AFTER_HELP: &str = "\
Values are in memory alone: they are gone when the server stops. Everyone who reaches its address
may read and change them. The server stops on SIGTERM and SIGINT.

Exit codes:
  0  it was told to stop
  2  wrong flag, or a certificate or key that does not serve
  3  the address is not of this host, or the port is taken
  6  memory, threads or descriptors failed";

/// The settings.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "towpath-kv",
    version,
    about = "A key-value store in memory, for Redis clients, and over Towpath links",
    after_help = AFTER_HELP
)]
pub struct Args {
    /// Address and port for clients that speak RESP2 or RESP3
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7500", value_parser = parse_addr)]
    pub resp: SocketAddr,
    /// Clients over RESP come over TLS 1.3 alone, and are shown a certificate; the other fronts
    /// stay as they are
    #[arg(long, requires_all = ["tls_cert", "tls_key"])]
    pub tls: bool,
    /// Certificates in PEM: the server's own first, then those between it and its authority
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the first of them, in PEM, without a passphrase
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub tls_key: Option<PathBuf>,
    /// Address and port for clients that speak the store's own form over TCP, beside the others
    #[arg(long, value_name = "ADDR", value_parser = parse_addr)]
    pub requests: Option<SocketAddr>,
    /// Address and port for clients over Towpath links, beside the others
    #[arg(long, value_name = "ADDR", value_parser = parse_addr)]
    pub links: Option<SocketAddr>,
    /// Clients that may share one Towpath link; 0: each has its own. Where they share, values over
    /// links have at most 63 KiB
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u16).range(0..=8192))]
    pub links_shared: u16,
    /// What carries Towpath links
    #[arg(long, value_enum, default_value_t = CarrierArg::Uc)]
    pub carrier: CarrierArg,
    /// What Towpath links fall back to while no packet gets through over UDP: rc,tcp, tcp or none;
    /// a link falls back to what both ends have
    #[arg(long, value_name = "CARRIERS", default_value_t = Fallback::default())]
    pub fallback: Fallback,
    /// Address and port for clients over raw queue pairs, without Towpath, beside the others: there
    /// they tell what their queue pairs are, over TCP
    #[arg(long, value_name = "ADDR", value_parser = parse_addr)]
    pub raw: Option<SocketAddr>,
    /// What carries requests over raw queue pairs
    #[arg(long, value_enum, default_value_t = RawArg::Rc)]
    pub raw_transport: RawArg,
    /// RDMA device of raw queue pairs: roce (in userspace over UDP, needs no hardware), or a device
    /// that ibv_devices lists; verbs is the first of those (they need a build with --features
    /// verbs)
    #[arg(long, value_name = "DEV", default_value = "roce")]
    pub raw_device: DeviceName,
    /// The longest value over raw RC and UC, in KiB; a datagram carries what fits one packet
    #[arg(long, value_name = "KIB", default_value_t = RAW_VALUE_BYTES_DEFAULT as u32 >> 10,
        value_parser = clap::value_parser!(u32).range(1..=VALUE_BYTES_MAX as i64 >> 10))]
    pub raw_value_kib: u32,
    /// Requests that each client of raw RC and UC may have under way; for each there are two
    /// buffers each way, as long as the longest value
    #[arg(long, value_name = "N", default_value_t = RAW_UNDER_WAY_DEFAULT,
        value_parser = clap::value_parser!(u16).range(1..=UNDER_WAY_MAX as i64))]
    pub raw_under_way: u16,
    /// Memory that clients of links and of raw RC may read by themselves, in MiB, beside that for
    /// entries: keys and values that never expire are found there without a thread of the server;
    /// 0 for none; `buckets` has none
    #[arg(long, value_name = "MIB", default_value_t = 0, conflicts_with = "poll",
        value_parser = clap::value_parser!(u32).range(0..=PUBLISHED_BYTES_MAX as i64 >> 20))]
    pub publish_mib: u32,
    /// Bytes of it for each key with its value; what is longer is not found there
    #[arg(long, value_name = "BYTES", default_value_t = PUBLISHED_SLOT_BYTES_DEFAULT as u32,
        value_parser = clap::value_parser!(u32).range(64..=PUBLISHED_SLOT_BYTES_MAX as i64))]
    pub publish_slot_bytes: u32,
    /// Memory for entries, in MiB: keys, values, and 192 bytes for each
    #[arg(long, value_name = "MIB", default_value_t = STORE_BYTES_DEFAULT / MIB,
        value_parser = clap::value_parser!(u64).range(STORE_BYTES_MIN / MIB..=1 << 30))]
    pub store_mib: u64,
    /// What becomes of entries when there is no room; `buckets` evicts none
    #[arg(long, value_enum, default_value_t = EvictChoice::Never)]
    pub evict: EvictChoice,
    /// Which table serves
    #[arg(long, value_enum, default_value_t = StoreChoice::Table)]
    pub store: StoreChoice,
    /// Threads that share all connections; more than half of the processors gain little where
    /// clients are on the same machine [default: half of the processors, at most 8]
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=WORKERS_MAX as i64))]
    pub workers: Option<u16>,
    /// In place of those a thread for each client over TCP and over raw queue pairs; clients of
    /// raw UD share the one queue pair, and links the threads
    #[arg(long)]
    pub worker_per_client: bool,
    /// Threads do not sleep: they ask again and again, each on a processor of its own
    #[arg(long)]
    pub poll: bool,
    /// Connections at a time; more are told so and closed
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX_DEFAULT as u32,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub connections_max: u32,
    /// Memory for requests that are not whole, replies that are not sent and transactions that are
    /// not carried out, of all connections together, in MiB: half in equal shares, half for those
    /// that need more; one that needs more than there is left is closed
    #[arg(long, value_name = "MIB", default_value_t = BUFFERS_BYTES_DEFAULT / MIB,
        value_parser = clap::value_parser!(u64).range(32..=1 << 30))]
    pub buffers_mib: u64,
    /// Seconds that a client may take for one request or reply, beside what its bytes take at 4 KiB
    /// a second; a slower one is closed
    #[arg(long, value_name = "S", default_value_t = Duration::from(STALL_DEFAULT).as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub stall_s: u64,
    /// Print one JSON object on stdout when the server is ready, and one with what it did at the
    /// end, instead of text
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// Bytes that the store may have.
    pub(super) fn store_bytes(&self) -> u64 {
        self.store_mib * MIB
    }

    /// How raw queue pairs are served.
    pub(super) fn raw_config(&self) -> RawConfig {
        RawConfig {
            workers: self.worker_count(),
            worker_per_client: self.worker_per_client,
            polls: self.poll,
            value_bytes_max: (self.raw_value_kib as usize) << 10,
            under_way: self.raw_under_way,
            ..RawConfig::new(self.raw_transport.into())
        }
    }

    /// Bytes that connections may hold.
    pub(super) fn buffers_bytes(&self) -> u64 {
        self.buffers_mib * MIB
    }

    /// Threads.
    pub(super) fn worker_count(&self) -> usize {
        let half = || std::thread::available_parallelism().map_or(1, |all| all.get() / 2);
        self.workers.map_or_else(|| half().clamp(1, 8), usize::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_bounds_is_refused_with_them() {
        let parse = |args: &[&str]| Args::try_parse_from([&["towpath-kv"], args].concat());
        let args = parse(&[]).expect("defaults are sound");
        assert_eq!(args.store_bytes(), STORE_BYTES_DEFAULT);
        assert!((1..=8).contains(&args.worker_count()));
        for (flag, wrong) in [
            ("--store-mib", "3"),
            ("--workers", "0"),
            ("--workers", "1025"),
            ("--connections-max", "0"),
            ("--buffers-mib", "31"),
            ("--stall-s", "0"),
            ("--resp", "localhost"),
            ("--evict", "some"),
            ("--raw-transport", "tcp"),
            ("--raw-value-kib", "1025"),
            ("--raw-under-way", "0"),
            ("--raw-device", "../mem"),
            ("--publish-mib", "2049"),
            ("--publish-slot-bytes", "63"),
        ] {
            let said = parse(&[flag, wrong]).expect_err(wrong).to_string();
            assert!(said.contains(flag), "{said}");
        }
    }
}
