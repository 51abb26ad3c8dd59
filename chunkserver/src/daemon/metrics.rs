//! The listener for whoever collects metrics, on a thread of its own.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use towpath_rpc::Piece;
use towpath_wake::Bell;

use super::error::DaemonError;
use super::stop::StopFlag;
use crate::metrics::{Collector, Worker, serve};
use crate::service::ScrubBoard;
use crate::store::core::StoreThread;

/// What the thread has: it asks the disks beside the workers.
pub(super) struct Metrics {
    pub(super) listener: TcpListener,
    /// By name; none of one that could not be opened.
    pub(super) disks: Vec<(String, Option<StoreThread<Piece>>)>,
    pub(super) scrubbing: Arc<[ScrubBoard]>,
}

/// Binds the address that is set, if one is, and gives it with its port.
pub(super) fn bind(
    address: Option<SocketAddr>,
) -> Result<Option<(TcpListener, SocketAddr)>, DaemonError> {
    let Some(address) = address else { return Ok(None) };
    let failed = |source| DaemonError::Metrics { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    if !bound.ip().is_loopback() {
        tracing::warn!(
            %bound,
            "everyone who can reach this address may read the figures of this server"
        );
    }
    Ok(Some((listener, bound)))
}

impl Metrics {
    /// Answers until the wish to stop. The server goes on without it where it fails.
    pub(super) fn run(self, workers: Vec<Worker>, stop: &StopFlag) {
        let Self { listener, disks, scrubbing } = self;
        let mut collector = Collector::new(workers, disks, scrubbing);
        let mut serve = || -> io::Result<()> {
            let bell = Bell::new()?;
            stop.wakes(bell.waker());
            let end = (bell.as_fd(), || stop.is_stopped());
            serve(&listener, end, |path| collector.answer(path))
        };
        if let Err(error) = serve() {
            tracing::error!(%error, "metrics are told no more");
        }
    }
}
