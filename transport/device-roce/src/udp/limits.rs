//! Sizes that bound the UDP link, each with its reason.

use crate::limits::PACKET_OVERHEAD_BYTES;
use towpath_base::Nanos;

/// The RoCEv2 port.
pub const ROCE_PORT: u16 = 4791;

/// The longest UDP payload that is offered as a packet: an IPv6 datagram of 65,535 bytes less
/// the headers of the larger family, so that one number holds for both.
pub(super) const PACKET_BYTES_MAX: usize = 65_535 - 40 - 8;

/// The most bytes of one offloaded send; the kernel builds one datagram of it first.
pub(super) const RUN_BYTES_MAX: usize = PACKET_BYTES_MAX;

/// What schedulers and system calls add to a round trip through sockets, at most. Two busy hosts
/// show 100 to 300 us with nothing else on the wire, and a slice of some milliseconds where threads
/// outnumber cores. It bounds what the congestion controller measures as noise, and is what acks
/// may wait within the hosts; the receive buffer is protected by the receive window.
pub(super) const DELAY_NOISE: Nanos = Nanos::from_millis(5);

/// What newer kernels take as segments of one send (`UDP_MAX_SEGMENTS`).
pub(super) const SEGMENTS_MAX: usize = 128;

/// What kernels before 6.9 take.
pub(super) const SEGMENTS_OLD_MAX: usize = 64;

/// Messages of one `sendmmsg`; past this the saving per message is no longer seen.
pub(super) const SEND_MESSAGES_MAX: usize = 32;

/// Batches in a row that go elsewhere before a connected socket is connected to where they go: it
/// takes about as long as three sends, and saves a tenth of each after it.
pub(super) const RECONNECT_AFTER: u32 = 256;

/// Gather entries of one `sendmmsg`, and so of one message: the kernel's `UIO_MAXIOV`.
pub(super) const SEND_IOVECS_MAX: usize = 1024;

/// Datagrams of one `recvmmsg`. Room for 16 costs 0.17 us more than room for one where only one
/// has come, so the link asks for one until they come faster.
pub(super) const RECV_MESSAGES_MAX: usize = 16;

/// Bytes that one call receives where datagrams are long: a quarter of a level-2 cache of today,
/// since all of them are copied in before the first is looked at. Bulk over loopback moves 1.07 and
/// 1.09 times as much with two and four datagrams of 64 KiB as with up to sixteen, and with one at
/// a time 0.9 times.
pub(super) const RECV_CACHED_BYTES: usize = 256 * 1024;

/// One receive buffer: the most that the kernel coalesces into one datagram.
pub(super) const RECV_BUFFER_BYTES: usize = 65_536;

/// A single packet longer than this is sent as a run of one: the kernel then pages its payload
/// and charges the receiver 832 bytes on top, where a linear buffer rounds up to powers of two.
pub(super) const LINEAR_BYTES_MAX: usize = 192;

/// What each separately sent message is charged at the least, whatever the probe saw: `sk_buff`,
/// header room and shared info of a 64-bit kernel are 832.
pub(super) const RX_CHARGE_BYTES_MIN: u32 = 832;

/// The charge where the probe could not measure, for paged messages: one page of bookkeeping
/// is more than any configuration of the kernel is known to need.
pub(super) const RX_CHARGE_BYTES_DEFAULT: u32 = 1_024;

/// The charge of a linear (not offloaded) packet of up to 4 KiB and headers: 3,900 bytes and
/// their bookkeeping land in an 8,192-byte slab object, 8,448 in all.
pub(super) const RX_CHARGE_LINEAR_BYTES: u32 = 4_608;

/// Packets of a run that are charged apart where this end cannot coalesce: a full send of 4 KiB
/// packets is 15.
pub(super) const RX_SPLIT_PACKETS: u32 = 16;

/// Source ports where nothing is said: as many as a link may have paths, and as a switch has ways.
/// Half of the ways of a network may swallow, and all of them do so once in 65,536 times. They take
/// 16 descriptors of the 1,024 that a process has where nobody has raised that.
pub(super) const SOURCE_PORTS: u16 = 16;

/// The most NICs that a device has: a host with more links them otherwise.
pub const NICS_MAX: usize = 4;

/// More source ports than this gain no entropy over the 8 to 16 ways of a switch.
pub const SOURCE_PORTS_MAX: u16 = 64;

/// Packets that wait to be taken by the link of a group that they are for: half a megabyte of
/// payload at the least MTU that Ethernet has, and 2 MiB of memory (mapped when first used) that a
/// group has for each of its links.
pub(super) const HANDED_PACKETS_MAX: usize = 512;

/// The longest packet that is handed over: the largest MTU with all its headers. Nothing longer
/// is a packet of RoCE.
pub(super) const HANDED_BYTES_MAX: usize = 4096 + PACKET_OVERHEAD_BYTES as usize;

/// Calls that receive something and are told traffic classes to begin with: what few packets came
/// in under is known for all of them.
pub(super) const TCLASS_ASKED_FIRST: u32 = 256;

/// How many such calls then are not told, one after the other, before one is. Being told costs a
/// call 0.13 us, asking and asking no more 0.4 us together.
pub(super) const TCLASS_UNASKED: u32 = 63;

/// The longest packet that counts as short: a full one of an MTU of 1,024 or more is longer, and
/// most such are of a run.
pub(super) const LONE_BYTES_MAX: usize = 1024;

/// Short packets in a row, each alone, before the kernel is told to cut runs: that and taking it
/// back are three system calls, and each packet in between takes 0.1 us less.
pub(super) const LONE_PACKETS: u32 = 256;

/// How long an offset between the kernel's receive clock and the link's is trusted: a clock that
/// is slewed by 500 ppm is off by 50 us after it.
pub(super) const CLOCK_REFRESH_NS: u64 = 100_000_000;

/// A clock that is slewed gains or loses one part in so many at most: 500 ppm.
pub(super) const CLOCK_SLEW_PART: u64 = 2_000;

/// Who looks at its socket this often knows by its own clock when packets come.
pub(super) const LOOKS_APART_NS: u64 = 20_000;

/// Two readings of clocks this far apart are of one moment; a thread that was away in between tries
/// again, so often at most.
pub(super) const CLOCK_READINGS_APART_NS: u64 = 5_000;
pub(super) const CLOCK_READINGS_MAX: u32 = 4;

/// One batch in this time asks the kernel when it leaves. That costs some 5 us of a core, caches
/// counted in: with one a millisecond a core that does nothing but send took 0.5 % longer. And it
/// is often enough to follow how long calls take.
pub(super) const STAMPS_APART: Nanos = Nanos::from_millis(4);

/// Stamps whose median counts: enough that a few calls which were interrupted move nothing.
pub(super) const STAMPS_RECENT: usize = 15;

/// Looks for a stamp that does not come, before it is given up.
pub(super) const STAMP_LOOKS_MAX: u32 = 64;

/// Stamps in a row that do not come, before none is asked for any more: a driver that has none.
pub(super) const STAMPS_MISSING_MAX: u32 = 8;

/// A stamp this much older than the call that it is of is no accident of two clocks.
pub(super) const STAMP_CLOCKS_OFF_NS: u64 = 20_000;

const _: () = assert!(RECV_CACHED_BYTES >= 2 * RECV_BUFFER_BYTES);
