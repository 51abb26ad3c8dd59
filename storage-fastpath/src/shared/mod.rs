//! The client: it connects again by itself, and repeats what it may.
//!
//! | file | contents |
//! |---|---|
//! | `client` | [`Client`]: what can be asked for, by threads and tasks |
//! | `pending` | [`Pending`]: an answer that is waited for by a thread or as a future |
//! | `driver` | [`Driver`]: drives the endpoint, on a thread of its own or its caller's |
//! | `seat` | a link to the server, one to its replica, and what is under way on them |
//! | `request` | what is asked for, kept until it is answered |
//! | `repeat` | what is asked for again, and when |

mod client;
mod driver;
mod pending;
mod repeat;
mod request;
mod seat;

pub use client::{Client, SharedStats};
pub use driver::Driver;
pub use pending::Pending;
pub use request::{Ended, Ticket};
