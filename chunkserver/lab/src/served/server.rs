//! One chunk server over a store on a simulated disk.

use super::Failed;
use std::io;
use std::net::SocketAddr;
use towpath_base::{Nanos, Time};
use towpath_chunkserver::service::{AllowedPeers, ChunkServer, ServiceConfig};
use towpath_chunkserver::store::core::{CoreConfig, DriverConfig, StoreCore, StoreDriver};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_disk::sim::{Medium, Spread, Timing};
use towpath_fastpath::wire::PROTOCOL;
use towpath_rpc::Piece;
use towpath_sim::World;
use towpath_sim::world::{HostId, VirtualLink};
use towpath_transport::{Endpoint, EndpointConfig, LinkId, Side};
use towpath_verbs::PacketLink;

/// The device of each host.
pub(super) type Nic = RoceDevice<VirtualLink>;

/// Turns of a server at one instant before it counts as stuck.
const TURNS_MAX: usize = 100_000;

/// 256 MiB, which take memory where they are written.
const DISK_PAGES: u64 = 1 << 16;

const LOG_PAGES: u64 = 1 << 10;

/// Operations of the disk under way.
const DISK_DEPTH: usize = 64;

/// An endpoint of a host; a server takes what comes piece by piece.
pub(super) fn endpoint(
    world: &World,
    host: HostId,
    bytes: usize,
    in_pieces: bool,
) -> Result<Endpoint<Nic>, Failed> {
    let seed = world.next_seed();
    let device = RoceDevice::new(world.end(host), RoceConfig::default().seed(seed));
    let config = EndpointConfig::new()
        .links_max(32)
        .quota_chunks(128)
        .credit_total(1024)
        .send_pools(&[(512, 256), (4096, 64), (64 << 10, 64), (bytes.max(256 << 10) + 4096, 10)])
        .app_protocol(PROTOCOL)
        .pieces_as_they_come(in_pieces)
        .seed(seed);
    Ok(Endpoint::new(device, config)?)
}

/// Links two endpoints; gives the link of the first.
pub(super) fn join(near: &mut Endpoint<Nic>, far: &mut Endpoint<Nic>) -> Option<LinkId> {
    let (near_hello, near_half) = near.offer().ok()?;
    let Ok((far_hello, far_half)) = far.offer() else {
        near.withdraw(near_half);
        return None;
    };
    let link = near.establish(near_half, &far_hello, Side::Client).ok()?;
    far.establish(far_half, &near_hello, Side::Server).ok()?;
    Some(link)
}

/// A server, its store and its disk.
pub(super) struct Server {
    pub(super) service: ChunkServer<Nic>,
    driver: StoreDriver<Piece>,
    medium: Medium,
    addr: SocketAddr,
}

impl Server {
    pub(super) fn new(world: &World, host: HostId, bytes: usize) -> Result<Self, Failed> {
        let seed = world.next_seed();
        let medium = Medium::new(seed, DISK_PAGES);
        let none = Spread { least: Nanos::ZERO, most: Nanos::ZERO };
        medium.set_timing(Timing { read: none, write: none, flush: none });
        let of_medium = medium.clone();
        let open = move || {
            let config = CoreConfig {
                log_pages: LOG_PAGES,
                log_pages_max: 0,
                chunks_max: 10,
                store_id: 1,
                log_nonce: seed,
                version_seed: seed,
                is_sparse: false,
            };
            let core = StoreCore::open(Box::new(of_medium.open(DISK_DEPTH)?), &config);
            Ok::<_, io::Error>((core.map_err(io::Error::other)?, ()))
        };
        let config = DriverConfig { queue_max: 64, unfinished_keep: None };
        let (driver, mut holds, ()) = StoreDriver::open_here(1, config, open)?;
        let hold = holds.pop().ok_or("no hold of a store")?;
        let addr = world.end(host).local_addr();
        let endpoint = endpoint(world, host, bytes, true)?;
        let service = ChunkServer::new(endpoint, hold, &ServiceConfig::new());
        let service = service.peers(AllowedPeers::any()).links_by_hand();
        Ok(Self { service, driver, medium, addr })
    }

    /// Where peers send to.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Does all that can be done now; whether it comes to rest.
    pub(super) fn turn(&mut self, now: Time) -> bool {
        self.medium.advance_to(now);
        (0..TURNS_MAX).any(|_| {
            let is_busy = self.service.turn();
            let has_moved = self.driver.turn().unwrap_or(false);
            !is_busy && !has_moved
        })
    }

    /// When it has something to do, as far as packets and its disk go.
    pub(super) fn next_time(&self) -> Time {
        let disk = self.medium.next_at().unwrap_or(Time::NEVER);
        disk.min(self.service.endpoint().next_timeout())
    }
}
