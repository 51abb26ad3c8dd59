//! What of its limits an endpoint uses now: for people who look at a running process.

use super::Endpoint;
use crate::conn::{Conn, NO_QP, Phase};
use crate::ids::LinkId;
use crate::rides::Rides;
use std::fmt;
use std::net::SocketAddr;
use towpath_base::Nanos;
use towpath_memory::{Pool, Region};
use towpath_proto::LinkUsage;
use towpath_verbs::Device;

/// What of its limits an endpoint uses now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointUsage {
    /// Links that are up.
    pub links: usize,
    /// The most of them.
    pub links_max: usize,
    /// Queue pairs of links that are up or being set up; those in error are left out.
    pub qps: usize,
    /// The most of them.
    pub qps_max: usize,
    /// Receives for data that are posted.
    pub receives_posted: usize,
    /// Those that its links should have posted: fewer while they wait for the next poll, or for
    /// buffers that are held.
    pub receives_wanted: usize,
    /// Receive buffers that were made: posted, held by links or applications, or spare.
    pub receive_buffers: usize,
    /// The most of them.
    pub receive_buffers_max: usize,
    /// Those that take no memory: they have not been needed for
    /// [`memory_quiet`](crate::EndpointConfig::memory_quiet) and get pages again when they are.
    pub receive_buffers_returned: usize,
    /// Send buffers that are out of their pools.
    pub send_buffers_out: usize,
    /// All send buffers.
    pub send_buffers_max: usize,
}

/// Which buffers a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolKind {
    /// Those that messages are sent from.
    Send,
    /// Those that links and applications hold of what was received.
    Receive,
    /// Those that one-sided operations by messages use.
    Lane,
}

impl fmt::Display for PoolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Lane => "one-sided",
        })
    }
}

/// Buffers of an endpoint that its links share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolReport {
    /// What they are for.
    pub kind: PoolKind,
    /// Bytes of each.
    pub buf_bytes: usize,
    /// Those that are out.
    pub out: usize,
    /// All of them.
    pub max: usize,
    /// The link that holds most of those that are held for a link; none where no link holds any.
    pub most: Option<PoolHolder>,
}

impl PoolReport {
    /// What tells it from the other pools of an endpoint: its kind and the bytes of a buffer.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.kind, self.buf_bytes)
    }
}

/// The link that holds most of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolHolder {
    /// The [index](LinkId::index) of the link; it may be gone.
    pub link: usize,
    /// Where its device receives; none when it is gone.
    pub peer: Option<SocketAddr>,
    /// Buffers that it holds.
    pub held: usize,
}

impl Conn {
    /// Queue pairs that it has and that are not in error.
    fn qps(&self) -> usize {
        if self.phase == Phase::Draining {
            return 0;
        }
        let of_paths = self.paths.iter().filter(|path| !path.has_failed).count();
        of_paths + usize::from(self.control.qp_num != NO_QP)
    }
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// For how long the peer of a link has been silent while an answer was due; `None` when the
    /// link is gone.
    #[must_use]
    pub fn silence(&self, link: LinkId) -> Option<Nanos> {
        let link = self.links.find(link)?.link.as_ref()?;
        Some(link.silence(self.device.now()))
    }

    /// Which carriers its links went to, when and why.
    #[must_use]
    pub fn rides(&self) -> &Rides {
        &self.tally.rides
    }

    /// What of its limits is in use now. Takes time in proportion to the links: not for the data
    /// path.
    #[must_use]
    pub fn usage(&self) -> EndpointUsage {
        let live = || self.links.iter().filter(|conn| conn.phase != Phase::Draining);
        let (receives_posted, receives_wanted) = self.rx.posted_and_wanted();
        let (receive_buffers, receive_buffers_max) = self.rx.slots().made_and_max();
        let (send_free, send_buffers_max) = self.buffers.pools().free_and_all();
        EndpointUsage {
            links: self.links.up_count(),
            links_max: self.config.sizes.links_max,
            qps: live().map(Conn::qps).sum(),
            qps_max: self.config.sizes.qps_max(),
            receives_posted,
            receives_wanted,
            receive_buffers,
            receive_buffers_max,
            receive_buffers_returned: self.rx.slots().returned(),
            send_buffers_out: send_buffers_max.saturating_sub(send_free),
            send_buffers_max,
        }
    }

    /// The pools that its links share, and who holds most of each. Takes time in proportion to the
    /// links: not for the data path.
    pub fn pool_reports(&self) -> impl Iterator<Item = PoolReport> {
        let send = self.buffers.pools().iter().map(|pool| self.report(PoolKind::Send, pool));
        let lane = self.lanes.bufs.iter().map(|pool| self.report(PoolKind::Lane, pool));
        let most = self.links.iter().filter(|conn| conn.held > 0).max_by_key(|conn| conn.held);
        let receive = PoolReport {
            kind: PoolKind::Receive,
            buf_bytes: self.config.sizes.chunk_bytes_max as usize,
            out: self.links.iter().map(|conn| conn.held).sum(),
            max: self.config.sizes.held_max(),
            most: most.map(|conn| self.holder(conn.id.index(), conn.held)),
        };
        send.chain(lane).chain([receive])
    }

    fn report(&self, kind: PoolKind, pool: &Pool) -> PoolReport {
        PoolReport {
            kind,
            buf_bytes: pool.buf_bytes(),
            out: pool.count().saturating_sub(pool.free()),
            max: pool.count(),
            most: pool.most_held().map(|(link, held)| self.holder(link, held)),
        }
    }

    fn holder(&self, link: usize, held: usize) -> PoolHolder {
        let conn = self.links.iter().find(|conn| conn.id.index() == link);
        let peer = conn.and_then(|conn| conn.agreed.peer).map(|peer| peer.device_addr);
        PoolHolder { link, peer, held }
    }

    /// What of its limits a link uses now; `None` when it is gone.
    #[must_use]
    pub fn link_usage(&self, link: LinkId) -> Option<LinkUsage> {
        Some(self.links.find(link)?.link.as_ref()?.usage())
    }

    /// Queue pairs that a link has, the one for acks included, those in error left out.
    #[must_use]
    pub fn qps_of(&self, link: LinkId) -> usize {
        self.links.find(link).map_or(0, Conn::qps)
    }
}
