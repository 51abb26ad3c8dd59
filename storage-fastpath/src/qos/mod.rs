//! Reservations of tenants (docs/qos.md): what a client tells and asks, and its engine.
//!
//! | file | contents |
//! |---|---|
//! | `lane_engine` | a tenant's tokens over a link: the engine, and the words that it reaches |
//! | `tenancy` | a client that has the tokens of a tenant: joins, runs the engine, joins again |
//! | `wire` | protobuf bodies (docs/storage-protocol.md section 9) |

mod lane_engine;
mod tenancy;
pub mod wire;

pub use lane_engine::{LaneEngine, LaneEngineStats};
pub use tenancy::Tenancy;
