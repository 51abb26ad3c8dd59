//! Resident chunks in memory that clients read by themselves: [`Arena`].
//!
//! The store tells an arena what its commits change ([`Residence`](crate::store::Residence)); the
//! service grants the arena's memory to clients and tells them where a chunk lies. The bytes of a
//! slot are those of docs/storage-protocol.md section 8.
//!
//! | file | contents |
//! |---|---|
//! | `arena` | [`Arena`]: which chunk has which slots |
//! | `runs` | which slots are free |
//! | `slots` | how a slot is rewritten while others read it |

mod arena;
mod runs;
mod slots;

pub use arena::{Arena, SLOTS_MAX};
