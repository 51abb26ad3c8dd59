//! Who has which object, who is alive, and who makes copies whole again.
//!
//! The path of data needs none of it: clients keep layouts, servers keep chunks. What this crate
//! adds is a map that several servers and clients agree on. The map is kept by somebody else's
//! consensus: [`meta`] says what such a store can be asked, and has the stores. [`placement`]
//! chooses servers for what is new, and [`hold`] holds what at most one may have: who leads, and
//! that a server is there.

#![forbid(unsafe_code)]

pub mod hold;
pub mod meta;
pub mod placement;
