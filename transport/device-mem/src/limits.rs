//! The limits of the device, each with its reason.

use towpath_base::Nanos;

/// What a round trip may be longer although nothing is queued: both ends are threads, which may
/// share cores.
pub(crate) const DELAY_NOISE: Nanos = Nanos::from_micros(200);

/// Queue pairs of a device: 12 bits of index leave 12 bits of a queue pair number for the
/// generation.
pub const QP_MAX: u32 = 1 << QP_INDEX_BITS;

pub(crate) const QP_INDEX_BITS: u32 = 12;

/// The most work requests of one queue: as large NICs offer.
pub const WR_MAX: u32 = 1 << 15;

/// The most completions of one completion queue: 64 queue pairs of the largest depth.
pub const CQE_MAX: u32 = 1 << 21;

/// The most completion queues, and the most shared receive queues.
pub const CQ_MAX: usize = 1 << 16;

/// The longest message: the longest that RoCE can carry.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// Events of the device kept for the application; later ones are counted and lost.
pub const EVENTS_MAX: usize = 64;

/// Bytes at the start of every UD receive buffer that the Global Routing Header takes.
pub const GRH_BYTES: usize = 40;
