//! The application interface of Towpath: reliable messages between processes over RDMA devices.
//!
//! There are two ways to use it. `EndpointHandle` of `towpath-handle` has calls that block and
//! futures: start with that one. [`Endpoint`] has no thread; a program drives it in its own loop
//! (see [Your own loop](#your-own-loop)).
//!
//! An endpoint owns one RDMA device and the links to its peers. A link is a connection to one peer.
//! It carries channels, and a channel carries messages in both directions, ordered or unordered.
//! Links run over unreliable connected queue pairs (UC) by default; software makes them reliable
//! (`docs/protocol.md`).
//!
//! **What an outcome means.** Each message that is sent has one outcome.
//! [`Outcome::Delivered`](towpath_proto::Outcome) means that the transport of the peer, which is
//! alive, holds the whole intact message. It does not mean that the peer's application has read the
//! message; let the application send a reply if you need to know that.
//!
//! **Memory.** Sending takes whole buffers and copies nothing but segments of up to 512 bytes that
//! share a chunk with others. The buffers come back with the outcome: in [`Event::Sent`], or from
//! `Ticket::wait`. Received data stays in the buffers that the device wrote, but for pieces that
//! came in parts, as where much is lost: a [`Message`] or [`Chunk`] refers to these buffers and
//! holds credit of its channel until it is released or dropped, on any thread. A reader that keeps
//! messages stalls its own channel and no other. [`Message::into_payload`] sends a received message
//! on without a copy, and [`Endpoint::send_growing`] one that is still coming, piece by piece.
//!
//! # Your own loop
//!
//! For servers that own their thread: [`Endpoint::turn`] receives what has arrived, passes each
//! event to your function, then sends what that function asked for, and acks last.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddr};
//! use towpath_transport::{Endpoint, EndpointConfig, Event, Nanos, SendOptions, UdpConfig};
//!
//! let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
//! let mut server = Endpoint::udp(udp(), EndpointConfig::new())?;
//! let mut client = Endpoint::udp(udp(), EndpointConfig::new())?;
//! let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
//! client.connect(addr)?;
//!
//! let mut answer = None;
//! while answer.is_none() {
//!     let mut busy = server.turn(|server, event| {
//!         if let Event::Message(message) = event {
//!             let (link, channel) = (message.link(), message.channel());
//!             let reply = message.into_payload().expect("a short message is one piece");
//!             server.send(link, channel, reply, SendOptions::new()).expect("an open channel");
//!         }
//!     });
//!     busy |= client.turn(|client, event| match event {
//!         Event::Connected { link, .. } => {
//!             client.open_channel(link, true).expect("a fresh link has room");
//!         }
//!         Event::ChannelOpened { link, channel, .. } => {
//!             let hello = client.copy(b"hello").expect("a free buffer");
//!             client.send(link, channel, hello, SendOptions::new()).expect("an open channel");
//!         }
//!         Event::Message(message) => {
//!             answer = Some(message.to_vec());
//!             client.release(message);
//!         }
//!         Event::ConnectFailed { error, .. } => panic!("{error}"),
//!         _ => {}
//!     });
//!     if !busy {
//!         client.wait(Nanos::from_micros(50)); // nothing to do: let the other one run
//!     }
//! }
//! assert_eq!(answer.as_deref(), Some(&b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A loop that waits for other files as well takes the endpoint's descriptor:
//! [`Endpoint::poll_fd`].
//!
//! # One-sided operations
//!
//! A peer can read and change memory of this process without a turn of its loop: memory of a type
//! of its own, [`SharedMemory`], of which no slice exists, and only the range and the link that
//! [`Endpoint::grant`] names. Each operation has one outcome ([`OpOutcome`]), and atomics are
//! carried out once or not at all. `LinkHandle` has the same calls, with a ticket for each
//! operation. Here a client counts in the memory of a server:
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddr};
//! use std::sync::atomic::Ordering;
//! use towpath_transport::{
//!     Endpoint, EndpointConfig, Event, Nanos, OpOptions, OpOutcome, Place, Rights, SharedMemory,
//!     UdpConfig,
//! };
//!
//! let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
//! let mut server = Endpoint::udp(udp(), EndpointConfig::new())?;
//! let mut client = Endpoint::udp(udp(), EndpointConfig::new())?;
//! let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
//! client.connect(addr)?;
//!
//! let counters = SharedMemory::new(4096)?;
//! let mut was = None;
//! while was.is_none() {
//!     let mut busy = server.turn(|server, event| {
//!         if let Event::Accepted { link, .. } = event {
//!             server.grant(link, &counters, 0..64, Rights::ALL).expect("room for a grant");
//!         }
//!     });
//!     busy |= client.turn(|client, event| match event {
//!         Event::Granted { link, grant } => {
//!             let place = Place { link, grant: grant.id, offset: 8 };
//!             client.fetch_add(place, 5, OpOptions::new()).expect("granted");
//!         }
//!         Event::OpDone { outcome: OpOutcome::Executed, word, .. } => was = word,
//!         Event::ConnectFailed { error, .. } => panic!("{error}"),
//!         _ => {}
//!     });
//!     if !busy {
//!         client.wait(Nanos::from_micros(50)); // nothing to do: let the other one run
//!     }
//! }
//! assert_eq!(was, Some(0));
//! assert_eq!(counters.word(8)?.load(Ordering::SeqCst), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits and back-pressure
//!
//! `docs/limits.md` has all limits, with their defaults and settings. In short: messages of up to
//! 252 KiB come whole ([`EndpointConfig::whole_bytes_max`]), longer ones in pieces. A message that
//! cannot be accepted now is refused, and its buffers come back ([`Rejected`]); [`AllocError`] says
//! why there is no send buffer. [`Event::Writable`] and [`Event::BufferFree`] tell when there is
//! room again. [`SendOptions::timeout`] and [`Endpoint::cancel`] give up messages.
//!
//! # Source files
//!
//! | file or folder | contents |
//! |---|---|
//! | `endpoint` | [`Endpoint`]: poll, events, flush, commands, making and ending links |
//! | `secure` | sealed links: keys of the host, handshakes, and the seal of each link |
//! | `setup` | link set-up: HELLOs over a TCP connection, which then shows that the peer is alive |
//! | `conn` | each link: its queue pairs and what is posted to them, and the table of links |
//! | `rx`, `tx` | receive buffers and what arrives; the order of sends, chunks as work requests |
//! | `buffers` | send pools, registered memory, and who waits for a buffer |
//! | `sleep`, `away`, `bell` | how drivers sleep, and what wakes them |
//! | `workers` | several endpoints that act as one: which of them gets a link |
//! | `carrier` | the carriers of links: UC, RC or TCP |
//! | `class` | classes of links, and their DSCPs |
//! | `tcp` | the set-up connection as a carrier |
//! | `lane` | one-sided operations: what they have at the device, and what callers name |
//! | `sends`, `growing` | the buffers of each message being sent |
//! | `held`, `message` | owners of buffers: received messages |
//! | `payload`, `page_crcs` | messages to send, and what is known of their CRCs |
//! | `choice` | the choice of a device by the names that the tools accept |
//! | `plan` | [`Plan`]: how a device is used, from its capabilities |
//! | `udp`, `mem` | endpoints on UDP sockets, and in pairs within a process (feature `mem`) |
//! | `event`, `ids`, `error` | events, names, errors |
//! | `config`, `limits`, `stats`, `wr_id` | settings, limits, counters, numbers |

#![forbid(unsafe_code)]

mod address;
mod asks;
mod away;
mod bell;
mod buffers;
mod carrier;
mod choice;
mod class;
mod config;
mod conn;
pub mod driving;
mod endpoint;
mod error;
mod event;
mod growing;
mod held;
mod icrc;
mod ids;
mod lane;
mod lane_talk;
mod limits;
#[cfg(feature = "mem")]
mod mem;
mod message;
mod page_crcs;
mod payload;
mod plan;
mod rides;
mod rx;
mod secure;
mod sends;
mod setup;
mod sleep;
mod stats;
mod tcp;
mod tx;
mod udp;
mod workers;
mod wr_id;

pub use address::{resolve, resolve_ip};
pub use buffers::{AllocError, LinkBuffers, SendBuffers};
pub use carrier::{
    Carrier, CarrierChoice, CarrierChoiceError, CarrierReason, CarrierRule, CarrierRuleError,
    Fallback, FallbackError, Prefix, PrefixError,
};
pub use choice::{DeviceChoice, DeviceName, DeviceNameError};
pub use class::ClassReport;
pub use config::EndpointConfig;
pub use conn::PendingLink;
pub use endpoint::{
    BufferCensus, Endpoint, EndpointUsage, PathReport, PollFdError, PoolHolder, PoolKind,
    PoolReport, Security,
};
pub use error::{AcceptError, ChannelError, ConnectError, EndpointError, LinkError, ListenError};
pub use event::{Event, Peer};
pub use growing::{SupplyFault, SupplyRejected};
pub use icrc::{Icrc, IcrcError};
pub use ids::{ConnectId, LinkId, OpId, SendId, StreamId};
pub use lane::{LaneError, LaneReport, OpOptions, Place, RejectedOp};
pub use limits::{LANE_OPS_POSTED, LANE_READS_MAX};
#[cfg(feature = "mem")]
pub use mem::{MemEnd, MemPairError, mem_pair};
pub use message::{Chunk, Message};
pub use page_crcs::PageCrcs;
pub use payload::{Payload, Rejected, SendOptions, SubmitError};
pub use plan::{Clock, Plan, SourcePorts};
pub use rides::{Ride, Rides};
pub use secure::{Secure, SecureError, SecureTally, Trusted};
pub use stats::EndpointStats;
pub use tcp::ByteStream;
pub use udp::{EngineUdp, RoceUdp, engine_udp, roce_udp, roce_udp_group};
pub use workers::{Placing, Workers};

/// Keys of hosts, peers, and what else sealed links are made of ([`EndpointConfig::secure`]).
pub mod keys {
    pub use towpath_secure::*;
}

/// What the crate of handles needs beside the rest: not for programs.
#[doc(hidden)]
pub mod for_handles {
    pub use crate::bell::Bell;
    pub use crate::buffers::SendPools;
}

// What the types here are made of, so that users need not name the crates below.
pub use towpath_base::{Nanos, Time};
pub use towpath_cc::{ConfigError as ControllerConfigError, ControllerConfig};
pub use towpath_device_roce::udp::{PortChoice, UdpConfig};
pub use towpath_device_roce::{EngineOptions, EngineThread, SharedDevice};
pub use towpath_device_verbs::{OpenError as DeviceOpenError, Target as VerbsTarget, VerbsDevice};
pub use towpath_memory::{Buf, Frozen, MemoryError, Pool, Region, Segment, SharedMemory};
pub use towpath_proto::{
    CancelError, ChannelId, Class, ClassNameError, ClassOrder, CloseReason, Denied, DownReason,
    Grant, GrantId, LinkCensus, LinkConfig, LinkStats, LinkUsage, MtuPhase, MtuReason, OpCounts,
    OpError, OpOutcome, OpenError, Outcome, PathId, PathSignal, PathSnapshot, PathState, Rights,
    Side, Spreading, SupplyError, WEIGHT_DEFAULT,
    limits::PATHS_MAX,
    wire::{AppProtocol, AppProtocolError, Hello, Refusal},
};
pub use towpath_verbs::{
    AsyncEvent, Device, Either, InterfaceName, IpMtu, Mtu, PathMtu, RcAttr, SHARES_MAX, Served,
};
