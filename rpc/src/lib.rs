//! Remote procedure calls over Towpath channels: requests, responses, deadlines, cancellation.
//!
//! A client sends requests with [`RpcClient`] and takes each result as a [`Completion`]; a server
//! gets each [`Request`] from [`RpcServer`] and answers it through its [`Responder`].
//!
//! A request or response is one message: a first segment with the 32-byte [`Header`] and the body,
//! and, for a page of data or more, a second segment with the data, which therefore lands
//! page-aligned in the receiver's buffers (docs/storage-protocol.md section 2). Neither end copies
//! it, unless the network loses so much that it comes in parts.
//!
//! **One unordered channel.** Each client uses one channel of a link, and opens it unordered.
//! Requests that are under way at the same time have no order (the server may answer the second
//! one first), and on an ordered channel one lost chunk would delay every request behind it. A
//! caller that needs an order waits for the response before it sends the next request.
//!
//! **No thread, no clock.** The owner of [`RpcClient`] or [`RpcServer`] drives an
//! [`Endpoint`](towpath_transport::Endpoint) and passes each of its events to them. They return
//! the events that do not concern them.
//!
//! **Memory.** Received data stays in the buffers that the device wrote. [`Parcel::into_data`]
//! gives them as [`Piece`]s, which any thread may keep; each piece holds credit of the channel
//! until it is dropped. Buffers that are sent belong to the endpoint from `call` or `respond` on,
//! and return to their pool when the message has its outcome.
//!
//! **Streams.** A server that asks for it ([`ServerConfig::streams`]) gets a request whose message
//! comes in pieces as [`Streamed`] parts: its head as soon as that is here, its data piece by piece
//! in any order, and that it is whole.
//!
//! **Sending what still comes.** [`RpcClient::call_growing`] sends a request before its data is
//! there; [`RpcClient::supply`] gives that piece by piece in any order. With [`Piece::share`] a
//! server passes a request on while it comes, without a copy:
//!
//! ```no_run
//! # use std::collections::HashMap;
//! use towpath_rpc::{Call, Outgoing, RequestId, RequestKey, RpcClient, Streamed};
//! # use towpath_transport::{Endpoint, RoceUdp};
//!
//! /// What a service does with the parts of a request that it passes on.
//! fn pass_on(
//!     endpoint: &mut Endpoint<RoceUdp>,
//!     next: &mut RpcClient,
//!     onward: &mut HashMap<RequestKey, RequestId>,
//!     part: Streamed,
//! ) {
//!     match part {
//!         Streamed::Begun(head) => {
//!             let deadline = head.deadline();
//!             let call = Call { method: head.method(), token: 0, deadline, ask_fate: true };
//!             let out = Outgoing::with_body(endpoint, head.body()).expect("a free buffer");
//!             let sent = next.call_growing(endpoint, call, out, head.data_len() as u32);
//!             // Keep the head as well: it is answered when the next server has answered.
//!             onward.insert(head.request_key(), sent.expect("room for a request"));
//!         }
//!         Streamed::Data { request, offset, piece } => {
//!             let crcs = piece.page_crcs().iter().copied().collect();
//!             let (staged, shared) = piece.share();
//!             if let (Some(&to), Some(shared)) = (onward.get(&request), shared) {
//!                 // Refused: that request has ended, and its completion says how.
//!                 let _ = next.supply_with_crcs(endpoint, to, offset, shared, crcs);
//!             }
//!             drop(staged); // or write it to a disk first
//!         }
//!         Streamed::Whole { .. } => {}
//!         Streamed::Broken { request } => {
//!             onward.remove(&request).into_iter().for_each(|to| next.cancel(endpoint, to));
//!         }
//!     }
//! }
//! ```
//!
//! **Giving up.** A request that passes its deadline or is cancelled stops at both ends: the client
//! sends no more of it, and the server does not begin it, or stops sending its response. The server
//! then reports whether the operation was done, so the caller gets one of three answers ([`Fate`]).
//!
//! **Pushes.** A server tells a client what it did not ask for by [`RpcServer::push`], over the
//! client's channel; nobody answers, and a client keeps the newest few until they are taken
//! ([`RpcClient::next_push`]).
//!
//! | file | contents |
//! |---|---|
//! | `wire` | the header as bytes, kinds, statuses |
//! | `parcel` | received messages ([`Parcel`]) and messages to send ([`Outgoing`]) |
//! | `client`, `server` | the two ends; pushes: `client/push`, `server/push` |
//! | `client/growing` | requests that are sent before all of their data is there |
//! | `server/streams` | requests that are handed over before all of their data is here |
//! | `stats` | what the server counts ([`ServerStats`]) |
//! | `request` | what a service receives: [`Request`], [`Responder`], [`Incoming`] |
//! | `fate` | whether an operation without an answer happened, did not happen, or is unknown |
//! | `error` | why a request or a push was not accepted, or a request got no response |
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

pub use client::{Call, ClientStats, Completion, Push, RequestId, RpcClient};
pub use error::{CallError, PushError, Refused, RpcError};
pub use fate::Fate;
pub use parcel::{NoBuffer, Outgoing, Parcel, Piece, Pieces};
pub use request::{Head, Incoming, Request, RequestKey, Responder, Streamed};
pub use server::{RpcServer, ServerConfig};
pub use stats::ServerStats;
pub use wire::{Header, HeaderError, Kind, Status, VERSION};
