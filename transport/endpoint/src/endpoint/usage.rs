//! What of its limits an endpoint uses now: for people who look at a running process.

use super::Endpoint;
use crate::control::NO_QP;
use crate::event::LinkId;
use crate::links::{Conn, Phase};
use towpath_memory::Region;
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
    /// What of its limits is in use now. Takes time in proportion to the links: not for the data
    /// path.
    #[must_use]
    pub fn usage(&self) -> EndpointUsage {
        let live = || self.links.iter().filter(|conn| conn.phase != Phase::Draining);
        let (receives_posted, receives_wanted) = match &self.shared {
            Some(shared) => shared.iter().fold((0, 0), |(posted, wanted), queue| {
                (posted + queue.posted, wanted + queue.target)
            }),
            None => {
                let wanted =
                    |conn: &Conn| conn.paths.len() * self.config.receives_per_path(conn.qp_paths());
                let paths = live().flat_map(|conn| &conn.paths);
                (paths.map(|path| path.posted).sum(), live().map(wanted).sum())
            }
        };
        let (receive_buffers, receive_buffers_max) = self.recv.made_and_max();
        let (send_free, send_buffers_max) = self.pools.free_and_all();
        EndpointUsage {
            links: self.links.up_count(),
            links_max: self.config.links_max,
            qps: live().map(Conn::qps).sum(),
            // Each link has one for acks beside those of its paths.
            qps_max: self.config.links_max * (self.config.qp_paths_max() + 1),
            receives_posted,
            receives_wanted,
            receive_buffers,
            receive_buffers_max,
            receive_buffers_returned: self.recv.returned(),
            send_buffers_out: send_buffers_max.saturating_sub(send_free),
            send_buffers_max,
        }
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
