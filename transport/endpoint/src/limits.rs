//! Limits of an endpoint, each with its reason.

use towpath_base::Nanos;
use towpath_proto::limits::ACK_BYTES_MAX;
use towpath_verbs::RcAttr;

/// Work requests handed to the device in one call, and completions taken in one: more gains
/// nothing measurable and delays what waits behind.
pub(crate) const BATCH: usize = 128;

/// A turn's payload up to this, a packet of the largest MTU, leaves before the turn's bookkeeping
/// is done: 0.05 us of the 4 that a short message takes through sockets. More has its time in the
/// system call, and rather shares that with acks.
pub(crate) const SOON_BYTES: u64 = 4096;

/// What a link hands to the device in one turn, where links of several classes take turns: about a
/// chunk, so that who is more urgent waits no longer.
pub(crate) const TURN_BYTES: u64 = 64 << 10;

/// The longest message that comes whole. Half the default quota of a channel holds four times as
/// much in pieces of 16 KiB, the shortest that a long message is cut into.
pub(crate) const WHOLE_BYTES_MAX: u32 = 252 << 10;

/// What a link may have posted and not sent: 21 us at 100 Gb/s.
pub(crate) const AHEAD_BYTES: u64 = 256 << 10;

/// The longest chunks that a link may send in a turn where posting is sending: so many share what a
/// turn costs, which is seven times what a chunk costs the software.
pub(crate) const TURN_CHUNKS: u64 = 8;

/// And no more bytes than these: copying them takes some 10 us, less than [`AHEAD_BYTES`] wait on
/// a wire, and what is sent should still be in a core's cache when it is taken in.
pub(crate) const SENT_AT_ONCE_BYTES: u64 = 512 << 10;

/// What a link that rides on RC may have posted, where less may be ahead of a newcomer: a send of
/// RC is over when the peer has acknowledged it. 84 us at 100 Gb/s, more than a round trip within
/// a cluster.
pub(crate) const RC_WINDOW_BYTES: u64 = 1 << 20;

/// Chunks of several frames that the device may have at a time of a link: more than may be ahead
/// ([`SENT_AT_ONCE_BYTES`]) of the shortest that a full window lets go. Few are in use, and
/// touched, at a time.
pub(crate) const COMPANY: usize = 64;

/// Every so many work requests of a batch ask for a completion, and the last one does. UC
/// completes in order, so one completion tells of all before it.
pub(crate) const SIGNAL_EVERY: usize = 16;

/// Receives posted to the control queue pair of a link. Acks are cumulative: one that finds no
/// buffer is made good by the next.
pub(crate) const CONTROL_RECVS: usize = 64;

/// Acks of a link that may be in the device's hands.
pub(crate) const CONTROL_SENDS: usize = 32;

/// A slot for an ack: the longest one, rounded up to what pools carve.
pub(crate) const CONTROL_SLOT_BYTES: usize = ACK_BYTES_MAX.next_power_of_two();

/// Messages under way that hold a receive work request without a completion: one per path.
pub(crate) const PARTIAL_PER_PATH: usize = 1;

/// Paths of a link unless its owner chooses a number: when a route dies three others go on. More
/// cost acks and receives, and gain little.
pub(crate) const PATHS_DEFAULT: usize = 4;

/// One in so many paths is held back where a path that dies cannot go on from another source port:
/// of four ways one is left when the others die together, and three spread load nearly as well.
pub(crate) const SPARE_ONE_IN: usize = 4;

/// Probes of paths use no credit: one and a repetition may be under way on each.
pub(crate) const PROBES_PER_PATH: usize = 2;

/// The fewest numbers that a path of several may have outstanding: at 60 KiB a chunk it is what
/// 100 Gb/s have under way in 155 us.
pub(crate) const PATH_CHUNKS_MIN: usize = 32;

/// Receives posted for all links of a class where nothing arrives but in a poll, which takes in far
/// fewer: what 30 links have that may each have all of theirs under way. What is not used of them
/// is not touched, and costs 200 bytes each.
pub(crate) const RECEIVES_REPLENISHED: usize = 1 << 14;

/// Receive buffers that links and applications may hold at a time by default, of all links:
/// 7.5 GiB at 60 KiB each.
pub(crate) const RECEIVE_BUFFERS_MAX: usize = 1 << 17;

/// Receive buffers made at a time while a link runs: each lot costs two registrations.
pub(crate) const SLOTS_AT_A_TIME: usize = 64;

/// Free receive buffers that keep their memory when others give it back: one lot, which a small
/// burst uses again.
pub(crate) const SHRINK_KEEPS: usize = SLOTS_AT_A_TIME;

/// Receive buffers whose memory is given back in one turn: some 0.1 ms of system calls.
pub(crate) const SHRINK_AT_A_TIME: usize = 16;

/// And so long passes before the next few.
pub(crate) const SHRINK_PAUSE: Nanos = Nanos::from_micros(500);

/// What may be in flight to a device that does not bound its receive buffer.
pub(crate) const WINDOW_UNBOUNDED_BYTES: u64 = 1 << 30;

/// Regions an endpoint knows: looking one up is a scan, and pools need few.
pub(crate) const REGIONS_MAX: usize = 256;

/// Links that may have one-sided operations: each takes a protection domain, an RC queue pair and
/// places for its operations in a completion queue.
pub(crate) const LANES_MAX: usize = 1024;

/// Channels of the lanes by messages of a link: each end opens one.
pub(crate) const LANE_CHANNELS: usize = 2;

/// One-sided operations of a link that are posted at a time. What waits beyond them is not at the
/// device.
pub const LANE_OPS_POSTED: usize = 128;

/// Requests of a lane by messages that have no answer yet: with those of the peer they leave most
/// of the messages that a link may have under way to the application.
pub(crate) const LANE_REQUESTS_MAX: usize = 32;

/// Buffers for what the lanes of an endpoint say by messages: 4 MiB, of which the host gives what
/// is used.
pub(crate) const LANE_BUFS: usize = 256;

/// How long an answer on a lane by messages waits for a peer that takes none in. Then its channel
/// is closed, and the peer's operations end. As long as a peer that says nothing is waited for.
pub(crate) const LANE_ANSWER_WAIT: Nanos = Nanos::from_secs(10);

/// READs and atomics of a lane that are at the device at a time: what NICs of all makes have.
/// Others wait behind them.
pub const LANE_READS_MAX: u32 = 16;

/// How the RC queue pair of a lane insists: it gives up after some 120 ms in which nothing is
/// acknowledged, and is made anew. (Seven retries are endless on rxe, and then nobody would learn
/// that the peer's half is gone.)
pub(crate) const LANE_RC: RcAttr = RcAttr {
    timeout: 12,
    retry_cnt: 6,
    rnr_retry: 7,
    min_rnr_timer: 12,
    max_rd_atomic: LANE_READS_MAX as u8,
    max_dest_rd_atomic: LANE_READS_MAX as u8,
};

/// Addresses that an endpoint listens on.
pub(crate) const LISTENERS_MAX: usize = 8;

/// Connections that are being made at a time, peers on their way to another worker, peers that wait
/// for a place, and refused peers whose connections are still read. Each costs a socket and below a
/// kilobyte.
pub(crate) const HANDSHAKES_MAX: usize = 64;

/// Handshakes of sealed links that work in one look at set-up conversations: each step costs up to
/// 0.4 ms, for which links wait. The others have their turn in the next look.
pub(crate) const HANDSHAKES_PER_LOOK: usize = 4;

/// Peers that have connected and whose HELLOs are not whole: when one more comes one of them gives
/// way. Each costs a socket and below a kilobyte. So many, so that peers who come all at once have
/// their HELLOs here before it is their turn: at [`ACCEPTS_PER_POLL`] that is 32 ms, or ever,
/// where no flood goes on. A fourth of the descriptors that processes have by default.
pub(crate) const INCOMING_MAX: usize = 256;

/// One of them is looked at again after this part of its age: each look is a system call, and a
/// HELLO that is late is taken in later by an eighth at most.
pub(crate) const INCOMING_LOOKS_PER_AGE: u64 = 8;

/// How long a link whose peer has said nothing is left alone while others wait for its place: a
/// greeting takes a round trip and the client's next turn. With 32 places 320 silent HELLOs a
/// second leave room for honest ones.
pub(crate) const GREETING_NS: u64 = 100_000_000;

/// Connections accepted in one look at a listener, so that a flood does not stall the data path.
pub(crate) const ACCEPTS_PER_POLL: usize = 8;

/// Connections that the system keeps for a listener until they are accepted: what a busy endpoint
/// leaves there between two looks, and peers that come all at once. Who finds no room tries again
/// after a second. The system keeps no more than its `net.core.somaxconn`, 4096 by default.
pub(crate) const LISTEN_BACKLOG: i32 = 4096;

/// How often set-up conversations are looked at.
pub(crate) const SETUP_POLL_NS: u64 = 1_000_000;

/// How often listeners are looked at while nobody is in conversation, where the device does not
/// wait for them: an endpoint that is idle sleeps in between, so this is most of what it costs,
/// and a new peer waits no longer.
pub(crate) const LISTEN_POLL_NS: u64 = 5_000_000;

/// How often a busy endpoint asks whether any of these has something: one system call for all.
pub(crate) const NEWS_POLL_NS: u64 = LISTEN_POLL_NS;

/// How often all of them are looked at though nothing was told: a listener that was out of
/// descriptors is told of no second time.
pub(crate) const NO_NEWS_POLL_NS: u64 = 1_000_000_000;

/// What may wait to be written to the set-up connection of a link: some chunks, so that the system
/// always has something to send between two turns.
pub(crate) const TCP_OUT_BYTES: usize = 256 << 10;

/// Read from a set-up connection at a time, beyond a whole frame.
pub(crate) const TCP_READ_BYTES: usize = 64 << 10;

/// Frames taken in from one link in one look, so that others get their turn.
pub(crate) const TCP_FRAMES_PER_LOOK: usize = 64;

/// How often the set-up connection of a link is looked at: soon after something came, a
/// little above what a thread sleeps at least.
pub(crate) const TCP_POLL_NS: u64 = 50_000;

/// Looks in a row that found nothing before a set-up connection is left alone, where what comes on
/// it is told of, and before its buffers go: longer than a round trip among busy hosts.
pub(crate) const TCP_LOOKS_BEFORE_REST: u32 = 32;

/// The same in silence, where the device does not wait for what comes on it: an end of file there
/// is how a dead peer process is noticed, and each look costs a system call per link.
pub(crate) const TCP_POLL_LONGEST_NS: u64 = 10_000_000;

/// Changes of carrier that an endpoint remembers: more than somebody reads who asks now and then.
pub(crate) const RIDES_MAX: usize = 64;

/// How long absences of our host are remembered, once or twice over: where others share its
/// processors there are many of them in that time.
pub(crate) const AWAY_SPAN: Nanos = Nanos::from_millis(500);

/// The longest absence that is allowed for: a scheduler with work for many gets round in that. Who
/// is away for longer was suspended.
pub(crate) const AWAY_MAX: Nanos = Nanos::from_millis(100);

/// How long a refused peer's bytes are still read, so that the reset of a closed connection does
/// not overtake the refusal; and how many bytes.
pub(crate) const LINGER_NS: u64 = 1_000_000_000;
/// See [`LINGER_NS`].
pub(crate) const LINGER_BYTES_MAX: usize = 4096;

const _: () = assert!(SIGNAL_EVERY <= BATCH);

/// The system is asked no more often what ways carry after it refused a packet as too long: asking
/// takes some system calls for each peer, and paths that swallow such packets are found without.
pub(crate) const MTU_HINT_INTERVAL: Nanos = Nanos::from_millis(100);

/// And about so many peers at a time: half a millisecond.
pub(crate) const MTU_HINT_PEERS_MAX: usize = 64;

/// Turns in a row that bring packets and for which timers that are due wait, at most. A device
/// takes in one packet at first and twice as many each time: 191 by then with a budget of 64, more
/// than a server with a hundred clients finds in its socket.
pub(crate) const TIMERS_PUT_OFF_MAX: u8 = 8;
