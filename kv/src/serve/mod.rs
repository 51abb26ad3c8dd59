//! Connections over TCP, served by few threads; what is said on them is a [`Dialogue`]'s.
//!
//! | file | contents |
//! |---|---|
//! | `server` | listeners and threads: begin and end |
//! | `worker` | one thread: it waits for its connections and serves those that have something |
//! | `connection` | one connection: what came in part, what is yet to be sent |
//! | `requests` | what is said in the store's own form |
//! | `links` | the same over Towpath channels |
//! | `counters` | what a server counts, over all threads |

mod connection;
mod counters;
mod links;
mod requests;
mod server;
mod worker;

pub use counters::{Counted, Counters};
pub use links::LinkServer;
pub use requests::RequestDialogue;
pub(crate) use requests::answer_message;
pub use server::{Front, Server, ServerConfig, ServerError};

use std::fmt::Debug;
use towpath_base::Time;

/// What is said on a connection: bytes in, bytes out, and no I/O.
pub trait Dialogue: Debug + Send {
    /// Carries out the requests at the start of `input`, and appends the replies, until they are
    /// many. What is not used comes again, with more behind it.
    fn take(&mut self, input: &[u8], now: Time, out: &mut Vec<u8>) -> Taken;

    /// Bytes of memory that it holds between requests.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether the client has begun what it must end in time, beside a request.
    fn is_begun(&self) -> bool {
        false
    }
}

/// What a dialogue took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of the input that it needs no more.
    pub used: usize,
    /// Requests that it answered.
    pub requests: u64,
    /// How it goes on.
    pub next: Next,
}

/// How a dialogue goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// With more input: so many bytes in all, those counted that were not used.
    More {
        /// With fewer there is nothing to do.
        needed: usize,
    },
    /// When the replies are sent.
    Paused,
    /// Not at all: the client has said so.
    Close,
    /// Not at all: the client said what has no meaning.
    Malformed,
}
