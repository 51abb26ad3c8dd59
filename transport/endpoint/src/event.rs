//! What an endpoint tells its application.

use crate::error::{AcceptError, ConnectError};
use crate::message::{Chunk, Message};
use crate::payload::Payload;
use std::net::SocketAddr;
use towpath_proto::{
    Carrier, ChannelId, Class, CloseReason, DownReason, IncomingKey, Outcome, PathId, PathSignal,
    PathState, SendKey,
};
use towpath_verbs::{AsyncEvent, Mtu, PathMtu};

/// A link of an endpoint. Never reused for another one while anyone could still name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId {
    pub(crate) index: u16,
    pub(crate) life: u32,
}

impl LinkId {
    /// A small dense index, for tables of the application's own; unique among the links that are
    /// up.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.index)
    }
}

/// A message being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SendId {
    pub(crate) link: LinkId,
    pub(crate) key: SendKey,
}

impl SendId {
    /// Its link.
    #[must_use]
    pub fn link(self) -> LinkId {
        self.link
    }
}

/// A streamed message being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(pub(crate) IncomingKey);

/// An outgoing connection that is being set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectId(pub(crate) u64);

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

/// What an endpoint tells its application.
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
    /// comes unless [`EndpointConfig::streams`](crate::EndpointConfig::streams) is off.
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
        /// No more pieces follow: the message was whole.
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
    /// A message has its outcome, and its buffers are back.
    Sent {
        /// Which.
        send: SendId,
        /// The caller's own word.
        token: u64,
        /// How it ended.
        outcome: Outcome,
        /// The buffers.
        payload: Payload,
    },
    /// A path of a link has moved from one state to another. The link goes on: what was under way
    /// there goes another way.
    PathChanged {
        /// Its link.
        link: LinkId,
        /// Which.
        path: PathId,
        /// What it was thought of.
        from: PathState,
        /// What it is thought of now.
        to: PathState,
        /// What happened.
        signal: PathSignal,
    },
    /// A link rides on another carrier from now on: the one before was silent while this one
    /// answered, or a better one answers again. The link goes on; nothing is lost and nothing comes
    /// twice.
    CarrierChanged {
        /// Its link.
        link: LinkId,
        /// What it rode on.
        from: Carrier,
        /// What it rides on now.
        to: Carrier,
    },
    /// The way to the peer swallows packets as long as the MTU of a link, and brings shorter ones.
    /// The link goes on over TCP if it can; otherwise [`LinkDown`](Self::LinkDown) follows. Whoever
    /// connects to that peer again within ten minutes gets a smaller MTU, unless one is asked for
    /// by [`EndpointConfig::mtu_max`](crate::EndpointConfig::mtu_max).
    LongPacketsLost {
        /// Its link.
        link: LinkId,
        /// Its MTU.
        mtu: Mtu,
        /// What the host knows of the way by now: what a router has said meanwhile is in it.
        way: PathMtu,
        /// The MTU to try next; the same as `mtu` where there is no smaller one.
        next: Mtu,
    },
    /// The device itself tells of something. Links that cannot go on follow with
    /// [`LinkDown`](Self::LinkDown): at once where their queues or the device are lost, and after
    /// the silence that ends any link where its port carries nothing any more.
    Device {
        /// What.
        event: AsyncEvent,
    },
    /// A link is down; every message had its outcome before this. Nothing more comes from it.
    LinkDown {
        /// Which.
        link: LinkId,
        /// Why.
        reason: DownReason,
    },
}
