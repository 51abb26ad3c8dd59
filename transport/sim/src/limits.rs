//! What is bounded, and why so.

/// Packets that one direction of a fault link holds back: 100 ms of 4 KiB packets at 5 Gb/s.
pub const HELD_PACKETS_MAX: usize = 16_384;

/// Bytes that one direction of a fault link holds back: what [`HELD_PACKETS_MAX`] full packets
/// take, so that long packets cannot take more memory than that many of a full MTU.
pub const HELD_BYTES_MAX: usize = HELD_PACKETS_MAX * 4_200;

/// Held packets that are offered to the inner link in one call: enough for a link that batches
/// to batch, small enough for the stack.
pub const RELEASE_BATCH: usize = 32;

/// The furthest that a packet is displaced, in packets: beyond it a reordered packet is a late
/// one, for which there is a setter of its own.
pub const REORDER_PACKETS_MAX: u32 = 1_024;

/// Packets or trains that may wait for a wire or be on it: 10 ms of 4 KiB packets at 400 Gb/s are
/// 122,000. More are dropped as the queue drops them.
pub const IN_FLIGHT_PACKETS_MAX: usize = 131_072;

/// The first source port of a virtual link: RoCEv2 takes its path entropy from 0xC000 up.
pub const SOURCE_PORT_FIRST: u16 = 0xC000;

/// The most source ports of a virtual link: as many as there are from [`SOURCE_PORT_FIRST`] up.
pub const SOURCE_PORTS_MAX: u16 = u16::MAX - SOURCE_PORT_FIRST + 1;

/// Batches that one `receive` of a fault link looks through when all of them are dropped: enough
/// to get past a burst, and an end to it while a black hole is being sent into.
pub const RECEIVE_ROUNDS_MAX: usize = 64;

/// Queues of each port: the three classes of the transport, and one for what a study puts beside
/// them.
pub const CLASSES: usize = 4;

/// Hosts of one world that have addresses of its own: as many as there are in 10.0.0.0/8.
pub const HOSTS_MAX: usize = (1 << 24) - 2;

/// Packets of a train: more than a message of 64 MiB has at an MTU of 1,024.
pub const TRAIN_PACKETS_MAX: u32 = 65_536;

/// Bytes of a train, BTH to ICRC: so that the time it takes is exact in whole 64-bit numbers.
pub const TRAIN_BYTES_MAX: u64 = 1 << 30;
