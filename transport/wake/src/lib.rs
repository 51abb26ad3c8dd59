//! Wake-ups for threads that wait on file descriptors.
//!
//! [`Bell`] is a file descriptor that any thread can make readable, to wake a thread that waits for
//! it. [`Watch`] is a file descriptor that becomes readable when any of many others does.

#![forbid(unsafe_code)]

mod bell;
mod watch;

pub use bell::Bell;
pub use watch::Watch;
