//! Limits of the protocol, each with its reason. Those that both ends must agree on say so.

use towpath_base::Nanos;

/// Bytes of a chunk header on the wire (docs/protocol.md section 3).
pub const HEADER_BYTES: usize = 64;

/// Bytes of a unit of the table of frames (both ends): a frame that is a whole message takes one.
pub const FRAME_UNIT_BYTES: usize = 16;

/// The most units of the table of frames (both ends): what fits eight bits of the header. With
/// messages of 64 bytes a chunk is then 20 KiB.
pub const FRAME_UNITS_MAX: usize = 255;

/// A chunk with so many frames is full: the peer takes these in while the next ones are put
/// together. Would all that is ready go in one, the two would take turns.
pub const FRAMES_FULL: usize = 64;

/// The most frames of a chunk.
pub const FRAMES_MAX: usize = FRAME_UNITS_MAX + 1;

/// Short payloads begin at multiples of this in a chunk, and parts in their pieces (both ends).
pub const FRAME_ALIGN_BYTES: usize = 8;

/// Payloads up to here begin at multiples of [`FRAME_ALIGN_BYTES`] (both ends). Longer ones are
/// gathered from where they are, and padding between two would take a gather entry.
pub const ALIGNED_PAYLOAD_MAX: usize = 512;

/// Where a sender asks for it, payloads of a page and more begin at multiples of this in a chunk
/// (both ends), so that they land at pages.
pub const PAGE_BYTES: usize = 4096;

/// Of a chunk so much may be padding in front of payloads that begin at a page: one byte in eight.
/// More would cost a network more than a SEND of its own costs the hosts.
pub const PADDING_SHARE: usize = 8;

/// Pieces that are not the rest of a segment are at least as long, whatever the path bears (both
/// ends): each holds a credit and a buffer of the receiver. Where chunks are shorter, pieces go in
/// parts, which the receiver copies.
pub const PIECE_BYTES_MIN: usize = 16 << 10;

/// A part that joins other frames is at least as long: shorter ones cost more than they fill.
pub const PART_BYTES_MIN: usize = 512;

/// Payloads up to here are copied when they share a chunk, rather than gathered: that costs less
/// up to about here.
pub const COPIED_PAYLOAD_MAX: usize = ALIGNED_PAYLOAD_MAX;

/// What a driver copies for one chunk, at most: short payloads, what is between payloads, and the
/// table of frames. Messages of 512 bytes fill it with 31.
pub const COPIED_BYTES_MAX: usize = 16 << 10;

/// Frames of one path that are under way, at most: 4 MiB of what is known of them.
pub const FRAMES_OUTSTANDING_MAX: usize = 1 << 16;

/// The longest chunk unless it is told otherwise, in bytes behind the header: with that it makes
/// the 15 packets of 4,096 bytes that one offloaded socket send holds.
pub const CHUNK_BYTES_MAX: u32 = 15 * 4096 - HEADER_BYTES as u32;

/// How far `next` may be ahead of the oldest outstanding transmission number (both ends): what the
/// selective bitmap of an ack covers. At 60 KiB a chunk it is 240 MiB in flight.
pub const NUMBER_WINDOW: u64 = 4096;

/// Transmission numbers end here (both ends): a path that sends a billion chunks a second would get
/// there in 292 years, and sums with a window never overflow.
pub const NUMBER_MAX: u64 = u64::MAX >> 1;

/// The longest ack: header, bitmap, credit entries (both ends).
pub const ACK_BYTES_MAX: usize = HEADER_BYTES + NUMBER_WINDOW as usize / 8 + 8 * ACK_CREDITS_MAX;

/// Credit entries of one ack; more wait for the next.
pub const ACK_CREDITS_MAX: usize = 32;

/// Open message ids of a channel in one direction (both ends): eight times the deepest queue that
/// storage clients use.
pub const MESSAGE_WINDOW: u64 = 1024;

/// How far a message's newest piece may be ahead of its oldest unacknowledged one (both ends).
pub const CHUNK_WINDOW: u64 = 1024;

/// The longest message: what InfiniBand allows, and offsets stay 32-bit.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// Segments of a message: header, data, checksums and one to spare.
pub const SEGMENTS_MAX: usize = 4;

/// Control chunks outstanding per link and direction (both ends): the receiver keeps buffers for
/// them beyond all grants.
pub const CONTROL_OUTSTANDING_MAX: usize = 8;

/// How far the newest control sequence may be ahead of the oldest outstanding one (both ends).
pub const CONTROL_WINDOW: u64 = 64;

/// Control chunks that wait to be sent. Each belongs to a channel or message that exists, so
/// callers see [`crate::SendError::Full`] long before; the rest is a peer's flood, refused.
pub const CONTROL_QUEUE_MAX: usize = 4096;

/// Operations of a lane that may be under way on a link: four times what keeps a 100 Gb/s line busy
/// with 4 KiB READs at a round trip of 20 us.
pub const LANE_OPS_MAX: usize = 256;

/// Grants of each end of a link, and messages of the peer about such that are not known: each is a
/// registration of the device.
pub const LANE_GRANTS_MAX: usize = 1024;

/// Grants of the peer that are known at a time: a GRANT may overtake the REVOKE that made room for
/// it, as far as control chunks may overtake each other.
pub const LANE_GRANTS_KNOWN_MAX: usize = LANE_GRANTS_MAX + CONTROL_WINDOW as usize;

/// Pieces that the peer may have outstanding on the channel of a lane, beside `credit_total`: twice
/// the requests without an answer that an endpoint has. With the credit of the other channels an
/// application that opens as many as it may would leave the lane none.
pub const LANE_QUOTA_CHUNKS: u32 = 64;

/// What an operation counts against the window beside its bytes: a request, or an answer, with its
/// headers.
pub const LANE_CHARGE_BYTES: u64 = 80;

/// How long the queue pair of a lane that has failed twice in a row waits to be made anew. It
/// doubles with each further failure.
pub const LANE_RETRY_FIRST: Nanos = Nanos::from_millis(10);

/// And at most: an operation with a deadline of some seconds is tried again.
pub const LANE_RETRY_LONGEST: Nanos = Nanos::from_secs(1);

/// What one message of a lane says, at most (both ends): the shortest piece, so that each takes one
/// credit. Longer READs and WRITEs go in several.
pub const LANE_MESSAGE_BYTES_MAX: u32 = PIECE_BYTES_MIN as u32;

/// Channels that each side may open on a link. Their places, twice as many, fit 16 bits; 16,384 is
/// above the 10,000 that one host pair is asked to carry.
pub const CHANNELS_MAX: u32 = 1 << 14;

/// NICs that an end of a link tells its peer of.
pub const NICS_MAX: usize = 4;

/// Paths of a link (both ends).
pub const PATHS_MAX: usize = 16;

/// The control queue pair, where a RENEW names a path: the first number that no path has.
pub(crate) const CONTROL_PATH: u32 = PATHS_MAX as u32;

/// While acks arrive a link retires no more than one path in this time: a host that is slow must
/// not send a fleet to other paths.
pub const PATH_CHANGE_INTERVAL: Nanos = Nanos::from_secs(1);

/// After a false alarm of duplicates none is heeded for so long: some time slices of a scheduler,
/// for who was away will be again.
pub(crate) const CALM_MIN: Nanos = Nanos::from_millis(64);

/// And for no longer than this after any number of them, as for other changes of paths while
/// acks arrive.
pub(crate) const CALM_MAX: Nanos = PATH_CHANGE_INTERVAL;

/// Calm that is over for so long is forgotten.
pub(crate) const CALM_MEMORY: Nanos = Nanos::from_secs(10);

/// A source port that swallowed what was sent is left alone for so long: switches are mended in
/// minutes, and there are others.
pub const PORT_REST: Nanos = Nanos::from_secs(64);

/// Source ports that rest at a time: two for each path.
pub const PORTS_RESTING_MAX: usize = 2 * PATHS_MAX;

/// Ports that are looked at for one that is neither taken nor at rest: more than can be either.
pub const PORTS_SCAN_MAX: u32 = 64;

/// While nothing answers, ways are tried every tick so many times, then at intervals that double
/// to 32 ticks: with one of 16 ways alive, four paths have found it by then in 99 cases of 100.
pub const SILENT_ROUNDS_PROMPT: u32 = 24;

/// Rounds of silence in which ports that rest are spared: by then four paths have found one of 16
/// ways in four cases of five, and after that it may be one that rests for another's fault.
pub const SILENT_ROUNDS_SPARING: u32 = 8;

/// Moves of an only path that follow each other without backing off: with one of 16 ways alive it
/// is found by then, within a second, in 499 cases of 500.
pub const SILENT_MOVES_PROMPT: u32 = 96;

/// Chunks in a row without an answer, for an SLA tick, that condemn a path although others lose
/// chunks too: where one in three is lost, so many are lost in a row once in 6,000 times.
pub const UNANSWERED_MIN: u64 = 8;

/// The first quarantine of a path; each further one is twice as long, up to the longest.
pub const QUARANTINE_FIRST: Nanos = Nanos::from_secs(1);

/// A path that flaps for hours is still looked at each minute or so: the one that works may be it.
pub const QUARANTINE_LONGEST: Nanos = Nanos::from_secs(64);

/// Doubts that are borne before a path counts as one that comes and goes: at a few per cent of
/// loss a path falls silent by chance now and then.
pub const DOUBTS_MAX: u32 = 3;

/// A carrier that was left is silent for so long before its paths try other ports: routes that
/// converge and cables that flap are back by then.
pub const DARK_AFTER: Nanos = Nanos::from_secs(3);

/// A path that was good for so long has one doubt and one quarantine forgiven.
pub const FORGIVE_AFTER: Nanos = Nanos::from_secs(10);

/// Probes in a row without an answer that condemn a path: one or two are lost by chance.
pub const PROBES_UNANSWERED_MAX: u32 = 3;

/// Probes in a row that must be answered before a path is used again: a path that loses half of
/// its packets passes one time in eight.
pub const PROBES_TO_RETURN: u32 = 3;

/// Sends in a row that are lost and have packets too long for the next smaller size, before it is
/// asked whether such get through: fewer are lost whenever a queue is full.
pub(crate) const MTU_LOST_MIN: u32 = 4;

/// Pairs of probes in a row of which only the short one was answered, before packets of the size of
/// the other count as swallowed. Where each packet is lost with the same chance, whatever that is,
/// this happens less than once in 2^12 times.
pub(crate) const MTU_PAIRS_MIN: u32 = 12;

/// The same where something else says so, too: the host's routing, or another path. It is what RFC
/// 8899 takes for enough (MAX_PROBES).
pub(crate) const MTU_PAIRS_HINTED: u32 = 3;

/// Pairs under way at a time: so it takes about two round trips to send those that decide.
pub(crate) const MTU_PAIRS_OPEN: usize = 16;

/// Pairs are no closer, so that one full queue does not take all.
pub(crate) const PROBE_SPACING_MIN: Nanos = Nanos::from_millis(1);

/// A path is asked for the size in use no sooner after the last time: at a loss of 30 % it is
/// doubted and cleared again and again.
pub(crate) const MTU_DOUBT_INTERVAL: Nanos = Nanos::from_millis(4);

/// When a path that carries less than both ends can do is asked again (PMTU_RAISE_TIMER of RFC
/// 8899, where it is 600 s), the next time after twice as long, up to the longest: an answer costs
/// a few dozen packets, which are sent only while there is something to send in longer ones, and a
/// path that is mended is to be used.
pub(crate) const MTU_RAISE_FIRST: Nanos = Nanos::from_secs(1);
/// See [`MTU_RAISE_FIRST`].
pub(crate) const MTU_RAISE_LONGEST: Nanos = Nanos::from_secs(64);

/// Carriers are asked a few times within the time after which a silent one is left, but no more
/// often than a host may be off its CPU, and no less often than a user would notice.
pub const CARRIER_PROBE_MIN: Nanos = Nanos::from_millis(2);
/// See [`CARRIER_PROBE_MIN`].
pub const CARRIER_PROBE_MAX: Nanos = Nanos::from_millis(100);

/// How often the stay on a worse carrier doubles at most: from a second to about a minute.
pub const CARRIER_STAY_DOUBLINGS: u32 = 6;

/// The longest pause between probes of a path that is in doubt.
pub const PROBE_INTERVAL_MAX: Nanos = Nanos::from_millis(100);

/// An idle link asks for a sign of life this often.
pub(crate) const PING_INTERVAL: Nanos = Nanos::from_secs(2);

/// What a sender may send at once, in bytes, where its pace is no reason to wait.
pub(crate) const BURST_BYTES: u64 = 64 << 10;

/// The duplicate of a run at which acks go another way: one comes of a tail-loss probe that
/// crossed its ack.
pub const DUPLICATES_MAX: u32 = 2;

/// What may be in flight over TCP, which paces itself: some times what a fast path holds, and not
/// so much that what is in its buffers makes the rest wait for long.
pub const STREAM_WINDOW_BYTES: u64 = 1 << 20;

/// The most credit that may be outstanding on a channel: 16-bit credit is exact below this.
pub const CREDIT_OUTSTANDING_MAX: u32 = 1 << 15;

/// The smallest quota of a channel. A message that is held whole has half of the quota in full
/// pieces, and its segments may add a short piece each: all of them together must fit.
pub const QUOTA_CHUNKS_MIN: u32 = 2 * SEGMENTS_MAX as u32;

/// A chunk that was overtaken is waited for no longer than this. A path that reorders by more is
/// one where waiting costs more than sending again.
pub const REORDER_SPAN_MAX: Nanos = Nanos::from_millis(32);

/// So long after chunks overtook each other on a path, chunks that come twice there say nothing of
/// the way that acks take: their sender may have taken those for lost that were late.
pub(crate) const DISORDER_MEMORY: Nanos = Nanos::from_secs(1);

const _: () = assert!(MESSAGE_WINDOW <= NUMBER_WINDOW && CHUNK_WINDOW <= NUMBER_WINDOW);
const _: () = assert!(PORTS_SCAN_MAX as usize > PATHS_MAX + PORTS_RESTING_MAX);
const _: () = assert!(NUMBER_WINDOW.is_power_of_two());

/// A queue pair that has failed is made anew after this. What made it fail lasts for a while as a
/// rule (a queue pair of RC gives up after 0.3 s where there is another carrier), and meanwhile the
/// link is on that.
pub const RENEWAL_FIRST: Nanos = Nanos::from_millis(100);

/// Each life of it that soon ended doubles that, so often at most: to about a minute and a half.
pub const RENEWAL_DOUBLINGS: u32 = 10;

/// From which share of lost packets in such a span on is too much lost: far above what congestion
/// does.
pub(crate) const HOPELESS_LOSS: f64 = 0.25;

/// So many spans in a row must be bad before a carrier that answers counts as hopeless: a second by
/// default, which no burst lasts.
pub const HOPELESS_SPANS: u32 = 4;

/// Packets that are sent in a span in which too many can be said to be lost.
pub const HOPELESS_PACKETS_MIN: u64 = 32;

/// Probes in a row that must be answered on a carrier that was left for loss: one that loses a
/// packet in four either way passes one time in a thousand, one that loses one in a hundred four
/// times in five.
pub const PROBES_TO_RETURN_AFTER_LOSS: u32 = 12;

/// What takes longer from the driver's hands to the wire is no lag: a queue, or clocks that do not
/// agree.
pub(crate) const LAG_MAX: Nanos = Nanos::from_millis(10);
