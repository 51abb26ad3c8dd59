//! The wire over UDP sockets: segmentation offload both ways and batched system calls.
//!
//! | file | what |
//! |---|---|
//! | `config`, `error`, `counters`, `limits` | what can be asked for, refused, counted; bounds |
//! | `link` | [`UdpLink`]: the sockets, and `PacketLink` on top of the two sides |
//! | `tx`, `rx`, `coalescing` | runs of packets out, runs of packets in, and when in pieces |
//! | `group`, `steering` | links of several workers on one port, and how packets find theirs |
//! | `probe` | what this kernel grants and charges |
//! | `way` | how long packets may be, by the interface and by the route |
//! | `clock` | the kernel's receive clock |
//! | `mmsg`, `sys` | the system calls; the only unsafe code |

mod clock;
mod coalescing;
mod config;
mod counters;
mod error;
mod group;
mod limits;
mod link;
mod mmsg;
mod probe;
mod rx;
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
pub use steering::Steering;
