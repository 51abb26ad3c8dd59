//! The client end over our rpc.

use prost::bytes::Bytes;
use towpath_rpc::{Call, CallError, NoBuffer, Outgoing, Parcel, RpcClient, RpcError, Status};
use towpath_transport::{ChannelId, Device, Endpoint, Event, LinkId, Nanos, Region};

use super::message::{READ, ReadReply, ReadRequest, Verdict, WRITE, WriteReply, WriteRequest};
use super::passes::{decode, encode, sum_whole};
use super::serve::Served;
use towpath_fastpath::TIMEOUT_DEFAULT;
use towpath_fastpath::slice::ChunkId;

/// A request that has ended.
#[derive(Debug)]
pub struct ProstDone {
    /// The caller's own word.
    pub token: u64,
    /// The reply; whoever gets the data of a read finds it checked.
    pub result: Result<Served, ProstError>,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum ProstError {
    /// The request failed.
    #[error("the request failed")]
    Rpc(#[from] RpcError),
    /// The server refused it before it looked at the message.
    #[error("the server answered with status {}", .0.0)]
    Status(Status),
    /// The reply is not the message that belongs there, or its data is not what was sent.
    #[error("the reply is not the message that the method has, or was changed on its way")]
    Reply,
}

/// The client of one channel: reads and writes as protobuf messages.
#[derive(Debug)]
pub struct ProstClient {
    rpc: RpcClient,
    timeout: Nanos,
}

impl ProstClient {
    /// A client on an open channel.
    #[must_use]
    pub fn new(link: LinkId, channel: ChannelId) -> Self {
        Self { rpc: RpcClient::new(link, channel), timeout: TIMEOUT_DEFAULT }
    }

    /// Writes `data`; `token` comes back with the reply.
    ///
    /// # Errors
    /// [`CallError`]; nothing was sent.
    pub fn start_write<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (chunk, offset): (ChunkId, u64),
        data: Bytes,
        token: u64,
    ) -> Result<(), CallError> {
        let crc = sum_whole(&data);
        let message = WriteRequest { chunk: Some(chunk.into()), offset, crc, data };
        let built = encode(endpoint, &message);
        self.start(endpoint, WRITE, built, token)
    }

    /// Reads `length` bytes.
    ///
    /// # Errors
    /// [`CallError`]; nothing was sent.
    pub fn start_read<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (chunk, offset): (ChunkId, u64),
        length: u32,
        token: u64,
    ) -> Result<(), CallError> {
        let message = ReadRequest { chunk: Some(chunk.into()), offset, length };
        let built = encode(endpoint, &message);
        self.start(endpoint, READ, built, token)
    }

    fn start<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        method: u16,
        built: Result<Outgoing, NoBuffer>,
        token: u64,
    ) -> Result<(), CallError> {
        let deadline = endpoint.now() + self.timeout;
        let call = Call {
            method,
            token: token << 1 | u64::from(method == READ),
            deadline,
            ask_fate: false,
        };
        self.rpc.call(endpoint, call, built?).map(drop).map_err(|refused| refused.error)
    }

    /// Takes an event in; gives back what is not this client's.
    pub fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) -> Option<Event> {
        self.rpc.on_event(endpoint, event)
    }

    /// Gives up what is out of time.
    pub fn expire<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        self.rpc.expire(endpoint);
    }

    /// The next request that has ended.
    pub fn poll<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Option<ProstDone> {
        let ended = self.rpc.poll()?;
        let result = ended.result.map_err(ProstError::from).and_then(|parcel| {
            let reply = take_reply(&parcel, ended.token & 1 == 1);
            endpoint.release(parcel.into_message());
            reply
        });
        Some(ProstDone { token: ended.token >> 1, result })
    }
}

fn take_reply(parcel: &Parcel, is_read: bool) -> Result<Served, ProstError> {
    match parcel.header().status {
        Status::OK => {}
        status => return Err(ProstError::Status(status)),
    }
    if !is_read {
        return decode::<WriteReply>(parcel).map(Served::Write).ok_or(ProstError::Reply);
    }
    let reply: ReadReply = decode(parcel).ok_or(ProstError::Reply)?;
    let is_whole = reply.verdict() != Verdict::Done || sum_whole(&reply.data) == reply.crc;
    if is_whole { Ok(Served::Read(reply)) } else { Err(ProstError::Reply) }
}
