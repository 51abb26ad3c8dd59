//! Where links, devices and the core are put together under one seed.
//!
//! A run here is two endpoints with their real devices on one virtual wire, an application at
//! each end, faults, and an oracle that knows what was sent and judges what came. Everything is
//! drawn from one seed, so a failure is a seed and replays exactly.
//!
//! | file or folder | what lives there |
//! |---|---|
//! | [`content`] | the bytes of messages, and fingerprints of what arrived |
//! | [`oracle`] | what must hold whatever happens: exactly once, intact, in order, nothing left |
//! | [`app`] | the application at one end: a script of messages, readers that stall |
//! | [`device`] | a wire that outlives its host, and a device that repeats its numbers |
//! | [`cluster`] | many hosts in one world, and the flows between them |
//! | [`keyed`] | clients that write and read values by key while carriers come and go |
//! | [`pair`] | two hosts in one world, and the loop that drives them |
//! | [`give_up`] | messages given up at any moment, and what is left of them: nothing |
//! | [`scenario`] | what happens in a run, drawn from its seed |
//! | [`solo`] | a link whose two ends and whose applications one thread drives |
//! | [`studies`] | questions that anybody can ask again: goodput against loss and the like |
//! | [`sweep`] | many seeds over several threads |
//! | [`failure`] | why a run failed, and what it looked like then |
//! | [`wr_device`] | a device whose messages are not cut into packets |
//! | [`limits`] | what is bounded, and why so |

#![forbid(unsafe_code)]

pub mod app;
pub mod cluster;
pub mod content;
pub mod device;
pub mod failure;
pub mod give_up;
pub mod keyed;
pub mod limits;
pub mod oracle;
pub mod pair;
pub mod scenario;
pub mod solo;
#[cfg(feature = "studies")]
pub mod studies;
pub mod sweep;
#[cfg(feature = "studies")]
pub mod wr_device;
