//! The program `towpath-kv`: its flags, and how it begins and ends.

mod args;
mod run;

pub use args::{Args, EvictChoice, StoreChoice};
pub use run::{DaemonError, main};
