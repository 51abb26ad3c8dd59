//! The types of the header: codes, names, and what events and counters are made of.

#![expect(non_camel_case_types, reason = "these are the names that C programs write")]

/// What a call came to. Zero is success, everything below is an error: `tow_error_text` says what
/// each means, and `tow_last_error` what happened.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tow_status {
    /// It worked.
    TOW_OK = 0,
    /// A pointer is NULL that must not be.
    TOW_E_NULL = -1,
    /// A value cannot be used: an address, a length, a setting.
    TOW_E_ARGUMENT = -2,
    /// A name (of a link, a message, a buffer, a grant) means nothing, or nothing any more.
    TOW_E_STALE = -3,
    /// The endpoint belongs to another thread.
    TOW_E_THREAD = -4,
    /// The endpoint is in a call already: a callback called back.
    TOW_E_BUSY = -5,
    /// A bug in the library. The endpoint that it happened in answers nothing else any more.
    TOW_E_PANIC = -6,
    /// The system refused: sockets, threads, descriptors.
    TOW_E_SYSTEM = -7,
    /// There is no memory.
    TOW_E_NO_MEMORY = -8,
    /// As much is under way as may be: wait for TOW_EVENT_WRITABLE, or for TOW_EVENT_OP_DONE. Of a
    /// connection: the peer has no room for another link.
    TOW_E_FULL = -9,
    /// All send buffers that are long enough are out: take events, or see `tow_want_buffer`.
    TOW_E_NO_BUFFER = -10,
    /// Longer than the peer takes, than any buffer is, or than the room for it.
    TOW_E_TOO_LONG = -11,
    /// The channel is not open, or not yet.
    TOW_E_NOT_OPEN = -12,
    /// The grant does not allow this, or does not reach so far.
    TOW_E_DENIED = -13,
    /// The device, or this message, cannot do that.
    TOW_E_UNSUPPORTED = -14,
    /// A limit of how many there may be is reached.
    TOW_E_LIMIT = -15,
    /// Nobody listens there, or the network does not lead there.
    TOW_E_UNREACHABLE = -16,
    /// The peer did not answer in time.
    TOW_E_TIMEOUT = -17,
    /// The peer does not want such a link.
    TOW_E_REFUSED = -18,
}

/// Starting points for a configuration.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tow_profile {
    /// A few peers, messages from 64 bytes to 252 KiB.
    TOW_PROFILE_DEFAULT = 0,
    /// Few links, long messages, much under way.
    TOW_PROFILE_THROUGHPUT = 1,
    /// Short messages that are answered at once.
    TOW_PROFILE_LATENCY = 2,
    /// A server with a thousand peers.
    TOW_PROFILE_MANY_LINKS = 3,
    /// A program that may take a few MiB.
    TOW_PROFILE_SMALL_MEMORY = 4,
}

/// Numbers that `tow_config_set` takes. docs/limits.md says what each is by default. A value beyond
/// what is sound is held to that.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tow_setting {
    /// The most links.
    TOW_LINKS_MAX = 0,
    /// The longest message that is taken, in bytes.
    TOW_WHOLE_BYTES_MAX = 1,
    /// Pieces of messages that a peer may send on a channel before some are released.
    TOW_QUOTA_CHUNKS = 2,
    /// The same for all channels of a link.
    TOW_CREDIT_TOTAL = 3,
    /// Receive buffers that are ready for a link.
    TOW_RECEIVES_READY = 4,
    /// The most receive buffers that all links hold.
    TOW_RECEIVE_BUFFERS_MAX = 5,
    /// Bytes of a receive buffer.
    TOW_CHUNK_BYTES_MAX = 6,
    /// Paths of each link, 1 to 16. Default 4, or as many as the peer allows.
    TOW_PATHS = 7,
    /// Packets taken in by one `tow_poll`.
    TOW_PROGRESS_BUDGET = 8,
    /// What of a link may be posted and not sent yet, in bytes.
    TOW_AHEAD_BYTES = 9,
    /// How long a connection may take to be made, in nanoseconds.
    TOW_CONNECT_TIMEOUT_NS = 10,
    /// After how long unused receive memory goes back to the system, in nanoseconds.
    TOW_MEMORY_QUIET_NS = 11,
    /// Whether payloads carry a checksum: 0 or 1.
    TOW_PAYLOAD_CRC = 12,
    /// Where random numbers come from, for runs that are repeated.
    TOW_SEED = 13,
    /// The UDP port of the device; 0 is any.
    TOW_UDP_PORT = 14,
    /// Whether peers may be RDMA NICs, which takes UDP port 4791: 0 or 1.
    TOW_FOREIGN_PEERS = 15,
    /// Whether the device has a thread of its own, so that peers reach what was granted to them
    /// while nobody calls `tow_poll`: 0 or 1. Each call then takes a lock.
    TOW_ENGINE_THREAD = 16,
    /// What links fall back to while no packet gets through over UDP: 0 nothing, 1 TCP, 2 RC and
    /// then TCP. Default: all that both ends have.
    TOW_FALLBACK = 17,
}

/// What an event tells of.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum tow_event_kind {
    /// Nothing.
    #[default]
    TOW_EVENT_NONE = 0,
    /// A peer connected: `link`.
    TOW_EVENT_ACCEPTED = 1,
    /// A peer was turned away: `status`, and `tow_last_error` has the text. For logs.
    TOW_EVENT_ACCEPT_FAILED = 2,
    /// The connection that `token` names is up: `link`.
    TOW_EVENT_CONNECTED = 3,
    /// It could not be made: `token`, `status`, and `tow_last_error` has the text.
    TOW_EVENT_CONNECT_FAILED = 4,
    /// A channel is open both ways: `link`, `channel`, `ordered`, `by_peer`.
    TOW_EVENT_CHANNEL_OPENED = 5,
    /// A channel is closed, or was not opened: `link`, `channel`, `reason` (tow_close_reason).
    TOW_EVENT_CHANNEL_CLOSED = 6,
    /// A message came: `link`, `channel`, `message`, `len`, and `data` if it is in one piece. It is
    /// the caller's until `tow_message_release` or `tow_send_message`.
    TOW_EVENT_MESSAGE = 7,
    /// A message that was sent has its outcome: `link`, `token`, `outcome`. Its buffers are free.
    TOW_EVENT_SENT = 8,
    /// A link that was full has room again: `link`.
    TOW_EVENT_WRITABLE = 9,
    /// There is a buffer for which `tow_want_buffer` has asked: `len`.
    TOW_EVENT_BUFFER_FREE = 10,
    /// The peer lets us reach memory of its own: `link`, `grant`, `len`, `rights`.
    TOW_EVENT_GRANTED = 11,
    /// It does so no longer: `link`, `grant`.
    TOW_EVENT_REVOKED = 12,
    /// A one-sided operation has ended: `link`, `token`, `outcome`; `word` if `has_word`; for a
    /// read that was executed `buf`, `data`, `len`, which are the caller's until `tow_buf_free`.
    /// If `outcome` is TOW_DENIED, `reason` is a tow_denied.
    TOW_EVENT_OP_DONE = 13,
    /// A link is down, and all that was sent on it has had its outcome: `link`, `reason`
    /// (tow_down_reason).
    TOW_EVENT_LINK_DOWN = 14,
    /// A link rides on another carrier from now on: `link`, `carrier`, `reason`. For logs.
    TOW_EVENT_CARRIER = 15,
}

/// How a message, or a one-sided operation, ended.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum tow_outcome {
    /// The event has none.
    #[default]
    TOW_NO_OUTCOME = 0,
    /// The peer's transport holds the whole message; its program may not have read it.
    TOW_DELIVERED = 1,
    /// The message was given up, and the peer's program never sees it.
    TOW_ABANDONED = 2,
    /// The peer, or the queue pair, was lost meanwhile: it happened, or not.
    TOW_UNKNOWN = 3,
    /// The operation was carried out, once.
    TOW_EXECUTED = 4,
    /// The peer does not allow it.
    TOW_DENIED = 5,
    /// It was not carried out and never will be.
    TOW_NOT_EXECUTED = 6,
}

/// Why a channel is closed.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tow_close_reason {
    /// We closed it.
    TOW_CLOSED_HERE = 1,
    /// The peer closed it.
    TOW_CLOSED_BY_PEER = 2,
    /// The peer did not let us open it.
    TOW_CLOSED_REFUSED = 3,
}

/// Why a link is down.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tow_down_reason {
    /// We left.
    TOW_DOWN_HERE = 1,
    /// The peer left.
    TOW_DOWN_GOODBYE = 2,
    /// No sign of life from the peer.
    TOW_DOWN_SILENT = 3,
    /// The peer is gone.
    TOW_DOWN_PEER_GONE = 4,
    /// All of its paths have failed.
    TOW_DOWN_PATHS_FAILED = 5,
    /// The peer is not trusted any more.
    TOW_DOWN_UNTRUSTED = 6,
    /// Its keys have sealed all that they may.
    TOW_DOWN_KEYS_USED_UP = 7,
}

/// What carries a link, from the best to the last resort.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tow_carrier {
    /// Unreliable connected queue pairs, over UDP; also in events that tell of no carrier.
    TOW_CARRIER_UC = 0,
    /// Reliable connected queue pairs, over UDP.
    TOW_CARRIER_RC = 1,
    /// The TCP connection on which the link was set up.
    TOW_CARRIER_TCP = 2,
}

/// Why a link rides on another carrier. Other numbers may come: `tow_carrier_reason_text`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tow_carrier_reason {
    /// No packet was acknowledged on the carrier before: is UDP blocked?
    TOW_CARRIER_SILENT = 1,
    /// Too many packets were lost on the carrier before.
    TOW_CARRIER_LOSSY = 2,
    /// The queue pairs of the carrier before failed.
    TOW_CARRIER_FAILED = 3,
    /// The peer went there.
    TOW_CARRIER_PEER = 4,
    /// A better carrier answers again.
    TOW_CARRIER_RECOVERED = 5,
    /// For another reason.
    TOW_CARRIER_OTHER = 6,
}

/// Why an operation was denied that had been taken on.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tow_denied {
    /// The grant was revoked.
    TOW_DENIED_REVOKED = 1,
    /// The peer's device refused it.
    TOW_DENIED_DEVICE = 2,
}

/// What a peer may do with granted memory, to be added up.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tow_rights {
    /// Read.
    TOW_MAY_READ = 1,
    /// Write, ranges and words.
    TOW_MAY_WRITE = 2,
    /// Fetch-and-add, compare-and-swap.
    TOW_MAY_ATOMIC = 4,
}

/// A link of an endpoint: from its ACCEPTED or CONNECTED event until LINK_DOWN.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct tow_link {
    /// 0 is no link.
    pub id: u64,
}

/// A channel of a link.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct tow_channel {
    /// Unique among the channels of its link.
    pub id: u32,
}

/// A message that came, until it is released or sent on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct tow_message {
    /// 0 is no message.
    pub id: u64,
}

/// A buffer of the endpoint that the caller has, until it is sent, written or freed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct tow_buf {
    /// 0 is no buffer.
    pub id: u64,
}

/// A message that is being sent, until its SENT event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct tow_send_id {
    /// 0 is none.
    pub id: u64,
}

/// Memory of a peer that this end may reach, or memory of ours that a peer may.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct tow_grant_id {
    /// Unique among the grants of one end in the life of a link.
    pub id: u32,
}

/// Bytes that the library lends to the caller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tow_bytes {
    /// The first.
    pub data: *const u8,
    /// How many.
    pub len: usize,
}

/// A buffer with what of it is sent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tow_segment {
    /// Which.
    pub buf: tow_buf,
    /// How many bytes of it, from its start on; at least 1.
    pub len: usize,
}

/// Send buffers of a size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tow_pool {
    /// Bytes of each.
    pub bytes: usize,
    /// How many.
    pub count: usize,
}

/// How to send a message, or to carry out a one-sided operation. All zero is as good as NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tow_options {
    /// A number of the caller's, which comes back with the outcome.
    pub token: u64,
    /// When to give it up, on the clock of `tow_now_ns`; 0 is never.
    pub deadline_ns: u64,
    /// After how long to give it up; 0 is never. The earlier one of both counts.
    pub timeout_ns: u64,
    /// One-sided operations: if not 0, only when the reads and atomics before it on the link are
    /// done.
    pub fence: u32,
}

/// Which bytes of a peer's memory an operation is on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tow_place {
    /// Whose memory.
    pub link: tow_link,
    /// Which memory, as TOW_EVENT_GRANTED told.
    pub grant: tow_grant_id,
    /// Where in it, in bytes.
    pub offset: u32,
}

/// What an endpoint tells. `kind` says which of the other fields it has; those that it does not
/// have are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tow_event {
    /// What it tells of.
    pub kind: tow_event_kind,
    /// How something ended.
    pub outcome: tow_outcome,
    /// Why something failed.
    pub status: tow_status,
    /// Why something ended; what it means depends on `kind`.
    pub reason: u32,
    /// The link.
    pub link: tow_link,
    /// The number that the caller gave to a connect, a send or an operation.
    pub token: u64,
    /// The channel.
    pub channel: tow_channel,
    /// The grant.
    pub grant: tow_grant_id,
    /// What may be done with it: tow_rights added up.
    pub rights: u32,
    /// The messages of the channel arrive in the order in which they were sent.
    pub ordered: bool,
    /// The peer opened the channel.
    pub by_peer: bool,
    /// There is a `word`.
    pub has_word: bool,
    /// The message.
    pub message: tow_message,
    /// The buffer.
    pub buf: tow_buf,
    /// The bytes of the message or buffer, which nobody may change; NULL for a message in pieces.
    pub data: *const u8,
    /// How many bytes.
    pub len: usize,
    /// What a word was before an atomic, or is after `tow_write_word`.
    pub word: u64,
    /// What the link rides on, a tow_carrier; then `reason` is a tow_carrier_reason.
    pub carrier: u32,
}

/// Counters of a link, or of all links of an endpoint together; each only grows. Later versions
/// add to the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tow_counters {
    /// Messages delivered to the peer.
    pub messages_delivered: u64,
    /// Messages given up.
    pub messages_abandoned: u64,
    /// Messages that came.
    pub messages_received: u64,
    /// Payload bytes sent, those sent again included.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retransmitted: u64,
    /// Payload bytes that came and were taken.
    pub bytes_received: u64,
    /// Chunks of data sent, those sent again included.
    pub chunks_sent: u64,
    /// Chunks of data sent again.
    pub chunks_retransmitted: u64,
    /// Chunks of data that came and were taken.
    pub chunks_received: u64,
    /// Chunks that had come before.
    pub chunks_duplicate: u64,
    /// Chunks with a bad header.
    pub headers_bad: u64,
    /// Chunks whose payload did not match its checksum or length.
    pub payloads_bad: u64,
    /// Chunks that broke a rule of the protocol.
    pub violations: u64,
    /// Acks sent.
    pub acks_sent: u64,
    /// Acks that came.
    pub acks_received: u64,
    /// Chunks found lost by a gap.
    pub losses_by_gap: u64,
    /// Chunks found lost by a timeout.
    pub losses_by_timeout: u64,
    /// Of both, those that had come all the same.
    pub losses_spurious: u64,
    /// Retransmission timeouts.
    pub rtos: u64,
    /// Paths that were doubted.
    pub path_doubts: u64,
    /// Paths whose queue pair failed.
    pub paths_failed: u64,
}

/// What of its limits an endpoint uses now. Later versions add to the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct tow_usage {
    /// Links that are up.
    pub links: u64,
    /// The most of them.
    pub links_max: u64,
    /// Receive buffers that were made.
    pub receive_buffers: u64,
    /// The most of them.
    pub receive_buffers_max: u64,
    /// Send buffers that are out of their pools.
    pub send_buffers_out: u64,
    /// All send buffers.
    pub send_buffers_max: u64,
    /// Messages that the caller has.
    pub messages_held: u64,
    /// Buffers that the caller has.
    pub bufs_held: u64,
    /// Messages that are being sent.
    pub sends: u64,
}

impl Default for tow_event {
    fn default() -> Self {
        Self {
            kind: tow_event_kind::TOW_EVENT_NONE,
            outcome: tow_outcome::TOW_NO_OUTCOME,
            status: tow_status::TOW_OK,
            reason: 0,
            link: tow_link::default(),
            token: 0,
            channel: tow_channel::default(),
            grant: tow_grant_id::default(),
            rights: 0,
            ordered: false,
            by_peer: false,
            has_word: false,
            message: tow_message::default(),
            buf: tow_buf::default(),
            data: std::ptr::null(),
            len: 0,
            word: 0,
            carrier: 0,
        }
    }
}
