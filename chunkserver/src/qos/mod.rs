//! Reservations on a chunk server (docs/qos.md): who gets how much of it.
//!
//! | file | contents |
//! |---|---|
//! | `config` | settings, and the file of the tenants |
//! | `node` | the reservations of one server: periods and ticks |
//! | `requests` | leave for ordinary requests, and their order |
//! | `account` | what clients do, held against what they have and tell |
//! | `change` | how the tenants of a server change |
//! | `clients` | clients that run the engine of their tenant themselves |
//! | `links` | the links of one worker: grants its clients their words, and sees what they do |
//! | `tenant` | one tenant |
//! | `model`, `what_if` | the same in virtual time: what would be if ... |
//! | `shared` | the reservations as workers share them |
//! | `report` | what is told of reservations |
//! | `words` | the words of the token protocol in memory that clients reach |
//! | `limits` | bounds and their reasons |

mod account;
mod change;
mod clients;
mod config;
mod limits;
mod links;
mod model;
mod node;
mod report;
mod requests;
mod shared;
mod tenant;
#[cfg(test)]
mod tests;
mod what_if;
mod words;

pub use change::Refused;
pub use clients::JoinError;
pub use config::{OTHERS, QosConfig, SCRUB, Shares, TenantsError, parse_rate, read_tenants};
pub use limits::UNUSED_PERIODS_TOLD;
pub use links::Links;
pub use node::Mail;
pub(crate) use node::Node;
pub(crate) use requests::Pass;
pub use shared::Qos;
pub use tenant::{Member, Seat, TenantId, TenantStats, Work};
pub use what_if::{WhatIf, WhatIfError, Would, what_if};
pub use words::WordTable;
