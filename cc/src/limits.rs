//! Every constant of congestion control, with the reason beside the number.

use towpath_base::Nanos;

/// The smallest window of any controller: one byte. It is never zero, so that a sender with
/// nothing in flight always has leave to send the one chunk that brings the next ack.
pub const WINDOW_BYTES_MIN: u64 = 1;

/// The largest window of any controller: 1 GiB, what 400 Gb/s fills in 20 ms.
pub const WINDOW_BYTES_MAX: u64 = 1 << 30;

/// The default of the fixed window: 512 KiB, at 40 us of round trip 105 Gb/s. On loopback it moves
/// 10 % more than 256 KiB does, and more than it no faster. What the receiver can hold bounds a
/// sender beside it: with stock socket buffers that is about 320 KiB.
pub const FIXED_WINDOW_BYTES_DEFAULT: u64 = 512 * 1024;

/// The chunk that is assumed until the first ack has told the real size: one packet.
pub const CHUNK_BYTES_INITIAL: u64 = 4096;

/// What a full offloaded send holds: 14 packets of 4096 bytes, which with the packet of the chunk
/// header make the 15 segments that fit into one datagram run of 64 KiB.
pub const OFFLOADED_SEND_BYTES: u64 = 14 * 4096;

/// The least burst of a pacer: one packet of the smallest path MTU. It is also more than what a
/// nanosecond carries at 2 Tb/s, so that rounding to whole nanoseconds never loses credit.
pub const BURST_BYTES_MIN: u64 = 256;

/// How late a send may come and still be made up for: the default timer slack of Linux. It
/// also keeps a slow sender's burst small, where a whole offloaded send would be many windows.
pub const PACER_LATE_MAX: Nanos = Nanos::from_micros(50);

/// Samples in the median of recent round trips: up to four outliers of nine do not move it.
/// This is our default; it comes from no paper.
pub const RTT_RECENT_SAMPLES: usize = 9;

/// The minimum covers the last one to two of these many samples: enough to span a burst, few
/// enough to forget a path that is gone within milliseconds of traffic.
pub const RTT_MIN_WINDOW_SAMPLES: u32 = 256;

/// Longer samples count as this one: beyond a minute it was a suspended host, not a network.
pub const RTT_SAMPLE_MAX: Nanos = Nanos::from_secs(60);

/// Default floor of the retransmission timeout. Gaps and tail probes find nearly every loss
/// first, so it need not be tight; below a scheduler's slice it would fire on busy hosts.
pub const RTO_MIN_DEFAULT: Nanos = Nanos::from_millis(1);

/// Default ceiling of the timeout, backed off or not: the delay after which a path that came
/// back is noticed.
pub const RTO_MAX_DEFAULT: Nanos = Nanos::from_secs(1);

/// Default timeout before the first sample: several round trips across a region, because a
/// duplicate of the first chunk costs less than a stall of a second.
pub const RTO_INITIAL_DEFAULT: Nanos = Nanos::from_millis(20);

/// Default granularity `G` of RFC 6298: timers of a blocked thread are no finer than its slack.
pub const RTO_GRANULARITY_DEFAULT: Nanos = Nanos::from_micros(50);
