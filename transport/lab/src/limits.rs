//! What is bounded, and why so.

use std::time::Duration;
use towpath_base::Nanos;

/// Turns of one host at one instant before the run counts as stuck: a host that moves 16 MiB in
/// 256-byte packets at one instant needs some thousands.
pub const TURNS_PER_INSTANT_MAX: u32 = 100_000;

/// Steps of one run: a 16 MiB message in packets of 1,024 bytes, each sent three times, with its
/// acks, takes about 200,000.
pub const STEPS_MAX: u64 = 5_000_000;

/// The virtual time that one wait within a run may take. The longest that anything in the core
/// waits is the silence that means death, 10 s, a few times over.
pub const WAIT_MAX: Nanos = Nanos::from_secs(120);

/// Packets of the trace that a failure shows.
pub const TRACE_TAIL: usize = 24;

/// Polls after both ends of a link are down within which every buffer must be home.
pub const DRAIN_TURNS: u32 = 4;

/// How long the outcome of a posted message may take, in real time.
pub const PATIENCE: Duration = Duration::from_secs(10);
