//! The process of the server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::baseline::NullStore;
use clap::Args as ClapArgs;
use serde::{Deserialize, Serialize};
use towpath_chunkserver::daemon::{self, DaemonConfig, LogFormat, StopFlag};

use super::chunk_store::ChunkStore;
use super::load::{LoadError, say};
use super::usage::{Memory, Misses};
use super::way::{StoreKind, Way};
use super::{ours, over_grpc, over_rpc};
use crate::child::end_with_parent;

/// Flags of the server's process.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ServerArgs {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    store: StoreKind,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    bytes: usize,
    #[arg(long)]
    spin_us: u64,
}

/// It takes clients.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) listening: SocketAddr,
}

/// Room for the chunk, and more: the map of a store as large as its file system takes 2 % of it.
const CAPACITY_BYTES: u64 = 4 << 30;

/// Serves until stdin closes or SIGTERM comes, then says what it did to memory.
pub(crate) fn serve(args: &ServerArgs) -> Result<(), LoadError> {
    let failed = |error: daemon::DaemonError| LoadError::Store(error.into());
    daemon::log_to_stderr("warn", LogFormat::Text).map_err(failed)?;
    let stop = StopFlag::new();
    stop.on_signals()?;
    end_with_parent();
    let mut misses = Misses::count();
    let spin = Duration::from_micros(args.spin_us);
    let config = DaemonConfig::default().with(|config| {
        config.network.listen = (Ipv4Addr::LOCALHOST, 0).into();
        config.store.data_dir = args.dir.clone();
        config.network.links_max = 4;
        config.network.workers = Some(1);
        config.store.capacity_bytes = CAPACITY_BYTES;
        config.service.busy_poll_us = args.spin_us;
    });
    match (args.way, args.store) {
        (Way::Ours | Way::Apart, StoreKind::Null) => {
            ours::serve_null(&stop, spin, (args.bytes, args.way == Way::Apart))?;
        }
        (Way::Ours | Way::Apart, StoreKind::Chunk) => {
            let ready = |ready: &_| daemon::print_ready(ready, true);
            daemon::run(&config, &stop, daemon::udp_devices, ready).map_err(failed)?;
        }
        (Way::Prost, StoreKind::Null) => over_rpc::serve_store(&stop, spin, args.bytes, NullStore)?,
        (Way::Prost, StoreKind::Chunk) => {
            over_rpc::serve_store(&stop, spin, args.bytes, ChunkStore::open(&config)?)?;
        }
        (Way::Tonic, StoreKind::Null) => over_grpc::serve_store(&stop, NullStore)?,
        (Way::Tonic, StoreKind::Chunk) => {
            over_grpc::serve_store(&stop, ChunkStore::open(&config)?)?;
        }
    }
    say(&Memory::until_now(&mut misses))
}
