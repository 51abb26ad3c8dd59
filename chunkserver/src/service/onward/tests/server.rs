//! A chunk server of a history, over a store on a simulated disk, in virtual time.

use std::io;

use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_disk::sim::{Loss, Medium, Spread, Timing};
use towpath_fastpath::wire::PROTOCOL;
use towpath_rpc::Piece;
use towpath_sim::{HostId, VirtualLink, World};
use towpath_transport::{Endpoint, EndpointConfig, LinkId, Side};

use super::super::{AllowedPeers, Onward};
use super::work::{COPIES, PARTS};
use crate::service::server::ChunkServer;
use crate::service::{ServiceConfig, StopReason, Stopped, StoppedKind};
use crate::store::core::{CoreConfig, DriverConfig, StoreCore, StoreDriver};

/// The device of each host.
pub(super) type Nic = RoceDevice<VirtualLink>;

/// How long a peer is silent before it is gone: many round trips, and less than a history.
const PEER_TIMEOUT: Nanos = Nanos::from_millis(80);

/// Turns of a server at one instant before it counts as stuck.
const TURNS_MAX: usize = 10_000;

/// 16 MiB, which take memory where they are written.
const DISK_PAGES: u64 = 4096;

const LOG_PAGES: u64 = 128;

/// What is switched off that must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// Two writes of the same bytes go on at a time.
    NoClaims,
    /// What was added to a sum is added again.
    NoSeen,
}

/// An endpoint of a host; a server takes what comes piece by piece.
pub(super) fn endpoint(
    world: &World,
    host: HostId,
    (seed, in_pieces): (u64, bool),
) -> Endpoint<Nic> {
    let device = RoceDevice::new(world.end(host), RoceConfig::default().seed(seed));
    let config = EndpointConfig::small_memory()
        .links_max(32)
        .receive_buffers_max(1024)
        .quota_chunks(32)
        .credit_total(256)
        .send_pools(&[(256, 256), (4096, 64), (64 << 10, 16), (256 << 10, 6)])
        .tune_links(|links| links.peer_timeout(PEER_TIMEOUT))
        .app_protocol(PROTOCOL)
        .pieces_as_they_come(in_pieces)
        .seed(seed);
    Endpoint::new(device, config).expect("memory for an endpoint")
}

/// Links two endpoints; gives the link of the first.
pub(super) fn join(near: &mut Endpoint<Nic>, far: &mut Endpoint<Nic>) -> Option<LinkId> {
    let (near_hello, near_half) = near.offer().ok()?;
    let Ok((far_hello, far_half)) = far.offer() else {
        near.withdraw(near_half);
        return None;
    };
    let link = near.establish(near_half, &far_hello, Side::Client).expect("they are alike");
    far.establish(far_half, &near_hello, Side::Server).expect("they are alike");
    Some(link)
}

/// A server while it lives.
pub(super) struct Life {
    pub(super) server: ChunkServer<Nic>,
    driver: StoreDriver<Piece>,
    medium: Medium,
    /// Its disk's clock is that much before the world's.
    lead: Nanos,
}

impl Life {
    /// Opens the store of a medium, which is made where there is none.
    pub(super) fn start(world: &World, host: HostId, medium: &Medium, bug: Option<Bug>) -> Self {
        let seed = world.next_seed();
        let mut prng = Prng::new(seed);
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
            let core = StoreCore::open(Box::new(of_medium.open(32)?), &config);
            Ok::<_, io::Error>((core.map_err(io::Error::other)?, ()))
        };
        // Some have so short a queue that requests wait before it.
        let queue_max = if prng.chance(0.5) { 64 } else { 2 };
        let config = DriverConfig { queue_max, unfinished_keep: None };
        let (driver, mut holds, ()) = StoreDriver::open_here(1, config, open).expect("it opens");
        let hold = holds.pop().expect("one asks");
        let endpoint = endpoint(world, host, (prng.next_u64(), true));
        let server = ChunkServer::new(endpoint, hold, &ServiceConfig::new());
        let server = server.peers(AllowedPeers::any()).links_by_hand();
        match bug {
            None => {}
            Some(Bug::NoClaims) => server.store.claims().switch_off(),
            Some(Bug::NoSeen) => server.store.sums().switch_off_seen(),
        }
        let lead = Nanos(medium.now().0.saturating_sub(world.now().0));
        Self { server, driver, medium: medium.clone(), lead }
    }

    /// Does all that can be done now.
    pub(super) fn turn(&mut self, now: Time) -> Result<(), String> {
        self.medium.advance_to(now + self.lead);
        for _ in 0..TURNS_MAX {
            let is_busy = self.server.turn();
            let moved = self.driver.turn().map_err(|error| format!("{error:?}"))?;
            if !is_busy && !moved {
                return Ok(());
            }
        }
        Err("a server does not come to rest".into())
    }

    /// When it has something to do, as far as packets and its disk go.
    pub(super) fn next_due(&self) -> Time {
        let disk = self.medium.next_at().map_or(Time::NEVER, |at| Time(at.0 - self.lead.0));
        disk.min(self.server.endpoint().next_timeout())
    }

    /// What it still has of requests, which must be nothing when nobody asks any more.
    pub(super) fn left(&self) -> Result<(), String> {
        let Self { server, driver, .. } = self;
        let is_nothing = |what: &str, left: usize| match left {
            0 => Ok(()),
            left => Err(format!("{left} {what} are left")),
        };
        let (begun, unwanted) = server.open.left();
        let (holders, asked) = server.onward.peers.left();
        let (early, is_idle) = driver.left();
        is_nothing("claims", server.store.claims().count())?;
        is_nothing("bytes of sums", server.store.sums().bytes())?;
        is_nothing("begun requests", begun)?;
        is_nothing("unwanted stages", unwanted)?;
        is_nothing("bytes staged", early as usize)?;
        is_nothing("requests at the disk", usize::from(!is_idle))?;
        is_nothing("requests at the store", server.sched.at_store())?;
        is_nothing("waiting requests", server.sched.waiting())?;
        is_nothing("requests under way", server.rpc.under_way())?;
        is_nothing("holds of peers", holders)?;
        is_nothing("requests to peers", asked)?;
        let Onward { waiting, ready, sent, .. } = &server.onward;
        is_nothing("waiting writes", waiting.len() + ready.len())?;
        is_nothing("writes that were sent on", sent.len())?;
        left_of(server.endpoint())
    }

    /// Whether it has told of every request that stopped half-way, and of what it was.
    pub(super) fn told(&mut self) -> Result<(), String> {
        let mut told = [0; StopReason::ALL.len()];
        while let Some(stopped) = self.server.next_stopped() {
            let Stopped { kind, reason, chunk, byte_len, .. } = &stopped;
            told[*reason as usize] += 1;
            let is_it = match kind {
                StoppedKind::Copy => *chunk == COPIES && *byte_len > 0,
                StoppedKind::Data | StoppedKind::Sum => *chunk == PARTS && *byte_len > 0,
                // A read that came in pieces.
                StoppedKind::Other => *byte_len == 0,
                StoppedKind::Write | StoppedKind::Rebuild => false,
            };
            if !is_it {
                return Err(format!("nobody asked for what stopped: {stopped:?}"));
            }
        }
        let counted = self.server.stats().stopped;
        match told == counted {
            true => Ok(()),
            false => Err(format!("{counted:?} stopped, and {told:?} were told")),
        }
    }

    /// Ends it as a power cut does.
    pub(super) fn kill(self, loss: Loss) {
        self.medium.power_on(loss);
    }
}

/// What an endpoint has of messages, which must be nothing when nobody says anything any more.
pub(super) fn left_of(endpoint: &Endpoint<Nic>) -> Result<(), String> {
    let buffers = endpoint.buffers();
    let are_home = buffers.send_free == buffers.send_all
        && buffers.recv_free + buffers.recv_posted == buffers.recv_all;
    if !are_home {
        return Err(format!("buffers are out: {buffers:?}"));
    }
    for link in endpoint.links() {
        let census = endpoint.link_census(link).unwrap_or_default();
        if (census.sends, census.incoming, census.credit_held) != (0, 0, 0) {
            return Err(format!("a link is not idle: {census:?}"));
        }
    }
    Ok(())
}

/// A medium, some of which are slow.
pub(super) fn medium(seed: u64) -> Medium {
    Medium::new(seed, DISK_PAGES)
}

/// How long the operations of a disk take that is slow now.
pub(super) fn slow(prng: &mut Prng) -> Timing {
    let least = Nanos::from_micros(prng.between(50, 500));
    let spread = Spread { least, most: least.saturating_mul(prng.between(2, 60)) };
    Timing { read: spread, write: spread, flush: spread }
}
