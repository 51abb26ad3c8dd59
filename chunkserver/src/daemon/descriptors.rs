//! File descriptors: as many as the system grants, and a word when they are too few.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::config::DaemonConfig;

/// Descriptors beside those of clients: sockets, the store's files, listeners, with room to spare.
const BESIDE_CLIENTS: u64 = 256;

/// Raises the soft limit of this process to the hard one: each client holds a TCP connection, and
/// the soft limit of most systems is 1,024.
pub(super) fn raise(config: &DaemonConfig) {
    let limits = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        }
        Ok(hard)
    });
    let clients = u64::from(config.effective_links_max()) * u64::from(config.effective_workers());
    match limits {
        Ok(limit) if limit >= clients + BESIDE_CLIENTS => {}
        Ok(limit) => tracing::warn!(
            limit,
            clients,
            "all clients may need more file descriptors than the limit: raise it (ulimit -n, \
             LimitNOFILE= of systemd) or lower `links_max`"
        ),
        Err(error) => {
            tracing::warn!(%error, "the limit of file descriptors cannot be raised");
        }
    }
}
