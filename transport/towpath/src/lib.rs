//! Reliable messages between processes, over RDMA NICs or plain UDP: this is the crate to name.
//!
//! A program makes an endpoint, connects it to another one, and opens channels on the link between
//! them. Channels carry messages both ways, in order or not. Received bytes stay where the device
//! wrote them, and sent bytes are taken from where they lie. The default device is a RoCEv2 NIC in
//! userspace, over UDP sockets: it needs no hardware and no privilege.
//!
//! The root of this crate is that of `towpath-transport`. Start with [`EndpointHandle`], which runs
//! an endpoint on a thread of its own; [`Endpoint`] is for programs that have a loop of their own,
//! also together with other files ([`Endpoint::poll_fd`]). [`rpc`] has requests with deadlines over
//! an [`Endpoint`], and [`testing`] bad networks for tests.
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
//!         channel.send(reply, SendOptions::new()).wait(soon).expect("it was taken");
//!     }
//!     server.shutdown();
//! });
//!
//! let client = EndpointHandle::spawn_udp(udp(), EndpointConfig::new())?;
//! let channel = client.connect(addr)?.open_channel(true)?;
//! channel.send(channel.copy(b"hello")?, SendOptions::new());
//! let Incoming::Message(message) = channel.recv(soon)? else { panic!("a short message") };
//! assert_eq!(message.as_slice(), Some(&b"hello"[..]));
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
//! has no answer. Requests must therefore be such that doing one twice does no harm. [`Reconnect`]
//! connects again by itself, with pauses, and tells what became of each message.
//!
//! ```ignore
#![doc = include_str!("../examples/ask.rs")]
//! ```
//!
//! [`SubmitError`] and [`AllocError`] name each way to be refused. A program that must never wait
//! uses [`ChannelHandle::post`] with a [`CompletionQueue`], and a [`WaitSet`] to wait for whichever
//! comes first. A polled [`Endpoint`] tells by [`Event::Writable`] and [`Event::BufferFree`] that
//! there is room again.
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
//!     .map(|number| Ok(channel.send(channel.copy(&number.to_le_bytes())?, SendOptions::new())))
//!     .collect::<Result<_, towpath::AllocError>>()?;
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

pub use towpath_transport::*;

pub mod rpc {
    //! Requests and responses with deadlines and cancellation, over the channels of an
    //! [`Endpoint`](crate::Endpoint).

    pub use towpath_rpc::*;
}
