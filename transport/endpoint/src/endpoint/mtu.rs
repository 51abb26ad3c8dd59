//! Which MTU a link gets: one that both interfaces and the way between them carry.
//!
//! Each side tells the other in its HELLO what it can do, and the smaller is used both ways. What a
//! side can do is what it was asked for, or else the largest MTU that its interface and its way to
//! the peer carry. Where a way was found to swallow packets of an MTU although nothing said that it
//! would, the next link to that host gets a smaller one.

use super::Endpoint;
use crate::error::LinkError;
use crate::event::{Event, LinkId};
use crate::limits::{MTU_MEMORY, NARROW_WAYS_MAX};
use std::net::{IpAddr, SocketAddr};
use towpath_base::Time;
use towpath_memory::Region;
use towpath_verbs::{Device, Mtu};

/// A way that carries less than the host knows.
#[derive(Clone, Copy, Debug)]
struct Narrow {
    to: IpAddr,
    mtu: Mtu,
    until: Time,
}

/// Such ways, the latest last.
#[derive(Debug, Default)]
pub(crate) struct NarrowWays(Vec<Narrow>);

impl NarrowWays {
    fn note(&mut self, narrow: Narrow, now: Time) {
        self.0.retain(|known| known.to != narrow.to && known.until > now);
        if self.0.len() == NARROW_WAYS_MAX {
            self.0.remove(0);
        }
        self.0.push(narrow);
    }

    fn most(&self, to: IpAddr, now: Time) -> Option<Mtu> {
        self.0.iter().find(|known| known.to == to && known.until > now).map(|known| known.mtu)
    }
}

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
        let known = self.plan.mtu.min(self.device.path_mtu(Some(dest)).mtu);
        let found = self.narrow_ways.most(dest.ip(), self.now());
        found.map_or(known, |found| found.min(known))
    }

    /// Whether the way to a peer carries packets of an MTU.
    pub(super) fn check_way(&self, dest: SocketAddr, asked: Mtu) -> Result<(), LinkError> {
        let way = self.device.path_mtu(Some(dest));
        if way.mtu < asked {
            return Err(LinkError::PathMtu { dest, asked, way });
        }
        Ok(())
    }

    /// The way of a link swallows packets of its MTU: what to try next is kept in mind, and told.
    #[cold]
    pub(super) fn on_long_packets_lost(&mut self, link: LinkId, mtu: Mtu) -> Option<Event> {
        let conn = self.links.find(link)?;
        let (peer, dialled) = (conn.peer?, conn.dialled);
        let way = self.device.path_mtu(Some(peer.device_addr));
        let smaller = Mtu::at_most(mtu.bytes() - 1).unwrap_or(mtu);
        let next = smaller.min(way.mtu);
        let now = self.now();
        let hosts = [Some(peer.device_addr.ip()), dialled.map(|addr| addr.ip())];
        for to in hosts.into_iter().flatten() {
            self.narrow_ways.note(Narrow { to, mtu: next, until: now + MTU_MEMORY }, now);
        }
        tracing::warn!(
            link = link.index,
            peer = %peer.device_addr,
            "the way to {} does not bring packets of an RDMA MTU of {mtu} bytes and brings shorter \
             ones; as this host knows it carries {way}: use an MTU of {next} (--mtu, -m, \
             mtu_bytes), or raise that of the network",
            peer.device_addr.ip()
        );
        Some(Event::LongPacketsLost { link, mtu, way, next })
    }
}

#[cfg(test)]
mod tests;
