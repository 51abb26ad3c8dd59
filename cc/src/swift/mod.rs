//! Swift: delay targets for the fabric and for the hosts, and windows below one packet.

mod config;
mod delays;
mod losses;
mod probe;
mod shared;
#[cfg(test)]
mod tests;
mod window;

pub use config::SwiftConfig;

use towpath_base::{Nanos, Time};

use crate::delay::{DelayFloor, RecentDelays};
use crate::limits::{
    RTT_SAMPLE_MAX, SHARED_QUEUE_MIN, SHARED_QUEUE_PART, SWIFT_BASE_DEFAULT,
    SWIFT_ENDPOINT_STEP_SPAN, SWIFT_GAP_MAX, SWIFT_NOISY_PACKETS_MIN, SWIFT_QUEUE_DEFAULT,
    SWIFT_SCALING_PACKETS, SWIFT_WINDOW_PACKETS_MIN, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN,
};
use crate::math::sqrt;
use crate::{AckSample, Controller, LossSample, PathFacts, Rate};
use probe::FloorProbe;
use shared::{Now, Shape, SharedWindow};
use window::{Acked, DelayWindow, Steps};

/// Congestion control by delay, after Kumar et al., "Swift: Delay is Simple and Effective for
/// Congestion Control in the Datacenter" (SIGCOMM 2020).
///
/// Two windows, one driven by the fabric's delay and one by the hosts'; the smaller one counts.
/// Each grows by a packet per round trip while its delay is below its target, and otherwise
/// shrinks by how far the delay is above it, at most once per round trip. The fabric's target
/// grows as the window shrinks, which makes flows that share a queue alike. A window below one
/// packet is paced: one packet in so many round trips.
///
/// From the paper are that shape, the two windows and the least window of 0.001 packets. The
/// constants are our defaults ([`limits`](crate::limits)), and so is what the paper does not have:
///
/// - Loss while the delay is below its target changes nothing. The paper cuts the window on every
///   loss; on a path that loses 1 % at random that would give up half the line.
/// - Until a delay first reaches its target the window doubles each round trip.
/// - The delay is the median of the last round trip's, against the noise of hosts.
/// - A window below one packet grows by a part of itself, not by packets, and makes nobody wait
///   longer than [`SWIFT_GAP_MAX`] between two packets.
/// - Where the path declares that its delays are noisy, it may be a wire that others share who fill
///   its queue. There another window takes the place of the fabric's. It measures the noise, finds
///   out whose queue it is that the delay shows, and tells congestion from random loss:
///   `docs/new-congestion-control.md`, section 5. The hosts' window keeps at least
///   [`SWIFT_NOISY_PACKETS_MIN`] packets.
/// - A host that is away for a while at a time adds that to both targets: a window that is done
///   before it is back stands still for the rest. Its round trips are longer by as much, and the
///   window grows as if they were not.
/// - A window grows only while it is the smaller one and what holds the sender back.
/// - The hosts' window grows by time where the round trip is long
///   ([`SWIFT_ENDPOINT_STEP_SPAN`]), and a timeout that proves to be false ends no doubling.
/// - The base target follows the least round trip seen where that is longer than a pod's, and
///   a sender that sees such a one lets go of its window now and then, to see whether it is only
///   the queue of those who were there before it.
#[derive(Clone, Debug)]
pub struct Swift {
    config: SwiftConfig,
    path: PathFacts,
    scaling: Scaling,
    fabric: DelayWindow,
    /// In its place where delays are noisy.
    shared: Option<SharedWindow>,
    endpoint: DelayWindow,
    recent: RecentDelays,
    floor: DelayFloor,
    /// Zero until the first sample, as all that follow.
    srtt: Nanos,
    fabric_delay: Nanos,
    endpoint_delay: Nanos,
    fabric_target: Nanos,
    timeouts: u32,
    probe: FloorProbe,
    away: Nanos,
}

impl Swift {
    /// The word for it on command lines.
    pub const NAME: &str = "swift";

    /// A controller that starts with one packet, or with the least window of a noisy path.
    #[must_use]
    pub fn new(config: SwiftConfig, now: Time, path: &PathFacts) -> Self {
        let path = PathFacts { packet_bytes: path.packet_bytes.max(1), ..*path };
        let steps = Steps {
            increase: f64::from(config.increase_percent) / 100.0,
            decrease: f64::from(config.decrease_percent) / 100.0,
            decrease_max: f64::from(config.decrease_max_percent) / 100.0,
            packets_min: if path.delay_noise == Nanos::ZERO {
                SWIFT_WINDOW_PACKETS_MIN
            } else {
                SWIFT_NOISY_PACKETS_MIN
            },
            packets_max: WINDOW_BYTES_MAX as f64 / f64::from(path.packet_bytes),
        };
        let shared = (path.delay_noise > Nanos::ZERO).then(|| {
            let Steps { increase, decrease, decrease_max, .. } = steps;
            let shape = Shape { increase, decrease, decrease_max };
            let packet_bytes = f64::from(path.packet_bytes);
            SharedWindow::new(now, packet_bytes, steps.packets_max, path.delay_noise, shape)
        });
        let mut swift = Self {
            config,
            path,
            scaling: Scaling::new(config.scaling),
            fabric: DelayWindow::new(steps),
            shared,
            endpoint: DelayWindow::new(steps),
            recent: RecentDelays::new(),
            floor: DelayFloor::new(now),
            srtt: Nanos::ZERO,
            fabric_delay: Nanos::ZERO,
            endpoint_delay: Nanos::ZERO,
            fabric_target: Nanos::ZERO,
            timeouts: 0,
            probe: FloorProbe::new(now),
            away: Nanos::ZERO,
        };
        swift.fabric_target = swift.target(Nanos::ZERO);
        swift
    }

    /// The window in packets; below one it is a packet in several round trips.
    #[must_use]
    pub fn window_packets(&self) -> f64 {
        let packets = self.fabric_packets().min(self.endpoint.packets());
        if self.probe.is_on() { self.probe.leave(packets) } else { packets }
    }

    fn fabric_packets(&self) -> f64 {
        self.shared.as_ref().map_or(self.fabric.packets(), SharedWindow::packets)
    }

    /// What the fabric's delay is held to at present, its round trip included.
    #[must_use]
    pub fn fabric_target(&self) -> Nanos {
        self.fabric_target
    }

    /// What the fabric's delay would be held to with a window of `packets`, where the least round
    /// trip seen is `floor`.
    #[must_use]
    pub fn target_at(&self, floor: Nanos, packets: f64) -> Nanos {
        let scaling = self.scaling.at(packets);
        let wanted = match self.config.base {
            Some(base) => base + scaling,
            // Both are room for a queue, and one queue is enough.
            None => (SWIFT_BASE_DEFAULT + scaling).max(floor + self.queue_on(floor)) + self.away,
        };
        wanted + self.config.hop.saturating_mul(u64::from(self.config.hops))
    }

    /// What a path whose least round trip is `floor` may have in its queue.
    fn queue_on(&self, floor: Nanos) -> Nanos {
        match self.shared {
            Some(_) => SHARED_QUEUE_MIN.max(Nanos(floor.0 / SHARED_QUEUE_PART)),
            None => SWIFT_QUEUE_DEFAULT,
        }
    }

    /// How many round trips one is that our absences make longer.
    fn round_trips_in_one(&self) -> f64 {
        match self.fabric_target.0.saturating_sub(self.away.0) {
            without if self.config.base.is_none() && without > 0 => {
                self.fabric_target.0 as f64 / without as f64
            }
            _ => 1.0,
        }
    }

    /// The target: base, hops, and what the size of the window adds.
    fn target(&self, floor: Nanos) -> Nanos {
        let noise = self.shared.as_ref().map_or(Nanos::ZERO, SharedWindow::noise);
        self.target_at(floor, self.fabric_packets()) + noise
    }

    fn take_delays(&mut self, sample: &AckSample, rtt: Nanos) {
        let rtt = rtt.min(RTT_SAMPLE_MAX);
        let endpoint = sample.endpoint.min(RTT_SAMPLE_MAX);
        let floor = self.floor.with(sample.now, rtt);
        if self.srtt == Nanos::ZERO {
            (self.srtt, self.endpoint_delay) = (rtt + endpoint, endpoint);
        }
        self.srtt = smoothed(self.srtt, rtt + endpoint).max(Nanos(1));
        self.endpoint_delay = smoothed(self.endpoint_delay, endpoint);
        self.fabric_delay = self.recent.median_with(sample.now, rtt, self.srtt);
        let floor = self.shared.as_ref().and_then(SharedWindow::base).unwrap_or(floor);
        self.fabric_target = self.target(floor);
        let may_be_queue = self.shared.is_none()
            && self.config.base.is_none()
            && floor + SWIFT_QUEUE_DEFAULT > SWIFT_BASE_DEFAULT;
        // Who has nothing to send keeps no queue, and needs no window back.
        if sample.window_limited {
            self.probe.turn(sample.now, self.srtt, floor, may_be_queue);
        }
    }

    /// Packets that so many chunks were sent in: each of them took one, however short it was, and
    /// long ones as many as their bytes fill.
    fn packets_sent(&self, chunks: u32, bytes: u64) -> f64 {
        f64::from(chunks).max(bytes as f64 / f64::from(self.path.packet_bytes))
    }

    /// What a round trip counts as before the first one is known.
    fn round_trip(&self) -> Nanos {
        if self.srtt == Nanos::ZERO { self.fabric_target } else { self.srtt }
    }
}

/// An eighth of the way from `old` to `new`.
fn smoothed(old: Nanos, new: Nanos) -> Nanos {
    Nanos(old.0 - old.0 / 8 + new.0 / 8)
}

impl Controller for Swift {
    fn on_ack(&mut self, sample: &AckSample) {
        self.timeouts = 0;
        if let Some(rtt) = sample.rtt {
            self.take_delays(sample, rtt);
        }
        if self.srtt == Nanos::ZERO {
            return;
        }
        let acked = Acked {
            packets: sample.acked_bytes as f64 / f64::from(self.path.packet_bytes),
            sent: self.packets_sent(sample.acked_chunks, sample.acked_bytes),
            round_trips: self.round_trips_in_one(),
        };
        let (now, rtt) = (sample.now, self.srtt);
        let (fabric, endpoint) = (self.fabric_packets(), self.endpoint.packets());
        let delays = (self.fabric_delay, self.fabric_target);
        let may_grow = sample.window_limited && fabric <= endpoint;
        match &mut self.shared {
            Some(shared) => {
                let target = self.fabric_target - shared.noise();
                let at = Now { now, srtt: rtt, target };
                shared.on_ack(at, sample.rtt, acked, may_grow);
            }
            None => self.fabric.on_ack(now, rtt, delays, acked, may_grow),
        }
        let noise = self.path.delay_noise.max(self.away);
        let delays = (self.endpoint_delay, self.config.endpoint + noise);
        let may_grow = sample.window_limited && endpoint <= fabric;
        // A host is as fast behind a long path as behind a short one: it grows by time.
        let steps = (rtt.0 as f64 / SWIFT_ENDPOINT_STEP_SPAN.0 as f64).max(1.0);
        let acked = Acked { round_trips: acked.round_trips * steps, ..acked };
        self.endpoint.on_ack(now, rtt, delays, acked, may_grow);
    }

    fn on_loss(&mut self, sample: &LossSample) {
        let rtt = self.round_trip();
        let sent = self.packets_sent(sample.lost_chunks, sample.lost_bytes);
        let lost = f64::from(sample.lost_chunks);
        match &mut self.shared {
            Some(shared) => shared.on_loss(sample.now, rtt, (sent, lost)),
            None => self.fabric.on_loss(sample.now, rtt),
        }
        self.endpoint.on_loss(sample.now, rtt);
    }

    fn on_rto(&mut self, now: Time) {
        self.timeouts = self.timeouts.saturating_add(1);
        let rtt = self.round_trip();
        match &mut self.shared {
            Some(shared) => shared.on_rto(now, rtt, self.timeouts),
            None => self.fabric.on_rto(now, rtt, self.timeouts),
        }
        self.endpoint.on_rto(now, rtt, self.timeouts);
    }

    fn on_false_rto(&mut self) {
        match &mut self.shared {
            Some(shared) => shared.on_false_rto(),
            None => self.fabric.on_false_rto(),
        }
        self.endpoint.on_false_rto();
    }

    fn set_away(&mut self, away: Nanos) {
        self.away = away.min(RTT_SAMPLE_MAX);
    }

    fn set_packet_bytes(&mut self, packet_bytes: u32) {
        let before = core::mem::replace(&mut self.path.packet_bytes, packet_bytes.max(1));
        let by = f64::from(before) / f64::from(self.path.packet_bytes);
        self.fabric.scale(by);
        self.endpoint.scale(by);
        if let Some(shared) = &mut self.shared {
            shared.scale(by);
        }
    }

    fn window_bytes(&self) -> u64 {
        let bytes = self.window_packets() * f64::from(self.path.packet_bytes);
        (bytes as u64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        if self.window_packets() < 1.0 {
            let least = Rate::from_bytes_per(u64::from(self.path.packet_bytes), SWIFT_GAP_MAX);
            return Some(Rate::from_bytes_per(self.window_bytes(), self.round_trip()).max(least));
        }
        let windows = self.shared.as_ref()?.windows_in_round_trip()?;
        let bytes = self.window_bytes() as f64 * windows;
        Some(Rate::from_bytes_per(bytes as u64, self.round_trip()).max(Rate(1)))
    }

    fn name(&self) -> &'static str {
        Self::NAME
    }
}

/// Flow scaling: `alpha / sqrt(window) + beta`, within zero and its range.
#[derive(Clone, Copy, Debug)]
struct Scaling {
    alpha_ns: f64,
    beta_ns: f64,
    range_ns: f64,
}

impl Scaling {
    fn new(range: Nanos) -> Self {
        let range_ns = range.0 as f64;
        let (few, many) = SWIFT_SCALING_PACKETS;
        let alpha_ns = range_ns / (1.0 / sqrt(few) - 1.0 / sqrt(many));
        Self { alpha_ns, beta_ns: -alpha_ns / sqrt(many), range_ns }
    }

    fn at(&self, packets: f64) -> Nanos {
        let packets = packets.max(SWIFT_WINDOW_PACKETS_MIN);
        Nanos((self.alpha_ns / sqrt(packets) + self.beta_ns).clamp(0.0, self.range_ns) as u64)
    }
}
