//! The sans-IO reliability core: events and `now` in, work requests and timers out.
//!
//! [`Link`] is the state machine between two endpoints. It reads no clock, touches no memory but
//! its own and knows no device: whoever drives it hands it what arrived and sends what it asks for.
//! The wire format and the rules are in `docs/protocol.md`, cited section by section.
//!
//! | folder | what lives there |
//! |---|---|
//! | `wire` | headers, acks and the set-up message as bytes |
//! | `carrier` | what carries a path's chunks |
//! | `class` | what links are for: Gold, Silver, Copper |
//! | `class_order` | which class hands work to the device next, where a worker serves several |
//! | `flow` | what all paths share: congestion window, pacing, chunk size |
//! | `path` | what a path has sent and received, how it stands; which path is next, which carrier |
//! | `channel` | messages of one channel: cutting, reassembly, credit, giving up |
//! | `schedule` | which channel sends next |
//! | `link` | the state machine over them, one file per protocol verb |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod carrier;
mod channel;
mod chunk_size;
mod class;
mod class_order;
mod config;
mod event;
mod flow;
pub mod limits;
mod link;
mod path;
mod schedule;
mod slots;
mod stats;
pub mod wire;

pub use carrier::Carrier;
pub use class::{Class, ClassNameError};
pub use class_order::{AtDevice, ClassOrder, ClassScheduler};
#[cfg(feature = "sabotage")]
pub use config::Sabotage;
pub use config::{LinkConfig, PeerParams, Side};
pub use event::{
    AckTransmit, BufToken, ChannelId, ChunkRef, CloseReason, Cut, DownReason, Event, IncomingKey,
    Outcome, PathId, PathSnapshot, PayloadRef, Renew, Reroute, SendKey, Transmit, Verdict,
};
pub use link::{
    Arrivals, CancelError, Link, LinkCensus, LinkUsage, OpenError, SendError, SendRequest,
};
pub use path::{MOVES, Move, PathSignal, PathState, QpHalf, Spreading};
pub use schedule::{Scheduling, WEIGHT_DEFAULT};
pub use stats::LinkStats;
