//! Fault injection: a decorator of any packet link, real sockets too.
//!
//! A [`FaultPlan`] says what may happen to a packet, in one direction; a [`FaultControl`] changes
//! the plans of a running link from any thread and reads its counters; a [`FaultLink`] rolls the
//! dice. Which packets are hit depends on the seed, the plans and the sequence of packets, on
//! nothing else; when a held packet comes out depends on the inner link's clock too.

mod control;
mod counters;
pub(crate) mod dice;
mod held;
pub(crate) mod lane;
mod link;
mod plan;

pub use control::FaultControl;
pub use counters::FaultCounters;
pub use link::FaultLink;
pub use plan::{Burst, FaultPlan};
