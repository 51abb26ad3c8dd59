//! Peers that wait for a free place for a link. A link that was never heard gives its place up. A
//! link that has ended gives it up when nothing of it is posted any more.

use super::Endpoint;
use crate::conn::{Conn, Phase};
use crate::error::{AcceptError, LinkError};
use crate::ids::LinkId;
use crate::limits::GREETING_NS;
use crate::setup::first_to_go;
use crate::workers::Placed;
use std::net::IpAddr;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_verbs::Device;

/// Whether a link has ended, and its place is free once nothing of it is posted any more.
fn is_leaving(conn: &Conn) -> bool {
    conn.phase == Phase::Draining || conn.link.as_ref().is_some_and(towpath_proto::Link::is_down)
}

/// Since when a link exists that a peer asked for and on which nothing ever came; else none.
///
/// A live peer is heard at once, because a client sends a greeting before anything else.
fn is_mute(conn: &Conn) -> Option<(Time, IpAddr, LinkId)> {
    let link = conn.link.as_ref().filter(|_| conn.phase == Phase::Up && !is_leaving(conn))?;
    let from = conn.agreed.peer.as_ref()?.setup_addr.filter(|_| conn.agreed.dialled.is_none())?;
    Some((link.unheard_since()?, from.ip(), conn.id))
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Links a peer here, after the peers that wait already. Without a free place it waits, too, if
    /// one may be free soon. Else it is turned away.
    pub(super) fn link_to(&mut self, peer: Placed, now: Time) {
        let is_first = self.setup.waiting_count() == 0;
        let left = if is_first { self.try_to_link(peer, now) } else { Some(peer) };
        let Some(peer) = left else { return };
        let may_wait = self.may_have_place_soon();
        let goes = if may_wait { self.setup.await_place(peer, now) } else { Some(peer) };
        if let Some(peer) = goes {
            self.turn_away_full(peer, now);
        }
    }

    fn turn_away_full(&mut self, peer: Placed, now: Time) {
        let links_max = self.config.sizes.links_max;
        self.turn_away(peer, AcceptError::Link(LinkError::Full { links_max }), now);
    }

    /// Links waiting peers in the order in which they came, as far as there are places. Mute links
    /// make room for the rest.
    pub(super) fn link_waiting(&mut self, now: Time) {
        while let Some((peer, deadline)) = self.setup.next_waiting() {
            let Some(peer) = self.try_to_link(peer, now) else { continue };
            if now < deadline && self.may_have_place_soon() {
                self.setup.wait_on(peer, deadline);
                return self.make_room(self.setup.waiting_count(), now);
            }
            self.turn_away_full(peer, now);
        }
    }

    fn may_have_place_soon(&self) -> bool {
        self.links.iter().any(|conn| is_leaving(conn) || is_mute(conn).is_some())
    }

    /// Ends mute links until `wanted` links are about to leave. The address with the most mute
    /// links loses its oldest one first. Young links stay, because their greeting may be on its
    /// way.
    fn make_room(&mut self, wanted: usize, now: Time) {
        let leaving = self.links.iter().filter(|conn| is_leaving(conn)).count();
        let is_old = |&(since, ..): &(Time, IpAddr, LinkId)| now >= since + Nanos(GREETING_NS);
        let mut mute: Vec<_> = self.links.iter().filter_map(is_mute).filter(is_old).collect();
        mute.sort_unstable_by_key(|&(since, ..)| since);
        for _ in leaving..wanted {
            let all = mute.iter().enumerate();
            let Some(place) = first_to_go(all.map(|(place, &(_, ip, _))| (ip, place))) else {
                return;
            };
            let (.., link) = mute.remove(place);
            if let Some(found) = self.links.up(link) {
                found.give_way(now);
                self.links.touch(link.index);
                self.tally.stats.links_gave_way += 1;
            }
        }
    }
}
