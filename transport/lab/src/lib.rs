//! Simulated tests and studies of whole links: endpoints, devices and faults under one seed.
//!
//! A run has two endpoints with their real devices on a virtual wire, an application at each end,
//! faults, and an oracle that knows what was sent and checks what arrived. One seed determines the
//! whole run, so a failure can be replayed exactly from its seed. `towpath sim` runs the
//! [`studies`].
//!
//! | module | contents |
//! |---|---|
//! | [`content`] | the bytes of messages, and fingerprints of what arrived |
//! | [`oracle`] | checks every run: exactly once, intact, in order, no buffer left over |
//! | [`app`] | the application at one end: a script of messages, readers that stall |
//! | [`device`] | a wire that outlives its host, and a device that reuses queue pair numbers |
//! | [`cluster`] | many hosts in one world, and the flows between them |
//! | [`one_sided`] | one-sided operations of many clients, checked against the memory |
//! | [`pair`] | two hosts in one world, and the loop that drives them |
//! | [`solo`] | a link of which one thread drives both ends and both applications |
//! | [`studies`] | repeatable studies, for example goodput against loss |
//! | [`failure`] | why a run failed, and its state at that moment |
//! | [`wr_device`] | a device that does not split messages into packets |
//! | [`nic`] | a model of network cards with reliability and congestion control of their own |
//! | [`limits`] | bounds and their reasons |

#![forbid(unsafe_code)]

pub mod app;
pub mod cluster;
pub mod content;
pub mod device;
pub mod failure;
pub mod limits;
#[cfg(feature = "studies")]
pub mod nic;
pub mod one_sided;
pub mod oracle;
pub mod pair;
pub mod solo;
#[cfg(feature = "studies")]
pub mod studies;
#[cfg(feature = "studies")]
pub mod wr_device;
