//! The endpoint: one device, its links, and the loop that drives them.
//!
//! | file | what it does |
//! |---|---|
//! | `poll` | takes in what the device received and completed |
//! | `flush` | sends what the links want sent |
//! | `streams` | reads and writes the set-up connections of links |
//! | `events` | turns what links tell into what the application is told |
//! | `commands` | channels, sends, buffers |
//! | `offer` | makes our half of a link |
//! | `establish` | joins our half with the peer's |
//! | `trust` | ends links of peers that are trusted no longer |
//! | `hosting` | connecting and listening: takes set-up conversations on, and makes links of them |
//! | `places` | peers for whom a place comes free |
//! | `lane`, `lane_qp` | one-sided operations: the calls, and the queue pair that carries them |
//! | `lane_messages` | the same as messages, where there is no queue pair |
//! | `joined` | for tests: two endpoints with a link between them |
//! | `mtu` | finds out how long the packets of a path may be |
//! | `renew` | makes queue pairs anew |
//! | `growing` | sends messages before all of their bytes are there |
//! | `teardown` | ends links, and gives everything back |
//! | `loops` | an endpoint in somebody else's poll or epoll loop |
//! | `usage` | tells what of its limits is in use |

mod commands;
mod establish;
mod events;
mod flush;
mod growing;
mod hosting;
#[cfg(test)]
mod joined;
mod lane;
mod lane_messages;
mod lane_qp;
mod loops;
mod mtu;
mod offer;
mod places;
mod poll;
mod renew;
mod streams;
mod teardown;
mod trust;
mod usage;

pub use commands::{BufferCensus, PathReport};
#[cfg(any(test, feature = "mem"))]
pub(crate) use establish::join;
pub use loops::PollFdError;
pub use trust::Security;
pub use usage::{EndpointUsage, PoolHolder, PoolKind, PoolReport};

use crate::away::Away;
use crate::bell::Bell;
use crate::buffers::{Buffers, SendPools};
use crate::config::EndpointConfig;
use crate::conn::{Links, Queues};
use crate::error::EndpointError;
use crate::event::Event;
use crate::lane::Lanes;
use crate::limits::BATCH;
use crate::plan::Plan;
use crate::rides::Rides;
use crate::rx::Rx;
use crate::setup::Setup;
use crate::sleep::Sleep;
use crate::stats::EndpointStats;
use crate::tx::Tx;
use crate::workers::{Member, Worker};
use mtu::MtuHints;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use towpath_base::serial::Psn;
use towpath_base::{Prng, Time};
use towpath_memory::Region;
use towpath_proto::wire::HelloPath;
use towpath_proto::{Carrier, LinkStats};
use towpath_secure::Refusals;
use towpath_verbs::{Device, QpNum, Wc};

/// An RDMA device and the links to its peers, driven by the caller's loop.
///
/// It belongs to one thread. That thread calls [`turn`](Self::turn) again and again, or its parts
/// [`poll`](Self::poll), [`next_event`](Self::next_event) and [`flush`](Self::flush), and
/// [`wait`](Self::wait) when there is nothing to do. Only `wait` blocks. For an endpoint with a
/// thread of its own see `EndpointHandle` of `towpath-handle`. What a driver must call, and may
/// rely on, is told in [`driving`](crate::driving).
// When an endpoint is dropped its queue pairs are destroyed first (`teardown`), then its device is
// dropped: the fields that hold buffers come behind `device`.
pub struct Endpoint<D: Device<Memory = Region>> {
    device: D,
    config: EndpointConfig,
    plan: Plan,
    links: Links,
    rx: Rx,
    tx: Tx,
    buffers: Buffers,
    lanes: Lanes,
    setup: Setup,
    sleep: Sleep,
    driver: Driver,
    identity: Identity,
    tally: Tally,
    /// Events of the endpoint itself, not of a link.
    told: VecDeque<Event>,
}

/// What a turn of the loop needs, and what it leaves to the next.
struct Driver {
    queues: Queues,
    wcs: Vec<Wc>,
    mtu_hints: MtuHints,
    /// Links on whose streams something came, while these are looked at.
    streams_with_news: Vec<u16>,
    /// The last poll left some of what it does to the next.
    has_put_off: bool,
    /// Turns in a row for which timers that are due have waited.
    timers_put_off: u8,
}

/// Who the endpoint is to its peers, and where its random numbers come from.
struct Identity {
    instance: u64,
    prng: Prng,
    /// Where it is one of several workers.
    member: Option<Member>,
}

impl Identity {
    /// `waker` wakes the wait of its device.
    fn of(config: &EndpointConfig, waker: Option<Waker>) -> Self {
        let worker = config.worker.as_ref();
        let seed = worker.map_or(config.seed, |worker| worker.seed(config.seed));
        let mut prng = Prng::new(seed);
        let instance = worker.map_or_else(|| prng.next_u64(), Worker::instance);
        let member = worker.map(|worker| Member::new(worker, waker));
        Self { instance, prng, member }
    }

    /// What a HELLO says of a queue pair.
    fn describe(&mut self, qp_num: QpNum, carrier: Carrier) -> HelloPath {
        let psn = Psn::new(self.prng.next_u32());
        let generation = self.prng.next_u32();
        HelloPath { carrier, qp_num, psn, generation }
    }
}

/// What happened so far.
struct Tally {
    stats: EndpointStats,
    /// What links that are down have counted.
    ended: LinkStats,
    rides: Rides,
    /// What the seals of links that are down have refused.
    refused: Refusals,
    /// Which version of the authorized peers links were compared with.
    trust_version: u64,
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
        let send_queue_depth = config.sizes.send_queue_depth;
        let order = (config.class.order, plan.ahead_bytes);
        let tx = Tx::on(&mut device, plan.mtu, order, config.sizes.qp_paths_max())?;
        let now = device.now();
        let sleep = Sleep::new(device.waker(), Away::on(&plan, now));
        let mut buffers = Buffers::new(&config, sleep.bell())?;
        buffers.register_pools(&mut device)?;
        Ok(Self {
            links: Links::new(config.sizes.links_max),
            rx: Rx::new(&config, plan.receiving, sleep.bell()),
            tx,
            buffers,
            lanes: Lanes::default(),
            setup: Setup::new(config.timing.connect_timeout, config.secure.clone()),
            sleep,
            driver: Driver {
                queues: Queues { cq, control_cq, send_queue_depth },
                wcs: vec![Wc::default(); BATCH],
                mtu_hints: MtuHints::default(),
                streams_with_news: Vec::new(),
                has_put_off: false,
                timers_put_off: 0,
            },
            identity: Identity::of(&config, device.waker()),
            tally: Tally {
                stats: EndpointStats::default(),
                ended: LinkStats::default(),
                rides: Rides::new(now),
                refused: Refusals::default(),
                trust_version: 0,
            },
            told: VecDeque::new(),
            device,
            config,
            plan,
        })
    }

    /// Registers a region, so that buffers in it can be sent. Registering one again does nothing.
    ///
    /// # Errors
    /// [`EndpointError::TooManyRegions`], [`EndpointError::Verb`].
    pub fn register(&mut self, region: &Region) -> Result<(), EndpointError> {
        self.buffers.register(&mut self.device, region)
    }

    /// Takes a registration back. Messages under way from that region are lost and sent again in
    /// vain until they are given up, and one-sided operations that wait are denied: wait for their
    /// outcomes first.
    ///
    /// # Errors
    /// [`EndpointError::Verb`].
    pub fn deregister(&mut self, region: &Region) -> Result<(), EndpointError> {
        self.buffers.deregister(&mut self.device, region)?;
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
        self.identity.instance
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
        self.tally.stats
    }

    /// For threads that have no endpoint.
    #[doc(hidden)]
    pub fn pools(&self) -> &SendPools {
        self.buffers.pools()
    }

    /// What ends its driver's sleep.
    #[doc(hidden)]
    pub fn bell(&self) -> &Arc<Bell> {
        self.sleep.bell()
    }
}
