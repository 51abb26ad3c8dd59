//! The chunk server: chunks of data behind a network of unreliable queue pairs, kept durably.
//!
//! | folder | what lives there |
//! |---|---|
//! | `store` | slices on files: commits, crashes, checksums, scrub |
//! | `service` | requests from an endpoint to the store and back, run to completion |
//! | `daemon` | settings, start, clean stop; the program `towpath-chunkserver` wraps it |
#![forbid(unsafe_code)]

pub mod daemon;
pub mod service;
pub mod store;
