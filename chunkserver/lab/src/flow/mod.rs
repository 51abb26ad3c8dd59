//! Packets of a few messages between nodes, and what each node does with them, in virtual time.
//!
//! A small model, for questions in which the hardware is the point: how long a write takes when
//! network cards, buses, handlers and processors are as fast as somebody says. No production code
//! runs here; [`crate::world`] is the place for that.
//!
//! Each node has one port, which sends and receives one packet at a time in each direction at line
//! rate, and units that handle packets or whole messages, first come, first served. A message is a
//! [`Stream`] of packets between two nodes. Its [`Service`] says what the receiver does: a head
//! job for the first packet, which all others wait for; a body job for each packet (or one for the
//! whole message); and a tail job when all of these are done. What a body job passes on are
//! packets of further streams. A stream that is stored, and whose further streams are, is
//! acknowledged.
//!
//! Left out: loss, switches with queues, congestion control, the order of packets from several
//! senders beyond first come, first served, and memory: queues hold what comes.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | what is sent, and what receivers do |
//! | `engine` | the events, in the order of time |
//! | `port` | ports, and units that handle jobs |

mod engine;
mod plan;
mod port;

pub use engine::{NodeSeen, Outcome, run};
pub use plan::{Ack, Cost, Granule, Group, Plan, Ps, Service, Stream, Wire, ns};

#[cfg(test)]
mod tests;
