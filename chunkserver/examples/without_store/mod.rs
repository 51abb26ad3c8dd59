//! What examples share that measure a chunk server: a server without a store, and a client's link.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};

use towpath_chunkserver::daemon::{self, DaemonConfig};
use towpath_chunkserver::store::writer_crcs;
use towpath_fastpath::server::{
    StorageRequest, changed_reply, parse_request, read_reply, respond_built, respond_error,
    verify_write,
};
use towpath_fastpath::wire::{PROTOCOL, ReadHeader, ReadReplyHeader};
use towpath_fastpath::{ChunkClient, ErrorReply};
use towpath_rpc::{Incoming, Request as RpcRequest, RpcServer, ServerConfig};
use towpath_transport::{Device, Endpoint, EndpointConfig, Event, Region, RoceUdp, UdpConfig};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// Serves reads from memory, and checks and drops writes; says first where it listens.
pub(crate) fn serve_nothing(config: &DaemonConfig) -> Outcome<()> {
    let of_endpoint = daemon::endpoint_config(config).pieces_as_they_come(false);
    let mut endpoint = Endpoint::udp(daemon::udp_config(config), of_endpoint)?;
    println!("{}", endpoint.listen(config.listen)?);
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

/// A link to a server, with a channel.
pub(crate) fn connect(addr: SocketAddr) -> Outcome<(Endpoint<RoceUdp>, ChunkClient)> {
    let udp = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let mut endpoint = Endpoint::udp(udp, EndpointConfig::new().app_protocol(PROTOCOL))?;
    endpoint.connect(addr)?;
    let mut found = None;
    while found.is_none() {
        endpoint.turn(|endpoint, event| match event {
            Event::Connected { link, .. } => {
                found = endpoint.open_channel(link, false).err().map(|_| None);
            }
            Event::ChannelOpened { link, channel, .. } => found = Some(Some((link, channel))),
            Event::ConnectFailed { .. } => found = Some(None),
            _ => {}
        });
    }
    let (link, channel) = found.flatten().ok_or("no channel to the server")?;
    Ok((endpoint, ChunkClient::new(link, channel)))
}
