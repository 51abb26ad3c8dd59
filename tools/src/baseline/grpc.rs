//! The two ends over gRPC on kernel TCP: what most people would take.
//!
//! The service is written by hand as the generator of tonic writes it, so that nobody needs protoc.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::bytes::Bytes;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::client::Grpc as GrpcClient;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, Service, StdError, http};
use tonic::server::{Grpc as GrpcServer, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Error, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::message::{ReadReply, ReadRequest, Verdict, WriteReply, WriteRequest};
use super::passes::sum_whole;
use super::serve::{read_reply, take_read, take_write, write_reply};
use super::store::{SliceOp, SliceOutcome, SliceStore};
use towpath_fastpath::limits::IO_BYTES_MAX;
use towpath_fastpath::slice::ChunkId;

const WRITE_PATH: &str = "/towpath.baseline.Slices/Write";
const READ_PATH: &str = "/towpath.baseline.Slices/Read";

/// A message of the longest data, and the fields beside it.
const MESSAGE_BYTES_MAX: usize = IO_BYTES_MAX + 4096;

/// The service over a store.
#[derive(Debug)]
pub struct Slices<S>(Arc<S>);

impl<S> Clone for Slices<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: SliceStore> Slices<S> {
    /// The service of a store.
    pub fn new(store: S) -> Self {
        Self(Arc::new(store))
    }

    async fn done(self, op: Result<SliceOp, Verdict>) -> SliceOutcome {
        let op = match op {
            Ok(op) => op,
            Err(verdict) => return SliceOutcome::Not(verdict),
        };
        let (sender, receiver) = oneshot::channel();
        // Who does not wait any more needs no answer.
        self.0.start(op, Box::new(move |outcome| drop(sender.send(outcome))));
        receiver.await.unwrap_or(SliceOutcome::Not(Verdict::Failed))
    }
}

struct WriteMethod<S>(Slices<S>);
struct ReadMethod<S>(Slices<S>);

impl<S: SliceStore> UnaryService<WriteRequest> for WriteMethod<S> {
    type Response = WriteReply;
    type Future = BoxFuture<Response<WriteReply>, Status>;

    fn call(&mut self, request: Request<WriteRequest>) -> Self::Future {
        let slices = self.0.clone();
        Box::pin(async move {
            let op = take_write(request.get_ref());
            Ok(Response::new(write_reply(&slices.done(op).await)))
        })
    }
}

impl<S: SliceStore> UnaryService<ReadRequest> for ReadMethod<S> {
    type Response = ReadReply;
    type Future = BoxFuture<Response<ReadReply>, Status>;

    fn call(&mut self, request: Request<ReadRequest>) -> Self::Future {
        let slices = self.0.clone();
        Box::pin(async move {
            let op = take_read(request.get_ref());
            Ok(Response::new(read_reply(slices.done(op).await)))
        })
    }
}

impl<S: SliceStore> Service<http::Request<Body>> for Slices<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let slices = self.clone();
        match request.uri().path() {
            WRITE_PATH => Box::pin(async move {
                let codec = ProstCodec::default();
                let mut grpc = GrpcServer::new(codec).max_decoding_message_size(MESSAGE_BYTES_MAX);
                Ok(grpc.unary(WriteMethod(slices), request).await)
            }),
            READ_PATH => Box::pin(async move {
                let mut grpc = GrpcServer::new(ProstCodec::default());
                Ok(grpc.unary(ReadMethod(slices), request).await)
            }),
            _ => Box::pin(async { Ok(Status::unimplemented("no such method").into_http()) }),
        }
    }
}

/// Listens on `address`; returns where it does, and what serves there until `stop` is ready.
///
/// # Errors
/// What the system says when it cannot listen there.
pub fn serve<S: SliceStore>(
    address: SocketAddr,
    store: S,
    stop: impl Future<Output = ()>,
) -> std::io::Result<(SocketAddr, impl Future<Output = Result<(), Error>>)> {
    let incoming = TcpIncoming::bind(address)?.with_nodelay(Some(true));
    let address = incoming.local_addr()?;
    let slices = Slices::new(store);
    Ok((address, Server::builder().serve_with_incoming_shutdown(slices, incoming, stop)))
}

/// Why a request over gRPC has no reply.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// There is no connection.
    #[error("no connection")]
    Connect(#[from] Error),
    /// The call failed.
    #[error("the call failed")]
    Status(#[from] Status),
    /// The connection does not take a request.
    #[error("the connection takes no request: {0}")]
    Ready(StdError),
    /// The data of a read is not what was sent.
    #[error("the data was changed on its way")]
    Corrupt,
}

/// A client. Clones share the connection.
#[derive(Clone, Debug)]
pub struct SlicesClient(GrpcClient<Channel>);

impl SlicesClient {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`GrpcError::Connect`].
    pub async fn connect(server: SocketAddr) -> Result<Self, GrpcError> {
        let to = Endpoint::from_shared(format!("http://{server}"))?.tcp_nodelay(true);
        let grpc = GrpcClient::new(to.connect().await?);
        Ok(Self(grpc.max_decoding_message_size(MESSAGE_BYTES_MAX)))
    }

    /// Writes `data`.
    ///
    /// # Errors
    /// [`GrpcError`].
    pub async fn write(
        &mut self,
        (chunk, offset): (ChunkId, u64),
        data: Bytes,
    ) -> Result<WriteReply, GrpcError> {
        let crc = sum_whole(&data);
        let message = WriteRequest { chunk: Some(chunk.into()), offset, crc, data };
        self.0.ready().await.map_err(|error| GrpcError::Ready(error.into()))?;
        let path = PathAndQuery::from_static(WRITE_PATH);
        let reply = self.0.unary(Request::new(message), path, ProstCodec::default()).await?;
        Ok(reply.into_inner())
    }

    /// Reads `length` bytes, and checks them.
    ///
    /// # Errors
    /// [`GrpcError`].
    pub async fn read(
        &mut self,
        (chunk, offset): (ChunkId, u64),
        length: u32,
    ) -> Result<ReadReply, GrpcError> {
        let message = ReadRequest { chunk: Some(chunk.into()), offset, length };
        self.0.ready().await.map_err(|error| GrpcError::Ready(error.into()))?;
        let path = PathAndQuery::from_static(READ_PATH);
        let reply = self.0.unary(Request::new(message), path, ProstCodec::default()).await?;
        let reply: ReadReply = reply.into_inner();
        match reply.verdict() == Verdict::Done && sum_whole(&reply.data) != reply.crc {
            true => Err(GrpcError::Corrupt),
            false => Ok(reply),
        }
    }
}
