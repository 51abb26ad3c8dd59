//! Peers that wait for the place of a link: one that was never heard gives it up, and the device
//! has yet to let go of one that has ended.

use super::crowd::first_to_go;
use super::{Host, Setup};
use crate::conn::{Conn, Phase};
use crate::error::{AcceptError, LinkError};
use crate::ids::LinkId;
use crate::limits::{GREETING_NS, HANDSHAKES_MAX};
use crate::workers::Placed;
use std::net::IpAddr;
use towpath_base::{Nanos, Time};

/// A peer whose HELLO is whole, and for whom there is no link yet.
pub(super) struct Waiting {
    peer: Placed,
    deadline: Time,
}

/// Whether a place will be free as soon as the device has let go.
fn is_leaving(conn: &Conn) -> bool {
    conn.phase == Phase::Draining || conn.link.as_ref().is_some_and(towpath_proto::Link::is_down)
}

/// A link that a peer asked for and that has never brought anything: since when it is there.
///
/// Whoever is there says so at once: a client sends a greeting before anything else.
fn is_mute(conn: &Conn) -> Option<(Time, IpAddr, LinkId)> {
    let link = conn.link.as_ref().filter(|_| conn.phase == Phase::Up && !is_leaving(conn))?;
    let from = conn.agreed.peer.as_ref()?.setup_addr.filter(|_| conn.agreed.dialled.is_none())?;
    Some((link.unheard_since()?, from.ip(), conn.id))
}

impl Setup {
    /// There was no place for a link to `peer`: it waits if there may be one soon. Else it is
    /// turned away.
    pub(super) fn await_place(&mut self, host: &mut impl Host, peer: Placed, now: Time) {
        if !may_have_place_soon(host) {
            return self.turn_away_full(host, peer, now);
        }
        if self.waiting.len() == HANDSHAKES_MAX {
            let all = self.waiting.iter().enumerate();
            let goes = first_to_go(all.map(|(place, waiting)| (waiting.peer.from.ip(), place)));
            if let Some(place) = goes {
                let Waiting { peer, .. } = self.waiting.remove(place);
                self.turn_away_full(host, peer, now);
            }
        }
        self.waiting.push(Waiting { peer, deadline: now + self.timeout });
        self.next_poll = now;
    }

    fn turn_away_full(&mut self, host: &mut impl Host, peer: Placed, now: Time) {
        let error = AcceptError::Link(LinkError::Full { links_max: host.config().sizes.links_max });
        let Placed { stream, from, .. } = peer;
        self.turn_away(host, stream, from, error, now);
    }

    /// Links those who wait, in the order in which they came, as far as there are places, and has
    /// mute links make room for the rest.
    pub(super) fn poll_waiting(&mut self, host: &mut impl Host, now: Time) {
        while !self.waiting.is_empty() {
            let Waiting { peer, deadline } = self.waiting.remove(0);
            let Some(peer) = self.try_to_link(host, peer, now) else { continue };
            if now < deadline && may_have_place_soon(host) {
                self.waiting.insert(0, Waiting { peer, deadline });
                return make_room(host, self.waiting.len(), now);
            }
            self.turn_away_full(host, peer, now);
        }
    }
}

fn may_have_place_soon(host: &impl Host) -> bool {
    host.conns().any(|conn| is_leaving(conn) || is_mute(conn).is_some())
}

/// Ends mute links until as many as `wanted` are about to leave: the oldest one first of the
/// address that has most of them. One that is young is left alone, for its greeting may be on
/// its way.
fn make_room(host: &mut impl Host, wanted: usize, now: Time) {
    let leaving = host.conns().filter(|conn| is_leaving(conn)).count();
    let is_old = |&(since, ..): &(Time, IpAddr, LinkId)| now >= since + Nanos(GREETING_NS);
    let mut mute: Vec<_> = host.conns().filter_map(is_mute).filter(is_old).collect();
    mute.sort_unstable_by_key(|&(since, ..)| since);
    for _ in leaving..wanted {
        let all = mute.iter().enumerate();
        let Some(place) = first_to_go(all.map(|(place, &(_, ip, _))| (ip, place))) else {
            return;
        };
        let (.., link) = mute.remove(place);
        host.give_way(link, now);
    }
}
