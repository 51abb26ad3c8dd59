//! The program `towpath-kv`: its flags, and how it begins and ends.

mod args;
mod fronts;
mod run;

pub use args::{Args, CarrierArg, EvictChoice, RawArg, StoreChoice};
pub use run::{DaemonError, main, raise_descriptors, serve};
