//! Who asks the disks beside the workers: the listener for metrics, and the background scrub.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use towpath_rpc::Piece;
use towpath_secure::front::Front;
use towpath_wake::Bell;

use super::config::{DaemonConfig, TelemetryConfig};
use super::error::DaemonError;
use super::scrub::{SETTLE, Scrubber};
use super::shards::StoreDir;
use super::stop::StopFlag;
use crate::metrics::{Collector, HANDSHAKES_MAX, NamedDisk, Worker, serve};
use crate::service::ScrubBoard;
use crate::store::disks::Disks;

/// Where metrics are told, and the certificate that clients are shown, where it is over TLS.
type Told = (TcpListener, Option<Front>);

/// What the settings want of them.
pub(super) struct Asked {
    listener: Option<(Told, SocketAddr)>,
    scrubs: bool,
    /// Of each disk.
    boards: Arc<[ScrubBoard]>,
}

/// All that is there of them.
pub(super) struct Beside {
    /// Where metrics are told, and the disks that they are of.
    metrics: Option<(Told, Vec<NamedDisk>)>,
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
        let tls = metrics_tls(&config.telemetry)?;
        let bound = config.telemetry.metrics.map(|address| bind(address, tls.is_some()));
        let listener = bound.transpose()?.map(|(listener, at)| ((listener, tls), at));
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
        if let Some((told, disks)) = metrics {
            let collector = Collector::new(workers, disks, boards);
            threads.push(named("metrics").spawn_scoped(scope, move || {
                // The server goes on without it.
                if let Err(error) = tell_metrics(&told, collector, stop) {
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

/// The certificate that metrics are told with, where they are told over TLS.
pub(super) fn metrics_tls(config: &TelemetryConfig) -> Result<Option<Front>, DaemonError> {
    match (&config.metrics_tls_cert, &config.metrics_tls_key) {
        (None, None) => Ok(None),
        (Some(chain), Some(key)) => Ok(Some(Front::from_files(chain, key, HANDSHAKES_MAX)?)),
        _ => Err(DaemonError::HalfTls),
    }
}

/// Binds the address for metrics, and gives it with its port.
fn bind(address: SocketAddr, is_tls: bool) -> Result<(TcpListener, SocketAddr), DaemonError> {
    let failed = |source| DaemonError::Metrics { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    if !bound.ip().is_loopback() {
        tracing::warn!(
            %bound,
            is_tls,
            "everyone who can reach this address may read the figures of this server"
        );
    }
    Ok((listener, bound))
}

/// Answers who collects metrics, until the wish to stop.
fn tell_metrics((listener, tls): &Told, mut all: Collector, stop: &StopFlag) -> io::Result<()> {
    let bell = Bell::new()?;
    stop.wakes(bell.waker());
    serve((listener, tls.as_ref()), (bell.as_fd(), || stop.is_stopped()), || all.page())
}
