//! Virtual-time packet links, and decorators that go on any packet link.
//!
//! | room | what is in it |
//! |---|---|
//! | [`world`] | one clock, one event heap, one seed: [`World`] and its [`VirtualLink`]s |
//! | [`fault`] | [`FaultLink`]: drop, burst, duplicate, reorder, corrupt, delay, black hole |
//! | [`pcap`] | [`PcapLink`]: what a link carried, for a packet dissector |
//! | [`limits`] | what is bounded, and why so |
//!
//! Nothing here reads a clock or asks the system for randomness: time is the world's or the inner
//! link's, and each choice is drawn from a seed. So a failure is a seed.
//!
//! A test loop polls its endpoints, then goes to the earliest of their timers and
//! [`World::next_event_time`] with [`World::advance_to`]. What a [`FaultLink`] holds back is not
//! an event of the world: [`FaultLink::next_release`] is one more timer.
//!
//! ```
//! use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, World};
//! use towpath_verbs::{PacketLink, TxPacket};
//!
//! let world = World::new(7);
//! let (near, mut far) = world.link(&LinkConfig::default());
//! let control = FaultControl::new(FaultPlan::none().drop(0.5));
//! let mut near = FaultLink::new(near, world.next_seed(), control.clone());
//!
//! for _ in 0..100 {
//!     let mut packet = TxPacket::new(far.local_addr(), 0, 0);
//!     packet.push(b"hello");
//!     assert_eq!(near.transmit(&[packet]), 1, "a dropped packet counts as taken");
//! }
//! while let Some(time) = world.next_event_time() {
//!     world.advance_to(time);
//! }
//! let arrived = far.receive(100, &mut |packet| assert_eq!(packet.bytes, b"hello"));
//! assert_eq!(arrived as u64 + control.counters().dropped_random, 100);
//! ```

#![forbid(unsafe_code)]

pub mod fault;
pub mod limits;
pub mod pcap;
pub mod world;

pub use fault::{Burst, FaultControl, FaultCounters, FaultLink, FaultPlan};
pub use pcap::PcapLink;
pub use world::{LinkConfig, VirtualClock, VirtualLink, World, WorldCounters};
