//! Clients and one server that keeps keys and values, in virtual time: a model, no code of ours
//! runs in it but that which draws the operations.
//!
//! Each machine has cores with two hardware threads, which share what a core can do, and one queue
//! of threads that want a processor. One that polls keeps its processor until its time is over;
//! one that sleeps pays for the event that wakes it, and comes later. A card handles packets one
//! after the other, and has the state of so many queue pairs; what it has not it fetches. Packets
//! are lost, and who sends them again depends on the transport.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | what is run, on what, at which costs |
//! | `world` | all that there is in a run |
//! | `run` | what threads do, step by step |
//! | `machine` | processors, and who has them |
//! | `net`, `card` | packets; cards and the wire |
//! | `store` | lists with mutexes, and our table |
//! | `outcome` | what came of it |

mod card;
mod machine;
mod net;
mod outcome;
mod plan;
mod run;
mod store;
mod world;

pub use outcome::Outcome;
pub use plan::{Costs, Hardware, Losses, Plan, Program, Transport, Waiting};
pub use run::{RunError, run};

#[cfg(test)]
mod tests;
