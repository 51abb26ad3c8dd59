//! A client that threads and tasks share: it connects again by itself, and repeats what it may.
//!
//! | file | contents |
//! |---|---|
//! | `along` | writes that servers pass on along a route |
//! | `client` | [`Client`]: what can be asked for |
//! | `pending` | [`Pending`]: an answer that is waited for by a thread or as a future |
//! | `request` | what a client asks for, kept until it is answered |
//! | `rebuild` | parts that servers make anew among themselves |
//! | `repeat` | what is asked for again, and when |
//! | `seat` | a link to the server, one to its replica, and what is under way on them |
//! | `stamped` | changes that several clients may ask for, and that are made once |
//! | `worker` | the thread that drives the endpoint |

mod along;
mod client;
mod pending;
mod rebuild;
mod repeat;
mod request;
mod seat;
mod stamped;
mod worker;

pub use client::{Client, SharedStats};
pub use pending::Pending;
