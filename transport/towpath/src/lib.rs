//! Reliable messages between processes, over RDMA NICs or plain UDP: this is the crate to name.
//!
//! A program makes an endpoint, connects it to another one, and opens channels on the link between
//! them. Channels carry messages both ways, in order or not. Received bytes stay where the device
//! wrote them, and sent bytes are taken from where they lie. The default device is a RoCEv2 NIC in
//! userspace, over UDP sockets: it needs no hardware and no privilege.
//!
//! This page takes ten minutes: [an echo](#echo),
//! [requests](#request-and-answer-with-back-pressure-and-reconnect) with back-pressure,
//! [a counter](#a-counter-in-the-memory-of-a-peer) in the memory of a peer, [async](#async), and
//! [a bad network](#a-bad-network-in-your-own-tests) for your own tests. Each example is a whole
//! program, runs on one host as it stands, and names no other crate of ours.
//! `towpath = { path = ... }` in `Cargo.toml` is all that a program needs; the feature `verbs` adds
//! real RDMA NICs.
//!
//! Five words, from the outside in: an *endpoint* owns a device and its memory; a *link* joins two
//! endpoints, one of which [listens](EndpointHandle::listen) on a TCP port; a *channel* of a link
//! carries *messages* both ways, in order or not; and a message is made of *buffers* of the
//! endpoint, which come back when the message has its outcome.
//!
//! The root of this crate is that of `towpath-handle` and `towpath-transport`. Start with
//! [`EndpointHandle`], which runs an endpoint on a thread of its own; [`Endpoint`] is for programs
//! that have a loop of their own, also together with other files ([`Endpoint::poll_fd`]). [`rpc`]
//! has requests with deadlines over an [`Endpoint`], and [`testing`] bad networks for tests.
//!
//! A thread that waits for a handle drives the endpoint itself meanwhile, so that no message passes
//! from thread to thread: as many wake-ups as over a TCP socket. Tasks of an executor are woken by
//! the thread of the endpoint, which is one more. `examples/handles_bench.rs` of `towpath-handle`
//! measures both beside TCP (docs/bench-method.md, section 4.4).
//!
//! # Echo
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//! use towpath::{EndpointConfig, EndpointHandle, Incoming, SendOptions, UdpConfig};
//!
//! let soon = Duration::from_secs(30);
//! let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
//! let server = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let addr = server.listen((Ipv4Addr::LOCALHOST, 0).into())?;
//! let echo = std::thread::spawn(move || {
//!     let link = server.accept(soon).expect("a client");
//!     let channel = link.accept_channel(soon).expect("a channel");
//!     if let Ok(Incoming::Message(message)) = channel.recv(soon) {
//!         // The bytes leave from where they arrived: nothing is copied.
//!         let reply = message.into_payload().expect("a short message is one piece");
//!         let sent = channel.send(reply, SendOptions::new()).expect("an open channel");
//!         sent.wait(soon).expect("it was taken");
//!     }
//!     server.shutdown();
//! });
//!
//! let client = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let channel = client.connect(addr)?.open_channel(true)?;
//! let sent = channel.send(channel.copy(b"hello")?, SendOptions::new())?;
//! let Incoming::Message(message) = channel.recv(soon)? else { panic!("a short message") };
//! assert_eq!(message.as_slice(), Some(&b"hello"[..]));
//! sent.wait(soon).expect("it was taken");
//! echo.join().expect("the server thread");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A message that is sent has one [`Outcome`]; [`Ticket::wait`] gives it. `Delivered` means that
//! the peer's transport holds the whole message, not that its application has read it: for that
//! let the application answer.
//!
//! # Request and answer, with back-pressure and reconnect
//!
//! This program is `examples/ask.rs`. The client has at most 64 requests under way. It waits where
//! there is no room: for a buffer ([`ChannelHandle::copy_timeout`]), and for a place in the queue
//! of the channel ([`ChannelHandle::send`]). A reader that is slow holds up its own channel only.
//! When the link breaks, [`RecvError`] says so: the client connects again, and asks again for what
//! has no answer. Requests must therefore be such that doing one twice does no harm.
//!
//! ```
#![doc = include_str!("../examples/ask.rs")]
//! ```
//!
//! [`SubmitError`] and [`AllocError`] name each way to be refused. A program that must never wait
//! uses [`ChannelHandle::post`] with a [`CompletionQueue`], and [futures](#async) to wait for
//! whichever comes first. A polled [`Endpoint`] tells by [`Event::Writable`] and
//! [`Event::BufferFree`] that there is room again.
//!
//! # A counter in the memory of a peer
//!
//! A peer can read and change memory of this process while no thread of it looks: only memory of a
//! type of its own, [`SharedMemory`], which is never a slice, and of that only the range that
//! [`LinkHandle::grant`] names, over that link alone, until it is
//! [revoked](LinkHandle::revoke). Here a client counts in the memory of a server:
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::sync::atomic::Ordering;
//! use std::time::Duration;
//! use towpath::{
//!     EndpointConfig, EndpointHandle, GrantChange, OpOptions, OpOutcome, Rights, SharedMemory,
//!     UdpConfig,
//! };
//!
//! let soon = Duration::from_secs(30);
//! let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
//! let server = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let addr = server.listen((Ipv4Addr::LOCALHOST, 0).into())?;
//! let client = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let link = client.connect(addr)?;
//!
//! // The server shares 64 bytes, and does nothing more.
//! let counters = SharedMemory::new(4096)?;
//! server.accept(soon)?.grant(&counters, 0..64, Rights::ALL)?;
//!
//! // The client hears of that, and adds to the word at byte 8 from afar, as often as it likes.
//! let GrantChange::Granted(grant) = link.recv_grant(soon)? else { panic!("it was revoked") };
//! let tickets: Vec<_> = (0..10)
//!     .map(|_| link.fetch_add(grant.id, 8, 5, OpOptions::new().timeout(soon)))
//!     .collect();
//! for (count, ticket) in tickets.into_iter().enumerate() {
//!     let done = ticket.wait(soon).expect("in time");
//!     assert_eq!(done.outcome?, OpOutcome::Executed);
//!     assert_eq!(done.word, Some(5 * count as u64), "what the word was before");
//! }
//! assert_eq!(counters.word(8)?.load(Ordering::SeqCst), 50);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each operation has one [`OpOutcome`]. An addition is carried out once, or not at all; if the
//! connection is lost at the wrong moment the outcome is [`Unknown`](OpOutcome::Unknown), and the
//! program decides. [`LinkHandle::read`] and [`LinkHandle::write`] move whole buffers.
//!
//! # Async
//!
//! Each call that blocks has a twin that ends in `_async`, and tickets are futures. They are made
//! of wakers alone, so any executor runs them; this one is tokio. A future that is dropped, by a
//! timeout say, loses nothing: what it would have taken stays for the next one.
//!
//! ```
//! # fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//! use towpath::{EndpointConfig, EndpointHandle, Incoming, Outcome, SendOptions, UdpConfig};
//!
//! let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! runtime.block_on(async {
//!     let server = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//!     let addr = server.listen_async((Ipv4Addr::LOCALHOST, 0).into()).await?;
//!     let echo = tokio::spawn(async move {
//!         let link = server.accept_async().await.expect("a client");
//!         let channel = link.accept_channel_async().await.expect("a channel");
//!         while let Ok(Incoming::Message(message)) = channel.recv_async().await {
//!             let reply = message.into_payload().expect("a short message is one piece");
//!             drop(channel.send_async(reply, SendOptions::new()).await.expect("an open channel"));
//!         }
//!     });
//!
//!     let client = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//!     let channel = client.connect_async(addr).await?.open_channel_async(true).await?;
//!     // Nothing has come yet: the wait is dropped.
//!     let early = tokio::time::timeout(Duration::from_millis(1), channel.recv_async()).await;
//!     assert!(early.is_err());
//!     // Ready when the channel's queue has room; the ticket is a future of the outcome.
//!     let hello = channel.copy_async(b"hello").await?;
//!     let ticket = channel.send_async(hello, SendOptions::new()).await?;
//!     assert_eq!(ticket.await?.outcome, Outcome::Delivered);
//!     let Incoming::Message(message) = channel.recv_async().await? else { panic!("in pieces") };
//!     assert_eq!(message.as_slice(), Some(&b"hello"[..]));
//!     drop(channel); // the last handle: it is closed, and the echo ends
//!     echo.await?;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })
//! # }
//! # fn main() { run().expect("it runs") }
//! ```
//!
//! `examples/ask_tokio.rs` has 64 tasks that ask over one channel, each of which awaits its own
//! answer. Only [`EndpointHandle::shutdown`], which waits for the worker's thread, has no twin:
//! drop the handles, and the worker ends by itself.
//!
//! # A bad network in your own tests
//!
//! The same endpoint over a device that loses every tenth packet that it sends; which ones, a seed
//! says:
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//! use towpath::testing::{FaultControl, FaultPlan, faulty_udp};
//! use towpath::{EndpointConfig, EndpointHandle, Incoming, Outcome, SendOptions, UdpConfig};
//!
//! let soon = Duration::from_secs(30);
//! let control = FaultControl::new(FaultPlan::none().drop(0.1));
//! let faults = control.clone();
//! let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
//! let server = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let addr = server.listen((Ipv4Addr::LOCALHOST, 0).into())?;
//! let device = move || faulty_udp(udp(), 7, &faults);
//! let client = EndpointHandle::spawn(device, EndpointConfig::new())?;
//! let channel = client.connect(addr)?.open_channel(true)?;
//! let theirs = server.accept(soon)?.accept_channel(soon)?;
//!
//! let tickets: Vec<_> = (0..200_u64)
//!     .map(|number| {
//!         Ok(channel.send(channel.copy(&number.to_le_bytes())?, SendOptions::new())?)
//!     })
//!     .collect::<Result<_, Box<dyn std::error::Error>>>()?;
//! for number in 0..200_u64 {
//!     let Incoming::Message(message) = theirs.recv(soon)? else { panic!("a short message") };
//!     assert_eq!(message.to_vec(), number.to_le_bytes(), "in order, and each once");
//! }
//! for ticket in tickets {
//!     assert_eq!(ticket.wait(soon)?.expect("in time").outcome, Outcome::Delivered);
//! }
//! assert!(control.counters().dropped_random > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod testing;

pub use towpath_handle::*;
pub use towpath_transport::*;

pub mod rpc {
    //! Requests and responses with deadlines and cancellation, over the channels of an
    //! [`Endpoint`](crate::Endpoint).

    pub use towpath_rpc::*;
}
