//! The face that users link: endpoints, channels, buffers, driver.

#![forbid(unsafe_code)]

mod config;
mod control;
mod endpoint;
mod error;
mod event;
mod handle;
mod held;
mod limits;
mod links;
mod message;
mod payload;
mod pools;
mod recv;
mod sends;
mod setup;
mod tx;
mod udp;
mod wr_id;

pub use config::EndpointConfig;
pub use endpoint::{BufferCensus, Endpoint, EndpointStats, PendingLink};
pub use error::{AcceptError, ChannelError, ConnectError, EndpointError, LinkError, ListenError};
pub use event::{ConnectId, Event, LinkId, Peer, SendId, StreamId};
pub use handle::{
    ChannelHandle, EndpointHandle, Incoming, LinkHandle, RecvError, SentMessage, Ticket,
};
pub use message::{Chunk, Message};
pub use payload::{Payload, Rejected, SendOptions, SubmitError};
pub use udp::{RoceUdp, roce_udp};
