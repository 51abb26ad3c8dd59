//! Limits of a device, each with its reason.

use towpath_base::Nanos;

/// Work requests handed to the driver in one call: a list of these stays in the first-level cache.
pub(crate) const POST_BATCH: usize = 32;

/// Completions taken from the driver in one call, for the same reason.
pub(crate) const POLL_BATCH: usize = 32;

/// Peers that UD datagrams go to: each costs an address handle in the driver, for the life of the
/// device.
pub(crate) const AH_MAX: usize = 4096;

/// Events of the device kept for the application.
pub(crate) const EVENTS_MAX: usize = 64;

/// Source ports that the flow label can choose: 14 bits of it end up in the port.
pub(crate) const SOURCE_PORTS: u16 = 1 << 14;

/// Bytes at the start of every UD receive that the Global Routing Header takes.
pub(crate) const GRH_BYTES: usize = 40;

/// What a round trip may be longer although nothing is queued, where completions have no
/// timestamps: both ends are threads, which may share cores.
pub(crate) const DELAY_NOISE: Nanos = Nanos::from_micros(200);

/// How often the driver is asked for events of the device: each look is a system call.
pub(crate) const EVENT_POLL_NS: u64 = 1_000_000;

/// Routers that a packet passes at most.
pub(crate) const HOPS_MAX: u8 = 64;

/// How often the device's clock is set against ours: crystals drift 5 us apart in the meantime,
/// which a round trip in a datacentre still shows, and a look costs a read across the bus.
pub(crate) const CLOCK_POLL_NS: u64 = 100_000_000;

/// Bytes of a send that are copied when it is posted: an ack or a small request. The copy is then
/// cheaper than the device's fetch across the bus, and every driver known has room for it.
pub(crate) const INLINE_BYTES_MAX: u32 = 128;
