//! The reliability protocol as a sans-IO state machine: events and the time go in, work requests
//! and timers come out.
//!
//! [`Link`] is one end of a connection between two endpoints. It reads no clock, touches no memory
//! but its own, and uses no device. Its driver (the crate `towpath-transport`) passes in what
//! arrived and sends what the link asks for. Applications use `towpath-transport`, not this crate.
//! The wire format and the rules are in `docs/protocol.md`; comments cite its sections.
//!
//! | module | contents |
//! |---|---|
//! | `wire` | headers, acks and the set-up message as bytes |
//! | `carrier` | the carriers of a path: UC, RC or TCP |
//! | `class` | the classes of links: Gold, Silver, Copper |
//! | `class_order` | which class posts work to the device next, where a worker serves several |
//! | `flow` | state that all paths share: congestion window, pacing, chunk size |
//! | `lag` | how long what is handed to the device takes to leave |
//! | `path` | sent and received chunks of a path, its state; the choice of path and carrier |
//! | `rails` | which NICs a path joins, where an end has several |
//! | `remake` | how a queue pair that failed is made anew, at both ends |
//! | `piece` | pieces of messages that are sent |
//! | `channel` | messages of one channel: cutting into pieces, reassembly, credit, giving up |
//! | `schedule` | which channel sends next |
//! | `link` | the state machine over them, one file per protocol verb |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use named::{listed, named};

mod carrier;
mod channel;
mod chunk_size;
mod class;
mod class_order;
mod config;
mod event;
mod flow;
mod lag;
mod lane;
pub mod limits;
mod link;
mod named;
mod path;
mod piece;
mod rails;
mod remake;
mod schedule;
mod slots;
mod stats;
pub mod wire;

pub use carrier::{Carrier, CarrierReason};
pub use channel::{CancelError, SendError, SendRequest, SupplyError};
pub use class::{Class, ClassNameError};
pub use class_order::{AtDevice, ClassLine, ClassOrder};
#[cfg(feature = "sabotage")]
pub use config::Sabotage;
pub use config::{LinkConfig, PacketSizes, PeerParams, Side, Spreading};
pub use event::{
    AckTransmit, Arrival, BufToken, ChannelId, ChunkRef, CloseReason, DownReason, Event,
    IncomingKey, Outcome, PathId, PathSnapshot, PayloadRef, PieceBuffers, Renew, Reroute,
    SendFrame, SendKey, Transmit, Verdict,
};
pub use lane::{
    Denied, Grant, GrantId, Lane, LaneHalf, LaneStep, LaneWay, OpCounts, OpEnd, OpError, OpKey,
    OpKind, OpOutcome, OpPost, OpRequest, Rights,
};
pub use link::{Link, LinkCensus, LinkUsage, OpenError};
pub use path::{MOVES, Move, MtuPhase, MtuReason, PathSignal, PathState};
pub use rails::{Rail, Rails};
pub use remake::QpHalf;
pub use schedule::WEIGHT_DEFAULT;
pub use stats::LinkStats;
