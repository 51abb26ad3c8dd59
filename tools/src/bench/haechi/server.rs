//! The process of the server.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use towpath_chunkserver::daemon::{self, DaemonConfig, DaemonError, LogFormat, StopFlag};
use towpath_chunkserver::service::AllowedPeers;

use crate::child::end_with_parent;

/// Clients of the server: the links of all tenants, and one that looks.
const LINKS_MAX: u32 = 64;

/// Flags of the server's process.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ServerArgs {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long, default_value_t = 0)]
    qos_iops: u32,
    #[arg(long, default_value_t = 0)]
    resident_bytes: u64,
    #[arg(long)]
    tenants_file: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    workers: u32,
    #[arg(long, default_value_t = 0)]
    interference_mean_us: u32,
    #[arg(long, default_value_t = 0)]
    interference_p99_us: u32,
    #[arg(long)]
    time_handlers: bool,
}

/// Room for the records, and more: the map of a store as large as its file system takes 2 % of it.
const CAPACITY_BYTES: u64 = 4 << 30;

/// Serves until stdin closes or SIGTERM comes.
pub(crate) fn serve(args: &ServerArgs) -> Result<(), DaemonError> {
    daemon::log_to_stderr("warn", LogFormat::Text)?;
    let stop = StopFlag::new();
    stop.on_signals().map_err(DaemonError::Signals)?;
    end_with_parent();
    let config = DaemonConfig::default().with(|config| {
        config.network.listen = (Ipv4Addr::LOCALHOST, 0).into();
        config.store.data_dir = args.dir.clone();
        config.network.links_max = LINKS_MAX;
        config.network.workers = Some(args.workers);
        config.qos.interference_mean_us = args.interference_mean_us;
        config.qos.interference_p99_us = args.interference_p99_us;
        config.store.capacity_bytes = CAPACITY_BYTES;
        config.store.resident_bytes = args.resident_bytes;
        config.qos.qos_iops = args.qos_iops;
        config.qos.tenants_file = args.tenants_file.clone();
        config.telemetry.time_handlers = args.time_handlers;
        // It listens on loopback for one bench.
        config.service.peers = AllowedPeers::any();
    });
    let ready = |ready: &_| daemon::print_ready(ready, true);
    daemon::run(&config, &stop, daemon::udp_devices, ready).map(drop)
}
