//! Commands against a running chunk server.
//!
//! | file | what it does |
//! |---|---|
//! | `put`, `get` | files to chunks, and a chunk to a file |
//! | `input` | what is stored: a file or stdin |
//! | `list` | ls, stat, rm |
//! | `health` | scrub, info |
//! | `links` | health |
//! | `breakdown` | health --breakdown |
//! | `output` | where a fetched chunk goes |

mod breakdown;
mod get;
mod health;
mod input;
mod links;
mod list;
mod output;
mod put;

use std::env;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;
use towpath_fastpath::cap::Grant;
use towpath_fastpath::control::ChunkInfo;
use towpath_fastpath::{ChunkId, ClientConfig, HedgeConfig, HedgeStats, ResidentStats};
use towpath_sim::{FaultControl, FaultPlan};
use towpath_transport::{EndpointConfig, Nanos};

use crate::faults::swallow_after;

pub(crate) use get::get;
pub(crate) use health::{info, scrub};
pub(crate) use links::health;
pub(crate) use list::{LsArgs, ls, rm, stat};
pub(super) use output::Output;
pub(crate) use put::put;

use super::args::{LinkArgs, PipelineArgs, ServerArgs};
use super::bytes::gbps;
use super::cap::read_grant;
use super::demo::{AnyDevice, endpoint_config, open_device};
use super::error::{CliError, check_faults, loses};
use super::interrupt::Interrupt;
use super::session::{Server, Session, SessionError, WallClock, device_ip};

/// Names the file of the capability that is shown where no flag does.
const CAPABILITY_VARIABLE: &str = "TOWPATH_CAPABILITY";

pub(super) type ClientSession = Session<AnyDevice, WallClock>;

/// A session with the server that `args` names.
pub(super) fn open(
    args: &ServerArgs,
    pipeline: Option<PipelineArgs>,
    interrupt: &Interrupt,
) -> Result<ClientSession, CliError> {
    open_hedged(args, pipeline, None, interrupt)
}

/// A session whose late reads are asked for at a replica as well, where one is named.
fn open_hedged(
    args: &ServerArgs,
    pipeline: Option<PipelineArgs>,
    hedge: Option<(Server, HedgeConfig)>,
    interrupt: &Interrupt,
) -> Result<ClientSession, CliError> {
    let (depth, op_bytes) = pipeline.map_or((1, 4096), |args| (args.depth, args.op_size));
    let config = endpoint_config(args.link.mtu, depth, op_bytes);
    let config = config.links_max(1 + usize::from(hedge.is_some()));
    open_as(args, config, hedge, interrupt)
}

/// What is needed beyond the usual for large requests.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// Of the buffers of writes: (bytes of a buffer, how many).
    pub(super) pools: Vec<(usize, usize)>,
    /// The longest read or write.
    pub(super) op_bytes: u64,
}

/// A message of this length or less comes whole with the usual settings, with its headers.
const USUAL_BYTES: u64 = 128 << 10;

/// Beyond that: twice the usual pieces of a channel hold messages of this length.
const LARGE_QUOTA: u32 = 256;
const LARGE_BYTES: u32 = 2 << 20;

/// A session with room for large requests.
pub(super) fn open_with(
    args: &ServerArgs,
    room: &Room,
    interrupt: &Interrupt,
) -> Result<ClientSession, CliError> {
    let pools = [&[(256, 1024), (4096, 1024)], &room.pools[..]].concat();
    let config = endpoint_config(args.link.mtu, 1, 4096).send_pools(&pools);
    let config = match room.op_bytes > USUAL_BYTES {
        true => config.quota_chunks(LARGE_QUOTA).whole_bytes_max(LARGE_BYTES),
        false => config,
    };
    open_as(args, config, None, interrupt)
}

/// A session on an endpoint with these settings, to which those of the flags are added.
fn open_as(
    args: &ServerArgs,
    config: EndpointConfig,
    hedge: Option<(Server, HedgeConfig)>,
    interrupt: &Interrupt,
) -> Result<ClientSession, CliError> {
    let server = Server::find(args.server.as_deref())?;
    let link = &args.link;
    let flags = [("--loss", loses(link.loss)), ("--black-hole", !link.black_hole.is_empty())];
    check_faults(&link.device, flags)?;
    let ip: IpAddr = match link.device_ip.or(link.device.device.ip()) {
        Some(ip) => ip,
        None => device_ip(server)?,
    };
    // Both ways: what arrives is lost here as well, for the server knows of no loss.
    let plan = FaultPlan::none().drop(link.loss.unwrap_or(0.0));
    let control = FaultControl::new(plan.clone());
    control.set_receive(plan.clone());
    if !link.black_hole.is_empty() {
        let holed = plan.black_hole_ports(link.black_hole.iter().copied());
        swallow_after(link.black_hole_after, control.clone(), holed);
    }
    let udp = link.device.device.udp(ip);
    let device = open_device(&link.device.choice(), udp, link.seed, &control);
    let device = device.map_err(SessionError::from)?;
    let config = link.ways.endpoint(config.class(link.class)).icrc(link.device.icrc);
    let config = link.secure.keys()?.into_iter().fold(config, EndpointConfig::secure);
    let pace = WallClock::new(interrupt.clone());
    let client = ClientConfig::new()
        .timeout(Nanos::from_millis(link.timeout_ms))
        .patience(Nanos::from_secs(link.patience))
        .patience_is_limit();
    let client = capability(link)?.into_iter().fold(client, ClientConfig::capability);
    let client = link.tenant.iter().fold(client, |client, tenant| client.tenant(tenant));
    let client = hedge
        .into_iter()
        .fold(client, |client, (Server(replica), config)| client.hedge(replica, config));
    Ok(Session::connect(device, config, pace, server, &client)?)
}

/// The capability that is shown, where one is.
pub(super) fn capability(link: &LinkArgs) -> Result<Option<Grant>, CliError> {
    let named = link.capability.clone();
    let path = named.or_else(|| env::var_os(CAPABILITY_VARIABLE).map(PathBuf::from));
    path.map(|path| read_grant(&path)).transpose()
}

/// What is shown of a chunk.
#[derive(Clone, Debug, Serialize)]
struct ChunkReport {
    chunk: String,
    bytes: u64,
    limit_bytes: u64,
    version: u64,
    unfinished: bool,
    resident: bool,
    chain_version: u32,
}

impl TransferReport {
    fn of(
        session: &ClientSession,
        chunk: ChunkId,
        (bytes, seconds): (u64, f64),
        hedge: Option<HedgeReport>,
    ) -> Self {
        let stats = session.stats();
        Self {
            chunk: chunk.to_string(),
            bytes,
            seconds,
            gbps: gbps(bytes, seconds),
            chunks_retransmitted: stats.chunks_retransmitted,
            reroutes: stats.reroutes(),
            port_changes: stats.path_moves,
            hedge,
            resident: None,
        }
    }
}

impl From<ChunkInfo> for ChunkReport {
    fn from(info: ChunkInfo) -> Self {
        let chunk = ChunkId::from(info.chunk).to_string();
        let ChunkInfo { byte_len, limit_bytes, version, unfinished, resident, .. } = info;
        let (bytes, chain_version) = (byte_len, info.chain);
        Self { chunk, bytes, limit_bytes, version, unfinished, resident, chain_version }
    }
}

/// What is shown of a transfer.
#[derive(Clone, Debug, Serialize)]
struct TransferReport {
    chunk: String,
    bytes: u64,
    seconds: f64,
    gbps: f64,
    chunks_retransmitted: u64,
    reroutes: u64,
    port_changes: u64,
    /// Where a second server was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    hedge: Option<HedgeReport>,
    /// Where a resident chunk was fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    resident: Option<ResidentReport>,
}

/// What is shown of reads of a resident chunk.
#[derive(Clone, Copy, Debug, Serialize)]
struct ResidentReport {
    reads: u64,
    by_read: u64,
    fallen_back: u64,
    torn: u64,
    moved: u64,
    changed: u64,
    locates: u64,
}

impl From<ResidentStats> for ResidentReport {
    fn from(stats: ResidentStats) -> Self {
        let ResidentStats { reads, by_read, fallen_back, torn, moved, changed, locates, .. } =
            stats;
        Self { reads, by_read, fallen_back, torn, moved, changed, locates }
    }
}

/// What is shown of hedged reads.
#[derive(Clone, Copy, Debug, Serialize)]
struct HedgeReport {
    reads: u64,
    hedges: u64,
    hedges_won: u64,
    hedges_denied: u64,
    failovers: u64,
}

impl HedgeReport {
    fn text(&self) -> String {
        let Self { reads, hedges, hedges_won, hedges_denied, failovers } = self;
        format!(
            "{reads} reads, {hedges} asked for at the replica as well, which won {hedges_won}; \
             {hedges_denied} late without, {failovers} by the replica alone\n"
        )
    }
}

impl From<HedgeStats> for HedgeReport {
    fn from(stats: HedgeStats) -> Self {
        let HedgeStats { reads, hedges, hedges_won, hedges_denied, failovers, .. } = stats;
        Self { reads, hedges, hedges_won, hedges_denied, failovers }
    }
}
