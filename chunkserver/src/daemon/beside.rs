//! Who asks the disks beside the workers: the listener for metrics, and the background scrub.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use towpath_rpc::Piece;
use towpath_wake::Bell;

use super::config::DaemonConfig;
use super::error::DaemonError;
use super::scrub::{SETTLE, Scrubber};
use super::shards::StoreDir;
use super::stop::StopFlag;
use crate::metrics::{Collector, NamedDisk, Worker, serve};
use crate::service::ScrubBoard;
use crate::store::disks::Disks;

/// What the settings want of them.
pub(super) struct Asked {
    listener: Option<(TcpListener, SocketAddr)>,
    scrubs: bool,
    /// Of each disk.
    boards: Arc<[ScrubBoard]>,
}

/// All that is there of them.
pub(super) struct Beside {
    /// Where metrics are told, and the disks that they are of.
    metrics: Option<(TcpListener, Vec<NamedDisk>)>,
    /// One for each disk that was opened.
    scrubbers: Vec<Scrubber>,
    boards: Arc<[ScrubBoard]>,
}

impl Asked {
    /// Binds the address for metrics, if there is to be one.
    pub(super) fn of(config: &DaemonConfig, dirs: &[StoreDir]) -> Result<Self, DaemonError> {
        let rate = config.service.scrub_bytes_per_s;
        let part = |dir: &StoreDir| ScrubBoard::new(rate.div_ceil(dir.shards.into()));
        let boards = dirs.iter().map(part).collect();
        let listener = config.telemetry.metrics.map(bind).transpose()?;
        Ok(Self { listener, scrubs: rate > 0, boards })
    }

    /// How many of them there will be.
    pub(super) fn count(&self) -> usize {
        self.listener.iter().count() + usize::from(self.scrubs)
    }

    pub(super) fn metrics_at(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(|(_, address)| *address)
    }

    /// Gives each a hold on the disks, the last of `holds`.
    pub(super) fn with(self, holds: &mut Vec<Disks<Piece>>, dirs: &[StoreDir]) -> Beside {
        let Self { listener, scrubs, boards } = self;
        let each = if scrubs { holds.pop() } else { None }.map(Disks::into_each);
        let each = each.into_iter().flatten().zip(dirs).enumerate();
        let scrubbers = each.filter_map(|(disk, ((_, store), dir))| {
            Some(Scrubber::new(store?, Arc::clone(&boards), disk, &dir.path))
        });
        let scrubbers = scrubbers.collect();
        let metrics = listener.and_then(|(at, _)| Some((at, holds.pop()?.into_each())));
        Beside { metrics, scrubbers, boards }
    }
}

impl Beside {
    /// Where it stands how far the scrub of each disk is.
    pub(super) fn boards(&self) -> Arc<[ScrubBoard]> {
        Arc::clone(&self.boards)
    }

    /// Starts a thread for each, which ends at the wish to stop.
    pub(super) fn spawn<'s>(
        self,
        scope: &'s Scope<'s, '_>,
        workers: Vec<Worker>,
        stop: &'s StopFlag,
    ) -> Result<Vec<ScopedJoinHandle<'s, ()>>, DaemonError> {
        let Self { metrics, scrubbers, boards } = self;
        let named = |name: &str| Builder::new().name(name.into());
        let mut threads = Vec::new();
        if let Some((listener, disks)) = metrics {
            let collector = Collector::new(workers, disks, boards);
            threads.push(named("metrics").spawn_scoped(scope, move || {
                // The server goes on without it.
                if let Err(error) = tell_metrics(&listener, collector, stop) {
                    tracing::error!(%error, "metrics are told no more");
                }
            }));
        }
        for scrubber in scrubbers {
            threads.push(named("scrub").spawn_scoped(scope, move || scrubber.run(SETTLE, stop)));
        }
        threads.into_iter().map(|thread| thread.map_err(DaemonError::Thread)).collect()
    }
}

/// Binds the address for metrics, and gives it with its port.
fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), DaemonError> {
    let failed = |source| DaemonError::Metrics { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    if !bound.ip().is_loopback() {
        tracing::warn!(
            %bound,
            "everyone who can reach this address may read the figures of this server"
        );
    }
    Ok((listener, bound))
}

/// Answers who collects metrics, until the wish to stop.
fn tell_metrics(listener: &TcpListener, mut all: Collector, stop: &StopFlag) -> io::Result<()> {
    let bell = Bell::new()?;
    stop.wakes(bell.waker());
    serve(listener, (bell.as_fd(), || stop.is_stopped()), || all.page())
}
