//! Storage on the simulated fabric: tenants of one data node, and the studies that `towpath sim`
//! runs of them.
//!
//! | module | contents |
//! |---|---|
//! | [`world`] | clients and one data node on one switch, with the production code |
//! | [`studies`] | the experiments of the Haechi paper |

#![forbid(unsafe_code)]

pub mod studies;
pub mod world;
