//! Messages that are given up at any moment of their lives, and what is left of them: nothing.
//!
//! Each run is one long life of a link over which both hosts send messages on ordered and unordered
//! channels, and give nearly all of them up: before the first chunk, while chunks are in flight,
//! while a reader takes them in pieces, after the last. Then, with the link still up, both ends
//! are searched for anything left behind, and the link has to carry messages as before.
//!
//! | file | what it knows |
//! |---|---|
//! | `run` | one run |
//! | `log` | how messages ended that were given up, and how long that took |

mod log;
mod run;

pub use log::GiveUpLog;
pub use run::{GiveUp, GiveUpReport};
