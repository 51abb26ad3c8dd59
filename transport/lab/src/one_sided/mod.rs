//! Clients of one server's memory: one-sided operations of all kinds while packets are lost and
//! queue pairs die, grants are revoked, and clients stall and die themselves.
//!
//! Everything that a client asks for and is told is written into books (`books`), which check it
//! against the memory: atomics are carried out once, or not at all where the client was told so; a
//! write never takes the place of a later one; no word is torn; what is revoked does not change.
//!
//! | file | contents |
//! |---|---|
//! | `area` | what lies where in the memory, and what it may hold |
//! | `books` | what was asked for, what came of it, and what must hold of it |
//! | `adder`, `swapper`, `register` | the rules of additions, of swaps, of what one client writes |
//! | `client`, `server` | the two kinds of hosts |
//! | `trouble` | what befalls clients next, drawn from a seed |
//! | `world` | all of them in one world, and the end of a run |

mod adder;
mod area;
mod books;
mod broken;
mod client;
mod register;
mod server;
mod swapper;
mod trouble;
mod world;

pub use broken::{Broken, Failed};
pub use trouble::Befallen;
pub use world::Tally;

use towpath_base::Nanos;
use towpath_sim::FaultPlan;

/// What a run is like.
#[derive(Clone, Debug)]
pub struct OneSidedPlan {
    /// Where everything random comes from.
    pub seed: u64,
    /// How many clients, at most [`CLIENTS_MAX`].
    pub clients: usize,
    /// FETCH_ADDs of all clients together; of the other kinds they ask for some in between.
    pub additions: u64,
    /// What befalls the packets of each host, both ways.
    pub faults: FaultPlan,
    /// Something befalls a client after about so many additions of all of them; 0 is never.
    pub every: u64,
}

/// Clients that the words have room for: four fields of 16 bits in each of four words.
pub const CLIENTS_MAX: usize = 16;

impl OneSidedPlan {
    /// 16 clients, and packets that are lost, doubled and overtaken, 1 % each, both ways.
    #[must_use]
    pub fn new(seed: u64, additions: u64) -> Self {
        let faults = FaultPlan::none().drop(0.01).duplicate(0.01, Nanos::from_micros(100)).reorder(
            0.01,
            4,
            Nanos::from_micros(50),
        );
        Self { seed, clients: CLIENTS_MAX, additions, faults, every: 500 }
    }

    /// Runs it.
    ///
    /// # Errors
    /// [`Failed`]: the first promise that was broken.
    pub fn run(&self) -> Result<Tally, Failed> {
        world::run(self)
    }
}
