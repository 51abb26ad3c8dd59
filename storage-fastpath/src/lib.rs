//! Fixed-layout read and write with checksums verified on receive.
//!
//! The formats are in docs/storage-protocol.md, cited section by section.
//!
//! | file | what lives there |
//! |---|---|
//! | `slice` | chunk names, slices, place-bound checksums |
//! | `wire` | read and write headers, the vector of checksums, error replies |
//! | `control` | protobuf bodies of the other operations |
//! | `verify` | received bytes against their checksums, in one pass |
//! | `server` | requests parsed and replies built, for whoever serves chunks |
//! | `client`, `output` | operations by token; what they gave, held against what was asked |
//! | `health` | the state of links, and slow I/O, as events and figures |
//! | `hedge` | reads that a second replica is asked for when the first is late |
//! | `blocking`, `config`, `transfer` | one operation at a time, and its settings; whole files |
//! | `session` | what lets a client repeat over a new link what it asked for over an old one |
//! | `error`, `limits` | why a client failed; bounds and their reasons |

#![forbid(unsafe_code)]

mod blocking;
mod client;
mod config;
pub mod control;
mod error;
pub mod health;
mod hedge;
pub mod limits;
mod output;
pub mod server;
mod session;
pub mod slice;
mod transfer;
mod verify;
pub mod wire;

pub use blocking::BlockingClient;
pub use client::{ChunkClient, Done, OpId, TIMEOUT_DEFAULT, io_bytes_max};
pub use config::ClientConfig;
pub use error::{ClientError, ErrorKind, OpenError, TransferError};
pub use health::{HealthConfig, HealthEvent, HealthMonitor, HealthState, LinkHealth};
pub use hedge::{HedgeAfter, HedgeConfig, HedgeStats, HedgedClient, ParseHedgeAfterError};
pub use output::{Output, ReadData};
pub use session::ClientSession;
pub use slice::{ChunkId, SLICE_BYTES};
pub use transfer::Transferred;
pub use verify::{Coverage, verify_slices};
pub use wire::{ErrorReply, Method};
