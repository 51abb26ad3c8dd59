//! A chunk server: it stores chunks of data durably and serves them to clients over Towpath.
//!
//! The program `towpath-chunkserver` is a thin wrapper around this crate. To run a chunk server
//! inside another program, fill in a [`daemon::DaemonConfig`] and call [`daemon::run()`]. To use
//! the store without a network, call [`daemon::open_store`], or make a
//! [`store::core::StoreCore`] on a disk of your own. Clients are in the crate
//! `towpath-fastpath`.
//!
//! | module | contents |
//! |---|---|
//! | [`daemon`] | settings, start and clean stop of a whole server |
//! | [`guard`] | capabilities: who may do what |
//! | `metrics` | what is told to Prometheus |
//! | [`qos`] | reservations: who gets how much of the server |
//! | [`resident`] | memory in which clients read chunks by themselves |
//! | [`service`] | takes requests from an endpoint, passes them to the store, sends the answers |
//! | [`store`] | the store on a disk: writes, commits, recovery, checksums, scrub |
#![forbid(unsafe_code)]

pub mod daemon;
pub mod guard;
mod metrics;
pub mod qos;
pub mod resident;
pub mod service;
pub mod store;
