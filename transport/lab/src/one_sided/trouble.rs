//! What befalls clients next, drawn from a seed.

use std::fmt;
use towpath_base::{Nanos, Prng};

/// What befalls a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mishap {
    /// Its queue pair goes to error.
    NearBreaks,
    /// The server's half does.
    FarBreaks,
    /// It gets no CPU for a while.
    Stalls(Nanos),
    /// Some of its grants are revoked, those whose bits are set, and it gets new ones after this.
    IsRevoked(u8, Nanos),
    /// It dies, and comes back after this.
    Dies(Nanos),
}

/// The longest that a client stalls: less than the silence that means that it is dead, and more
/// than RC waits.
const STALL_MAX_NS: u64 = 200_000_000;

/// The longest that a grant is missed, or a client.
const ABSENCE_MAX_NS: u64 = 5_000_000;

/// What has befallen clients, how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Befallen {
    /// Queue pairs that were put in error.
    pub breaks: u64,
    /// Stalls.
    pub stalls: u64,
    /// Times when grants were revoked, but for those of dead clients.
    pub revocations: u64,
    /// Clients that died.
    pub deaths: u64,
}

impl fmt::Display for Befallen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { breaks, stalls, revocations, deaths } = self;
        write!(f, "{breaks} queue pairs in error, {stalls} stalls, ")?;
        write!(f, "{revocations} times grants revoked, {deaths} clients dead")
    }
}

/// The dice.
pub(super) struct Dice {
    prng: Prng,
    pub(super) befallen: Befallen,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self { prng: Prng::new(seed ^ 0xd1ce), befallen: Befallen::default() }
    }

    /// After how many additions something happens, if it does so every so many.
    pub(super) fn after(&mut self, every: u64) -> u64 {
        self.prng.between(1, 2 * every)
    }

    /// What happens, and to which of the clients.
    pub(super) fn roll(&mut self, clients: usize) -> (usize, Mishap) {
        let client = self.prng.below(clients as u64) as usize;
        let befallen = &mut self.befallen;
        let (counter, trouble) = match self.prng.below(100) {
            0..40 => (&mut befallen.breaks, Mishap::NearBreaks),
            40..70 => (&mut befallen.breaks, Mishap::FarBreaks),
            70..80 => {
                let span = Nanos(self.prng.between(10_000, STALL_MAX_NS));
                (&mut befallen.stalls, Mishap::Stalls(span))
            }
            80..92 => {
                let which = self.prng.between(1, 7) as u8;
                let absence = Nanos(self.prng.below(ABSENCE_MAX_NS));
                (&mut befallen.revocations, Mishap::IsRevoked(which, absence))
            }
            _ => {
                let absence = Nanos(self.prng.below(ABSENCE_MAX_NS));
                (&mut befallen.deaths, Mishap::Dies(absence))
            }
        };
        *counter += 1;
        (client, trouble)
    }
}
