//! Fault injection: a decorator of any packet link, real sockets too.
//!
//! A [`FaultPlan`] says what may happen to a packet, in one direction; a [`FaultControl`] changes
//! the plans of a running link from any thread and reads its counters; a [`FaultLink`] rolls the
//! dice. Which packets are hit depends on the seed, the plans and the sequence of packets, on
//! nothing else; when a held packet comes out depends on the inner link's clock too.
//!
//! A [`Hole`] swallows all packets of a transport service, while it is told to.
//!
//! A [`FrameWire`] does the same to Ethernet frames of any protocol, one direction at a time, with
//! a rate, a queue, an MTU and outages besides: frames and times go in, and come out.

mod control;
mod counters;
pub(crate) mod dice;
mod frame_plan;
mod frame_wire;
mod held;
mod hole;
pub(crate) mod lane;
mod link;
mod plan;

pub use control::FaultControl;
pub use counters::FaultCounters;
pub use frame_plan::{
    ETHERNET_HEADER_BYTES, FrameCounters, FramePlan, FrameRate, Outage, VLAN_TAG_BYTES,
};
pub use frame_wire::FrameWire;
pub use hole::{Hole, HoleControl, Services, Swallows};
pub use link::FaultLink;
pub use plan::{Burst, FaultPlan};
