//! What one direction of a wire for Ethernet frames does to them, and counts.

use super::counters::FaultCounters;
use super::plan::FaultPlan;
use core::num::NonZeroU64;
use towpath_base::{Nanos, Time};

/// The Ethernet header: destination, source, type.
pub const ETHERNET_HEADER_BYTES: usize = 14;

/// An IEEE 802.1Q tag, which an MTU does not count.
pub const VLAN_TAG_BYTES: usize = 4;

/// A stretch of time in which a wire loses every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it begins, after the wire's [`Time::ZERO`].
    pub after: Nanos,
    /// How long it is.
    pub span: Nanos,
    /// From the beginning of one to the beginning of the next; zero means only once.
    pub every: Nanos,
}

impl Outage {
    /// Whether it goes on at `now`.
    #[must_use]
    pub fn covers(&self, now: Time) -> bool {
        let Some(since) = now.0.checked_sub(self.after.0) else { return false };
        let into = if self.every == Nanos::ZERO { since } else { since % self.every.0 };
        into < self.span.0
    }
}

/// The rate of a wire, and the queue before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRate {
    /// Bits of frames, header included, per second.
    pub bits_per_s: NonZeroU64,
    /// Bytes of frames that may wait or be on their way onto the wire; a frame that does not fit
    /// is dropped. A frame that finds nothing before it is always taken.
    pub queue_bytes: usize,
}

/// What may happen to the frames of one direction, in this order: a frame that is too large is
/// dropped, then one that comes during an outage, then one that finds the queue full; the others
/// leave at the rate, and then meet the faults. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FramePlan {
    /// Loss, copies, reordering, corruption, delay.
    pub faults: FaultPlan,
    /// The jitter of the delay does not reorder: a frame waits for those before it.
    pub keeps_order: bool,
    /// The rate, or `None` for as fast as frames come.
    pub rate: Option<FrameRate>,
    /// The largest payload of a frame in bytes, without Ethernet header and VLAN tag, or `None`.
    pub mtu: Option<usize>,
    /// When every frame is lost.
    pub outages: Vec<Outage>,
    /// When every frame is lost that carries UDP over IPv4 or IPv6, as behind a firewall.
    pub udp_outages: Vec<Outage>,
}

/// What one direction of a wire did to frames; each only grows.
///
/// `offered` is the sum of `too_large`, `lost_down`, `queue_dropped`, `faults.taken` and the
/// frames that are queued now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounters {
    /// Frames that came.
    pub offered: u64,
    /// Their bytes, Ethernet header included.
    pub offered_bytes: u64,
    /// Frames dropped because their payload exceeded the MTU.
    pub too_large: u64,
    /// Frames lost in an outage, of all frames or of UDP.
    pub lost_down: u64,
    /// Frames dropped because the queue was full.
    pub queue_dropped: u64,
    /// Bytes of frames handed on.
    pub passed_bytes: u64,
    /// What the faults did to the others.
    pub faults: FaultCounters,
}

impl FrameCounters {
    /// Frames that are in the wire now: queued, or held back by a fault.
    #[must_use]
    pub fn in_wire(&self) -> u64 {
        let gone = self.too_large + self.lost_down + self.queue_dropped + self.faults.taken;
        self.offered.saturating_sub(gone) + self.faults.held()
    }
}
