//! The flags of `towpath-lossy`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::plans::Plans;
use super::values::{ValueError, parse_span};

/// The MTU of the wire between two namespaces, unless another is asked for.
pub(super) const MTU_DEFAULT: usize = 1_500;

const AFTER_HELP: &str = "\
The namespaces have an interface eth0 each: a is 10.0.0.1 and fd00::1, b is 10.0.0.2 and fd00::2.
Nothing else can be reached from them. They end with this program, and so do all processes in them.

  towpath-lossy --loss 1% --delay 20ms --in-a 'iperf3 -s -1' --wait-port 5201 -- iperf3 -c 10.0.0.1
  towpath-lossy --rate 100Mbit --queue 64KiB -- ping -c 10 10.0.0.1
  towpath-lossy --down 5s@10s            # holds the wire, and says how to enter the namespaces

Exit codes: that of COMMAND or --in-b (128 and the signal where one ended it), or of --in-a where it
is the only one; 1 when --in-a failed by itself and the other did not; 2 wrong flags; 124 --for is
over before the command; 125 this program could not do its part; 126 and 127 a command cannot be
run or found; 130 interrupted.

docs/lossy.md has recipes, and says how faults are drawn from the seed.";

/// Runs commands on two sides of a bad network: Ethernet frames of any protocol are lost, delayed,
/// copied, reordered, damaged and queued as you say
///
/// It makes two network namespaces, a and b, and a wire between them that is this program. No root
/// is needed where the system lets users make namespaces and open /dev/net/tun. The same seed
/// draws the same faults for the same sequence of frames.
#[derive(Debug, Parser)]
#[command(name = "towpath-lossy", version, after_help = AFTER_HELP)]
pub(super) struct LossyArgs {
    /// Command to run in b; the run ends when it does
    #[arg(value_name = "COMMAND", last = true, conflicts_with = "in_b")]
    pub(super) command: Vec<OsString>,
    /// Shell command to run in a, as a server: begun first, ended last
    #[arg(long, value_name = "SHELL")]
    pub(super) in_a: Option<String>,
    /// Shell command to run in b; the run ends when it does
    #[arg(long, value_name = "SHELL")]
    pub(super) in_b: Option<String>,
    /// Begin the command in b once something in a listens on this TCP port, at most 30 s later
    #[arg(long, value_name = "PORT", requires = "in_a", conflicts_with = "interfaces",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) wait_port: Option<u16>,
    /// End the run after so long, as 30s [default: when the command ends, or on Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    pub(super) limit: Option<Duration>,
    /// Make no namespaces, and join these two interfaces: from the first to the second is a to b.
    /// TAP interfaces are used as they are; others are put on a bridge for as long. COMMAND runs
    /// beside
    #[arg(long, value_names = ["IF1", "IF2"], num_args = 2,
          conflicts_with_all = ["in_a", "in_b", "interface_mtu"])]
    pub(super) interfaces: Option<Vec<String>>,
    /// MTU of the interfaces in the namespaces, 576 to 65000: above --mtu the wire swallows large
    /// packets without a word [default: as --mtu]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_000))]
    pub(super) interface_mtu: Option<u32>,
    #[command(flatten)]
    pub(super) plans: Plans,
    /// What all faults are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Print what happened to frames as one JSON object, on stdout or into a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(super) json: Option<Option<PathBuf>>,
    /// Show neither progress nor a table at the end
    #[arg(long, short)]
    pub(super) quiet: bool,
}

fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    parse_span(text).map(Duration::from)
}
