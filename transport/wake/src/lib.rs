//! What ends a wait: a bell that any thread rings, and files that have something new.
//!
//! | file | what it is |
//! |---|---|
//! | `bell` | a file that is readable once it was rung |
//! | `watch` | a file that is readable once one of many others has something new |

#![forbid(unsafe_code)]

mod bell;
mod watch;

pub use bell::Bell;
pub use watch::Watch;
