//! A server without a store, for examples that measure a chunk server.

use std::error::Error;

use towpath_chunkserver::daemon::{self, DaemonConfig};
use towpath_chunkserver::store::writer_crcs;
use towpath_fastpath::ErrorReply;
use towpath_fastpath::server::{
    StorageRequest, changed_reply, parse_request, read_reply, respond_built, respond_error,
    verify_write,
};
use towpath_fastpath::wire::{ReadHeader, ReadReplyHeader};
use towpath_rpc::{Incoming, Request as RpcRequest, RpcServer, ServerConfig};
use towpath_transport::{Device, Endpoint, Region};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Serves reads from memory, and checks and drops writes; says first where it listens.
pub(crate) fn serve_nothing(config: &DaemonConfig) -> Outcome<()> {
    let of_endpoint = daemon::endpoint_config(config).pieces_as_they_come(false);
    let mut endpoint = Endpoint::udp(daemon::udp_config(config), of_endpoint)?;
    println!("{}", endpoint.listen(config.network.listen)?);
    let mut rpc = RpcServer::new(ServerConfig::new());
    loop {
        endpoint.turn(|endpoint, event| {
            if let Some(Incoming::Request(request)) = rpc.on_event(endpoint, event) {
                answer(&mut rpc, endpoint, request);
            }
        });
    }
}

fn answer<D: Device<Memory = Region>>(
    rpc: &mut RpcServer,
    endpoint: &mut Endpoint<D>,
    request: RpcRequest,
) {
    let parsed = parse_request(&request);
    let checked = match &parsed {
        Ok(StorageRequest::Write { header, crcs }) => verify_write(&request, header, crcs),
        Ok(StorageRequest::Read(_)) => Ok(()),
        _ => Err(ErrorReply::Busy),
    };
    let (responder, message) = request.into_message();
    endpoint.release(message);
    let reply = match (checked, parsed) {
        (Err(error), _) => return respond_error(rpc, endpoint, responder, error),
        (Ok(()), Ok(StorageRequest::Read(header))) => read(endpoint, &header),
        (Ok(()), _) => changed_reply(endpoint, 1),
    };
    respond_built(rpc, endpoint, responder, reply);
}

/// What a store would have read, with the checksums that it would have compared.
fn read<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    asked: &ReadHeader,
) -> Result<towpath_rpc::Outgoing, towpath_rpc::NoBuffer> {
    let &ReadHeader { chunk, offset, length, .. } = asked;
    let wanted = length as usize;
    let no_buffer = towpath_rpc::NoBuffer { wanted };
    let mut data = endpoint.alloc(wanted).map_err(|_| no_buffer)?;
    data.set_len(wanted).map_err(|_| no_buffer)?;
    let crcs = writer_crcs(chunk, offset, &data);
    let (chunk_bytes, chunk_version) = (u64::MAX, 1);
    let header = ReadReplyHeader { chunk, offset, length, chunk_bytes, chunk_version };
    read_reply(endpoint, &header, &crcs, data)
}
