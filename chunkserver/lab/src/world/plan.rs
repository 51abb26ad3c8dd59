//! What is run: clients, what they want, and what the network can do.

use towpath_base::Nanos;

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
}

/// One client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPlan {
    /// I/Os that it wants in a period.
    pub demand: u32,
    /// How it asks for them.
    pub pattern: Pattern,
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
    /// The clients, each on a host of its own.
    pub clients: Vec<ClientPlan>,
    /// What ports are made for.
    pub rates: Rates,
    /// Who does the work.
    pub sides: Sides,
    /// The length of a period.
    pub period: Nanos,
    /// Periods that are left out at the start.
    pub warm_up: usize,
    /// Periods that are measured.
    pub periods: usize,
    /// I/Os that a client has under way at most.
    pub depth: u32,
}
