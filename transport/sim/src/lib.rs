//! A network simulator in virtual time, and fault injection for simulated and real packet links.
//!
//! [`World`] simulates hosts, switches and cables. [`FaultLink`] wraps any packet link, simulated
//! or real, and drops, repeats, reorders or corrupts its packets.
//!
//! | module | contents |
//! |---|---|
//! | [`world`] | one clock, one event heap, one seed: [`World`], its hosts, switches and wires |
//! | [`topology`] | whole fabrics: one switch, leaves and spines, two pods |
//! | [`fault`] | [`FaultLink`]: drop, burst, duplicate, reorder, corrupt, delay, black hole |
//! | | [`FrameWire`]: the same for Ethernet frames, with rate, queue, MTU and outages |
//! | [`pcap`] | [`PcapLink`]: records the packets of a link, for a packet dissector |
//! | [`limits`] | bounds and their reasons |
//!
//! Nothing here reads a clock or asks the system for randomness: the time is that of the world or
//! of the inner link, and a seed determines each choice. So a failure can be replayed from its
//! seed.
//!
//! Two hosts on one wire ([`World::link`]): a test loop polls its endpoints, then goes to the
//! earliest of their timers and [`World::next_event_time`] with [`World::advance_to`]. The
//! packets that a [`FaultLink`] holds back are not events of the world: [`FaultLink::next_release`]
//! is one more timer.
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
//!
//! Many hosts on a fabric: [`World::advance_to_next`] says which hosts have something to do, so
//! that a host which has nothing costs nothing. A message of many packets can be sent as packets
//! through [`PacketLink`](towpath_verbs::PacketLink), or as one [train](TxTrain), which costs one
//! event a hop.
//!
//! ```
//! use towpath_base::Time;
//! use towpath_sim::{LeafSpine, TxTrain, World};
//! use towpath_verbs::PacketLink;
//!
//! let world = World::new(7);
//! let fabric = LeafSpine { leaves: 2, hosts_per_leaf: 4, ..LeafSpine::default() }.build(&world);
//! let (client, server) = (fabric.hosts[0], fabric.hosts[7]);
//! let mut near = world.end(client);
//! let dest = world.end(server).local_addr();
//! let train = TxTrain {
//!     dest,
//!     source_port: 3,
//!     tclass: 0b10,
//!     packets: 17,
//!     byte_len: 64 + 16 * 4096 + 17 * 16,
//!     token: 42,
//!     bytes: b"a header",
//! };
//! assert_eq!(near.transmit_trains(&[train]), 1);
//! world.set_timer(client, Time(1_000_000));
//!
//! let mut woken = Vec::new();
//! while world.advance_to_next(Time::NEVER, &mut woken) {
//!     for host in woken.drain(..) {
//!         if host == client {
//!             assert_eq!(world.now(), Time(1_000_000), "its timer");
//!         }
//!         world.end(host).receive_trains(9, &mut |train| {
//!             assert_eq!((train.token, train.bytes), (42, &b"a header"[..]));
//!         });
//!     }
//! }
//! assert_eq!(world.counters().delivered, 17);
//! ```

#![forbid(unsafe_code)]

pub mod fault;
pub mod limits;
pub mod pcap;
pub mod topology;
pub mod world;

pub use fault::{
    Burst, FaultControl, FaultCounters, FaultLink, FaultPlan, FrameCounters, FramePlan, FrameRate,
    FrameWire, Hole, HoleControl, Outage, Services, Swallows,
};
pub use pcap::PcapLink;
pub use topology::{Fabric, LeafSpine, Star, TwoPods};
pub use world::{
    CableConfig, Change, EcnConfig, Health, HostConfig, HostDelay, HostId, LinkConfig, LinkId,
    PfcConfig, QueueConfig, RxTrain, SwitchConfig, SwitchId, Timestamps, Turn, TxTrain,
    VirtualClock, VirtualLink, WireCounters, WireId, World, WorldCounters,
};
