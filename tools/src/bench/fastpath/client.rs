//! The process of the client.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args as ClapArgs;
use towpath_chunkserver::daemon::StopFlag;

use super::load::{Load, LoadError, Meter, say};
use super::way::{StoreKind, Way};
use super::{ours, over_grpc, over_rpc};
use crate::child::end_with_parent;

/// Flags of the client's process.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ClientArgs {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    store: StoreKind,
    #[arg(long)]
    server: SocketAddr,
    #[arg(long)]
    server_pid: u32,
    #[arg(long)]
    depth: usize,
    #[arg(long)]
    bytes: usize,
    #[arg(long)]
    seconds: u64,
    #[arg(long)]
    batch: usize,
    #[arg(long)]
    spin_us: u64,
    #[arg(long)]
    seed: u64,
}

/// Writes for as long as it is told, and says what that took.
pub(crate) fn run(args: &ClientArgs) -> Result<(), LoadError> {
    let stop = StopFlag::new();
    stop.on_signals()?;
    end_with_parent();
    let load = Load {
        depth: args.depth,
        bytes: args.bytes,
        seconds: args.seconds,
        batch: args.batch,
        spin: Duration::from_micros(args.spin_us),
        server_pid: args.server_pid,
    };
    let meter = Meter::new(load, args.seed);
    let did = match args.way {
        Way::Ours => ours::write(meter, args.server, args.store == StoreKind::Chunk)?,
        Way::Apart => ours::write_apart(meter, args.server)?,
        Way::Prost => over_rpc::write(meter, args.server)?,
        Way::Tonic => over_grpc::write(meter, args.server)?,
    };
    say(&did)
}
