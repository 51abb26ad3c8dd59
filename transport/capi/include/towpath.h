/* Towpath for C and C++: reliable messages and one-sided memory between processes.
 *
 * Made of the crate transport/capi by its test `header`: do not edit. docs/c.md and towpath(3) are
 * where to begin.
 *
 * Rules for every function:
 * - A pointer may be NULL only where that is said.
 * - Functions that return int32_t return what they count, or an error, which is negative (a
 *   tow_status). After an error nothing has happened, and tow_last_error() says why.
 * - An endpoint belongs to the thread that made it: others get TOW_E_THREAD. tow_wake,
 *   tow_endpoint_adopt, the functions of tow_memory and those without an endpoint may be called
 *   from any thread. A tow_config belongs to one thread at a time.
 * - Bytes that the library lends are used until what they belong to is released, sent or freed.
 */

#ifndef TOWPATH_H
#define TOWPATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The version of what programs are compiled against: `tow_abi_version` gives that of the library.
#define TOW_ABI_VERSION 2

// Segments that a message that is sent can have.
#define TOW_SEGMENTS_MAX 4

// What a call came to. Zero is success, everything below is an error: `tow_error_text` says what
// each means, and `tow_last_error` what happened.
enum tow_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It worked.
  TOW_OK = 0,
  // A pointer is NULL that must not be.
  TOW_E_NULL = -1,
  // A value cannot be used: an address, a length, a setting.
  TOW_E_ARGUMENT = -2,
  // A name (of a link, a message, a buffer, a grant) means nothing, or nothing any more.
  TOW_E_STALE = -3,
  // The endpoint belongs to another thread.
  TOW_E_THREAD = -4,
  // The endpoint is in a call already: a callback called back.
  TOW_E_BUSY = -5,
  // A bug in the library. The endpoint that it happened in answers nothing else any more.
  TOW_E_PANIC = -6,
  // The system refused: sockets, threads, descriptors.
  TOW_E_SYSTEM = -7,
  // There is no memory.
  TOW_E_NO_MEMORY = -8,
  // As much is under way as may be: wait for TOW_EVENT_WRITABLE, or for TOW_EVENT_OP_DONE. Of a
  // connection: the peer has no room for another link.
  TOW_E_FULL = -9,
  // All send buffers that are long enough are out: take events, or see `tow_want_buffer`.
  TOW_E_NO_BUFFER = -10,
  // Longer than the peer takes, than any buffer is, or than the room for it.
  TOW_E_TOO_LONG = -11,
  // The channel is not open, or not yet.
  TOW_E_NOT_OPEN = -12,
  // The grant does not allow this, or does not reach so far.
  TOW_E_DENIED = -13,
  // The device, or this message, cannot do that.
  TOW_E_UNSUPPORTED = -14,
  // A limit of how many there may be is reached.
  TOW_E_LIMIT = -15,
  // Nobody listens there, or the network does not lead there.
  TOW_E_UNREACHABLE = -16,
  // The peer did not answer in time.
  TOW_E_TIMEOUT = -17,
  // The peer does not want such a link.
  TOW_E_REFUSED = -18,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_status tow_status;
#else
typedef int32_t tow_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What an event tells of.
enum tow_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Nothing.
  TOW_EVENT_NONE = 0,
  // A peer connected: `link`.
  TOW_EVENT_ACCEPTED = 1,
  // A peer was turned away: `status`, and `tow_last_error` has the text. For logs.
  TOW_EVENT_ACCEPT_FAILED = 2,
  // The connection that `token` names is up: `link`.
  TOW_EVENT_CONNECTED = 3,
  // It could not be made: `token`, `status`, and `tow_last_error` has the text.
  TOW_EVENT_CONNECT_FAILED = 4,
  // A channel is open both ways: `link`, `channel`, `ordered`, `by_peer`.
  TOW_EVENT_CHANNEL_OPENED = 5,
  // A channel is closed, or was not opened: `link`, `channel`, `reason` (tow_close_reason).
  TOW_EVENT_CHANNEL_CLOSED = 6,
  // A message came: `link`, `channel`, `message`, `len`, and `data` if it is in one piece. It is
  // the caller's until `tow_message_release` or `tow_send_message`.
  TOW_EVENT_MESSAGE = 7,
  // A message that was sent has its outcome: `link`, `token`, `outcome`. Its buffers are free.
  TOW_EVENT_SENT = 8,
  // A link that was full has room again: `link`.
  TOW_EVENT_WRITABLE = 9,
  // There is a buffer for which `tow_want_buffer` has asked: `len`.
  TOW_EVENT_BUFFER_FREE = 10,
  // The peer lets us reach memory of its own: `link`, `grant`, `len`, `rights`.
  TOW_EVENT_GRANTED = 11,
  // It does so no longer: `link`, `grant`.
  TOW_EVENT_REVOKED = 12,
  // A one-sided operation has ended: `link`, `token`, `outcome`; `word` if `has_word`; for a
  // read that was executed `buf`, `data`, `len`, which are the caller's until `tow_buf_free`.
  // If `outcome` is TOW_DENIED, `reason` is a tow_denied.
  TOW_EVENT_OP_DONE = 13,
  // A link is down, and all that was sent on it has had its outcome: `link`, `reason`
  // (tow_down_reason).
  TOW_EVENT_LINK_DOWN = 14,
  // A link rides on another carrier from now on: `link`, `carrier`, `reason`. For logs.
  TOW_EVENT_CARRIER = 15,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_event_kind tow_event_kind;
#else
typedef uint32_t tow_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How a message, or a one-sided operation, ended.
enum tow_outcome
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The event has none.
  TOW_NO_OUTCOME = 0,
  // The peer's transport holds the whole message; its program may not have read it.
  TOW_DELIVERED = 1,
  // The message was given up, and the peer's program never sees it.
  TOW_ABANDONED = 2,
  // The peer, or the queue pair, was lost meanwhile: it happened, or not.
  TOW_UNKNOWN = 3,
  // The operation was carried out, once.
  TOW_EXECUTED = 4,
  // The peer does not allow it.
  TOW_DENIED = 5,
  // It was not carried out and never will be.
  TOW_NOT_EXECUTED = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_outcome tow_outcome;
#else
typedef uint32_t tow_outcome;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Starting points for a configuration.
enum tow_profile
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A few peers, messages from 64 bytes to 252 KiB.
  TOW_PROFILE_DEFAULT = 0,
  // Few links, long messages, much under way.
  TOW_PROFILE_THROUGHPUT = 1,
  // Short messages that are answered at once.
  TOW_PROFILE_LATENCY = 2,
  // A server with a thousand peers.
  TOW_PROFILE_MANY_LINKS = 3,
  // A program that may take a few MiB.
  TOW_PROFILE_SMALL_MEMORY = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_profile tow_profile;
#else
typedef uint32_t tow_profile;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Numbers that `tow_config_set` takes. docs/limits.md says what each is by default. A value beyond
// what is sound is held to that.
enum tow_setting
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The most links.
  TOW_LINKS_MAX = 0,
  // The longest message that is taken, in bytes.
  TOW_WHOLE_BYTES_MAX = 1,
  // Pieces of messages that a peer may send on a channel before some are released.
  TOW_QUOTA_CHUNKS = 2,
  // The same for all channels of a link.
  TOW_CREDIT_TOTAL = 3,
  // Receive buffers that are ready for a link.
  TOW_RECEIVES_READY = 4,
  // The most receive buffers that all links hold.
  TOW_RECEIVE_BUFFERS_MAX = 5,
  // Bytes of a receive buffer.
  TOW_CHUNK_BYTES_MAX = 6,
  // Paths of each link, 1 to 16. Default 4, or as many as the peer allows.
  TOW_PATHS = 7,
  // Packets taken in by one `tow_poll`.
  TOW_PROGRESS_BUDGET = 8,
  // What of a link may be posted and not sent yet, in bytes.
  TOW_AHEAD_BYTES = 9,
  // How long a connection may take to be made, in nanoseconds.
  TOW_CONNECT_TIMEOUT_NS = 10,
  // After how long unused receive memory goes back to the system, in nanoseconds.
  TOW_MEMORY_QUIET_NS = 11,
  // Whether payloads carry a checksum: 0 or 1.
  TOW_PAYLOAD_CRC = 12,
  // Where random numbers come from, for runs that are repeated.
  TOW_SEED = 13,
  // The UDP port of the device; 0 is any.
  TOW_UDP_PORT = 14,
  // Whether peers may be RDMA NICs, which takes UDP port 4791: 0 or 1.
  TOW_FOREIGN_PEERS = 15,
  // Whether the device has a thread of its own, so that peers reach what was granted to them
  // while nobody calls `tow_poll`: 0 or 1. Each call then takes a lock.
  TOW_ENGINE_THREAD = 16,
  // What links fall back to while no packet gets through over UDP: 0 nothing, 1 TCP, 2 RC and
  // then TCP. Default: all that both ends have.
  TOW_FALLBACK = 17,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_setting tow_setting;
#else
typedef uint32_t tow_setting;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Why a channel is closed.
enum tow_close_reason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // We closed it.
  TOW_CLOSED_HERE = 1,
  // The peer closed it.
  TOW_CLOSED_BY_PEER = 2,
  // The peer did not let us open it.
  TOW_CLOSED_REFUSED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_close_reason tow_close_reason;
#else
typedef uint32_t tow_close_reason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Why a link is down.
enum tow_down_reason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // We left.
  TOW_DOWN_HERE = 1,
  // The peer left.
  TOW_DOWN_GOODBYE = 2,
  // No sign of life from the peer.
  TOW_DOWN_SILENT = 3,
  // The peer is gone.
  TOW_DOWN_PEER_GONE = 4,
  // All of its paths have failed.
  TOW_DOWN_PATHS_FAILED = 5,
  // The peer is not trusted any more.
  TOW_DOWN_UNTRUSTED = 6,
  // Its keys have sealed all that they may.
  TOW_DOWN_KEYS_USED_UP = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_down_reason tow_down_reason;
#else
typedef uint32_t tow_down_reason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What carries a link, from the best to the last resort.
enum tow_carrier
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Unreliable connected queue pairs, over UDP; also in events that tell of no carrier.
  TOW_CARRIER_UC = 0,
  // Reliable connected queue pairs, over UDP.
  TOW_CARRIER_RC = 1,
  // The TCP connection on which the link was set up.
  TOW_CARRIER_TCP = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_carrier tow_carrier;
#else
typedef uint32_t tow_carrier;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Why a link rides on another carrier. Other numbers may come: `tow_carrier_reason_text`.
enum tow_carrier_reason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // No packet was acknowledged on the carrier before: is UDP blocked?
  TOW_CARRIER_SILENT = 1,
  // Too many packets were lost on the carrier before.
  TOW_CARRIER_LOSSY = 2,
  // The queue pairs of the carrier before failed.
  TOW_CARRIER_FAILED = 3,
  // The peer went there.
  TOW_CARRIER_PEER = 4,
  // A better carrier answers again.
  TOW_CARRIER_RECOVERED = 5,
  // For another reason.
  TOW_CARRIER_OTHER = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_carrier_reason tow_carrier_reason;
#else
typedef uint32_t tow_carrier_reason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Why an operation was denied that had been taken on.
enum tow_denied
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The grant was revoked.
  TOW_DENIED_REVOKED = 1,
  // The peer's device refused it.
  TOW_DENIED_DEVICE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_denied tow_denied;
#else
typedef uint32_t tow_denied;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a peer may do with granted memory, to be added up.
enum tow_rights
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Read.
  TOW_MAY_READ = 1,
  // Write, ranges and words.
  TOW_MAY_WRITE = 2,
  // Fetch-and-add, compare-and-swap.
  TOW_MAY_ATOMIC = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum tow_rights tow_rights;
#else
typedef uint32_t tow_rights;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How an endpoint is set up. Belongs to one thread at a time; endpoints keep nothing of it.
typedef struct tow_config tow_config;

// A device and its links to peers, driven by the loop of one thread: the one that made it, or
// the last one that called `tow_endpoint_adopt`.
typedef struct tow_endpoint tow_endpoint;

// Memory that peers may read and change, as far as it is granted. Its functions may be called
// from any thread, several at a time; freeing it once. Whoever looks at its bytes by pointers of
// their own does so by atomic loads and stores of aligned words of eight bytes.
typedef struct tow_memory tow_memory;

// Send buffers of a size.
typedef struct tow_pool {
  // Bytes of each.
  size_t bytes;
  // How many.
  size_t count;
} tow_pool;

// A link of an endpoint: from its ACCEPTED or CONNECTED event until LINK_DOWN.
typedef struct tow_link {
  // 0 is no link.
  uint64_t id;
} tow_link;

// A channel of a link.
typedef struct tow_channel {
  // Unique among the channels of its link.
  uint32_t id;
} tow_channel;

// Memory of a peer that this end may reach, or memory of ours that a peer may.
typedef struct tow_grant_id {
  // Unique among the grants of one end in the life of a link.
  uint32_t id;
} tow_grant_id;

// A message that came, until it is released or sent on.
typedef struct tow_message {
  // 0 is no message.
  uint64_t id;
} tow_message;

// A buffer of the endpoint that the caller has, until it is sent, written or freed.
typedef struct tow_buf {
  // 0 is no buffer.
  uint64_t id;
} tow_buf;

// What an endpoint tells. `kind` says which of the other fields it has; those that it does not
// have are zero.
typedef struct tow_event {
  // What it tells of.
  tow_event_kind kind;
  // How something ended.
  tow_outcome outcome;
  // Why something failed.
  tow_status status;
  // Why something ended; what it means depends on `kind`.
  uint32_t reason;
  // The link.
  struct tow_link link;
  // The number that the caller gave to a connect, a send or an operation.
  uint64_t token;
  // The channel.
  struct tow_channel channel;
  // The grant.
  struct tow_grant_id grant;
  // What may be done with it: tow_rights added up.
  uint32_t rights;
  // The messages of the channel arrive in the order in which they were sent.
  bool ordered;
  // The peer opened the channel.
  bool by_peer;
  // There is a `word`.
  bool has_word;
  // The message.
  struct tow_message message;
  // The buffer.
  struct tow_buf buf;
  // The bytes of the message or buffer, which nobody may change; NULL for a message in pieces.
  const uint8_t *data;
  // How many bytes.
  size_t len;
  // What a word was before an atomic, or is after `tow_write_word`.
  uint64_t word;
  // What the link rides on, a tow_carrier; then `reason` is a tow_carrier_reason.
  uint32_t carrier;
} tow_event;

// Counters of a link, or of all links of an endpoint together; each only grows. Later versions
// add to the end.
typedef struct tow_counters {
  // Messages delivered to the peer.
  uint64_t messages_delivered;
  // Messages given up.
  uint64_t messages_abandoned;
  // Messages that came.
  uint64_t messages_received;
  // Payload bytes sent, those sent again included.
  uint64_t bytes_sent;
  // Payload bytes sent again.
  uint64_t bytes_retransmitted;
  // Payload bytes that came and were taken.
  uint64_t bytes_received;
  // Chunks of data sent, those sent again included.
  uint64_t chunks_sent;
  // Chunks of data sent again.
  uint64_t chunks_retransmitted;
  // Chunks of data that came and were taken.
  uint64_t chunks_received;
  // Chunks that had come before.
  uint64_t chunks_duplicate;
  // Chunks with a bad header.
  uint64_t headers_bad;
  // Chunks whose payload did not match its checksum or length.
  uint64_t payloads_bad;
  // Chunks that broke a rule of the protocol.
  uint64_t violations;
  // Acks sent.
  uint64_t acks_sent;
  // Acks that came.
  uint64_t acks_received;
  // Chunks found lost by a gap.
  uint64_t losses_by_gap;
  // Chunks found lost by a timeout.
  uint64_t losses_by_timeout;
  // Of both, those that had come all the same.
  uint64_t losses_spurious;
  // Retransmission timeouts.
  uint64_t rtos;
  // Paths that were doubted.
  uint64_t path_doubts;
  // Paths whose queue pair failed.
  uint64_t paths_failed;
} tow_counters;

// What of its limits an endpoint uses now. Later versions add to the end.
typedef struct tow_usage {
  // Links that are up.
  uint64_t links;
  // The most of them.
  uint64_t links_max;
  // Receive buffers that were made.
  uint64_t receive_buffers;
  // The most of them.
  uint64_t receive_buffers_max;
  // Send buffers that are out of their pools.
  uint64_t send_buffers_out;
  // All send buffers.
  uint64_t send_buffers_max;
  // Messages that the caller has.
  uint64_t messages_held;
  // Buffers that the caller has.
  uint64_t bufs_held;
  // Messages that are being sent.
  uint64_t sends;
} tow_usage;

// How to send a message, or to carry out a one-sided operation. All zero is as good as NULL.
typedef struct tow_options {
  // A number of the caller's, which comes back with the outcome.
  uint64_t token;
  // When to give it up, on the clock of `tow_now_ns`; 0 is never.
  uint64_t deadline_ns;
  // After how long to give it up; 0 is never. The earlier one of both counts.
  uint64_t timeout_ns;
  // One-sided operations: if not 0, only when the reads and atomics before it on the link are
  // done.
  uint32_t fence;
} tow_options;

// A message that is being sent, until its SENT event.
typedef struct tow_send_id {
  // 0 is none.
  uint64_t id;
} tow_send_id;

// A buffer with what of it is sent.
typedef struct tow_segment {
  // Which.
  struct tow_buf buf;
  // How many bytes of it, from its start on; at least 1.
  size_t len;
} tow_segment;

// Bytes that the library lends to the caller.
typedef struct tow_bytes {
  // The first.
  const uint8_t *data;
  // How many.
  size_t len;
} tow_bytes;

// Which bytes of a peer's memory an operation is on.
typedef struct tow_place {
  // Whose memory.
  struct tow_link link;
  // Which memory, as TOW_EVENT_GRANTED told.
  struct tow_grant_id grant;
  // Where in it, in bytes.
  uint32_t offset;
} tow_place;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as "0.1.0".
const char *tow_version(void);

// TOW_ABI_VERSION of the library. A program that finds another one than it was compiled against
// must not go on.
uint32_t tow_abi_version(void);

// What a status means, in a few words that live for ever. Any number may be asked for.
const char *tow_error_text(int32_t status);

// What a tow_carrier_reason means, in a few words that live for ever. Any number may be asked for.
const char *tow_carrier_reason_text(uint32_t reason);

// What made the last call of this thread fail, in a sentence that names what to do; empty if none
// has failed. It lives until the next call of this thread that fails.
const char *tow_last_error(void);

// A configuration to change and to make endpoints with. `of` is a tow_profile.
tow_status tow_config_new(uint32_t of, struct tow_config **out);

// Frees a configuration. NULL is allowed.
tow_status tow_config_free(struct tow_config *config);

// Sets a number: `which` is a tow_setting.
tow_status tow_config_set(struct tow_config *config, uint32_t which, uint64_t value);

// The name of the protocol that the program speaks over its channels, at most 32 printable ASCII
// characters. Both ends refuse a link to a program with another one.
tow_status tow_config_app_protocol(struct tow_config *config, const char *name);

// Which send buffers the endpoint has, in place of those of its profile.
tow_status tow_config_send_pools(struct tow_config *config,
                                 const struct tow_pool *pools,
                                 size_t count);

// Makes an endpoint on the userspace NIC, with UDP sockets on the local address `ip`
// ("127.0.0.1", "2001:db8::1"). `config` may be NULL.
tow_status tow_endpoint_new(const char *ip,
                            const struct tow_config *config,
                            struct tow_endpoint **out);

// Frees an endpoint and all that is named by it, on its thread; its links end at once, and their
// peers notice. NULL is allowed. After an error nothing was freed.
tow_status tow_endpoint_free(struct tow_endpoint *endpoint);

// Makes the calling thread the endpoint's own. The caller sees to it that the thread before is
// in no call, and that what it did there is visible here: a lock, a join, a queue.
tow_status tow_endpoint_adopt(struct tow_endpoint *endpoint);

// Ends a `tow_wait` of the endpoint's thread, or the next one, and makes its descriptor readable.
// From any thread, as long as the endpoint is not freed.
tow_status tow_wake(const struct tow_endpoint *endpoint);

// Takes in what has come: the beginning of a turn. Returns how much that was, zero if nothing.
// Take all events then, act, and `tow_flush`.
int32_t tow_poll(struct tow_endpoint *endpoint);

// The next event: 1 and `out` has it, 0 if there is none.
int32_t tow_next_event(struct tow_endpoint *endpoint, struct tow_event *out);

// Sends what is to be sent: the end of a turn.
tow_status tow_flush(struct tow_endpoint *endpoint);

// Blocks until there is something to do, another thread calls `tow_wake`, or `timeout_ns` is over.
// Returns at once if the last `tow_poll` did something. 1 if there is something, 0 if time is
// over. Call it behind `tow_flush`.
int32_t tow_wait(struct tow_endpoint *endpoint, uint64_t timeout_ns);

// A descriptor that is readable when there is something to do, for `poll` and `epoll`
// (level-triggered). The caller closes it. Before each wait call `tow_prepare_wait`.
tow_status tow_poll_fd(struct tow_endpoint *endpoint, int32_t *out);

// The caller is about to wait for the descriptor: `out_ns` is how long that may last, at most
// `most_ns`; zero if there is something to do now. Begin a turn when the wait is over, also if
// only time has passed. Call it behind `tow_flush`.
tow_status tow_prepare_wait(struct tow_endpoint *endpoint, uint64_t most_ns, uint64_t *out_ns);

// How long from now on until `tow_poll` has something to do at the latest, if nothing comes
// before; UINT64_MAX if nothing is due.
tow_status tow_next_timeout(struct tow_endpoint *endpoint, uint64_t *out_ns);

// The endpoint's clock, for deadlines, in nanoseconds.
tow_status tow_now_ns(struct tow_endpoint *endpoint, uint64_t *out_ns);

// Takes links of peers that connect to a TCP address, as "127.0.0.1:7471"; port 0 is any free one.
// `out_port`, which may be NULL, gets the port.
tow_status tow_listen(struct tow_endpoint *endpoint, const char *addr, uint16_t *out_port);

// Takes no more links. Those that are up go on.
tow_status tow_stop_listening(struct tow_endpoint *endpoint);

// Begins to connect to a peer that listens at a TCP address. TOW_EVENT_CONNECTED or
// TOW_EVENT_CONNECT_FAILED follows, with `token`.
tow_status tow_connect(struct tow_endpoint *endpoint, const char *addr, uint64_t token);

// Leaves a link in order: what is under way is still sent. TOW_EVENT_LINK_DOWN follows.
tow_status tow_link_close(struct tow_endpoint *endpoint, struct tow_link link);

// Where the peer's end of the set-up connection is, or its device where there was none, as text
// with a zero behind it; TOW_E_TOO_LONG unless that fits `room` bytes (64 are enough).
tow_status tow_link_peer(struct tow_endpoint *endpoint,
                         struct tow_link link,
                         char *out,
                         size_t room);

// The longest message that this end takes on a link, in bytes. What the peer takes, a send that
// is refused with TOW_E_TOO_LONG tells.
tow_status tow_link_message_max(struct tow_endpoint *endpoint, struct tow_link link, uint32_t *out);

// The smoothed round-trip time of a link in nanoseconds; 0 as long as none was measured.
tow_status tow_link_rtt_ns(struct tow_endpoint *endpoint, struct tow_link link, uint64_t *out_ns);

// What a link rides on now: a tow_carrier. TOW_EVENT_CARRIER tells of each change.
tow_status tow_link_carrier(struct tow_endpoint *endpoint, struct tow_link link, uint32_t *out);

// The counters of a link. `bytes` is `sizeof(tow_counters)`: no more than that is written.
tow_status tow_link_counters(struct tow_endpoint *endpoint,
                             struct tow_link link,
                             struct tow_counters *out,
                             size_t bytes);

// The same for all links together, those that are down included.
tow_status tow_counters_of_all(struct tow_endpoint *endpoint,
                               struct tow_counters *out,
                               size_t bytes);

// What of its limits the endpoint uses now. `bytes` is `sizeof(tow_usage)`.
tow_status tow_endpoint_usage(struct tow_endpoint *endpoint, struct tow_usage *out, size_t bytes);

// Opens a channel; TOW_EVENT_CHANNEL_OPENED or TOW_EVENT_CHANNEL_CLOSED (refused) follows. If
// `ordered` is not 0, its messages arrive in the order in which they were sent. `out` may be NULL.
tow_status tow_channel_open(struct tow_endpoint *endpoint,
                            struct tow_link link,
                            uint32_t ordered,
                            struct tow_channel *out);

// Closes a channel when all that was sent on it has had its outcome.
tow_status tow_channel_close(struct tow_endpoint *endpoint,
                             struct tow_link link,
                             struct tow_channel channel);

// Takes a buffer for at least `len` bytes. The caller may write `capacity` bytes from `data` on
// until it is sent, written or freed. `capacity` may be NULL.
tow_status tow_buf_alloc(struct tow_endpoint *endpoint,
                         size_t len,
                         struct tow_buf *out,
                         uint8_t **data,
                         size_t *capacity);

// Gives a buffer back that was not sent, or that an operation brought.
tow_status tow_buf_free(struct tow_endpoint *endpoint, struct tow_buf buf);

// Has TOW_EVENT_BUFFER_FREE tell, once, when there is a buffer for `bytes` bytes: after
// TOW_E_NO_BUFFER.
tow_status tow_want_buffer(struct tow_endpoint *endpoint, size_t bytes);

// Sends a copy of `len` bytes. TOW_EVENT_SENT follows. `options` and `out` may be NULL. Nothing
// leaves before `tow_flush`.
tow_status tow_send_copy(struct tow_endpoint *endpoint,
                         struct tow_link link,
                         struct tow_channel channel,
                         const void *data,
                         size_t len,
                         const struct tow_options *options,
                         struct tow_send_id *out);

// Sends 1 to TOW_SEGMENTS_MAX buffers as one message, without a copy (but of segments of up to
// 512 bytes). They are the endpoint's from here on, which frees them with the outcome; after an
// error they are the caller's. TOW_EVENT_SENT follows. `options` and `out` may be NULL. Nothing
// leaves before `tow_flush`.
tow_status tow_send(struct tow_endpoint *endpoint,
                    struct tow_link link,
                    struct tow_channel channel,
                    const struct tow_segment *segments,
                    size_t count,
                    const struct tow_options *options,
                    struct tow_send_id *out);

// Sends a message on that came, to whom it came from or another, without a copy. It is the
// endpoint's from here on; after an error it is the caller's. TOW_E_UNSUPPORTED if it came in more
// than TOW_SEGMENTS_MAX pieces. TOW_EVENT_SENT follows. `options` and `out` may be NULL.
tow_status tow_send_message(struct tow_endpoint *endpoint,
                            struct tow_link link,
                            struct tow_channel channel,
                            struct tow_message message,
                            const struct tow_options *options,
                            struct tow_send_id *out);

// Gives a message up that is being sent. TOW_EVENT_SENT follows all the same. TOW_E_STALE if it
// has ended.
tow_status tow_cancel(struct tow_endpoint *endpoint, struct tow_send_id send);

// The pieces of a message, in order, as many as there is room for; `out_count` is how many there
// are. `parts` may be NULL if `room` is 0.
tow_status tow_message_parts(struct tow_endpoint *endpoint,
                             struct tow_message message,
                             struct tow_bytes *parts,
                             size_t room,
                             size_t *out_count);

// Copies a message to `room` bytes; TOW_E_TOO_LONG, and nothing is copied, if it is longer.
// `out_len`, which may be NULL, gets its length.
tow_status tow_message_copy(struct tow_endpoint *endpoint,
                            struct tow_message message,
                            void *to,
                            size_t room,
                            size_t *out_len);

// Gives a message back, so that its peer may send another: its bytes are out of reach from here
// on.
tow_status tow_message_release(struct tow_endpoint *endpoint, struct tow_message message);

// At least `bytes` bytes, all zero.
tow_status tow_memory_new(size_t bytes, struct tow_memory **out);

// Memory of the caller's own: an arena, a mapped file. `start` and `bytes` are multiples of eight.
//
// Until `release` is called with `user`, the bytes stay mapped, readable and writable, and whoever
// else in this process reaches them does so by atomic loads and stores of aligned words of eight
// bytes: the NIC of this process reads and writes them meanwhile. `release` is called once, by
// whichever thread frees, revokes or ends what used the memory last; not after an error. It must
// not call an endpoint, nor leave by an exception or longjmp. It may be NULL; then the bytes stay
// for ever.
tow_status tow_memory_from(void *start,
                           size_t bytes,
                           void (*release)(void*),
                           void *user,
                           struct tow_memory **out);

// Lets go of memory. What is granted of it stays until it is revoked or its link ends. NULL is
// allowed.
tow_status tow_memory_free(struct tow_memory *memory);

// Its first byte, for atomic loads and stores, and its size. Both places may be NULL.
tow_status tow_memory_extent(const struct tow_memory *memory, void **out_start, size_t *out_bytes);

// Copies `len` bytes from `offset` on, each aligned word at once.
tow_status tow_memory_read(const struct tow_memory *memory, size_t offset, void *to, size_t len);

// Copies `len` bytes to `offset`, each aligned word at once.
tow_status tow_memory_write(const struct tow_memory *memory,
                            size_t offset,
                            const void *from,
                            size_t len);

// The word of eight bytes at `offset`, a multiple of eight.
tow_status tow_memory_load(const struct tow_memory *memory, size_t offset, uint64_t *out);

// Sets the word of eight bytes at `offset`, a multiple of eight.
tow_status tow_memory_store(const struct tow_memory *memory, size_t offset, uint64_t value);

// Adds to a word, atomically towards peers too; `out`, which may be NULL, gets what it was.
tow_status tow_memory_fetch_add(const struct tow_memory *memory,
                                size_t offset,
                                uint64_t add,
                                uint64_t *out);

// Puts `swap` into a word if it equals `compare`, atomically towards peers too; `out`, which may
// be NULL, gets what it was.
tow_status tow_memory_cmp_swap(const struct tow_memory *memory,
                               size_t offset,
                               uint64_t compare,
                               uint64_t swap,
                               uint64_t *out);

// Lets the peer of a link reach `len` bytes of `memory` from `offset` on: it gets
// TOW_EVENT_GRANTED. `may` is tow_rights added up. The grant ends by `tow_revoke`, or with the
// link; until then the memory lives, also if it is freed here. `out` may be NULL.
tow_status tow_grant(struct tow_endpoint *endpoint,
                     struct tow_link link,
                     const struct tow_memory *memory,
                     size_t offset,
                     size_t len,
                     uint32_t may,
                     struct tow_grant_id *out);

// Takes a grant back: when this returns, the peer does not reach the memory any more.
tow_status tow_revoke(struct tow_endpoint *endpoint,
                      struct tow_link link,
                      struct tow_grant_id grant);

// Fetches `len` bytes of a peer's memory, into a buffer of the endpoint's that
// TOW_EVENT_OP_DONE brings. `options` may be NULL. Nothing leaves before `tow_flush`.
tow_status tow_read(struct tow_endpoint *endpoint,
                    struct tow_place place,
                    uint32_t len,
                    const struct tow_options *options);

// Writes the first `len` bytes of a buffer to a peer's memory, without a copy. The buffer is the
// endpoint's from here on, which frees it with the outcome; after an error it is the caller's.
// `options` may be NULL.
tow_status tow_write(struct tow_endpoint *endpoint,
                     struct tow_place place,
                     struct tow_buf buf,
                     uint32_t len,
                     const struct tow_options *options);

// Writes a copy of `len` bytes to a peer's memory. `options` may be NULL.
tow_status tow_write_copy(struct tow_endpoint *endpoint,
                          struct tow_place place,
                          const void *data,
                          size_t len,
                          const struct tow_options *options);

// Writes a word of eight bytes, in this host's byte order, at once. `options` may be NULL.
tow_status tow_write_word(struct tow_endpoint *endpoint,
                          struct tow_place place,
                          uint64_t value,
                          const struct tow_options *options);

// Adds to a word of a peer's memory; TOW_EVENT_OP_DONE tells what it was. Done once or not at all.
// `options` may be NULL.
tow_status tow_fetch_add(struct tow_endpoint *endpoint,
                         struct tow_place place,
                         uint64_t add,
                         const struct tow_options *options);

// Puts `swap` into a word of a peer's memory if it equals `compare`; TOW_EVENT_OP_DONE tells what
// it was. Done once or not at all. `options` may be NULL.
tow_status tow_cmp_swap(struct tow_endpoint *endpoint,
                        struct tow_place place,
                        uint64_t compare,
                        uint64_t swap,
                        const struct tow_options *options);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TOWPATH_H */
