//! Reservations from the settings, and the file of tenants, which is read again when it changes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use towpath_qos::{Capacities, Weights};

use super::config::ShareConfig;
use super::error::DaemonError;
use crate::qos::{Qos, QosConfig, Shares, read_tenants};

/// How often the file is looked at: one call of the system.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The file of tenants of a running server.
#[derive(Debug)]
pub(super) struct TenantsFile {
    path: PathBuf,
    seen: Option<Stamp>,
    next: Instant,
}

/// What the settings say of reservations; none where the server keeps none.
fn qos_config(config: &ShareConfig) -> Result<Option<QosConfig>, DaemonError> {
    if config.qos_iops == 0 {
        return match config.tenants_file {
            Some(_) => Err(DaemonError::TenantsWithoutIops),
            None => Ok(None),
        };
    }
    let one = match config.qos_iops_one {
        0 => config.qos_iops,
        one => one.min(config.qos_iops),
    };
    let tenants = match &config.tenants_file {
        Some(path) => read_tenants(path)?,
        None => Shares::new(),
    };
    Ok(Some(QosConfig {
        capacity: Capacities { all: config.qos_iops, one },
        weights: Weights { read: config.qos_read_weight, write: config.qos_write_weight },
        tenants,
        ..QosConfig::new(config.qos_iops)
    }))
}

/// The reservations of a server that starts, with a handle for each worker.
pub(super) fn start(config: &ShareConfig, workers: usize) -> Result<Vec<Qos>, DaemonError> {
    let Some(qos) = qos_config(config)? else { return Ok(Vec::new()) };
    let handles = Qos::for_workers(qos, workers).map_err(DaemonError::Memory)?;
    if let Some(refused) = handles.first().and_then(|qos| qos.refused().into_iter().next()) {
        return Err(DaemonError::NotAdmitted { tenant: refused.tenant, error: refused.error });
    }
    Ok(handles)
}

impl TenantsFile {
    /// `seen` is its stamp from before it was read first.
    pub(super) fn new(path: &Path, seen: Option<Stamp>) -> Self {
        Self { path: path.into(), seen, next: Instant::now() + LOOK_EVERY }
    }

    /// Reads the file again when it has changed. One that is wrong changes nothing. Gives the time
    /// until the next look.
    pub(super) fn look(&mut self, qos: &Qos) -> Duration {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + LOOK_EVERY;
            self.look_now(qos);
        }
        self.next - now
    }

    fn look_now(&mut self, qos: &Qos) {
        let stamp = stamp(&self.path);
        if stamp == self.seen {
            return;
        }
        self.seen = stamp;
        match read_tenants(&self.path) {
            Ok(tenants) => {
                qos.set_tenants(&tenants);
                let refused = qos.refused().len();
                tracing::info!(tenants = tenants.len(), refused, "the tenants have changed");
            }
            Err(error) => {
                tracing::error!(%error, "the tenants stay as they are");
                qos.set_file_error(error.to_string());
            }
        }
    }
}

/// When a file was changed last, and its length.
pub(super) type Stamp = (SystemTime, u64);

/// None where it cannot be had.
pub(super) fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
