//! Limits of the rpc layer, each with its reason.

use towpath_base::Nanos;

/// Bytes of the rpc header (docs/storage-protocol.md section 2).
pub const HEADER_BYTES: usize = 32;

/// Bytes of a page: data of this length or more travels in a segment of its own.
///
/// A second segment is a second piece, which takes a credit more; with less than a page it would
/// not land page-aligned either.
pub const PAGE_BYTES: usize = 4096;

/// The longest body: a listing of 1,024 chunks is 50 KiB, and bodies are copied when they come in
/// several pieces, so they stay small.
pub const BODY_BYTES_MAX: usize = 64 << 10;

/// Requests that a client has under way on one channel unless configured.
pub const REQUESTS_MAX_DEFAULT: usize = 256;

/// The most that can be configured: four of them stay below the sends that a link takes at a time
/// (4,096), and a request id names its place in 16 bits.
pub const REQUESTS_MAX: usize = 1024;

/// Messages longer than this are not looked at by a server unless configured, whatever its link
/// would hold whole.
pub const MESSAGE_BYTES_MAX_DEFAULT: usize = 16 << 20;

/// The time budget of a request that names none: a server drops its answer after that.
pub const TIMEOUT_DEFAULT: Nanos = Nanos::from_secs(60);

/// The longest time budget that a server grants, whatever a client asks for (which may be 71
/// minutes): a response holds its send buffers until then when its client takes nothing in.
pub const TIMEOUT_MAX: Nanos = Nanos::from_secs(60);

/// How long a request that was given up waits to learn what became of it: from the transport
/// whether the peer has it, then from the peer whether it was done. Each takes a round trip, or two
/// with a loss, and the second what is left of the work; one that is silent for longer may be gone.
pub const OUTCOME_GRACE: Nanos = Nanos::from_millis(100);

/// Refusals and fates that a server has under way on one link; more are dropped and counted. As
/// many as a client has requests under way by default: all of them may be refused, or given up, at
/// once. A client that takes none in holds no more buffers of the server than these.
pub const NOTES_MAX: usize = REQUESTS_MAX_DEFAULT;

/// How long a server tries to tell a fate: its client may be set to wait for longer than
/// [`OUTCOME_GRACE`], and one that takes nothing in is owed longer responses than these.
pub const FATE_WAIT: Nanos = Nanos::from_secs(10);

/// Fates that a server keeps of requests whose clients have no response, over all links: as many
/// as clients may have under way on four links. Beyond, the link that has most of them loses its
/// oldest one. They are 40 bytes each, and those of a link are looked through when its client asks
/// for a request that is not under way.
pub const FATES_MAX: usize = 4096;

/// The longest body of a push: it is copied where it arrives, and a client keeps some that nobody
/// has taken. What starts a period is 48 bytes; more than a page of news is asked for, not pushed.
pub const PUSH_BODY_BYTES_MAX: usize = 1024;

/// Pushes that a server has under way on one channel: one that tells of now, one of a moment before
/// that is not acknowledged yet, and as many again for another method. A client that gives no
/// credit holds no more buffers of the server than these, until their deadlines.
pub const PUSHES_MAX: usize = 4;

/// Pushes that a client keeps until they are taken: all that a server has under way at a time, four
/// times over, for a caller that takes them in some of its turns only. Older ones are out of date.
pub const PUSHES_KEPT_MAX: usize = 16;

const _: () = assert!(PUSHES_MAX <= PUSHES_KEPT_MAX && PUSH_BODY_BYTES_MAX <= BODY_BYTES_MAX);
const _: () = assert!(REQUESTS_MAX_DEFAULT <= REQUESTS_MAX && REQUESTS_MAX <= 1 << 16);
