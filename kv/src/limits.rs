//! Every bound of the key-value store, with its reason.

/// The longest key. The study has 64 bytes; the keys of other stores' users, like URLs, fit in
/// this, and a request for one still fits in one datagram.
pub const KEY_BYTES_MAX: usize = 512;

/// The longest value: the copies of one are held for as long as a connection takes to send them.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// What an entry of the table costs beside the bytes of its key and value: the table's share (an
/// eighth of it may be free, and it doubles), the entry, and the heads of three allocations.
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

const _: () = assert!(STORE_BYTES_MIN > 3 * VALUE_BYTES_MAX as u64);
const _: () = assert!(LISTING_BYTES_MAX <= VALUE_BYTES_MAX);
