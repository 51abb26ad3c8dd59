//! Who asks the disks beside the workers: the listener for metrics, and the background scrub.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use towpath_rpc::Piece;

use super::config::DaemonConfig;
use super::error::DaemonError;
use super::metrics::{Metrics, bind};
use super::scrub::{SETTLE, Scrubber};
use super::stop::StopFlag;
use crate::metrics::Worker;
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
    metrics: Option<Metrics>,
    /// One for each disk that was opened.
    scrubbers: Vec<Scrubber>,
    boards: Arc<[ScrubBoard]>,
}

impl Asked {
    /// Binds the address for metrics, if there is to be one.
    pub(super) fn of(config: &DaemonConfig) -> Result<Self, DaemonError> {
        let rate = config.service.scrub_bytes_per_s;
        let boards = config.store.data_dirs().map(|_| ScrubBoard::new(rate)).collect();
        Ok(Self { listener: bind(config.telemetry.metrics)?, scrubs: rate > 0, boards })
    }

    /// How many of them there will be.
    pub(super) fn count(&self) -> usize {
        self.listener.iter().count() + usize::from(self.scrubs)
    }

    pub(super) fn metrics_at(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(|(_, address)| *address)
    }

    /// Gives each a hold on the disks, the last of `holds`.
    pub(super) fn with(self, holds: &mut Vec<Disks<Piece>>, config: &DaemonConfig) -> Beside {
        let Self { listener, scrubs, boards } = self;
        let each = if scrubs { holds.pop() } else { None }.map(Disks::into_each);
        let each = each.into_iter().flatten().zip(config.store.data_dirs()).enumerate();
        let scrubbers = each.filter_map(|(disk, ((_, store), dir))| {
            Some(Scrubber::new(store?, Arc::clone(&boards), disk, dir))
        });
        let scrubbers = scrubbers.collect();
        let metrics = listener.and_then(|(listener, _)| {
            let disks = holds.pop()?.into_each();
            Some(Metrics { listener, disks, scrubbing: Arc::clone(&boards) })
        });
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
        let Self { metrics, scrubbers, .. } = self;
        let named = |name: &str| Builder::new().name(name.into());
        let mut threads = Vec::new();
        if let Some(metrics) = metrics {
            threads.push(named("metrics").spawn_scoped(scope, move || metrics.run(workers, stop)));
        }
        for scrubber in scrubbers {
            threads.push(named("scrub").spawn_scoped(scope, move || scrubber.run(SETTLE, stop)));
        }
        threads.into_iter().map(|thread| thread.map_err(DaemonError::Thread)).collect()
    }
}
