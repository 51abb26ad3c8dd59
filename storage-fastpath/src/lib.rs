//! The client of the chunk server, and the storage protocol that client and server share.
//!
//! Start with [`Client`]: it connects to a chunk server, and again when the link breaks. Each of
//! its calls (create, write, read, list, delete) gives a [`Pending`], which a thread waits for and
//! a task awaits. [`ClientConfig`] has its settings. [`Client::driven`] gives a client without a
//! thread of its own: a [`Driver`] works on the thread of its caller, and writes without a copy.
//! [`ChunkClient`] is the requests of one link, for programs that drive an endpoint themselves.
//! Every 4 KiB slice of data has a checksum, and the receiver verifies it.
//! [`ErrorKind`] lists what can go wrong, and says whether a failed operation was done.
//!
//! ```no_run
//! use towpath_fastpath::{ChunkId, Client, ClientConfig, NewChunk};
//!
//! let server = "127.0.0.1:7400".parse()?;
//! let client = Client::connect(server, ClientConfig::new())?;
//! let chunk = ChunkId(0x70a7_0001);
//! client.create(chunk, None, NewChunk::default()).wait()?;
//! client.write(chunk, 0, *b"hello").wait()?;
//! println!("{} bytes", client.stat(chunk).wait()?.byte_len);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The formats are defined in docs/storage-protocol.md; comments cite its sections.
//!
//! | file | contents |
//! |---|---|
//! | `slice` | chunk names, slices, place-bound checksums |
//! | `run` | CRC32C of bytes in several slices, from the checksums of these |
//! | `wire` | read and write headers, the vector of checksums, error replies |
//! | `control` | protobuf bodies of the other operations |
//! | `digest` | checksums and sketches of the slices of a chunk, without their bytes |
//! | `verify` | received bytes against their checksums, in one pass |
//! | `request` | what can be asked for, as a value and as bytes |
//! | `server` | takes requests in and builds replies, for a server of chunks |
//! | `client`, `output` | [`ChunkClient`]: starts operations, checks replies against requests |
//! | `health` | the state of links, and slow I/O, as events and figures |
//! | `hedge` | hedged reads: when a replica is asked as well, and which server is avoided |
//! | `leg` | one connection, made again when it breaks |
//! | `resident` | resident chunks: their slots, read by the client itself |
//! | `qos` | reservations of tenants: what a client tells and asks, and its engine |
//! | `config` | the settings of a [`Client`] |
//! | `shared` | [`Client`] and [`Driver`]: connect again, repeat and hedge by themselves |
//! | `choice` | flat, ring or tree: how to bring a write to several servers |
//! | `proof` | proofs that a request is allowed: capabilities |
//! | `route` | along which servers a write goes that they pass on |
//! | `session` | sessions: after a reconnect a client may safely repeat its changes |
//! | `error`, `limits` | errors; bounds and their reasons |

#![forbid(unsafe_code)]

pub mod change;
pub mod choice;
mod client;
mod config;
pub mod control;
pub mod digest;
mod error;
pub mod health;
mod hedge;
pub mod leg;
pub mod limits;
mod output;
pub mod proof;
pub mod qos;
mod rebuild;
mod request;
pub mod resident;
mod route;
pub mod run;
pub mod server;
mod session;
mod shared;
pub mod slice;
mod verify;
pub mod wire;

pub use change::{Clear, NewChunk, Terms};
pub use client::{ChunkClient, Done, OpId, TIMEOUT_DEFAULT, io_bytes_max};
pub use config::ClientConfig;
pub use error::{ClientError, ErrorKind, OpenError};
pub use health::{HealthConfig, HealthEvent, HealthMonitor, HealthState, LinkHealth};
pub use hedge::{HedgeAfter, HedgeConfig, HedgeServer, HedgeStats, ParseHedgeAfterError};
pub use output::{Output, ReadData};
pub use rebuild::{Helper, Rebuild, Rebuilt};
pub use request::StorageRequest;
pub use resident::ResidentStats;
pub use route::{ROUTE_MAX, Route, RouteError, RouteKind, STRIPE_MAX};
pub use session::ClientSession;
pub use shared::{Client, Driver, Ended, Pending, SharedStats, Ticket};
pub use slice::{ChunkId, SLICE_BYTES};
pub use towpath_cap as cap;
pub use towpath_rpc::Fate;
pub use verify::{Coverage, verify_slices};
pub use wire::{ErrorReply, Method};
