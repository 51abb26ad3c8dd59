//! One tenant: what it has, and who runs its engine.

use towpath_qos::{Engine, Share, Slot};
use towpath_transport::{ChannelId, GrantId, LinkId, Nanos, Time};

use super::config::QosConfig;
use super::limits::DEPTH;

/// Which tenant of a server; never used for another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub(super) u16);

impl TenantId {
    pub(super) const OTHERS: Self = Self(0);
    pub(crate) const SCRUB: Self = Self(1);

    pub(crate) fn of_index(index: usize) -> Self {
        Self(index as u16)
    }

    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

/// A client: a link of one of the server's workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seat {
    /// Which worker.
    pub worker: usize,
    /// Which of its links.
    pub link: LinkId,
    /// Where the client hears of periods.
    pub channel: ChannelId,
}

/// What a link that says whose it is has from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// What the tenant has, in tokens a second.
    pub share: Share,
    /// How often tokens are looked at.
    pub tick: Nanos,
    /// The pool's word and the client's own, of one that runs the engine.
    pub words: Option<[GrantId; 2]>,
}

/// Who runs the engine of a tenant.
#[derive(Debug)]
pub(super) enum Runner {
    /// The server: its requests are ordinary ones, of any number of links.
    Server(Box<Engine>),
    /// One client, which does one-sided I/O.
    Client(Seat),
}

/// What a tenant did, as the server counts it; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantStats {
    /// Tokens of its reservation that ordinary requests used.
    pub used_reserved: u64,
    /// Tokens of the pool that they used.
    pub used_pooled: u64,
    /// Tokens that one-sided I/O used.
    pub used_one_sided: u64,
    /// Requests that the store was given.
    pub requests: u64,
    /// Periods in which its client did not report any more, and nothing was kept for it.
    pub lost_periods: u64,
    /// How often its client was cut off for I/O without tokens.
    pub cut_off: u64,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: String,
    /// In tokens a second, and the same in tokens a period.
    pub(super) share: Share,
    pub(super) of_period: Share,
    pub(super) slot: Slot,
    pub(super) runner: Runner,
    /// Links that have named it.
    pub(super) links: usize,
    /// Of a client that was cut off: until when it may not join again.
    pub(super) barred_until: Time,
    /// What engines had taken from the pool, and when, when that was last looked at.
    pub(super) taken_seen: u64,
    pub(super) looked_at: Time,
    /// Tokens that its engine takes from the pool at a time, as it was told.
    pub(super) batch: u32,
    /// Whether the device can say what the client did one-sided.
    pub(super) is_seen: bool,
    /// The same engine ran since this period began.
    pub(super) was_whole_period: bool,
    /// In some look of this period it did not report any more.
    pub(super) was_lost: bool,
    /// Where it stands among those that use the pool, in tokens by weight.
    pub(super) pool_tag: u64,
    /// Tokens for work that its requests have caused and that was not known when they got leave. It
    /// gets no further leave before they are paid.
    pub(super) owed: u64,
    /// It is in the file no more.
    pub(super) is_removed: bool,
    pub(super) stats: TenantStats,
}

/// What a client has done on the server's memory since that was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Tokens' worth of I/O.
    pub tokens: u64,
    /// Additions to words.
    pub additions: u64,
    /// Writes of words.
    pub words: u64,
}

impl Tenant {
    /// One that has nothing yet.
    pub(super) fn new(name: String, slot: Slot, config: &QosConfig) -> Self {
        Self {
            name,
            share: Share::reserved(0),
            of_period: Share::reserved(0),
            slot,
            runner: Runner::Server(Box::new(server_engine(config))),
            links: 0,
            barred_until: Time::ZERO,
            taken_seen: 0,
            looked_at: Time::ZERO,
            batch: 0,
            is_seen: false,
            was_whole_period: false,
            was_lost: false,
            pool_tag: 0,
            owed: 0,
            is_removed: false,
            stats: TenantStats::default(),
        }
    }

    pub(super) fn engine_mut(&mut self) -> Option<&mut Engine> {
        match &mut self.runner {
            Runner::Server(engine) => Some(engine),
            Runner::Client(_) => None,
        }
    }

    pub(super) fn seat(&self) -> Option<Seat> {
        match self.runner {
            Runner::Server(_) => None,
            Runner::Client(seat) => Some(seat),
        }
    }

    /// The server runs its engine from now on. It has no tokens before the next period.
    pub(super) fn take_over(&mut self, config: &QosConfig) {
        self.runner = Runner::Server(Box::new(server_engine(config)));
    }
}

fn server_engine(config: &QosConfig) -> Engine {
    Engine::new(config.rules).depth(DEPTH).tick(config.tick).closed_loop()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use towpath_transport::EndpointConfig;

    /// A seat of a link that there was.
    pub(in crate::qos) fn seat(worker: usize) -> Seat {
        let config = EndpointConfig::new().send_pools(&[(256, 16)]);
        let joined = towpath_transport::mem_pair(config.clone(), config);
        let (near, _) = joined.expect("memory for a test");
        Seat { worker, link: near.link, channel: ChannelId(0) }
    }
}
