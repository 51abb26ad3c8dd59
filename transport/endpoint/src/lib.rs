//! The application interface of Towpath: reliable messages between processes over RDMA devices.
//!
//! There are two ways to use it. [`EndpointHandle`] runs an endpoint on a thread of its own and has
//! blocking calls: start with this one (see [Handles](#handles)). [`Endpoint`] has no thread; a
//! program drives it in its own loop (see [Your own loop](#your-own-loop)).
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
//! [`Ticket::wait`]. Received data stays in the buffers that the device wrote, but for pieces that
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
//! carried out once or not at all. [`LinkHandle`] has the same calls, with a ticket for each
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
//! # Handles
//!
//! For all other programs: an [`EndpointHandle`] runs the endpoint on a worker thread. Handles of
//! endpoints, links and channels can be cloned and shared between threads; a call blocks only its
//! caller. A message passes from thread to thread at each end: a round trip of 64 bytes took 212 to
//! 224 us, where an [`Endpoint`] that is polled took 36 to 70.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddr};
//! use std::time::Duration;
//! use towpath_transport::{EndpointConfig, EndpointHandle, Incoming, SendOptions, UdpConfig};
//!
//! let soon = Duration::from_secs(10);
//! let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
//! let server = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
//! let echo = std::thread::spawn(move || {
//!     let link = server.accept(soon).expect("a client");
//!     let channel = link.accept_channel(soon).expect("a channel");
//!     if let Ok(Incoming::Message(message)) = channel.recv(soon) {
//!         let reply = message.into_payload().expect("a short message is one piece");
//!         channel.send(reply, SendOptions::new()).wait(soon).expect("it was taken");
//!     }
//!     server.shutdown();
//! });
//!
//! let client = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let link = client.connect(addr)?;
//! let channel = link.open_channel(true)?;
//! let hello = channel.copy(b"hello").expect("a free buffer");
//! let sent = channel.send(hello, SendOptions::new());
//! match channel.recv(soon)? {
//!     Incoming::Message(message) => assert_eq!(message.as_slice(), Some(&b"hello"[..])),
//!     other => panic!("an echo was due, not {other:?}"),
//! }
//! // Only its ticket tells that a message was refused, as one is that is too long for the peer.
//! sent.wait(soon).expect("it was taken");
//! echo.join().expect("the server thread");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Futures
//!
//! Each call of a handle that blocks has a twin that ends in `_async`, and a [`Ticket`] is a future
//! itself. They are made of wakers alone: any executor runs them, and none is needed here. A future
//! that is dropped waits no longer, and what it would have taken stays for the next one. They have
//! no timer: use the executor's.
//!
//! ```
//! use std::future::Future;
//! use std::net::{Ipv4Addr, SocketAddr};
//! use std::pin::pin;
//! use std::task::{Context, Poll, Wake, Waker};
//! use towpath_transport::{EndpointConfig, EndpointHandle, Incoming, SendOptions, UdpConfig};
//!
//! /// An executor of ten lines; yours is better.
//! fn run<F: Future>(future: F) -> F::Output {
//!     struct Thread(std::thread::Thread);
//!     impl Wake for Thread {
//!         fn wake(self: std::sync::Arc<Self>) {
//!             self.0.unpark();
//!         }
//!     }
//!     let waker = Waker::from(std::sync::Arc::new(Thread(std::thread::current())));
//!     let mut future = pin!(future);
//!     loop {
//!         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
//!             Poll::Ready(output) => return output,
//!             Poll::Pending => std::thread::park(),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
//! let server = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let client = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let incoming = run(async {
//!     let addr = server.listen_async(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
//!     let channel = client.connect_async(addr).await?.open_channel_async(true).await?;
//!     let ticket = channel.send_async(channel.copy(b"hello")?, SendOptions::new()).await?;
//!     let theirs = server.accept_async().await?.accept_channel_async().await?;
//!     let incoming = theirs.recv_async().await?;
//!     ticket.await?; // the outcome
//!     Ok::<_, Box<dyn std::error::Error>>(incoming)
//! })?;
//! let Incoming::Message(message) = incoming else { panic!("a short message") };
//! assert_eq!(message.as_slice(), Some(&b"hello"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! # Limits and back-pressure
//!
//! `docs/limits.md` has all limits, with their defaults and settings. In short: messages of up to
//! 252 KiB come whole ([`EndpointConfig::whole_bytes_max`]); a handle's peer cannot send longer
//! ones unless [`EndpointConfig::streams`] is on. A message that cannot be accepted now is refused,
//! and its buffers come back ([`Rejected`]); [`ChannelHandle::send_timeout`] waits for a limited
//! time instead. [`AllocError`] says why there is no send buffer. A polled endpoint tells when
//! there is room again: [`Event::Writable`], [`Event::BufferFree`]. [`SendOptions::timeout`] and
//! [`Ticket::cancel`] give up messages. With a [`WaitSet`] one thread waits for several things at
//! once, and [futures](#futures) wait without a thread. [`Reconnect`] makes a channel anew when its
//! link breaks, and says what became of each message. The program `examples/back_pressure.rs` shows
//! each of these.
//!
//! # Source files
//!
//! | file or folder | contents |
//! |---|---|
//! | `endpoint` | [`Endpoint`]: poll, events, flush, commands, making and ending links |
//! | `setup` | link set-up: HELLOs over a TCP connection, which then shows that the peer is alive |
//! | `handle` | [`EndpointHandle`] and its worker, with a thread or without |
//! | `blacklist` | peers with recent trouble, which callers should avoid for a while |
//! | `workers` | several endpoints that act as one: which of them gets a link |
//! | `carrier` | the carriers of links: UC, RC or TCP |
//! | `class`, `order` | classes of links: their DSCPs, and the order in which they send |
//! | `tcp` | the set-up connection as a carrier |
//! | `links`, `sends` | the state of each link, and of each message being sent |
//! | `recv`, `tx`, `control`, `pools` | buffers: receives, headers of sends, acks, send pools |
//! | `company` | what is copied for chunks of several messages |
//! | `filler` | bytes that make a probe as long as a packet |
//! | `batch` | sends that wait to be posted in one call |
//! | `bell`, `park` | what wakes the thread that drives an endpoint; how others block |
//! | `away` | how long the host is away between two polls |
//! | `shared` | receive queues that the links of a class share |
//! | `spare` | unused receive buffers, and when their memory returns to the system |
//! | `wanted` | send buffers that were asked for in vain |
//! | `lane` | one-sided operations: what they have at the device, and what callers name |
//! | `held`, `message`, `payload` | owners of buffers: received messages, messages to send |
//! | `choice` | the choice of a device by the names that the tools accept |
//! | `plan` | [`Plan`]: how a device is used, from its capabilities |
//! | `udp`, `mem` | endpoints on UDP sockets, and in pairs within a process (feature `mem`) |
//! | `event`, `error`, `config`, `limits`, `wr_id` | events, errors, settings, limits, numbers |

#![forbid(unsafe_code)]

mod address;
mod asks;
mod away;
mod batch;
mod bell;
mod blacklist;
mod carrier;
mod choice;
mod class;
mod company;
mod config;
mod control;
mod endpoint;
mod error;
mod event;
mod filler;
mod growing;
mod handle;
mod held;
mod ids;
mod lane;
mod lane_talk;
mod limits;
mod links;
#[cfg(feature = "mem")]
mod mem;
mod message;
mod order;
mod page_crcs;
mod park;
mod payload;
mod plan;
mod pools;
mod recv;
mod rides;
mod sends;
mod setup;
mod shared;
mod spare;
mod tcp;
mod tx;
mod udp;
mod wanted;
mod workers;
mod wr_id;

pub use address::{resolve, resolve_ip};
pub use blacklist::{Blacklist, ListedFor, Listing};
pub use carrier::{
    Carrier, CarrierChoice, CarrierChoiceError, CarrierReason, CarrierRule, CarrierRuleError,
    Fallback, FallbackError, Prefix, PrefixError,
};
pub use choice::{DeviceChoice, DeviceName, DeviceNameError};
pub use class::ClassReport;
pub use config::EndpointConfig;
pub use endpoint::{
    BufferCensus, Endpoint, EndpointStats, EndpointUsage, PathReport, PendingLink, PollFdError,
    PoolHolder, PoolKind, PoolReport,
};
pub use error::{AcceptError, ChannelError, ConnectError, EndpointError, LinkError, ListenError};
pub use event::{Event, Peer};
pub use growing::{SupplyFault, SupplyRejected};
pub use handle::{
    ChannelHandle, CompletionQueue, EndpointGroup, EndpointHandle, EndpointWorker, Fate,
    GrantChange, Incoming, LinkHandle, OpDone, OpTicket, Opening, Reconnect, ReconnectError,
    RecvError, SentMessage, Settled, Ticket, WaitError, WaitSet,
};
pub use ids::{ConnectId, LinkId, OpId, SendId, StreamId};
pub use lane::{LaneError, LaneReport, OpOptions, Place, RejectedOp};
pub use limits::{LANE_OPS_POSTED, LANE_READS_MAX};
#[cfg(feature = "mem")]
pub use mem::{MemEnd, MemPairError, mem_pair};
pub use message::{Chunk, Message};
pub use page_crcs::PageCrcs;
pub use payload::{Payload, Rejected, SendOptions, SubmitError};
pub use plan::{Clock, Plan, SourcePorts};
pub use pools::{AllocError, LinkBuffers, SendBuffers};
pub use rides::{Ride, Rides};
pub use tcp::ByteStream;
pub use udp::{EngineUdp, RoceUdp, roce_udp, roce_udp_group};
pub use workers::{Placing, Workers};

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
    Scheduling, Side, Spreading, SupplyError, WEIGHT_DEFAULT,
    limits::PATHS_MAX,
    wire::{AppProtocol, AppProtocolError, Hello, Refusal},
};
pub use towpath_verbs::{
    AsyncEvent, Device, Either, InterfaceName, IpMtu, Mtu, PathMtu, RcAttr, SHARES_MAX, Served,
};
