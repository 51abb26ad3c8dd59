//! Requests and replies as bytes: little-endian, a header of fixed length, then key and value.
//!
//! ```text
//! request  0 version  1 method  2 flags (u16)   4 key length (u16)  6 zero (u16)
//!          8 value length (u32)  12 expires after (u32, ms; 0: never)
//!          16 client (u64)  24 sequence (u64)  32 key, value
//! reply    0 version  1 code  2 method  3 zero  4 value length (u32)
//!          8 client (u64)  16 sequence (u64)  24 value
//! ```
//!
//! A client numbers its requests. One that repeats a request, because no reply came, repeats its
//! number as well, and a change is made once ([`Sessions`](crate::Sessions)). Before its first
//! change it makes itself known by a PING. Client 0 is nobody: what it repeats is done again.

mod listing;
mod reply;
mod request;

pub use listing::{Listing, ListingEntries};
pub use reply::{Answer, Failure, Reply, ReplyHead};
pub use request::{Ask, Request};

/// The version of this form.
pub const VERSION: u8 = 1;

/// Bytes in front of a request's key.
pub const REQUEST_HEADER_BYTES: usize = 32;

/// Bytes in front of a reply's value.
pub const REPLY_HEADER_BYTES: usize = 24;

/// What a request asks for. The numbers are those of the study, and INCR is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Method {
    /// None of these; only in replies.
    Unknown = 0,
    /// Puts a value.
    Set = 1,
    /// Reads a value.
    Get = 2,
    /// Removes a key.
    Del = 3,
    /// Is answered, and makes the client known: its changes are refused before.
    Ping = 4,
    /// Lists entries.
    Dump = 5,
    /// Removes all entries.
    Reset = 6,
    /// Ends the connection, after a reply.
    Exit = 7,
    /// Sets an option of the store.
    SetOpt = 8,
    /// Adds to a number.
    Incr = 9,
}

impl Method {
    /// The method of this number; [`Method::Unknown`] for any that has none.
    #[must_use]
    pub fn of(number: u8) -> Self {
        use Method::{Del, Dump, Exit, Get, Incr, Ping, Reset, Set, SetOpt, Unknown};
        let all = [Unknown, Set, Get, Del, Ping, Dump, Reset, Exit, SetOpt, Incr];
        all.get(usize::from(number)).copied().unwrap_or(Unknown)
    }
}

/// What is wrong with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// More have to come, up to this many in all; of a datagram, it is too short.
    #[error("more bytes are needed: {0} in all")]
    Short(usize),
    /// Another version of the form.
    #[error("version {0}, and this side speaks 1: update the older side")]
    Version(u8),
    /// There is no such method.
    #[error("there is no method {0}")]
    Method(u8),
    /// There is no such code.
    #[error("there is no reply code {0}")]
    Code(u8),
    /// Flags without a meaning, or two that exclude each other.
    #[error("the flags {0:#06x} have no meaning")]
    Flags(u16),
    /// Bytes that must be zero.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// A key, or a value, beyond its limit.
    #[error("the {0} is longer than any")]
    TooLong(&'static str),
    /// A field that this method has no use for, or that has no meaning in it.
    #[error("the {0} has no meaning for this method")]
    Unexpected(&'static str),
}

/// `count` bytes from `at` on, where that many are there.
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], WireError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().ok_or(WireError::Short(at + N))
}
