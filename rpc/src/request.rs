//! What a service is handed: requests as they arrived, with the way back.

use crate::parcel::{Parcel, Piece, Pieces};
use crate::wire::Header;
use towpath_transport::{ChannelId, Event, LinkId, Message, Time};

/// Where the response to one request goes. It can be kept, and sent to other threads.
#[derive(Debug)]
#[must_use = "a request without a response holds its place until the link goes down"]
pub struct Responder {
    pub(crate) key: usize,
    pub(crate) serial: u64,
    pub(crate) link: LinkId,
    pub(crate) channel: ChannelId,
    pub(crate) method: u16,
}

impl Responder {
    /// The link of the client.
    #[must_use]
    pub fn link(&self) -> LinkId {
        self.link
    }

    /// The channel of the client, over which it can be [pushed](crate::RpcServer::push) to as well.
    #[must_use]
    pub fn channel(&self) -> ChannelId {
        self.channel
    }

    /// What was asked for.
    #[must_use]
    pub fn method(&self) -> u16 {
        self.method
    }

    /// What names the request in [`Incoming::Cancelled`].
    #[must_use]
    pub fn request_key(&self) -> RequestKey {
        RequestKey { key: self.key, serial: self.serial }
    }
}

/// A request under way at a server; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    pub(crate) key: usize,
    pub(crate) serial: u64,
}

impl RequestKey {
    /// A number that no other request at the server has, for logs.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.serial
    }
}

/// A request as it arrived, with the way back.
#[derive(Debug)]
pub struct Request {
    pub(crate) parcel: Parcel,
    pub(crate) responder: Responder,
    pub(crate) deadline: Time,
}

impl Request {
    /// The link it came over.
    #[must_use]
    pub fn link(&self) -> LinkId {
        self.responder.link
    }

    /// The channel it came over.
    #[must_use]
    pub fn channel(&self) -> ChannelId {
        self.responder.channel
    }

    /// The client's number for it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.parcel.header().request
    }

    /// What names it in [`Incoming::Cancelled`].
    #[must_use]
    pub fn request_key(&self) -> RequestKey {
        self.responder.request_key()
    }

    /// What is asked for.
    #[must_use]
    pub fn method(&self) -> u16 {
        self.parcel.header().method
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.parcel.body()
    }

    /// Header, body and data as they arrived.
    #[must_use]
    pub fn parcel(&self) -> &Parcel {
        &self.parcel
    }

    /// Bytes of data.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.parcel.data_len()
    }

    /// The data; see [`Parcel::data_pieces`].
    pub fn data_pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.parcel.data_pieces()
    }

    /// The data, with what is known of its pages; see [`Parcel::data_pieces_with_crcs`].
    pub fn data_pieces_with_crcs(&self) -> impl Iterator<Item = (usize, &[u8], &[u32])> {
        self.parcel.data_pieces_with_crcs()
    }

    /// When its client stops waiting, on the endpoint's clock, but at most
    /// [`TIMEOUT_MAX`](crate::limits::TIMEOUT_MAX) after its arrival; no response goes after that.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// The way back, and the data in its buffers. Dropping those gives the credit back.
    pub fn into_data(self) -> (Responder, Pieces) {
        (self.responder, self.parcel.into_data())
    }

    /// The way back, and the message to [release](towpath_transport::Endpoint::release).
    pub fn into_message(self) -> (Responder, Message) {
        (self.responder, self.parcel.into_message())
    }
}

/// The head of a request whose data is still on its way.
#[derive(Debug)]
pub struct Head {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
    pub(crate) responder: Responder,
    pub(crate) deadline: Time,
}

impl Head {
    /// The link it came over.
    #[must_use]
    pub fn link(&self) -> LinkId {
        self.responder.link
    }

    /// The client's number for the request.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.header.request
    }

    /// What names the request in what follows.
    #[must_use]
    pub fn request_key(&self) -> RequestKey {
        self.responder.request_key()
    }

    /// What is asked for.
    #[must_use]
    pub fn method(&self) -> u16 {
        self.header.method
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Bytes of data that the request has in all.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.header.data_len as usize
    }

    /// As [`Request::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// The way back.
    pub fn into_responder(self) -> Responder {
        self.responder
    }
}

/// What [`RpcServer::on_event`](crate::RpcServer::on_event) made of an event.
#[derive(Debug)]
pub enum Incoming {
    /// A request to serve, all of it.
    Request(Request),
    /// Part of a request, with a server that takes [streams](crate::ServerConfig::streams).
    Streamed(Streamed),
    /// A request that nobody waits for any more. A service that has not begun it gives it up with
    /// [`RpcServer::abandon`](crate::RpcServer::abandon); one that has goes on and responds as if
    /// nothing had come, which tells the client what became of it.
    Cancelled {
        /// The link it came over.
        link: LinkId,
        /// Which.
        request: RequestKey,
    },
    /// An event that does not concern requests; some of these have been noted here as well.
    Other(Event),
}

/// Part of a request whose data is still on its way: its head, then data in any order, then that it
/// is whole or that it broke.
///
/// It may be answered at any time; what still comes of it then is dropped. What it asks for must
/// not take effect before it is whole: a client that is told that its message was given up knows
/// that nothing happened.
#[derive(Debug)]
pub enum Streamed {
    /// Its head, before all else.
    Begun(Head),
    /// Data of a request that has begun.
    Data {
        /// Which.
        request: RequestKey,
        /// Where in the data it lies.
        offset: usize,
        /// What came.
        piece: Piece,
    },
    /// All data of a request has come.
    Whole {
        /// Which.
        request: RequestKey,
    },
    /// The rest of a request will not come: undo what was done for it. It has no answer, and its
    /// [`Responder`] leads nowhere any more. Nothing tells so when a link goes down.
    Broken {
        /// Which.
        request: RequestKey,
    },
}
