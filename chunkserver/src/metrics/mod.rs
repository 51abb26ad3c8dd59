//! Metrics of a server, in the text form of Prometheus (docs/operations.md section 8).
//!
//! | file | contents |
//! |---|---|
//! | `histogram`, `meter` | what a worker counts of its requests, phase by phase |
//! | `board` | where a worker puts its other figures when somebody wants them |
//! | `collect`, `export` | one collection of everything; all of it as families of metrics |
//! | `control` | the families of interference control |
//! | `text` | the text form |
//! | `http` | the few words of HTTP/1.1 that a scraper needs |

mod board;
mod collect;
mod control;
mod export;
mod histogram;
mod http;
mod meter;
mod text;

pub(crate) use collect::{Collector, NamedDisk, Worker};
pub(crate) use histogram::Counts;
pub(crate) use http::{HANDSHAKES_MAX, serve};
pub(crate) use meter::{Meter, method_name};

/// Stands for the tenant where none is kept apart.
pub(crate) const ALL_TENANTS: &str = "all";
