//! What befalls a client next, drawn from a seed.

use super::client::Client;
use std::fmt;
use towpath_base::{Nanos, Prng};
use towpath_memory::Region;
use towpath_sim::{FaultControl, FaultPlan, HoleControl, Services, Swallows};
use towpath_verbs::Device;

/// What is between a client and the network, and can be changed while it is in use.
#[derive(Clone, Debug)]
pub struct Weather {
    /// What its link swallows.
    pub hole: HoleControl,
    /// What else befalls its packets.
    pub faults: FaultControl,
}

impl Default for Weather {
    fn default() -> Self {
        Self { hole: HoleControl::default(), faults: FaultControl::new(FaultPlan::none()) }
    }
}

impl Weather {
    /// Nothing befalls it any more.
    pub fn clear(&self) {
        self.hole.set(Swallows::default());
        self.faults.set_transmit(FaultPlan::none());
        self.faults.set_receive(FaultPlan::none());
    }
}

/// What has befallen clients, how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Befallen {
    holes: [u64; HOLES.len()],
    storms: u64,
    breaks: u64,
}

impl Befallen {
    /// Holes of each kind that there was no hole before.
    #[must_use]
    pub fn holes(&self) -> u64 {
        self.holes[1..].iter().sum()
    }
}

impl fmt::Display for Befallen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((_, what), count) in HOLES.iter().zip(self.holes) {
            write!(f, "{what} {count}, ")?;
        }
        write!(f, "a queue pair put in error {}, ", self.breaks)?;
        write!(f, "loss with copies, disorder, damage and delay {}", self.storms)
    }
}

const fn hole(sent: Services, received: Services) -> Swallows {
    Swallows { sent, received }
}

const HOLES: [(Swallows, &str); 7] = {
    use Services::{All, None, Uc};
    [
        (hole(None, None), "no hole"),
        (hole(Uc, Uc), "UC swallowed"),
        (hole(Uc, None), "UC swallowed out"),
        (hole(None, Uc), "UC swallowed in"),
        (hole(All, All), "all UDP swallowed"),
        (hole(All, None), "all UDP swallowed out"),
        (hole(None, All), "all UDP swallowed in"),
    ]
};

/// Draws what befalls clients.
#[derive(Debug)]
pub struct Dice {
    prng: Prng,
    /// What they have done.
    pub befallen: Befallen,
}

impl Dice {
    /// Dice from a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { prng: Prng::new(seed), befallen: Befallen::default() }
    }

    /// Draws a number of operations around `every`.
    pub fn after(&mut self, every: u64) -> u64 {
        self.prng.between(every / 2, 2 * every)
    }

    /// Something else befalls a client from now on: no hole, one time in four. One time in eight
    /// one of its queue pairs is put in error as well.
    pub fn befall<D: Device<Memory = Region>>(&mut self, client: &mut Client<D>) {
        if self.prng.chance(0.125) {
            let broken = client.break_queue_pair(self.prng.next_u64());
            self.befallen.breaks += u64::from(broken);
        }
        let weather = &client.weather;
        let drawn = self.prng.below(HOLES.len() as u64 + 1) as usize;
        let kind = drawn.min(HOLES.len()) % HOLES.len();
        self.befallen.holes[kind] += 1;
        weather.hole.set(HOLES[kind].0);
        let plan = if self.prng.chance(0.5) { storm() } else { FaultPlan::none() };
        self.befallen.storms += u64::from(!plan.is_none());
        weather.faults.set_transmit(plan.clone());
        weather.faults.set_receive(plan);
    }
}

fn storm() -> FaultPlan {
    let us = Nanos::from_micros;
    FaultPlan::none()
        .drop(0.01)
        .duplicate(0.01, us(500))
        .reorder(0.01, 8, us(200))
        .corrupt(0.005)
        .late(0.005, us(100), us(20_000))
}
