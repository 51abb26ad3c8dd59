//! Which MTU a link gets, and what the host learns later of the way to a peer.
//!
//! Each side tells the other in its HELLO what it can do, and the smaller is used both ways. What a
//! side can do is what it was asked for, or else the largest MTU that its interface and its way to
//! the peer carry. That is the most that paths of the link try; what they carry they find out by
//! themselves (docs/protocol.md section 9, "Packet sizes").

use super::Endpoint;
use crate::error::LinkError;
use crate::ids::LinkId;
use crate::limits::{MTU_HINT_INTERVAL, MTU_HINT_PEERS_MAX};
use smallvec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::{Link, MtuReason, PathId, PathSnapshot};
use towpath_verbs::{Device, Mtu};

/// When the host last had reason to ask the system what ways carry.
#[derive(Debug, Default)]
pub(crate) struct MtuHints {
    /// Packets that were too long, as far as the device had counted then.
    seen: u64,
    next_at: Time,
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// What the side that connects tells a peer at `dest`. An MTU that was asked for is told as it
    /// is, or not at all.
    pub(super) fn mtu_to_ask_for(&self, dest: SocketAddr) -> Result<Mtu, LinkError> {
        match self.config.carriers.mtu_max {
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

    /// Packets were too long for their way, as the system says, since this was last looked at:
    /// links hear what it says of their ways now. It may have been told so by anybody, so they ask.
    #[inline]
    pub(super) fn look_for_mtu_hints(&mut self, now: Time) {
        if self.device.packets_too_long() != self.driver.mtu_hints.seen
            && now >= self.driver.mtu_hints.next_at
        {
            self.take_mtu_hints(now);
        }
    }

    #[cold]
    fn take_mtu_hints(&mut self, now: Time) {
        let seen = self.device.packets_too_long();
        self.driver.mtu_hints = MtuHints { seen, next_at: now + MTU_HINT_INTERVAL };
        let mut asked = SmallVec::<[(IpAddr, Mtu); 8]>::new();
        let mut told = SmallVec::<[u16; 32]>::new();
        for conn in self.links.iter_mut() {
            let (Some(link), Some(peer)) = (conn.link.as_mut(), conn.agreed.peer) else { continue };
            let to = peer.device_addr.ip();
            let known = asked.iter().find(|(ip, _)| *ip == to).map(|&(_, mtu)| mtu);
            let mtu = match known {
                Some(mtu) => mtu,
                None if asked.len() < MTU_HINT_PEERS_MAX => {
                    let mtu = self.device.path_mtu(Some(peer.device_addr)).mtu;
                    asked.push((to, mtu));
                    mtu
                }
                None => continue,
            };
            link.hint_mtu(now, mtu);
            link.handle_timeout(now);
            told.push(conn.id.index);
        }
        // What they ask is sent in the flush that follows.
        told.into_iter().for_each(|index| self.links.touch(index));
    }

    /// Tells the log of another packet size.
    #[cold]
    pub(super) fn note_mtu_change(
        &mut self,
        link: LinkId,
        (path, from, to, why): (PathId, Mtu, Mtu, MtuReason),
    ) {
        let Some(conn) = self.links.find(link) else { return };
        let Some(peer) = conn.agreed.peer.map(|peer| peer.device_addr) else { return };
        let alike = |found: &PathSnapshot| found.path != path && found.mtu <= to;
        let is_first = !conn.link.iter().flat_map(Link::paths).any(|found| alike(&found));
        let path = path.0;
        if to < from && is_first {
            let way = self.device.path_mtu(Some(peer));
            tracing::warn!(
                link = link.index,
                path,
                %peer,
                "the network to {} drops packets of an RDMA MTU of {from} bytes and delivers \
                 shorter ones: the path goes on with {to} bytes; as this host knows it the way \
                 carries {way}",
                peer.ip()
            );
        } else {
            tracing::debug!(link = link.index, path, %peer, %why, "packets of {to} bytes now");
        }
    }
}

#[cfg(test)]
mod tests;
