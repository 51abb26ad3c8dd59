//! A switch: what the wires out of it are like, and its part in the choice among equal paths.

use super::change::Health;
use super::config::SwitchConfig;

pub(super) struct Switch {
    pub(super) config: SwitchConfig,
    /// Its own, so that two switches in a row choose independently.
    pub(super) salt: u64,
    pub(super) health: Health,
    /// Whether hosts are on it.
    pub(super) has_hosts: bool,
}

/// One of `choices` for a flow; the same flow has the same choice at the same switch.
pub(super) fn choose(flow: u64, salt: u64, choices: usize) -> usize {
    ((u128::from(mix(flow ^ salt)) * choices as u128) >> 64) as usize
}

/// Spreads every bit of `x` over all bits (the finisher of `SplitMix64`).
pub(super) fn mix(x: u64) -> u64 {
    let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
