//! The endpoint: one device, its links, and the loop that drives them.
//!
//! | file | what it does |
//! |---|---|
//! | `poll` | takes in what the device received and completed |
//! | `flush` | sends what the links want sent |
//! | `posting` | makes work requests of chunks |
//! | `streams` | the same for links that ride on their set-up connection |
//! | `events` | turns what links tell into what the application is told |
//! | `commands` | channels, sends, buffers |
//! | `offer` | makes our half of a link |
//! | `establish` | joins it with the peer's |
//! | `lane`, `lane_qp` | one-sided operations: the calls, and the queue pair that carries them |
//! | `lane_messages` | the same as messages, where there is no queue pair |
//! | `joined` | for tests: two endpoints with a link between them |
//! | `mtu` | finds out how long its packets may be |
//! | `renew` | makes queue pairs anew that have failed |
//! | `growing` | sends messages before all of their bytes are there |
//! | `teardown` | ends links, and gives everything back |
//! | `loops` | an endpoint in somebody else's poll or epoll loop |
//! | `usage` | tells what of its limits is in use |

mod commands;
mod establish;
mod events;
mod flush;
mod growing;
#[cfg(test)]
mod joined;
mod lane;
mod lane_messages;
mod lane_qp;
mod loops;
mod mtu;
mod offer;
mod poll;
mod posting;
mod receive;
mod renew;
mod streams;
mod teardown;
mod transmit;
mod usage;

pub use commands::{BufferCensus, PathReport};
#[cfg(any(test, feature = "mem"))]
pub(crate) use establish::join;
pub use loops::PollFdError;
pub use offer::PendingLink;
pub use usage::{EndpointUsage, PoolHolder, PoolKind, PoolReport};

use crate::away::Away;
use crate::batch::Batches;
use crate::bell::Bell;
use crate::config::EndpointConfig;
use crate::error::EndpointError;
use crate::event::Event;
use crate::filler::Filler;
use crate::lane::Lanes;
use crate::limits::{BATCH, REGIONS_MAX};
use crate::links::{Conn, Links};
use crate::message::Message;
use crate::order::Order;
use crate::plan::Plan;
use crate::pools::SendPools;
use crate::recv::RecvTable;
use crate::rides::Rides;
use crate::setup::Setup;
use crate::shared::SharedQueues;
use crate::wanted::Wanted;
use crate::workers::{Member, Worker};
use mtu::MtuHints;
use renew::Renewing;
use std::collections::VecDeque;
use std::sync::Arc;
use streams::Streams;
use towpath_base::{Prng, Time};
use towpath_memory::{Region, RegionId};
use towpath_proto::{Carrier, LinkStats};
use towpath_verbs::{Access, CqNum, Device, PdNum, Wc, WcStatus};
use towpath_wake::AnyOf;

/// What an endpoint did beside what its links count; each number only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Receives that completed in error (a message longer than its buffer, say).
    pub recv_errors: u64,
    /// Received messages shorter than a chunk header.
    pub runts: u64,
    /// Chunks of data that came while receive buffers were short and their links held their shares
    /// ([`EndpointConfig::receive_buffers_max`]): what of them takes a buffer comes again.
    pub over_share: u64,
    /// Sends that completed in error.
    pub send_errors: u64,
    /// How the last send or receive ended of those that completed in error.
    pub last_error: Option<WcStatus>,
    /// Work requests that the device refused.
    pub posts_refused: u64,
    /// Completions of work requests that are not known.
    pub strays: u64,
    /// Links that were never heard of and gave their places to newcomers, all places being taken.
    pub links_gave_way: u64,
    /// Set-up connections that brought what no frame is: their links are down.
    pub tcp_breaches: u64,
    /// Links that were ended because of what came on the channel of their lane, which was nothing
    /// that a lane says.
    pub lane_breaches: u64,
}

impl EndpointStats {
    fn note_send(&mut self, wc: &Wc) {
        self.send_errors += self.note(wc);
    }

    fn note_recv(&mut self, wc: &Wc) {
        self.recv_errors += self.note(wc);
    }

    fn note(&mut self, wc: &Wc) -> u64 {
        if !is_error(wc) {
            return 0;
        }
        self.last_error = Some(wc.status);
        1
    }
}

/// A flush is how destroyed queue pairs give back what was posted: no error.
fn is_error(wc: &Wc) -> bool {
    !matches!(wc.status, WcStatus::Success | WcStatus::WrFlushErr)
}

/// An RDMA device and the links to its peers, driven by the caller's loop.
///
/// It belongs to one thread. That thread calls [`turn`](Self::turn) again and again, or its parts
/// [`poll`](Self::poll), [`next_event`](Self::next_event) and [`flush`](Self::flush), and
/// [`wait`](Self::wait) when there is nothing to do. Only `wait` blocks. For an endpoint with a
/// thread of its own see `EndpointHandle` of `towpath-handle`.
// When an endpoint is dropped its queue pairs are destroyed first (`teardown`), then its device is
// dropped: the fields that hold buffers come behind `device`.
pub struct Endpoint<D: Device<Memory = Region>> {
    device: D,
    links: Links,
    recv: RecvTable,
    pools: SendPools,
    wanted: Wanted,
    /// Rung by threads that give buffers back, and by handles.
    bell: Arc<Bell>,
    config: EndpointConfig,
    plan: Plan,
    regions: Vec<(RegionId, u32)>,
    cq: CqNum,
    control_cq: CqNum,
    order: Order,
    batches: Batches,
    /// None where each path has a receive queue of its own.
    shared: Option<SharedQueues>,
    filler: Filler,
    setup: Setup,
    /// Where it is one of several workers.
    member: Option<Member>,
    streams: Streams,
    mtu_hints: MtuHints,
    rides: Rides,
    /// What ends a wait, where somebody waits for that elsewhere.
    files: Option<AnyOf>,
    /// Somebody does so now.
    is_waited_for: bool,
    /// Where absences of our host are noise.
    away: Option<Away>,
    told: VecDeque<Event>,
    /// What the application is done with, for the next flush or poll; as much as there are receive
    /// buffers at most.
    released: Vec<Message>,
    prng: Prng,
    instance: u64,
    next_timer: Time,
    draining: Vec<u16>,
    renewing: Vec<Renewing>,
    lanes: Lanes,
    stats: EndpointStats,
    /// What links that are down have counted.
    ended: LinkStats,
    wcs: Vec<Wc>,
    /// Receive slots whose chunks nobody kept, while a run of receives is taken in.
    unkept: Vec<u32>,
    /// CRC32C of the pages of the chunk that is being taken in.
    page_crcs: Vec<u32>,
    /// So much is held of all links that each takes in no more than its share.
    is_short: bool,
    /// The last poll left some of what it does to the next.
    has_put_off: bool,
    /// Turns in a row for which timers that are due have waited.
    timers_put_off: u8,
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// An endpoint on `device`, with no link yet.
    ///
    /// # Errors
    /// [`EndpointError`]: the device lacks the carrier or room, or memory is short.
    pub fn new(mut device: D, mut config: EndpointConfig) -> Result<Self, EndpointError> {
        let plan = Plan::new(device.caps(), device.queue_limits(), &config);
        let plan = plan.map_err(|error| match error {
            EndpointError::Mtu { asked, .. } => {
                EndpointError::Mtu { asked, port: device.path_mtu(None) }
            }
            error => error,
        })?;
        plan.settle(&mut config);
        let (completions, control_completions) = config.sizes.completions_max(plan.receiving);
        let control_cq = device.create_cq(control_completions as u32)?;
        let cq = device.create_cq(completions as u32)?;
        let receives = config.sizes.receives_of_class(plan.receiving) as u32;
        let shared = plan.shared_receiving.then(|| SharedQueues::new(receives));
        let worker = config.worker.as_ref();
        let mut prng = Prng::new(worker.map_or(config.seed, |worker| worker.seed(config.seed)));
        let instance = worker.map_or_else(|| prng.next_u64(), Worker::instance);
        let member = worker.map(|worker| Member::new(worker, device.waker()));
        let filler = Filler::on(&mut device, plan.mtu)?;
        let bell = Arc::new(Bell::new(device.waker()));
        let slots_max = config.sizes.slots_max(plan.receiving);
        let mut endpoint = Self {
            links: Links::new(config.sizes.links_max),
            recv: RecvTable::new(
                slots_max,
                config.sizes.chunk_bytes_max,
                (Arc::clone(&bell), config.timing.memory_quiet),
            ),
            pools: SendPools::new(&config.send_pools, config.sizes.links_max)?,
            wanted: Wanted::new(Arc::clone(&bell)),
            bell,
            regions: Vec::new(),
            cq,
            control_cq,
            shared,
            filler,
            order: Order::new(config.class.order, plan.ahead_bytes),
            batches: Batches::new(config.sizes.qp_paths_max()),
            setup: Setup::new(config.timing.connect_timeout),
            member,
            streams: Streams::default(),
            mtu_hints: MtuHints::default(),
            rides: Rides::new(device.now()),
            files: None,
            is_waited_for: false,
            away: Away::on(&plan, device.now()),
            told: VecDeque::new(),
            released: Vec::new(),
            instance,
            prng,
            next_timer: Time::NEVER,
            draining: Vec::new(),
            renewing: Vec::new(),
            lanes: Lanes::default(),
            stats: EndpointStats::default(),
            ended: LinkStats::default(),
            wcs: vec![Wc::default(); BATCH],
            unkept: Vec::new(),
            page_crcs: Vec::new(),
            is_short: false,
            has_put_off: false,
            timers_put_off: 0,
            device,
            config,
            plan,
        };
        let regions: Vec<Region> = endpoint.pools.regions().cloned().collect();
        regions.iter().try_for_each(|region| endpoint.register(region))?;
        Ok(endpoint)
    }

    /// Registers a region, so that buffers in it can be sent. Registering one again does nothing.
    ///
    /// # Errors
    /// [`EndpointError::TooManyRegions`], [`EndpointError::Verb`].
    pub fn register(&mut self, region: &Region) -> Result<(), EndpointError> {
        if self.regions.iter().any(|&(id, _)| id == region.id()) {
            return Ok(());
        }
        if self.regions.len() == REGIONS_MAX {
            return Err(EndpointError::TooManyRegions { max: REGIONS_MAX });
        }
        if self.device.caps().pins_memory {
            // Receive buffers of another endpoint, say, which gives pages back.
            region.keep_pages();
        }
        let keys = self.device.reg_mr(PdNum::DEFAULT, region, Access::LOCAL)?;
        self.regions.push((region.id(), keys.lkey));
        Ok(())
    }

    /// Takes a registration back. Messages under way from that region are lost and sent again in
    /// vain until they are given up, and one-sided operations that wait are denied: wait for their
    /// outcomes first.
    ///
    /// # Errors
    /// [`EndpointError::Verb`].
    pub fn deregister(&mut self, region: &Region) -> Result<(), EndpointError> {
        if let Some(place) = self.regions.iter().position(|&(id, _)| id == region.id()) {
            self.device.dereg_mr(self.regions[place].1)?;
            self.regions.swap_remove(place);
        }
        self.forget_region(region);
        Ok(())
    }

    /// The device, for its counters.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The device, for whatever it offers beside verbs. Destroying what the endpoint made there
    /// breaks its links.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The device's clock now, for deadlines.
    #[must_use]
    pub fn now(&self) -> Time {
        self.device.now()
    }

    /// Random, one life of this endpoint: what peers know it by.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// What its links ride on.
    #[must_use]
    pub fn carrier(&self) -> Carrier {
        self.plan.carrier
    }

    /// The settings it was made with.
    #[must_use]
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// What it does on its device, and why: by capabilities.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Its counters.
    #[must_use]
    pub fn endpoint_stats(&self) -> EndpointStats {
        self.stats
    }

    pub(crate) fn conns(&self) -> impl Iterator<Item = &Conn> {
        self.links.iter()
    }

    /// For threads that have no endpoint.
    #[doc(hidden)]
    pub fn pools(&self) -> &SendPools {
        &self.pools
    }

    /// What ends its driver's sleep.
    #[doc(hidden)]
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    pub(crate) fn setup(&mut self) -> &mut Setup {
        &mut self.setup
    }

    pub(crate) fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// What is no event of a link.
    pub(crate) fn tell(&mut self, event: Event) {
        self.told.push_back(event);
    }
}
