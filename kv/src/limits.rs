//! Every bound of the key-value store, with its reason.

use towpath_base::Nanos;

/// The longest key. The study has 64 bytes; the keys of other stores' users, like URLs, fit in
/// this, and a request for one still fits in one datagram.
pub const KEY_BYTES_MAX: usize = 512;

/// The longest value: the copies of one are held for as long as a connection takes to send them.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// What an entry of the table costs beside the bytes of its key and value: the entry, with room for
/// a short key and value, the table's share (it doubles), and its place in the ring.
pub const ENTRY_COST_BYTES: u64 = 192;

/// The least that a store may be bounded to: room for a few of the longest values.
pub const STORE_BYTES_MIN: u64 = 4 << 20;

/// What a store is bounded to unless configured: a small part of any machine's memory.
pub const STORE_BYTES_DEFAULT: u64 = 1 << 30;

/// Lists of the study's table.
pub const BUCKETS: usize = 1024;

/// Entries that are looked at for one that was not used since the last look, before one that was
/// is evicted: a bound on what one request does for its room.
pub const LOOKS_MAX: usize = 64;

/// The longest reply to a request that lists entries: what is listed is for people.
pub const LISTING_BYTES_MAX: usize = 64 << 10;

/// Replies to changes that are kept for a client that repeats its request: as many as it may have
/// under way at a time.
pub const UNDER_WAY_MAX: usize = 32;

/// Clients whose replies are kept: six times as many as are asked to be served at a time, with
/// some 1.5 KiB for the replies of each.
pub const SESSIONS_MAX: usize = 1 << 16;

/// Clients that one connection makes known: each has its own connection, as a rule, and one that
/// has many could have all others forgotten.
pub const CLIENTS_PER_CONNECTION_MAX: usize = 64;

/// Words of one command: a client that asks for more keys asks twice.
pub const WORDS_MAX: usize = 1024;

/// Bytes of one request: the longest value with its key, or as many of the longest keys as there
/// are words, with their lengths.
pub const REQUEST_BYTES_MAX: usize = VALUE_BYTES_MAX + (64 << 10);

/// The longest line that a person types; it is looked through from its begin each time it grows.
pub const INLINE_BYTES_MAX: usize = 4 << 10;

/// Bytes of one reply. Only those to several keys may have more than a value.
pub const REPLY_BYTES_MAX: usize = 16 << 20;

/// Commands of one transaction: more than clients send in a pipeline. No other client is served
/// while they are carried out.
pub const TRANSACTION_COMMANDS_MAX: usize = 1 << 17;

/// Bytes of the commands of one transaction: as many as of a reply.
pub const TRANSACTION_BYTES_MAX: usize = 16 << 20;

/// In a transaction whose reply is too long, replies of so many bytes are told all the same: the
/// error that would stand in their place is as long.
pub const SMALL_REPLY_BYTES: usize = 128;

/// Keys that a connection watches for a transaction: as many as one command names.
pub const WATCHED_KEYS_MAX: usize = 1024;

/// The longest name that a client gives its connection.
pub const CLIENT_NAME_BYTES_MAX: usize = 256;

/// Bytes that wait to be sent before no more requests of that connection are carried out: enough
/// to fill a socket, and no more than a client makes a server hold by not reading.
pub const OUTPUT_PAUSE_BYTES: usize = 256 << 10;

/// Bytes that are read at a time: some hundred pipelined requests.
pub const READ_BYTES: usize = 64 << 10;

/// Connections unless configured.
pub const CONNECTIONS_MAX_DEFAULT: usize = 10_000;

/// Bytes that all connections together hold of requests that are not whole and replies that are not
/// sent, unless configured.
pub const BUFFERS_BYTES_DEFAULT: u64 = 256 << 20;

/// How long a client may take for a request or a reply, unless configured, beside what its bytes
/// take at [`SLOW_BYTES_PER_SEC`].
pub const STALL_DEFAULT: Nanos = Nanos::from_secs(60);

/// A client that is not stalled moves this many bytes a second: a modem does.
pub const SLOW_BYTES_PER_SEC: u64 = 4 << 10;

/// Bytes that a connection over TLS counts for beside its requests and replies: keys, and room for
/// one record that is not whole.
pub const TLS_BYTES: usize = 20 << 10;

/// TLS handshakes that are under way at a time; one address has an eighth of these at most. Beside
/// a client that says nothing for five seconds others come through fifty a second.
pub const HANDSHAKES_MAX: usize = 256;

/// How often slow clients are looked for: the longest sleep of a thread that serves connections.
pub const SLOW_CHECK_EVERY: Nanos = Nanos::from_secs(1);

/// What still comes of a client whose connection ends is thrown away for so long, and so many
/// bytes: a client that sends a value that is too long reads why not before it has sent it.
pub const LINGER_TIME: Nanos = Nanos::from_secs(5);

/// See [`LINGER_TIME`].
pub const LINGER_BYTES_MAX: u64 = 64 << 20;

/// Clients that wait at a time to be told that there are too many. More are told as well, and may
/// not hear it.
pub const TURNED_AWAY_MAX: usize = 64;

/// How long no connection is accepted after the system had no descriptor for one.
pub const ACCEPT_PAUSE: Nanos = Nanos::from_millis(100);

/// Connections that are accepted in one turn, so that those that are there are served between.
pub const ACCEPTS_MAX: usize = 64;

/// Files that one wait tells of: more are told of by the next.
pub const EVENTS_MAX: usize = 256;

/// Bytes of replies that a thread gathers before it sends them: a part of what a processor's cache
/// holds.
pub const UNSENT_BYTES_MAX: usize = 512 << 10;

/// Threads that serve connections at most: more than any machine has processors.
pub const WORKERS_MAX: usize = 1024;

/// The longest value over raw queue pairs, unless configured: sixteen times 4 KiB. Each client
/// takes memory for some messages of this length, of which pages that no message touched are not
/// there.
pub const RAW_VALUE_BYTES_DEFAULT: usize = 64 << 10;

/// Requests of a client under way over raw queue pairs, unless configured: one, and what it
/// repeats.
pub const RAW_UNDER_WAY_DEFAULT: u16 = 4;

/// Receives of a server for each request that a client may have under way: one more is there when
/// a client has its reply, though the device has not yet said that the reply has left.
pub const RAW_SLOTS_PER_REQUEST: u32 = 2;

/// Receives of the one queue pair for datagrams, whatever the number of clients: what finds none is
/// lost, and repeated by its client. 1,000 clients that ask at a time, and as many replies.
pub const RAW_DATAGRAM_SLOTS: u32 = 2048;

/// Clients that connected and have not said all yet; of more, the one that came first is closed.
pub const RAW_HALF_OPEN_MAX: usize = 256;

/// How long a client may take to say what its queue pair is: some round trips to anywhere.
pub const RAW_HELLO_TIME: Nanos = Nanos::from_secs(5);

/// Packets that a device takes in before what they completed is looked at.
pub const RAW_PROGRESS_BUDGET: usize = 256;

/// Completions that are taken at a time: a thread that shares a device leaves more to the others.
pub const RAW_BATCH: usize = 32;

/// The longest sleep of a thread: after it, the wish to stop is seen at the latest.
pub const RAW_SLEEP_MAX: Nanos = Nanos::from_millis(100);

/// How long a thread sleeps where the device cannot wake it: the price is the delay of a request.
pub const RAW_NAP: Nanos = Nanos::from_micros(100);

/// How often a busy thread looks whether clients have come or gone.
pub const RAW_LOOK_EVERY: Nanos = Nanos::from_millis(1);

/// Bytes of a slot of published memory, unless configured: the study's longest key and value.
pub const PUBLISHED_SLOT_BYTES_DEFAULT: usize = 4 + 64 + 256;

/// The longest slot of published memory: a READ of a bucket of such is still a few packets.
pub const PUBLISHED_SLOT_BYTES_MAX: usize = 32 << 10;

/// The fewest buckets: a change that needs room must find others than its own to take from.
pub const PUBLISHED_BUCKETS_MIN: u64 = 64;

/// The most memory that is published: grants tell offsets in 32 bits.
pub const PUBLISHED_BYTES_MAX: usize = 1 << 31;

/// READs of a bucket for one GET, before the server is asked: a change is over long before the
/// second, unless many change the same bucket.
pub const ONE_SIDED_TRIES: u32 = 4;

/// How long a READ may take before the server is asked: some times what RC takes for a lost packet.
pub const ONE_SIDED_TIME: std::time::Duration = std::time::Duration::from_millis(500);

const _: () = assert!(STORE_BYTES_MIN > 3 * VALUE_BYTES_MAX as u64);
const _: () = assert!(LISTING_BYTES_MAX <= VALUE_BYTES_MAX);
const _: () = assert!(REQUEST_BYTES_MAX >= WORDS_MAX * (KEY_BYTES_MAX + 16));
