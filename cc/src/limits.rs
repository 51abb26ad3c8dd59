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

/// What counts as a full offloaded send: 14 packets of 4096 bytes, one fewer than fit into one
/// datagram run of 64 KiB.
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

/// How long the floor of the delays is kept, once or twice over: long enough that queues have run
/// empty within it, short enough to follow a path that has become longer. Our default.
pub const DELAY_FLOOR_SPAN: Nanos = Nanos::from_secs(10);

/// Packets of one MTU with headers, where a path has not said otherwise.
pub const PACKET_BYTES_DEFAULT: u32 = 4096;

/// The longest delay target that can be set: beyond it no queue is worth waiting for.
pub const TARGET_MAX: Nanos = Nanos::from_secs(1);

/// Swift's least window in packets, 0.001: one packet in a thousand round trips, as published.
pub const SWIFT_WINDOW_PACKETS_MIN: f64 = 0.001;

/// Swift's base target where none is set. Our default: the round trip of a pod at 100 Gb/s
/// (10 us), and as much again and a half of queue, so that the line stays busy while a window
/// recovers from a decrease.
pub const SWIFT_BASE_DEFAULT: Nanos = Nanos::from_micros(25);

/// What the base target leaves for the queue above the least round trip seen. Our default, for
/// paths that are longer than those of a pod.
pub const SWIFT_QUEUE_DEFAULT: Nanos = Nanos::from_micros(15);

/// Round trips from the start, and from a probe that found a queue, to a probe for the path's own
/// round trip, where that seems to be more than a pod's. Our default: a few milliseconds, and less
/// than one part in a hundred of them given up.
pub const SWIFT_PROBE_ROUNDS: u32 = 256;

/// The most round trips between two such probes: with them a probe of two costs nothing.
pub const SWIFT_PROBE_ROUNDS_MAX: u32 = 4096;

/// Round trips of a probe: in the first the queue runs empty, in the second that is seen.
pub const SWIFT_PROBE_SPAN_ROUNDS: u32 = 2;

/// What a probe leaves of the window, so that acks go on.
pub const SWIFT_PROBE_LEAVES: f64 = 0.125;

/// Swift's target for the delay within the hosts. Our default: a turn of a busy receiver's loop;
/// credit and receive windows bound it more strictly.
pub const SWIFT_ENDPOINT_DEFAULT: Nanos = Nanos::from_micros(100);

/// A path this long adds a packet to the window that guards the receiving host in each round trip,
/// and a longer one as many more. Our default: what the host may be late.
pub const SWIFT_ENDPOINT_STEP_SPAN: Nanos = SWIFT_ENDPOINT_DEFAULT;

/// The most that flow scaling adds to the target. Our default: twenty times the base target, so
/// that 6,000 senders of one port still find equal shares by the queue that they see.
pub const SWIFT_SCALING_DEFAULT: Nanos = Nanos::from_micros(500);

/// Windows in packets between which flow scaling goes from all to nothing. Our defaults: at 0.01 a
/// sender is one of ten thousands, at 100 it has a 100 Gb/s line nearly to itself.
pub const SWIFT_SCALING_PACKETS: (f64, f64) = (0.01, 100.0);

/// What a switch hop adds to the base target. Our default: its latency and a packet's way through.
pub const SWIFT_HOP_DEFAULT: Nanos = Nanos::from_micros(1);

/// What a window below one packet grows by with each acknowledged packet, as a part of itself. Our
/// default: such a sender hears once in many round trips; a whole packet then would be many times
/// its window, and its share would go to whoever heard last. More than two decreases take away, so
/// that thousands who all heard of a full queue fill the port again with what they hear next: under
/// 6,000 of them it is busy for 95 % of the time with 1.2, for 99 % with this and twice this.
pub const SWIFT_SMALL_GROWTH: f64 = 2.4;

/// The longest that a window below one packet makes a sender wait between two packets. Our default:
/// the least window at a round trip of 10 us. Where the round trip is long because hosts are slow,
/// a thousand of them would be seconds; and a port of 100 Gb/s carries 30,000 such senders.
pub const SWIFT_GAP_MAX: Nanos = Nanos::from_millis(10);

/// The endpoint window that delays alone never take from a sender whose path declares noise. Our
/// default: a quarter of it, the largest chunk that is cut from it, fills an offloaded send. On a
/// crowded host the noise has no bound, and the receive window protects a host.
pub const SWIFT_NOISY_PACKETS_MIN: f64 = 64.0;

/// What a sender on a shared wire may have in flight before it knows anything: ten packets of
/// Ethernet, as TCP, and half of a queue of 30 KB.
pub const SHARED_START_BYTES: u64 = 14_600;

/// The window on a shared wire that delays alone never take: with fewer packets the time that a
/// slow wire takes to send one of them looks like a queue. Losses and timeouts take more.
pub const SHARED_PACKETS_MIN: f64 = 4.0;

/// What the target on a shared wire leaves for the queue, as a part of the least round trip: an
/// eighth, as HyStart++ (RFC 9406) does.
pub const SHARED_QUEUE_PART: u64 = 8;

/// And at least: 6 KB at 1 Gb/s. Our default, so that a wire stays busy between two turns of a
/// host.
pub const SHARED_QUEUE_MIN: Nanos = Nanos::from_micros(50);

/// The window on a shared wire that losses never take, as TCP; timeouts take more.
pub const SHARED_LOST_PACKETS_MIN: f64 = 2.0;

/// What a loss that is congestion takes of the window on a shared wire: as CUBIC, RFC 9438.
pub const SHARED_DECREASE: f64 = 0.3;

/// A path this long adds a packet in each round trip, and a longer one as many more. Our default.
pub const SHARED_STEP_SPAN: Nanos = Nanos::from_millis(10);

/// The least round trip from which on a window leaves paced. Our default: above it a window has
/// many turns of a host in each round trip; below it acks come closely enough to send by.
pub const SHARED_PACED_RTT: Nanos = Nanos::from_millis(1);

/// Windows that leave in a round trip while the window doubles, as in TCP of Linux.
pub const SHARED_PACE_DOUBLING: f64 = 2.0;

/// And otherwise: a quarter more than the window, so that the window is what holds.
pub const SHARED_PACE: f64 = 1.25;

/// Rounds in a row without a sign of a queue after which growth doubles with each. Our default.
pub const SHARED_STEADY_ROUNDS: u32 = 2;

/// Rounds in a row above the target, though the window shrinks, after which the queue may be
/// somebody else's. Our default: they have taken a window to a hundredth.
pub const SHARED_LATE_ROUNDS: u32 = 8;

/// What a trial leaves of the window.
pub const SHARED_TRIAL_LEAVES: f64 = 0.125;

/// A queue that shrinks below this part of what it was when this sender lets go was its own: alone
/// it would be an eighth, beside one other that has as much some half.
pub const SHARED_OURS_PART: f64 = 0.33;

/// A queue that keeps more than this part of what it was, though this sender has halved its window,
/// is somebody else's: alone it would have halved too, or more.
pub const SHARED_THEIRS_PART: f64 = 0.6;

/// Rounds between two trials: a trial of two costs 3 % of the window, and half as much each time
/// that it finds nothing new.
pub const SHARED_TRIAL_ROUNDS: u32 = 64;

/// The most rounds between two trials.
pub const SHARED_TRIAL_ROUNDS_MAX: u32 = 1024;

/// Packets over which losses are counted.
pub const SHARED_LOSS_PACKETS: f64 = 128.0;

/// The share of losses that is no congestion on any path, as in the second version of BBR.
pub const SHARED_LOSS_SHARE_MAX: f64 = 0.02;

/// Losses in a span beside that share that are chance.
pub const SHARED_LOSS_SLACK: f64 = 2.0;

/// Random loss keeps more than this part of its share when the window has shrunk by
/// [`SHARED_DECREASE`].
pub const SHARED_RANDOM_LEFT: f64 = 0.5;

/// No more random loss than this is believed in: a path that loses more is broken or full.
pub const SHARED_RANDOM_MAX: f64 = 0.3;

/// Spans of counted packets in which most of a share of random loss is forgotten, so that it has to
/// show again: else what was taken for it once would excuse a queue that overflows for ever.
pub const SHARED_RANDOM_SPANS: f64 = 16.0;

/// And the part of packets that come through does not grow by more than this: where a queue
/// overflows it grows by 1.43, as what is sent shrinks.
pub const SHARED_RANDOM_GOODPUT: f64 = 1.2;

/// Additive increase in percent of a packet per round trip. Our default: one packet.
pub const SWIFT_INCREASE_PERCENT_DEFAULT: u32 = 100;

/// Multiplicative decrease in percent of the share of the delay that is above the target. Our
/// default.
pub const SWIFT_DECREASE_PERCENT_DEFAULT: u32 = 80;

/// The most that one decrease takes, in percent. Our default: half, as every loss-based algorithm.
pub const SWIFT_DECREASE_MAX_PERCENT_DEFAULT: u32 = 50;

/// Timeouts in a row after which the window falls to its least. Our default, the most that is in
/// use elsewhere: with their backing off five are 31 ms, and hosts whose cores are shared sleep for
/// ten.
pub const SWIFT_TIMEOUTS_TO_RESET: u32 = 5;
