//! The chunk server: store, service, daemon.
#![forbid(unsafe_code)]

pub mod store;
