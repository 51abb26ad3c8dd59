//! What is run: clients, what they want, and what the network can do.

use towpath_base::{Nanos, Time};
use towpath_qos::{Rules, Share};

/// Bytes of a record, which is what one I/O reads.
pub const RECORD_BYTES: usize = 4096;

/// What an answer of one record takes of a wire: the record, BTH 12, AETH 4, ICRC 4, and 66 from
/// preamble to UDP.
pub(super) const ANSWER_WIRE_BYTES: u64 = RECORD_BYTES as u64 + 12 + 4 + 4 + 66;

/// How a client asks for what it wants in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// As many as may be at a time, from the start of the period, until it has what it wants.
    Burst,
    /// Evenly over the period.
    Constant,
    /// All of it at the start of the period, where each I/O takes its token at once, not when it
    /// goes. Those that have one and have not gone when the period ends are dropped with it.
    AtOnce,
}

/// One client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPlan {
    /// I/Os that it wants in a period.
    pub demand: u32,
    /// How it asks for them.
    pub pattern: Pattern,
    /// What it has reserved, where there are tokens; none is a job that nobody has tokens for.
    pub share: Option<Share>,
    /// How it keeps to the rules.
    pub manner: Manner,
    /// It asks for nothing before the first of these times, and from the second on, counted from
    /// the start of the first period.
    pub active: (Nanos, Nanos),
}

impl ClientPlan {
    /// One that wants so much, all the time, and has reserved nothing.
    #[must_use]
    pub fn new(demand: u32, pattern: Pattern) -> Self {
        let active = (Nanos::ZERO, Nanos(u64::MAX));
        Self { demand, pattern, share: Some(Share::reserved(0)), manner: Manner::Fair, active }
    }

    /// With so many reserved.
    #[must_use]
    pub fn reserved(mut self, reservation: u32) -> Self {
        self.share = Some(Share::reserved(reservation));
        self
    }

    /// What it has reserved.
    #[must_use]
    pub fn reservation(&self) -> u32 {
        self.share.map_or(0, |share| share.reservation)
    }
}

/// How a client keeps to the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// It does.
    #[default]
    Fair,
    /// It does I/Os without tokens.
    Greedy,
    /// It reports that it has done nothing and waits.
    Liar,
    /// From the first of these times to the second, counted from the start of the first period, it
    /// does nothing at all.
    Away(Nanos, Nanos),
}

impl Manner {
    /// Until when it does nothing, if it is away.
    pub(super) fn away_until(self, now: Time, start: Time) -> Option<Time> {
        let Self::Away(from, until) = self else { return None };
        let is_away = start != Time::NEVER && (start + from..start + until).contains(&now);
        is_away.then_some(start + until)
    }
}

/// Who does the work for an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sides {
    /// READ: the server's device, and no processor.
    One,
    /// A message and its answer. In virtual time processors cost nothing, so what they cost is
    /// said here.
    Two {
        /// What a request costs the server's processor, which does one after the other.
        server: Nanos,
        /// What it costs the client's.
        client: Nanos,
    },
}

/// I/Os a second that ports are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Of the server's port.
    pub all: u64,
    /// Of a client's.
    pub one: u64,
}

impl Rates {
    /// The rate of a port through which so many answers go in a second.
    #[must_use]
    pub fn bits_per_s(ios_per_s: u64) -> u64 {
        ios_per_s * ANSWER_WIRE_BYTES * 8
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where everything random comes from.
    pub seed: u64,
    /// The clients, each on a host of its own; jobs that have no share are the last.
    pub clients: Vec<ClientPlan>,
    /// What ports are made for.
    pub rates: Rates,
    /// Who does the work.
    pub sides: Sides,
    /// The protocol; none for the bare system.
    pub rules: Option<Rules>,
    /// The length of a period.
    pub period: Nanos,
    /// How often engines and monitor look.
    pub tick: Nanos,
    /// What the server is thought to do, of what its port carries.
    pub estimate: f64,
    /// Periods that are left out at the start.
    pub warm_up: usize,
    /// Periods that are measured.
    pub periods: usize,
    /// I/Os that a client has under way at most.
    pub depth: u32,
}
