//! The dice: what befalls the next packet, drawn from the seed.

use super::plan::{Chance, FaultPlan};
use towpath_base::{Nanos, Prng};

/// The most bytes by which a packet is made longer.
pub(crate) const EXTEND_BYTES_MAX: usize = 64;

/// The bytes at the beginning of a packet where its headers are.
const HEADER_BYTES: u64 = 16;

/// Why a packet is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    BlackHole,
    Burst,
    Long,
    Random,
}

/// How a packet is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    FlipBit {
        bit: usize,
    },
    Truncate {
        byte_len: usize,
    },
    Extend {
        bytes: usize,
        fill_seed: u64,
    },
    /// The byte at this place, by this other value than zero.
    Change {
        at: usize,
        by: u8,
    },
}

/// Why and for how long a packet is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Delayed(Nanos),
    Late(Nanos),
    /// Until so many packets have overtaken it, where that is said, and at most so long.
    Displaced {
        packets: Option<u32>,
        at_most: Nanos,
    },
}

/// What befalls a packet that is not lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mishap {
    pub(crate) damage: Option<Damage>,
    pub(crate) copy_after: Option<Nanos>,
    pub(crate) hold: Option<Hold>,
}

/// What befalls a packet that does not simply pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hit {
    Lose(Loss),
    Suffer(Mishap),
}

/// What the dice look at: nothing else of a packet matters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) source_port: u16,
    pub(crate) byte_len: usize,
    /// The longest packet of the link.
    pub(crate) byte_len_max: usize,
    /// How many packets it stands for: each may be lost, and then all are.
    pub(crate) packets: u32,
}

/// A clone is a bookmark: rolling again from it gives the same fates to the same packets.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    prng: Prng,
    channel_is_bad: bool,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { prng: Prng::new(seed), channel_is_bad: false }
    }

    /// What befalls the next packet; `None` when it passes.
    pub(crate) fn roll(&mut self, plan: &FaultPlan, packet: Subject) -> Option<Hit> {
        let mut loss = None;
        for _ in 0..packet.packets {
            loss = loss.or(self.roll_loss(plan, packet));
        }
        if let Some(loss) = loss {
            return Some(Hit::Lose(loss));
        }
        let mishap = Mishap {
            damage: self.roll_damage(plan, packet),
            copy_after: self.roll_chance(plan.duplicate).map(|after| after + plan.delay),
            hold: self.roll_hold(plan),
        };
        (mishap != Mishap::default()).then_some(Hit::Suffer(mishap))
    }

    fn roll_loss(&mut self, plan: &FaultPlan, packet: Subject) -> Option<Loss> {
        if plan.black_hole || plan.black_holed_ports.contains(&packet.source_port) {
            return Some(Loss::BlackHole);
        }
        // Those of a train are alike, but for the last.
        let byte_len = packet.byte_len.div_ceil(packet.packets.max(1) as usize);
        if plan.longest_bytes.is_some_and(|most| byte_len > most) {
            return Some(Loss::Long);
        }
        if plan.burst.enter > 0.0 {
            let turn = if self.channel_is_bad { plan.burst.leave } else { plan.burst.enter };
            self.channel_is_bad ^= self.prng.chance(turn);
            if self.channel_is_bad && self.prng.chance(plan.burst.loss) {
                return Some(Loss::Burst);
            }
        } else {
            self.channel_is_bad = false;
        }
        self.prng.chance(plan.drop).then_some(Loss::Random)
    }

    fn roll_damage(&mut self, plan: &FaultPlan, packet: Subject) -> Option<Damage> {
        if packet.byte_len == 0 {
            return None;
        }
        // No dice where nothing hangs on them, so that other plans have the fates that they had.
        if plan.scribble > 0.0 && self.prng.chance(plan.scribble) {
            let all = packet.byte_len as u64;
            let within = if self.prng.chance(0.5) { all.min(HEADER_BYTES) } else { all };
            let at = self.prng.below(within) as usize;
            return Some(Damage::Change { at, by: self.prng.between(1, 255) as u8 });
        }
        if !self.prng.chance(plan.corrupt) {
            return None;
        }
        let room = packet.byte_len_max.saturating_sub(packet.byte_len) as u64;
        let damage = match self.prng.below(4) {
            // At least one byte stays: an empty datagram tests the link, not what is above it.
            0 if packet.byte_len > 1 => {
                let byte_len = self.prng.between(1, packet.byte_len as u64 - 1) as usize;
                Damage::Truncate { byte_len }
            }
            1 if room > 0 => Damage::Extend {
                bytes: self.prng.between(1, room.min(EXTEND_BYTES_MAX as u64)) as usize,
                fill_seed: self.prng.next_u64(),
            },
            _ => Damage::FlipBit { bit: self.prng.below(packet.byte_len as u64 * 8) as usize },
        };
        Some(damage)
    }

    fn roll_hold(&mut self, plan: &FaultPlan) -> Option<Hold> {
        let mut delay = plan.delay;
        if plan.jitter > Nanos::ZERO {
            delay = delay + Nanos(self.prng.between(0, plan.jitter.0));
        }
        if let Some(late) = self.roll_chance(plan.late) {
            return Some(Hold::Late(late + delay));
        }
        if self.prng.chance(plan.reorder.p) {
            return Some(self.roll_displacement(plan, delay));
        }
        plan.delays_all().then_some(Hold::Delayed(delay))
    }

    fn roll_displacement(&mut self, plan: &FaultPlan, delay: Nanos) -> Hold {
        let reorder = plan.reorder;
        // Counting makes no sense among packets that are all held.
        if reorder.packets_max == 0 || plan.delays_all() {
            let at_most = delay + Nanos(self.prng.between(0, reorder.delay_max.0));
            return Hold::Displaced { packets: None, at_most };
        }
        let packets = self.prng.between(1, u64::from(reorder.packets_max)) as u32;
        Hold::Displaced { packets: Some(packets), at_most: reorder.delay_max }
    }

    fn roll_chance(&mut self, chance: Chance) -> Option<Nanos> {
        let hit = self.prng.chance(chance.p);
        hit.then(|| Nanos(self.prng.between(chance.low.0, chance.high.0)))
    }
}

impl Damage {
    /// A number that tells this damage from other damage, and from none.
    pub(crate) fn digest(self) -> u64 {
        match self {
            Self::FlipBit { bit } => (bit as u64) << 2 | 1,
            Self::Truncate { byte_len } => (byte_len as u64) << 2 | 2,
            Self::Extend { bytes, fill_seed } => (fill_seed ^ bytes as u64) << 2 | 3,
            Self::Change { at, by } => (at as u64) << 10 | u64::from(by) << 2,
        }
    }

    /// Changes `bytes`; it never leaves them as they were.
    pub(crate) fn apply(self, bytes: &mut Vec<u8>) {
        match self {
            Self::FlipBit { bit } => {
                if let Some(byte) = bytes.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Self::Truncate { byte_len } => bytes.truncate(byte_len),
            Self::Change { at, by } => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= by;
                }
            }
            Self::Extend { bytes: more, fill_seed } => {
                let end = bytes.len();
                bytes.resize(end + more, 0);
                Prng::new(fill_seed).fill(&mut bytes[end..]);
            }
        }
    }
}
