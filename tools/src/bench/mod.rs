//! Measurements on this machine, as studies: a function that runs, and a report.

pub mod classes;
pub mod ec;
pub mod fastpath;
pub mod haechi;
pub mod kv;
pub mod links;
pub(crate) mod load;
pub mod policies;
mod process;
pub mod scale;
