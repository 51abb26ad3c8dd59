//! The baseline: reads and writes as protobuf messages, as most storage does them.
//!
//! What [`towpath_fastpath`] saves is measured against this (docs/fastpath.md section 2): a request
//! is one protobuf message in contiguous memory, which is copied to be encoded and copied to be
//! decoded; a checksum of its own protects it; and the server cuts the data into slices and sums
//! these in passes of their own. The messages go over our rpc, and over gRPC on kernel TCP. Only
//! built with the feature `baseline`: nothing that serves anybody uses it.
//!
//! | file | contents |
//! |---|---|
//! | `message` | the protobuf messages |
//! | `passes` | encode, decode, cut into slices, sum: one pass each, counted |
//! | `store` | what takes slices and gives them back, and one that keeps nothing |
//! | `serve` | what both servers do with a message |
//! | `client`, `server` | the two ends over our rpc |
//! | `grpc` | the two ends over gRPC |
//! | `apart` | the layout of the fast path, its checksums in passes of their own |

pub mod apart;
mod client;
pub mod grpc;
mod message;
mod passes;
mod serve;
mod server;
mod store;

pub use ::prost::bytes::Bytes;
pub use client::{ProstClient, ProstDone, ProstError};
pub use message::{Name, READ, ReadReply, ReadRequest, Verdict, WRITE, WriteReply, WriteRequest};
pub use serve::Served;
pub use server::ProstServer;
pub use store::{NullStore, SliceOp, SliceOutcome, SliceStore};
