//! Which MTU a link gets: one that both interfaces and the way between them carry.
//!
//! Each side tells the other in its HELLO what it can do, and the smaller is used both ways. What a
//! side can do is what it was asked for, or else the largest MTU that its interface and its way to
//! the peer carry.

use super::Endpoint;
use crate::error::LinkError;
use std::net::SocketAddr;
use towpath_memory::Region;
use towpath_verbs::{Device, Mtu};

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// What the side that connects tells a peer at `dest`. An MTU that was asked for is told as it
    /// is, or not at all.
    pub(super) fn mtu_to_ask_for(&self, dest: SocketAddr) -> Result<Mtu, LinkError> {
        match self.config.mtu_max {
            Some(asked) => self.check_way(dest, asked).map(|()| asked),
            None => Ok(self.mtu_towards(dest)),
        }
    }

    /// What the side that answers tells a peer at `dest`. Ways to several peers may differ, so one
    /// that carries less than was asked for is no reason to refuse the peer.
    pub(super) fn mtu_towards(&self, dest: SocketAddr) -> Mtu {
        self.plan.mtu.min(self.device.path_mtu(Some(dest)).mtu)
    }

    /// Whether the way to a peer carries packets of an MTU.
    pub(super) fn check_way(&self, dest: SocketAddr, asked: Mtu) -> Result<(), LinkError> {
        let way = self.device.path_mtu(Some(dest));
        if way.mtu < asked {
            return Err(LinkError::PathMtu { dest, asked, way });
        }
        Ok(())
    }
}
