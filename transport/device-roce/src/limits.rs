//! The limits of the device, each with its reason.

use towpath_verbs::SHARES_MAX;

/// Packets offered to the link in one call: two maximal offloaded sends of small packets, and
/// eight chunks of 15 packets, share one system call.
pub const TX_BATCH_PACKETS: usize = 128;

/// Packets offered at least, however few the link took before: each call costs as much as several.
pub const TX_BATCH_PACKETS_MIN: usize = 8;

/// Batches sent in one `progress` before received packets get their turn.
pub const TX_BATCHES_PER_PROGRESS: usize = 4;

/// Packets that one queue pair may add to a batch before the next one's turn: two chunks of 15
/// packets, so that a chunk stays one run of equal packets for the link to offload.
pub const TX_TURN_PACKETS: usize = 30;

/// Payloads up to here are copied behind their headers, so that a run of packets lies in one piece.
/// As measured for a link that copied: 100 packets of 617 bytes took 5.9 us to send and gathered
/// 7.8 us, 60 of 1 KiB 5.6 and 6.0 us; with 2 KiB the copy cost more than it saved (5.4 and 5.1).
pub const TX_COPY_BYTES_MAX: usize = 1024;

/// Packets that an RC queue pair keeps under way unless configured otherwise, as rxe does
/// (`RXE_MAX_UNACKED_PSNS`): at an MTU of 4,096 it fills 100 Gb/s up to a round trip of 40 us.
pub const RC_WINDOW_PACKETS: u32 = 128;

/// The most packets under way: half of what a PSN can tell apart, less one.
pub const RC_WINDOW_PACKETS_MAX: u32 = (1 << 22) - 1;

/// Packets within a message after which RC asks for an acknowledgement, as rxe does
/// (`RXE_MAX_PKT_PER_ACK`); sooner in a small window, so that it never closes unasked.
pub const RC_ACK_INTERVAL_PACKETS: u32 = 64;

/// Requests that a READ as long as the window goes out as: with four of them, responses keep
/// coming while the next request travels. READs of up to half a window are asked for in one.
pub const RC_READ_PIECES: u32 = 4;

/// Packets of responses to READs in one batch: one turn of a queue pair.
pub const READ_REPLY_PACKETS: usize = TX_TURN_PACKETS;

/// With so many of them a batch takes no further READ: half of the 16 READs that a queue pair
/// answers at a time where each is one packet, so that the reader works on some while the others
/// are copied. One that is longer is not cut by it, for the sake of its run of equal packets.
pub const READ_REPLY_PACKETS_ENOUGH: usize = 8;

/// Queue pairs of a device unless configured otherwise.
pub const QP_DEFAULT: u32 = 4096;

/// The most queue pairs of a device: 16 bits of index leave 8 bits of a queue pair number for the
/// generation, or 2 where most devices share an address.
pub const QP_MAX: u32 = 1 << 16;

/// The most work requests of one queue: as large NICs offer.
pub const WR_MAX: u32 = 1 << 15;

/// The most completions of one completion queue: 2,048 queue pairs of the largest depth. There is
/// memory for those that have ever waited at a time, not for the depth.
pub const CQE_MAX: u32 = 1 << 26;

/// Completions that a completion queue has memory for from the start: more than one poll leaves.
pub const CQE_AT_FIRST: usize = 1024;

/// The most completion queues, and the most shared receive queues.
pub const CQ_MAX: usize = 1 << 16;

/// The longest message: at the smallest MTU it spans half of the PSN range, beyond which the order
/// of two PSNs is no longer defined.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// Events of the device kept for the application; later ones are counted and lost.
pub const EVENTS_MAX: usize = 64;

/// Bytes at the start of every UD receive buffer that the Global Routing Header takes.
pub const GRH_BYTES: usize = 40;

/// Everything around the payload of a packet: BTH 12, RETH 16, ImmDt 4, pad 3, ICRC 4.
pub const PACKET_OVERHEAD_BYTES: u32 = 12 + 16 + 4 + 3 + 4;

const _: () = assert!(QP_MAX as u64 * SHARES_MAX as u64 * 4 <= 1 << 24);
const _: () = assert!(MESSAGE_BYTES_MAX / 256 <= 1 << 23);
const _: () = assert!(TX_TURN_PACKETS <= TX_BATCH_PACKETS);
const _: () = assert!(RC_WINDOW_PACKETS <= RC_WINDOW_PACKETS_MAX);
const _: () = assert!(TX_BATCH_PACKETS_MIN <= TX_BATCH_PACKETS);
