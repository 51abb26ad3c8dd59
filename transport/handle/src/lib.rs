//! Thread-safe handles of endpoints: calls that block, and futures.
//!
//! # Handles
//!
//! An [`EndpointHandle`] runs the endpoint on a worker thread. Handles of endpoints, links and
//! channels can be cloned and shared between threads; a call blocks only its caller. A caller that
//! waits drives the endpoint itself, so an answer passes through no other thread. The worker drives
//! it while no caller waits.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddr};
//! use std::time::Duration;
//! use towpath_handle::{EndpointHandle, Incoming};
//! use towpath_transport::{EndpointConfig, SendOptions, UdpConfig};
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
//!         let sent = channel.send(reply, SendOptions::new()).expect("an open channel");
//!         sent.wait(soon).expect("it was taken");
//!     }
//!     server.shutdown();
//! });
//!
//! let client = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let link = client.connect(addr)?;
//! let channel = link.open_channel(true)?;
//! let hello = channel.copy(b"hello").expect("a free buffer");
//! let sent = channel.send(hello, SendOptions::new())?;
//! match channel.recv(soon)? {
//!     Incoming::Message(message) => assert_eq!(message.as_slice(), Some(&b"hello"[..])),
//!     other => panic!("an echo was due, not {other:?}"),
//! }
//! sent.wait(soon).expect("it was taken");
//! echo.join().expect("the server thread");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Futures
//!
//! Each call of a handle that blocks has a twin that ends in `_async`, and a [`Ticket`] is a future
//! itself. They need wakers alone, so any executor runs them. Dropping a future loses nothing: the
//! item that it waited for stays for the next one. The futures have no timer: use the executor's.
//!
//! ```
//! use std::future::Future;
//! use std::net::{Ipv4Addr, SocketAddr};
//! use std::pin::pin;
//! use std::task::{Context, Poll, Wake, Waker};
//! use towpath_handle::{EndpointHandle, Incoming};
//! use towpath_transport::{EndpointConfig, SendOptions, UdpConfig};
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
//! # Back-pressure
//!
//! A handle's peer can send messages that are longer than
//! [`EndpointConfig::whole_bytes_max`](towpath_transport::EndpointConfig::whole_bytes_max) only if
//! [`EndpointConfig::streams`](towpath_transport::EndpointConfig::streams) is on. A message that
//! cannot be accepted now is refused, and its buffers come back
//! ([`Rejected`](towpath_transport::Rejected)); [`ChannelHandle::send_timeout`] waits for a limited
//! time instead. [`SendOptions::timeout`](towpath_transport::SendOptions::timeout) and
//! [`Ticket::cancel`] give up messages. One thread waits for several things at once with
//! [futures](#futures); the program `examples/back_pressure.rs` does.
//!
//! # Source files
//!
//! | file | what it is |
//! |---|---|
//! | `endpoint`, `spawn` | [`EndpointHandle`], and on which devices it runs |
//! | `link`, `channel`, `ticket` | handles of links and channels, and tickets of sends |
//! | `completions` | outcomes of many messages in one queue |
//! | `lane`, `ops` | one-sided operations, and the worker's side of them |
//! | `shared` | state shared by all handles of an endpoint: commands, waits, posts |
//! | `engine`, `spin` | which thread drives the endpoint, and how long it polls before it sleeps |
//! | `worker`, `desk` | commands, turns, and events to the handles that wait for them |
//! | `outbound`, `egress` | the worker's side of sending, and messages that wait on one channel |
//! | `inbox`, `reply` | messages and commands for the worker, without a lock; where outcomes go |
//! | `queue`, `park` | queues that threads and tasks wait for, and how threads sleep |
//! | `places` | numbers of requests that the worker waits for |
//! | `clock` | the device's clock, for threads that have no device |
//! | `unseen` | refusals that nobody waits for, in the log |
//! | `limits` | bounds, each with its reason |
//!
//! Arrows between files go down this table.

#![forbid(unsafe_code)]

mod channel;
mod clock;
mod completions;
mod desk;
mod egress;
mod endpoint;
mod engine;
mod inbox;
mod lane;
mod limits;
mod link;
mod ops;
mod outbound;
mod park;
mod places;
mod queue;
mod reply;
mod shared;
mod spawn;
mod spin;
mod ticket;
mod unseen;
mod worker;

pub use channel::{ChannelHandle, RecvError};
pub use completions::CompletionQueue;
pub use endpoint::EndpointHandle;
pub use inbox::Incoming;
pub use lane::OpTicket;
pub use link::{LinkHandle, Opening};
pub use ops::{GrantChange, OpDone};
pub use reply::SentMessage;
pub use shared::WaitError;
pub use ticket::Ticket;
pub use worker::EndpointWorker;
