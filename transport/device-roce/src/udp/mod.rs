//! The wire over UDP sockets: segmentation offload both ways and batched system calls.
//!
//! | file | what |
//! |---|---|
//! | `config`, `error`, `counters`, `limits` | what can be asked for, refused, counted; bounds |
//! | `link` | [`UdpLink`]: the sockets, and `PacketLink` on top of the two sides |
//! | `setup` | how sockets are bound, and told what they are to do |
//! | `tx`, `rx`, `coalescing` | runs of packets out, runs of packets in, and when in pieces |
//! | `group`, `steering` | links of several workers on one port, and how packets find theirs |
//! | `probe` | what this kernel grants and charges |
//! | `way` | how long packets may be, by the interface and by the route |
//! | `clock` | the kernel's clock, by which it stamps what comes and goes |
//! | `stamps` | when packets leave |
//! | `mmsg`, `error_queue`, `sys` | the system calls; the only unsafe code |

mod clock;
mod coalescing;
mod config;
mod counters;
mod error;
mod error_queue;
mod group;
mod limits;
mod link;
mod mmsg;
mod probe;
mod rx;
mod setup;
mod stamps;
mod steering;
pub(crate) mod sys;
mod tx;
mod way;

#[cfg(test)]
mod tests;

pub use config::{PortChoice, TimestampSource, UdpConfig};
pub use counters::UdpCounters;
pub use error::{UdpError, UdpStep};
pub use limits::{NICS_MAX, ROCE_PORT, SOURCE_PORTS_MAX};
pub use link::UdpLink;
pub use stamps::SendTimes;
pub use steering::Steering;
