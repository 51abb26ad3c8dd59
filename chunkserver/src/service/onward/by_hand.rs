//! Links to other servers that the owner of a server makes: where its network has no TCP.

use std::net::SocketAddr;

use towpath_base::Time;
use towpath_transport::{Device, Endpoint, LinkId, Region};

use super::super::server::ChunkServer;

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Leaves links to other servers to its owner, who asks which are [wanted](Self::links_wanted).
    #[must_use]
    pub fn links_by_hand(mut self) -> Self {
        self.onward.peers.join_by_hand();
        self
    }

    /// Servers that links are to be made to now, each with the number by which it is
    /// [told](Self::link_made).
    #[must_use]
    pub fn links_wanted(&self, now: Time) -> Vec<(usize, SocketAddr)> {
        let wanted = self.onward.peers.wanted(now).into_iter();
        wanted.map(|(peer, (server, ..))| (peer, server)).collect()
    }

    /// A link to one of them was made, or could not be.
    pub fn link_made(&mut self, peer: usize, link: Option<LinkId>) {
        self.onward.peers.join(&mut self.endpoint, peer, link);
    }

    /// The endpoint, for its owner to make links.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<D> {
        &mut self.endpoint
    }
}
