//! What the processes have in common that put load on a chunk server: how they connect, say what
//! they did, and end.

use std::io::{self, Write as _};
use std::net::SocketAddr;

use serde::Serialize;
use towpath_fastpath::ClientError;
use towpath_transport::{
    ChannelError, ChannelId, ConnectError, Endpoint, EndpointError, Event, LinkId, Nanos, RoceUdp,
};

/// Why a process that puts load on a server ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    #[error("no endpoint")]
    Endpoint(#[from] EndpointError),
    #[error("cannot connect to the server")]
    Connect(#[from] ConnectError),
    #[error("cannot open a channel")]
    Channel(#[from] ChannelError),
    #[error("an operation failed")]
    Client(#[from] ClientError),
    #[error("the server has gone")]
    Gone,
    #[error("cannot write to stdout, or catch signals")]
    Io(#[from] io::Error),
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
}

/// Makes so many links to a server, each with a channel.
pub(super) fn connect(
    endpoint: &mut Endpoint<RoceUdp>,
    server: SocketAddr,
    count: usize,
) -> Result<Vec<(LinkId, ChannelId)>, ChildError> {
    for _ in 0..count {
        endpoint.connect(server)?;
    }
    let (mut links, mut failed) = (Vec::new(), None);
    while links.len() < count {
        let busy = endpoint.turn(|endpoint, event| match event {
            Event::Connected { link, .. } => {
                failed = endpoint.open_channel(link, false).err().map(ChildError::from);
            }
            Event::ChannelOpened { link, channel, .. } => links.push((link, channel)),
            Event::ConnectFailed { error, .. } => failed = Some(error.into()),
            Event::LinkDown { .. } => failed = Some(ChildError::Gone),
            _ => {}
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if !busy {
            endpoint.wait(Nanos::from_millis(1));
        }
    }
    Ok(links)
}

/// One line of JSON for the process that measures.
pub(super) fn say(words: &impl Serialize) -> Result<(), ChildError> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, words)?;
    writeln!(out)?;
    Ok(out.flush()?)
}
