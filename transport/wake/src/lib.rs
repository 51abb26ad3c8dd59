//! Wake-ups for threads that wait on file descriptors.
//!
//! [`Bell`] is a file descriptor that any thread can make readable, to wake a thread that waits for
//! it. [`Watch`] is a file descriptor that becomes readable when any of many others does, once for
//! each thing that is new. [`AnyOf`] is one that is readable while any of many others is. [`Rest`]
//! says whether a thread has to be woken at all, [`Listed`] whether something waits for it already.
//! [`Waiters`] is a line of threads and tasks that wait for something. Of threads that share
//! something [`Lead`] says which one looks after it, and [`Serving`] that one at a time works at
//! it.

#![forbid(unsafe_code)]

mod any_of;
mod bell;
mod lead;
mod listed;
#[cfg(all(test, loom))]
mod models;
mod rest;
mod serving;
mod sync;
mod waiters;
mod watch;

pub use any_of::AnyOf;
pub use bell::Bell;
pub use lead::Lead;
pub use listed::Listed;
pub use rest::Rest;
pub use serving::Serving;
pub use waiters::{Awaited, Take, Taking, Waiters};
pub use watch::Watch;
