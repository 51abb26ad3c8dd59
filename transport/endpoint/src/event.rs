//! What an endpoint tells its application.

use crate::error::{AcceptError, ConnectError};
use crate::ids::{ConnectId, LinkId, OpId, SendId, StreamId};
use crate::message::{Chunk, Message};
use crate::payload::Payload;
use std::net::SocketAddr;
use towpath_memory::Buf;
use towpath_proto::{
    Carrier, CarrierReason, ChannelId, Class, CloseReason, DownReason, Grant, GrantId, MtuReason,
    OpOutcome, Outcome, PathId, PathSignal, PathState,
};
use towpath_verbs::{AsyncEvent, Mtu};

/// Who is at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Random, one life of the peer's endpoint.
    pub instance: u64,
    /// Where its device receives.
    pub device_addr: SocketAddr,
    /// Its end of the set-up connection; none where links were joined without one.
    pub setup_addr: Option<SocketAddr>,
    /// The class of the link.
    pub class: Class,
}

/// An event that an [`Endpoint`](crate::Endpoint) reports to its application.
///
/// A connecting program needs `Connected` and `ConnectFailed`, a listening one `Accepted`. Both
/// need `ChannelOpened`, `Message`, `Sent` and `LinkDown`, and, unless
/// [`EndpointConfig::streams`](crate::EndpointConfig::streams) is off, `StreamChunk` and
/// `StreamAborted`. The other events may be ignored.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// An outgoing connection is up.
    Connected {
        /// What [`Endpoint::connect`](crate::Endpoint::connect) returned.
        connect: ConnectId,
        /// The link.
        link: LinkId,
        /// The peer.
        peer: Peer,
    },
    /// An outgoing connection could not be made.
    ConnectFailed {
        /// What [`Endpoint::connect`](crate::Endpoint::connect) returned.
        connect: ConnectId,
        /// Why.
        error: ConnectError,
    },
    /// A peer connected.
    Accepted {
        /// The link.
        link: LinkId,
        /// The peer.
        peer: Peer,
    },
    /// A peer tried to connect and was turned away. For logs.
    AcceptFailed {
        /// Its end of the set-up connection.
        from: SocketAddr,
        /// Why.
        error: AcceptError,
    },
    /// A channel is open both ways.
    ChannelOpened {
        /// Its link.
        link: LinkId,
        /// Which.
        channel: ChannelId,
        /// Messages arrive in the order they were sent.
        ordered: bool,
        /// The peer opened it.
        by_peer: bool,
    },
    /// A channel is closed: nothing more arrives, everything sent has had its outcome.
    ChannelClosed {
        /// Its link.
        link: LinkId,
        /// Which.
        channel: ChannelId,
        /// Why.
        reason: CloseReason,
    },
    /// A whole message.
    Message(Message),
    /// The next piece of a message that is longer than
    /// [`EndpointConfig::whole_bytes_max`](crate::EndpointConfig::whole_bytes_max), in order. It
    /// comes unless [`EndpointConfig::streams`](crate::EndpointConfig::streams) is off. With
    /// [`EndpointConfig::pieces_as_they_come`](crate::EndpointConfig::pieces_as_they_come) it is a
    /// piece of any message of an unordered channel, wherever it [lies](Chunk::offset).
    StreamChunk {
        /// Its link.
        link: LinkId,
        /// Its channel.
        channel: ChannelId,
        /// Its message.
        stream: StreamId,
        /// The piece.
        chunk: Chunk,
        /// Bytes of the whole message.
        message_len: u32,
        /// No more pieces follow: the message is whole.
        end: bool,
    },
    /// The rest of a streamed message will not come: undo what its pieces did.
    StreamAborted {
        /// Its link.
        link: LinkId,
        /// Its channel.
        channel: ChannelId,
        /// Its message.
        stream: StreamId,
    },
    /// A message that was sent has its outcome, and its buffers are back.
    Sent {
        /// The number of the send.
        send: SendId,
        /// The caller's token ([`SendOptions::token`](crate::SendOptions::token)).
        token: u64,
        /// How it ended.
        outcome: Outcome,
        /// The buffers.
        payload: Payload,
    },
    /// A path of a link has changed its state. The link stays up: chunks that were under way on the
    /// path are sent on another one.
    PathChanged {
        /// Its link.
        link: LinkId,
        /// Which.
        path: PathId,
        /// The state before.
        from: PathState,
        /// The state now.
        to: PathState,
        /// The cause.
        signal: PathSignal,
    },
    /// A link uses another carrier from now on: the carrier before was silent while this one
    /// answered, or a better carrier answers again. The link stays up; no message is lost or
    /// repeated.
    CarrierChanged {
        /// Its link.
        link: LinkId,
        /// The carrier before.
        from: Carrier,
        /// The carrier now.
        to: Carrier,
        /// Why.
        why: CarrierReason,
    },
    /// A path of a link carries packets of another size than was thought: fewer bytes, because
    /// longer packets are dropped while short ones get through, or more. The link goes on in
    /// packets of that size; no message is lost or repeated.
    PathMtuChanged {
        /// Its link.
        link: LinkId,
        /// The path.
        path: PathId,
        /// The packet size that was thought to be carried; at first what both ends can do.
        from: Mtu,
        /// The packet size in use now.
        to: Mtu,
        /// Why.
        why: MtuReason,
    },
    /// The peer lets this end reach memory of its own: name it in a
    /// [`Place`](crate::Place).
    Granted {
        /// The link.
        link: LinkId,
        /// Which memory, how long, and what may be done with it.
        grant: Grant,
    },
    /// It does so no longer. Operations that wait for it are denied.
    Revoked {
        /// The link.
        link: LinkId,
        /// Which memory.
        grant: GrantId,
    },
    /// A one-sided operation has ended.
    OpDone {
        /// The number of the operation.
        op: OpId,
        /// The caller's token ([`OpOptions::token`](crate::OpOptions::token)).
        token: u64,
        /// How it ended.
        outcome: OpOutcome,
        /// What a word was, of an atomic; what was written, of
        /// [`write_word`](crate::Endpoint::write_word). Only if it was executed.
        word: Option<u64>,
        /// The buffer, of operations that have one.
        buf: Option<Buf>,
    },
    /// An event of the device. [`LinkDown`](Self::LinkDown) follows for each link that cannot
    /// continue: at once when its queues or the device are lost, and after the time-out for silent
    /// peers when the port is down.
    Device {
        /// The event.
        event: AsyncEvent,
    },
    /// A link has room for messages again: [`Endpoint::send`](crate::Endpoint::send) was refused
    /// with [`SubmitError::Full`](crate::SubmitError::Full) since this was last told. Comes once,
    /// behind the outcomes that made the room.
    Writable {
        /// Its link.
        link: LinkId,
    },
    /// There is a send buffer for which [`Endpoint::want_buffer`](crate::Endpoint::want_buffer) has
    /// asked. Comes once; other threads may be faster to take the buffer.
    BufferFree {
        /// The least that was asked for, in bytes: so long a buffer is free.
        bytes: usize,
    },
    /// A link is down. Each of its messages had its outcome before this event, and no event of the
    /// link follows.
    LinkDown {
        /// Which.
        link: LinkId,
        /// Why.
        reason: DownReason,
    },
}

impl Event {
    /// The link that it is about; none of a connection that is being made, and of the device.
    #[must_use]
    pub fn link(&self) -> Option<LinkId> {
        Some(match self {
            Self::Connected { link, .. }
            | Self::Accepted { link, .. }
            | Self::ChannelOpened { link, .. }
            | Self::ChannelClosed { link, .. }
            | Self::StreamChunk { link, .. }
            | Self::StreamAborted { link, .. }
            | Self::PathChanged { link, .. }
            | Self::CarrierChanged { link, .. }
            | Self::PathMtuChanged { link, .. }
            | Self::Granted { link, .. }
            | Self::Revoked { link, .. }
            | Self::Writable { link }
            | Self::LinkDown { link, .. } => *link,
            Self::Message(message) => message.link(),
            Self::Sent { send, .. } => send.link(),
            Self::OpDone { op, .. } => op.link(),
            Self::ConnectFailed { .. }
            | Self::AcceptFailed { .. }
            | Self::Device { .. }
            | Self::BufferFree { .. } => return None,
        })
    }
}
