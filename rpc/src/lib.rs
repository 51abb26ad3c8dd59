//! Requests, deadlines and handlers over channels.
//!
//! A request or response is one message: a first segment with the 32-byte [`Header`] and the body,
//! and, for a page of data or more, a second segment with the data, which so lands page-aligned in
//! the receiver's buffers (docs/storage-protocol.md section 2). Neither end copies data.
//!
//! **One unordered channel.** Each client uses one channel of a link, and opens it unordered:
//! requests that are under way together have no order anyway (the server may answer the second
//! first), and on an ordered channel one lost chunk would hold back every request behind it. Who
//! needs an order waits for the response.
//!
//! **Who drives.** [`RpcClient`] and [`RpcServer`] have no thread and no clock: their owner turns
//! an [`Endpoint`](towpath_transport::Endpoint) and hands them its events; what is not theirs comes
//! back.
//!
//! **Who owns the memory.** A request's data stays in the buffers that the device wrote:
//! [`Parcel::into_data`] gives them as [`Piece`]s, which any thread may keep; each holds credit of
//! the channel until it is dropped. What is sent belongs to the endpoint from `call` or `respond`
//! on, and goes home to its pool when the message has its outcome.
//!
//! **Giving up.** A request whose time is over, or that is cancelled, is given up at both ends:
//! what is not sent stays here, what the server has not begun it leaves, what it sends it stops
//! sending. Then the server says what became of it, so that the caller has one of three answers
//! ([`Fate`]).
//!
//! | file | what lives there |
//! |---|---|
//! | `wire` | the header as bytes, kinds, statuses |
//! | `parcel` | messages taken apart ([`Parcel`]) and put together ([`Outgoing`]) |
//! | `client`, `server` | the two ends |
//! | `stats` | what the server counts ([`ServerStats`]) |
//! | `request` | what a service is handed: [`Request`], [`Responder`], [`Incoming`] |
//! | `fate` | what is known of an operation that got no answer: happened, did not, unknown |
//! | `error` | why a request was not taken, or got no response |
//! | `limits` | bounds and their reasons |

#![forbid(unsafe_code)]

mod client;
mod error;
mod fate;
pub mod limits;
mod parcel;
mod request;
mod server;
mod stats;
mod wire;

pub use client::{Call, ClientStats, Completion, RequestId, RpcClient};
pub use error::{CallError, Refused, RpcError};
pub use fate::Fate;
pub use parcel::{NoBuffer, Outgoing, Parcel, Piece, Pieces};
pub use request::{Incoming, Request, RequestKey, Responder};
pub use server::{RpcServer, ServerConfig};
pub use stats::ServerStats;
pub use wire::{Header, HeaderError, Kind, Status, VERSION};
