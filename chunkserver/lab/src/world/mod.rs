//! Clients and one data node on one switch, in virtual time, with the production code.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | what is run |
//! | `work` | what applications want, period by period |
//! | `client`, `server`, `host` | who runs on a host |
//! | `tenant` | a client's tokens |
//! | `steward` | the server's: words, monitor and messages |
//! | `store` | the records that are read |
//! | `books` | what the hosts write down |
//! | `latency` | how long I/Os took |
//! | `run` | builds it and lets time pass |

mod books;
mod client;
mod host;
mod latency;
mod plan;
mod run;
mod server;
mod steward;
mod store;
mod tenant;
mod work;

#[cfg(test)]
mod tests;

pub use books::Account;
pub use latency::Latency;
pub use plan::{ClientPlan, Manner, Pattern, Plan, RECORD_BYTES, Rates, Sides};
pub use run::Outcome;
