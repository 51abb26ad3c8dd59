//! The question which transport a key-value store should choose, in virtual time, at the scale of
//! the thesis that asked it first.
//!
//! | module | contents |
//! |---|---|
//! | [`model`] | clients, one server, cards and processors |
//! | [`studies`] | `towpath sim kv throughput` and so on |

#![forbid(unsafe_code)]

pub mod model;
pub mod studies;
