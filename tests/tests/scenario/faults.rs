//! What befalls packets.

use towpath_base::{Nanos, Prng};
use towpath_sim::{Burst, FaultPlan};
use towpath_verbs::Mtu;

/// BTH to ICRC, without the payload.
const PACKET_OVERHEAD_BYTES: usize = 39;

/// The sum of the probabilities below: a packet that suffers any of these does not help its chunk.
const HURT_EACH_MAX: f64 = 0.1 + 0.15 + 0.05 + 0.1 + 0.07;

/// Minus the logarithm of one in ten.
const HURT_MAX: f64 = 2.3;

/// Faults of every kind at once, each rare or frequent by `harshness` (0.0 to 1.0).
///
/// Lateness reaches from well below a retransmission timeout to many times the life of a buffer:
/// a late packet of a small run arrives after all its buffers have been used again, or in a later
/// life of the link.
///
/// What a chunk loses goes again in shorter ones only once losses have shown. So that a run ends
/// soon, one of `chunk_packets` packets has a fair chance to arrive whole: the faults of one packet
/// are held to what leaves it one in ten. Jitter, which disorders nearly every run of packets, is
/// only for the shortest chunks.
pub(super) fn draw(
    prng: &mut Prng,
    harshness: f64,
    chunk_packets: u32,
    scribbles: bool,
) -> FaultPlan {
    let us = Nanos::from_micros;
    let bearable = HURT_MAX / (HURT_EACH_MAX * f64::from(chunk_packets));
    let scale = harshness * bearable.min(1.0);
    let mut up_to = |most: f64| most * scale * (0.2 + 0.8 * prng.unit());
    let (drop, duplicate, reorder) = (up_to(0.1), up_to(0.1), up_to(0.15));
    let (corrupt, late, burst) = (up_to(0.05), up_to(0.1), up_to(0.01));
    let mut plan = FaultPlan::none()
        .drop(drop)
        .duplicate(duplicate, us(1 << prng.below(12)))
        .reorder(reorder, prng.between(1, 40) as u32, us(1 << prng.below(10)))
        .corrupt(if scribbles { corrupt / 2.0 } else { corrupt })
        .scribble(if scribbles { corrupt / 2.0 } else { 0.0 })
        .late(late, us(20), us(prng.between(200, 30_000)));
    if prng.chance(0.3) {
        plan = plan.burst(Burst { enter: burst, leave: 0.1, loss: 0.8 });
    }
    if prng.chance(0.15) {
        let jitter = if chunk_packets <= 2 { us(prng.between(1, 50)) } else { Nanos::ZERO };
        plan = plan.delay(us(prng.between(1, 50)), jitter);
    }
    if prng.chance(0.1) {
        // The path is narrow until the faults change.
        let carried = Mtu::ALL[prng.below(Mtu::ALL.len() as u64) as usize];
        plan = plan.drop_longer_than(Some(carried.bytes() as usize + PACKET_OVERHEAD_BYTES));
    }
    plan
}
