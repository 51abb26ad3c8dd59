//! Storage in virtual time: tenants of one data node on the simulated fabric, a model of packets
//! and handlers for storage policies, and the studies that `towpath sim` runs of them.
//!
//! | module | contents |
//! |---|---|
//! | [`world`] | clients and one data node on one switch, with the production code |
//! | [`served`] | chunk servers and a client of theirs, with the production code |
//! | [`flow`] | packets, ports and handlers alone: a model of hardware |
//! | [`studies`] | the experiments of the Haechi paper and of the sPIN paper on storage policies |

#![forbid(unsafe_code)]

pub mod flow;
pub mod served;
pub mod studies;
pub mod world;
