//! Limits of the perftest-style tools, each with its reason.

use std::time::Duration;

/// The version of the conversation on the set-up connection; both ends must have the same.
pub(crate) const CONTROL_VERSION: u32 = 5;

/// The longest note on the set-up connection. Ours are below 2 KiB; a stranger's line ends here.
pub(crate) const NOTE_BYTES_MAX: usize = 64 << 10;

/// The longest message: with two of them under way at each end memory stays below 4 GiB.
pub(crate) const SIZE_MAX: u32 = 1 << 30;

/// What `-a` ends with, as in perftest.
pub(crate) const ALL_SIZES_LOG2: std::ops::RangeInclusive<u32> = 1..=23;

/// Bytes under way at each end; depth is lowered for large messages to stay within. Far above any
/// window, and it keeps the buffers of `-a` below half a gibibyte.
pub(crate) const UNDER_WAY_BYTES_MAX: usize = 64 << 20;

/// The most messages under way over all channels: what a link takes by default.
pub(crate) const UNDER_WAY_MAX: u32 = 4096;

/// Payloads beyond those of messages under way: an answer may be here before the outcome of what it
/// answers, and the next message does not wait for that.
pub(crate) const SPARE_PAYLOADS: u32 = 1;

/// Paths of a link: what both the protocol and the source ports of the userspace NIC have.
pub(crate) const PATHS_MAX: i64 = 16;

/// Channels, connections or queue pairs: with 16 messages under way on each, as many as a link
/// takes ([`UNDER_WAY_MAX`]).
pub(crate) const QPS_MAX: u32 = 256;

/// Bytes that kernel TCP is handed in one call, at least one message: what iperf3 hands it.
pub(crate) const TCP_WRITE_BYTES: usize = 128 << 10;

/// How long a peer may do nothing while something is due.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an end whose message was given up waits to hear why: its link has ended then, and says
/// so as soon as the device has let go. And how long one whose peer has left waits for its words.
pub(crate) const WHY_WAIT: Duration = Duration::from_secs(1);

/// Notes that are read of a peer that has left, for its last words: more than it says in a row.
pub(crate) const LAST_NOTES_MAX: usize = 16;

/// One-sided operations under way: what a link takes.
pub(crate) const LANE_DEPTH_MAX: u32 = 256;

/// How long the client asks for a server that is not there yet: scripts start both at once.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Polls in a row that find nothing, some 50 us, after which an end that polls gives its CPU away:
/// ten times a round trip, so hardly ever while both ends run, and on a crowded machine it lets the
/// peer.
pub(crate) const IDLE_POLLS_MAX: u32 = 128;

/// The same on a device with a driver: never, as perftest. The driver works on while we poll, and a
/// wake-up is many round trips long: where machines are crowded, ends that wait wake each other in
/// turn for every message.
pub(crate) const DRIVER_IDLE_POLLS_MAX: u32 = u32::MAX;

/// For how long a TCP end does so at a time. Not `sched_yield`: called again and again it puts the
/// caller behind everybody on the machine, for seconds where there are many.
pub(crate) const IDLE_SLEEP: Duration = Duration::from_micros(20);

/// Turns between two looks at the set-up connection (a system call) and at the watchdog.
pub(crate) const TURNS_PER_LOOK: u32 = 64;

/// The same for the latency test, where each look would show in a sample.
pub(crate) const LATENCY_TURNS_PER_LOOK: u32 = 8192;

/// Buffers of the latency test: replies carry the acks, so few are ever under way.
pub(crate) const LATENCY_BUFFERS: u32 = 64;

/// Rounds of a latency warm-up: enough for caches, clocks and the round-trip estimate.
pub(crate) const WARM_UP_ROUNDS: u64 = 200;

/// Seconds of a row of a run without end unless `-D` says otherwise, as in perftest.
pub(crate) const FOREVER_ROW_SECONDS: f64 = 5.0;

/// Work longer than this shows a progress bar.
pub(crate) const SILENT_SPAN: Duration = Duration::from_secs(2);

/// Latency samples kept: 80 MB. Longer runs keep the first so many.
pub(crate) const SAMPLES_MAX: usize = 10_000_000;

/// Pieces of credit unless `-r` says otherwise: of long messages two windows of a datacentre or of
/// loopback.
pub(crate) const RX_DEPTH: u32 = 128;

/// Receives of a raw queue pair unless `-r` says otherwise, as in perftest.
pub(crate) const RAW_RX_DEPTH: u32 = 512;

/// What an acknowledgement may take on raw RC unless `-u` says otherwise, as in perftest: 67 ms.
pub(crate) const RAW_QP_TIMEOUT: u8 = 14;

/// What an atomic works on.
pub(crate) const ATOMIC_BYTES: u32 = 8;

/// A raw bandwidth run asks for a completion of each so many sends unless `-Q` says otherwise, as
/// in perftest, and of each where messages are longer than [`CQ_MOD_BYTES_MAX`].
pub(crate) const CQ_MOD: u32 = 100;

/// The longest messages of which not each is asked for a completion.
pub(crate) const CQ_MOD_BYTES_MAX: u32 = 8192;

/// A raw latency run asks for a completion of each so many sends: replies tell the rest.
pub(crate) const LATENCY_SIGNAL_EVERY: u32 = 16;

/// Where messages may be lost for good, nothing for so long after the last was sent means that
/// the rest is. Far above any queue on the way, emulated machines included.
pub(crate) const LOST_AFTER: Duration = Duration::from_millis(500);

/// What of the time between two looks at what has come counts as quiet: one that was away for
/// longer does not know what came meanwhile.
pub(crate) const QUIET_LOOK_MAX: Duration = Duration::from_millis(10);

/// How long an end that is only acted upon sleeps at a time: nobody waits for it but at the end of
/// a row, and a busy end would take the processor from the driver's own work.
pub(crate) const PASSIVE_WAIT: Duration = Duration::from_millis(2);

/// The same where what comes on the set-up connection wakes it: perftest's sleeps in reading that,
/// and wake-ups that find nothing take from the driver, too.
pub(crate) const PASSIVE_WAIT_WATCHED: Duration = Duration::from_millis(100);

/// Completions taken at a time.
pub(crate) const POLL_BATCH: usize = 64;

/// Packets that a device in software may take in at a time, as an endpoint's default.
pub(crate) const PROGRESS_BUDGET: usize = 64;

/// Bytes that a device puts in front of a datagram that it receives (the GRH).
pub(crate) const GRH_BYTES: u32 = 40;
