//! What the network does to storage: the state of each link, and slow I/O, as events and figures.
//!
//! A storage server or client hands its monitor the counters of its links now and then, and each
//! I/O that took too long; the monitor says which links are worse than they were. What follows from
//! that is the storage system's to decide: read elsewhere, write elsewhere, take a host out.
//! docs/health.md has it whole, from the paths of a link to here.
//!
//! | file | what it knows |
//! |---|---|
//! | `link` | what is seen of a link, how it is, and the events of that |
//! | `monitor` | [`HealthMonitor`]: links judged window by window |
//! | `times` | what parts of operations take, as histograms |
//! | `wire` | the same over the wire: replies to a question for the health |

mod link;
mod monitor;
mod times;
mod wire;

pub use link::{Cause, HealthEvent, HealthState, LinkHealth, LinkView};
pub use monitor::{HealthConfig, HealthMonitor};
pub use times::{OpKind, Phase, PhaseTimesReply, TIME_BUCKETS, Times, time_bound, time_bucket};
pub use wire::{HealthReply, HealthRequest, LinkHealthReply, PoolReply};
