//! What C calls: thin functions that check what they are given, and the types of the header.
//!
//! Unsafe code is here alone. What holds for every function, and what C must keep:
//!
//! - A pointer is NULL, or it points to what its type says: aligned, readable, and, where it is not
//!   `const`, writable by nobody else meanwhile. NULL is an error unless the function says
//!   otherwise.
//! - An endpoint, a configuration or shared memory comes from this library and was not freed.
//! - Bytes that the library lends (`data` of an event, of a buffer, of `tow_message_parts`) are
//!   used until what they belong to is released, sent or freed, or the endpoint is freed.

#![allow(unsafe_code, reason = "pointers of C are what this module is about")]

mod config;
mod endpoint;
mod guard;
mod lane;
mod library;
mod link;
mod memory;
mod message;
#[cfg(test)]
mod tests;
mod types;

pub use config::*;
pub use endpoint::*;
pub use lane::*;
pub use library::*;
pub use link::*;
pub use memory::*;
pub use message::*;
pub use types::*;
