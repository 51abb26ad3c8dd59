//! Hedged reads: what the first replica has not answered in time, a second is asked too.
//!
//! The first good answer wins; the other is given up at both ends. Hedges are a bounded share of
//! the reads ([`HedgeConfig::budget_percent`]). A read that the first replica cannot serve (it is
//! gone, or its copy is damaged) goes to the second at once and costs nothing of that.
//!
//! A replica is another server that holds the same bytes under the same name. The checksums bind
//! bytes to their chunk and place, not to a server: whoever names two servers says that they hold
//! the same.
//!
//! | file | what it knows |
//! |---|---|
//! | `client` | [`HedgedClient`]: two [`ChunkClient`](crate::ChunkClient)s as one |
//! | `policy` | when to hedge, and how often at most |
//! | `trouble` | which server is avoided for a while |

mod client;
mod policy;
mod trouble;

pub use client::{HedgeServer, HedgeStats, HedgedClient};
pub use policy::{HedgeAfter, HedgeConfig, ParseHedgeAfterError};
pub(crate) use trouble::blames_server;
