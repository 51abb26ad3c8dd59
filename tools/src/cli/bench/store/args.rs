//! The flags of `towpath bench store`.

use clap::{Args as ClapArgs, ValueEnum};
use towpath_fastpath::ChunkId;

use crate::cli::args::{ServerArgs, parse_chunk};
use crate::cli::bytes::parse_size;

const AFTER_HELP: &str = "\
The words are fio's. Each job is a thread with a link and chunks of its own and keeps --iodepth
requests under way. A request is one read or one write of --bs bytes at a multiple of --bs. A write
counts when the server has made it durable. Latency is the time from the submission of a request to
its answer. Random offsets reach each block once before they reach one again.

Chunks are written before the measurement where reads need bytes, and with --overwrite or --age.
All chunks that this command makes it removes at the end, unless --keep.

  towpath bench store --rw randwrite --bs 4k --iodepth 32 127.0.0.1:7400
  towpath bench store --rw randread --runtime 10 --time-based --size 1g --numjobs 2
  towpath bench store --rw randrw --rwmixread 70 --verify --json";

/// Flags of `towpath bench store`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = AFTER_HELP, mut_arg("seed", |seed| seed
    .help("Seed of offsets, of the mix of reads and writes, and of contents; of losses as well")
    .help_heading(None::<&'static str>)
    .hide_short_help(false)))]
pub(crate) struct StoreArgs {
    /// What requests do
    #[arg(long, value_name = "KIND", visible_alias = "readwrite", value_enum,
          default_value_t = Kind::Randread)]
    pub(super) rw: Kind,
    /// Percentage of reads where reads and writes are mixed, 0 to 100
    #[arg(long, value_name = "PERCENT", default_value_t = 50,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) rwmixread: u8,
    /// Bytes of a request: 512 to 1M, a multiple of 4,096 or a divisor of it
    #[arg(long, value_name = "BYTES", default_value = "4k", value_parser = parse_block)]
    pub(super) bs: u64,
    /// Requests that each job has under way, 1 to 256
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) iodepth: u32,
    /// Jobs, each a thread with a link of its own, 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) numjobs: u32,
    /// Bytes that each job works on
    #[arg(long, value_name = "BYTES", default_value = "64m", value_parser = parse_size)]
    pub(super) size: u64,
    /// Chunks that the bytes of a job are in, 1 to 1,024
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) nrfiles: u32,
    /// Bytes that each job reads and writes before it ends [default: --size]
    #[arg(long, value_name = "BYTES", alias = "io_size", value_parser = parse_size,
          conflicts_with = "time_based")]
    pub(super) io_size: Option<u64>,
    /// Seconds after which the measurement ends, if its bytes are not done before
    #[arg(long, value_name = "SECONDS", value_parser = parse_runtime)]
    pub(super) runtime: Option<f64>,
    /// Go on for all of --runtime, as often over the bytes as it takes
    #[arg(long, alias = "time_based")]
    pub(super) time_based: bool,
    /// Seconds of load before the measurement begins
    #[arg(long, value_name = "SECONDS", alias = "ramp_time", default_value_t = 0.0,
          value_parser = parse_ramp)]
    pub(super) ramp_time: f64,
    /// Write all bytes before the measurement, so that writes replace bytes
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Before the measurement write all bytes, then each page (4 KiB, or --bs if that is less) N
    /// times more, in random order
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) age: u32,
    /// Check by content what is read: seed, chunk, offset and version of each page
    #[arg(long)]
    pub(super) verify: bool,
    /// Work on this chunk, 32 hexadecimal digits; once for each chunk of each job. One that exists
    /// is not removed, and with enough bytes not written before the measurement. Writes replace
    /// what it holds
    #[arg(long, value_name = "ID", value_parser = parse_chunk)]
    pub(super) chunk: Vec<ChunkId>,
    /// Do not remove the chunks at the end; the report names them
    #[arg(long)]
    pub(super) keep: bool,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// What requests do, in fio's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Sequential reads and writes, mixed
    #[value(alias = "readwrite")]
    Rw,
    /// Random reads and writes, mixed
    Randrw,
}

impl Kind {
    /// Its word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
            Self::Rw => "rw",
            Self::Randrw => "randrw",
        }
    }

    /// Whether offsets are random.
    pub(super) fn is_random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite | Self::Randrw)
    }

    /// The percentage of reads, where `mix` is that of mixed requests.
    pub(super) fn read_percent(self, mix: u8) -> u8 {
        match self {
            Self::Read | Self::Randread => 100,
            Self::Write | Self::Randwrite => 0,
            Self::Rw | Self::Randrw => mix,
        }
    }
}

fn parse_block(text: &str) -> Result<u64, &'static str> {
    match parse_size(text) {
        Ok(bytes) if (512..=1 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("512 to 1M"),
    }
}

/// A day is more than enough for a measurement.
const SECONDS_MAX: f64 = 86_400.0;

fn parse_runtime(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok(seconds),
        _ => Err("seconds, more than 0 and at most 86,400"),
    }
}

fn parse_ramp(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(seconds) if (0.0..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err("seconds, 0 to 86,400"),
    }
}
