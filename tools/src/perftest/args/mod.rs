//! The flags: perftest's letters and defaults where they apply, and ours.
//!
//! | file | what |
//! |---|---|
//! | `values` | values that are more than numbers |
//! | `absent` | flags of perftest that are not here, and what to do in their place |
//! | here | the flags of both tools and of each |

mod absent;
pub(crate) mod values;

use super::tool::Tool;
use crate::device::DeviceArgs;
use crate::perftest::limits::{PATHS_MAX, QPS_MAX};
use absent::Absent;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use towpath_cc::ControllerConfig;
use towpath_transport::{Class, Fallback};
use towpath_verbs::Mtu;
use values::{Atomic, BwOutput, Connection, LatOutput};

/// The flags that both tools take.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// The server to connect to; without it this side is the server and waits for one client
    pub(crate) host: Option<String>,

    /// TCP port of the set-up connection, on which the server listens
    #[arg(short, long, default_value_t = 18515)]
    pub(crate) port: u16,
    /// Message size in bytes [K and M for KiB and MiB]
    #[arg(short, long, default_value = "1", value_parser = values::size)]
    pub(crate) size: u32,
    /// Run all sizes from 2 to 2^23 bytes
    #[arg(short, long, conflicts_with = "size")]
    pub(crate) all: bool,
    /// Messages of each row; at least 5
    #[arg(short = 'n', long, default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(5..))]
    pub(crate) iters: u64,
    /// Run each row for this many seconds instead
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters",
          value_parser = values::seconds)]
    pub(crate) duration: Option<f64>,
    /// Seconds left out at the start and the end of -D [default: a quarter of it]
    #[arg(short = 'f', long, value_name = "SECONDS", requires = "duration",
          value_parser = values::seconds)]
    pub(crate) margin: Option<f64>,
    /// What carries the messages: Towpath over UC (reliable in software) or over RC, or kernel TCP;
    /// with --raw the queue pairs, RC, UC or UD [default: UC; RC with --raw]. READ and atomics ride
    /// on the lane of such a link, an RC queue pair of its own, and not over TCP
    #[arg(short, long, value_name = "TYPE")]
    pub(crate) connection: Option<Connection>,
    /// Path MTU in bytes, 256 to 4096 (not with TCP) [default: the largest that both interfaces
    /// and the way between them carry]
    #[arg(short, long, value_name = "BYTES", value_parser = values::mtu)]
    pub(crate) mtu: Option<Mtu>,
    /// Pieces of messages that the peer may send on a channel before they are read (its credit);
    /// with --raw the receives of a queue pair [default: 128; 512 with --raw]
    #[arg(short, long, value_name = "PIECES",
          value_parser = clap::value_parser!(u32).range(2..=8192))]
    pub(crate) rx_depth: Option<u32>,
    /// With --raw, READs and atomics outstanding on a queue pair; without, the lane decides (16)
    #[arg(short, long, value_name = "COUNT", default_value_t = 16,
          value_parser = clap::value_parser!(u8).range(1..=128))]
    pub(crate) outs: u8,
    /// RC: an acknowledgement may take 4.096 us times 2 to this power, eight times in a row; 0 for
    /// ever [default: 18; 14 with --raw]. The lane has its own: 12
    #[arg(short = 'u', long = "qp-timeout", value_name = "POWER",
          value_parser = clap::value_parser!(u8).range(0..=31))]
    pub(crate) qp_timeout: Option<u8>,
    /// What packets that this side sends bear as IPv4 ToS or IPv6 traffic class: a DSCP times 4
    /// [default: that of --class]. Not over kernel TCP
    #[arg(long, value_name = "BYTE")]
    pub(crate) tclass: Option<u8>,
    /// Which atomic: FETCH_AND_ADD or CMP_AND_SWAP
    #[arg(
        short = 'A',
        long = "atomic_type",
        value_name = "TYPE",
        ignore_case = true,
        default_value = "FETCH_AND_ADD"
    )]
    pub(crate) atomic: Atomic,
    /// Accepted for perftest's sake: CPU frequency is not looked at
    #[arg(short = 'F', long = "CPU-freq")]
    pub(crate) cpu_freq: bool,
    /// Accepted for perftest's sake: payload is gathered, nothing is inlined
    #[arg(short = 'I', long = "inline_size", value_name = "BYTES", default_value_t = 0)]
    pub(crate) inline_size: u32,
    /// Before each row, run some messages that are not measured
    #[arg(long = "perform_warm_up")]
    pub(crate) warm_up: bool,
    /// Check the content of every message at its receiver, and that each arrived exactly once
    #[arg(long = "data_validation")]
    pub(crate) validate: bool,
    /// Add the CPU use of the whole machine to each row
    #[arg(long = "cpu_util")]
    pub(crate) cpu_util: bool,
    /// Print one JSON object to stdout instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the JSON object to a file
    #[arg(long = "out_json")]
    pub(crate) out_json: bool,
    /// The file of --out_json
    #[arg(long = "out_json_file", value_name = "FILE", default_value = "perftest_out.json")]
    pub(crate) out_json_file: PathBuf,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    #[command(flatten)]
    pub(crate) ours: Ours,
}

/// What perftest does not have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Towpath")]
pub(crate) struct Ours {
    /// Plain verbs on the queue pairs that -c names, as perftest runs them: what is lost on UC and
    /// UD stays lost
    #[arg(long)]
    pub(crate) raw: bool,
    /// Local address: the server listens here, and data goes from here [default: any; and what
    /// the set-up connection uses]
    #[arg(long, value_name = "IP")]
    pub(crate) bind: Option<IpAddr>,
    /// What the traffic is for: gold (monitoring and administration), silver (online) or copper
    /// (offline). The client's counts; with --raw each end's own
    #[arg(long, value_name = "CLASS", default_value_t = Class::Silver)]
    pub(crate) class: Class,
    /// Lose each packet that this side sends with this probability (0 to 1)
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = values::probability)]
    pub(crate) loss: f64,
    /// Send packets twice with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = values::probability)]
    pub(crate) duplicate: f64,
    /// Hold packets back until up to 8 others have overtaken them, with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = values::probability)]
    pub(crate) reorder: f64,
    /// Change bits of packets with this probability
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = values::probability)]
    pub(crate) corrupt: f64,
    /// Delay each packet that this side sends by this many microseconds
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub(crate) delay: u64,
    /// Swallow all packets that this side sends from these source ports, as in 0 or 0,3: a path
    /// begins at the port of its own number
    #[arg(long = "black-hole", value_name = "PORTS", value_delimiter = ',')]
    pub(crate) black_hole: Vec<u16>,
    /// Seconds from the moment that the ends have met until --black-hole begins [default: at once]
    #[arg(long = "black-hole-after", value_name = "SECONDS", requires = "black_hole",
          value_parser = values::seconds)]
    pub(crate) black_hole_after: Option<f64>,
    /// Seed of the faults
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Paths of the link, each a queue pair with a source port of its own; what became of each is
    /// shown at the end [default: 4, which are shown where something befell one]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u8).range(1..=PATHS_MAX))]
    pub(crate) paths: Option<u8>,
    /// What the link falls back to while no packet gets through over UDP: rc,tcp, tcp or none
    /// [default: all that both ends have]
    #[arg(long, value_name = "CARRIERS")]
    pub(crate) fallback: Option<Fallback>,
    /// Keep to socket buffers of 212992 bytes, as on a fresh machine without privileges
    #[arg(long = "stock-buffers")]
    pub(crate) stock_buffers: bool,
    /// Give each message under way memory of its own, as real data would have: with long messages
    /// it is in no cache when they are sent. Without it all are sent from the same, as in perftest
    #[arg(long)]
    pub(crate) cold: bool,
    /// Send payloads without CRC32C; the packets' ICRC stays
    #[arg(long = "no-payload-crc")]
    pub(crate) no_payload_crc: bool,
    /// Largest chunk in bytes, and size of a receive buffer
    #[arg(long = "chunk-bytes", value_name = "BYTES", default_value = "56K",
          value_parser = values::chunk_bytes)]
    pub(crate) chunk_bytes: u32,
    /// Congestion control: swift or fixed, with settings as in swift:base=50us or
    /// fixed:1MiB@10Gbps
    #[arg(long, value_name = "ALGORITHM", default_value = "swift")]
    pub(crate) cc: ControllerConfig,
    /// A fixed congestion window of this many bytes: short for --cc fixed:BYTES
    #[arg(long, value_name = "BYTES", conflicts_with = "cc", value_parser = values::window)]
    pub(crate) window: Option<ControllerConfig>,
    /// Deliver in order (TCP always does)
    #[arg(long)]
    pub(crate) ordered: bool,
    /// A socket at which `towpath paths` can ask while this end runs; the file must not be there
    #[arg(long, value_name = "SOCKET")]
    pub(crate) status: Option<PathBuf>,
    /// Bytes asked for in each read of kernel TCP
    #[arg(long = "tcp-read-bytes", value_name = "BYTES", default_value = "128K",
          value_parser = values::read_bytes)]
    pub(crate) tcp_read_bytes: u32,
}

/// The flags of the bandwidth tools alone.
#[derive(Args, Clone, Debug)]
pub(crate) struct BwOnly {
    /// Measure both directions at once and add them up
    #[arg(short, long)]
    pub(crate) bidirectional: bool,
    /// Messages under way on each channel (lowered so that at most 64 MiB are); READs and atomics
    /// asked for and not done, at most 256 without --raw
    #[arg(short, long, value_name = "MESSAGES", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) tx_depth: u32,
    /// Channels of the link, TCP connections or queue pairs, among which messages go round, 1 to
    /// 256; -q times -t is at most 4096. READ and atomics have one lane: -q 1 without --raw
    #[arg(short, long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QPS_MAX)))]
    pub(crate) qp: u32,
    /// Messages handed over in one go; 0 is as many as there is room for [default: 0; with --raw on
    /// a device with a driver 1, as in perftest]
    #[arg(short = 'l', long = "post_list", value_name = "MESSAGES")]
    pub(crate) post_list: Option<u32>,
    /// With --raw, ask for a completion of each so many messages (at most half the depth); without,
    /// the transport decides [default: 100; 1 for messages of more than 8192 bytes, but not with
    /// -a, as in perftest]
    #[arg(short = 'Q', long = "cq-mod", value_name = "MESSAGES")]
    pub(crate) cq_mod: Option<u32>,
    /// Do not look for the peak
    #[arg(short = 'N', long = "noPeak")]
    pub(crate) no_peak: bool,
    /// Report in Gb/s (10^9 bits) instead of MiB/s (2^20 bytes)
    #[arg(long = "report_gbits")]
    pub(crate) report_gbits: bool,
    /// Run until interrupted; a row every -D seconds (5 by default)
    #[arg(long = "run_infinitely", conflicts_with_all = ["iters", "all"])]
    pub(crate) run_infinitely: bool,
    /// Print one number only
    #[arg(long)]
    pub(crate) output: Option<BwOutput>,
}

/// The flags of the latency tools alone.
#[derive(Args, Clone, Debug)]
pub(crate) struct LatOnly {
    /// Print all results, smallest first
    #[arg(short = 'H', long = "report-histogram")]
    pub(crate) histogram: bool,
    /// Print all results in the order they came
    #[arg(short = 'U', long = "report-unsorted")]
    pub(crate) unsorted: bool,
    /// Run until interrupted; a row every -D seconds (5 by default)
    #[arg(long = "run_infinitely", conflicts_with_all = ["iters", "all"])]
    pub(crate) run_infinitely: bool,
    /// Print one number only
    #[arg(long)]
    pub(crate) output: Option<LatOutput>,
}

/// Measures bandwidth. Start it without a host on the server, then with the same flags and the
/// server's address on the client, which prints the results. Without --raw, tow_write_* and
/// tow_send_* do the same: Towpath carries both as reliable messages. tow_read_* and tow_atomic_*
/// reach memory that the server has granted, while its program sleeps: "serving" is the processor
/// time that it took.
#[derive(Parser, Clone, Debug)]
#[command(name = "tow_write_bw", version)]
pub(crate) struct BwArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) only: BwOnly,
}

/// Measures latency: half of the round trip, with both ends polling; for READ and atomics the whole
/// round trip. Start it without a host on the server, then with the same flags and the server's
/// address on the client, which prints the results. Without --raw, tow_write_* and tow_send_* do
/// the same: Towpath carries both as reliable messages. tow_read_* and tow_atomic_* reach memory
/// that the server has granted, while its program sleeps: "serving" is the processor time that
/// it took.
#[derive(Parser, Clone, Debug)]
#[command(name = "tow_write_lat", version)]
pub(crate) struct LatArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) only: LatOnly,
}

/// The parsed command line of one of the tools.
#[derive(Clone, Debug)]
pub(crate) enum Parsed {
    Bw(BwArgs),
    Lat(LatArgs),
}

const AFTER_HELP: &str = "\
Both ends must agree on size, count, duration, direction, connection, --raw, MTU, depth, channels,
atomics, warm-up and validation; they compare, and say what differs. Device, faults, buffers and
chunks are each end's own.

Exit codes: 0 done, 1 the run failed, 2 the command line is wrong, 3 the ends do not agree.";

/// The same error, or where it is about a flag of perftest, what to do in its place.
fn known(error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let word = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => Absent::of(word),
        _ => None,
    };
    word.map_or(error, |absent| clap::Error::raw(ErrorKind::UnknownArgument, absent.message()))
}

/// The command with the defaults of `tool`.
pub(crate) fn command(tool: Tool) -> clap::Command {
    let command = match tool.is_latency() {
        false => BwArgs::command(),
        true => LatArgs::command(),
    };
    command
        .name(tool.name())
        .after_help(AFTER_HELP)
        .after_long_help(format!("{}\n\n{AFTER_HELP}", absent::list()))
        .mut_arg("size", |arg| arg.default_value(tool.default_size()))
        .mut_arg("iters", |arg| arg.default_value(tool.default_iters()))
}

/// Parses the words of a command line, the program's name first. A flag of perftest that is not
/// here gets a message of its own.
///
/// # Errors
/// clap's, which also carries `--help` and `--version`.
pub(crate) fn parse<I, T>(tool: Tool, words: I) -> Result<Parsed, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let matches = command(tool).try_get_matches_from(words).map_err(known)?;
    Ok(if tool.is_latency() {
        Parsed::Lat(LatArgs::from_arg_matches(&matches)?)
    } else {
        Parsed::Bw(BwArgs::from_arg_matches(&matches)?)
    })
}
