//! The service: requests from the network to the store, answers back.
//!
//! | file | what it knows |
//! |---|---|
//! | `server` | [`ChunkServer`]: the loop, taking requests in, sending answers, the clean stop |
//! | `complete` | what the store answered, turned into answers |
//! | `ask`, `answer` | a request and an answer on their way |
//! | `waiting` | requests that wait for the store, link by link |
//! | `entries` | links that entered a session, and entries that wait for work of older links |
//! | `health` | how the links are, for logs and for who asks |
//! | `scrub` | a scrub over several steps |
//! | `refusals` | clients that were turned away, in the log |
//! | `errors` | what clients are told when the store says no |
//! | `spare` | lists that are used again |
//! | `config`, `limits`, `stats` | settings, bounds, counters |

mod answer;
mod ask;
mod complete;
mod config;
mod entries;
mod errors;
mod health;
mod limits;
mod refusals;
mod scrub;
mod server;
mod spare;
mod stats;
mod waiting;

pub use config::ServiceConfig;
pub(crate) use config::cores_to_spare;
pub use server::ChunkServer;
pub use stats::ServerStats;
