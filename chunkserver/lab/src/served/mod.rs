//! Chunk servers and a client of theirs in virtual time: writes that servers pass on.
//!
//! It is the code that ships: the service with its store on a simulated disk, the client's half of
//! the protocol, endpoints over the userspace NIC. What costs no time here is what is not in it:
//! processors, and the disk, whose operations take none. So what is measured is the way of the
//! bytes: rounds, wires, and what each server waits for.
//!
//! | file | contents |
//! |---|---|
//! | `server` | one chunk server |
//! | `client` | a client with a link to each server |
//! | `run` | the loop, and what is measured |

mod client;
mod run;
mod server;

#[cfg(test)]
mod tests;

use core::error::Error;
use towpath_base::Nanos;
use towpath_fastpath::RouteKind;
use towpath_lab::studies::RunEnd;

/// Why a run could not be made.
pub type Failed = Box<dyn Error + Send + Sync>;

/// How a write comes to its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The client sends it to each.
    Flat,
    /// The client sends it to the first, and servers pass it on.
    Along(RouteKind),
    /// Each of so many servers gets a unit of a stripe from the client, and passes on what the
    /// others' parity is made of (TriEC).
    Stripe(u8),
}

/// Writes to some servers, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Where everything random comes from.
    pub seed: u64,
    /// How they come to their servers.
    pub way: Way,
    /// Servers that have a copy, or a unit.
    pub copies: usize,
    /// Bytes of a write, of a stripe those of a unit: whole slices.
    pub bytes: usize,
    /// Writes that are measured, after one that makes links and windows.
    pub writes: usize,
    /// Of every port, in bits a second.
    pub rate_bits_per_s: u64,
    /// Of every cable.
    pub delay: Nanos,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// How long the first write took, for which servers had no links to each other.
    pub first: Nanos,
    /// How long the others took, in the order of time.
    pub times: Vec<Nanos>,
    /// What it ended with.
    pub end: RunEnd,
}

impl Seen {
    /// The time in the middle, in microseconds.
    #[must_use]
    pub fn median_us(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times.get(times.len() / 2).map_or(f64::NAN, |time| time.0 as f64 / 1e3)
    }

    /// The longest of all but the first, in microseconds.
    #[must_use]
    pub fn longest_us(&self) -> f64 {
        self.times.iter().max().map_or(f64::NAN, |time| time.0 as f64 / 1e3)
    }
}
