//! Resident chunks: slices in granted memory, which clients read by themselves
//! (docs/storage-protocol.md section 8).
//!
//! | file | contents |
//! |---|---|
//! | `slot` | the bytes of a slot; what one READ of it says |
//! | `places` | where the slots of chunks are: a checked answer to a locate, and what is known |
//! | `reads` | reads under way: their READs, what they wait for, counters |
//! | `client` | the part of [`ChunkClient`](crate::ChunkClient) that drives them |

mod client;
mod places;
mod reads;
mod slot;

pub use places::Located;
pub use reads::ResidentStats;
pub(crate) use reads::{Fetched, ResidentReads};
pub use slot::{
    Found, MARK_AT, SLOT_BYTES, TRAILER_BYTES, Trailer, VERSION_MAX, inspect, slots_bytes,
};
