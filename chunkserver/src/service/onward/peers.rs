//! Links to the servers that writes are passed on to.

use std::collections::HashMap;
use std::net::SocketAddr;

use slab::Slab;
use towpath_base::Prng;
use towpath_fastpath::ChunkId;
use towpath_fastpath::cap::Relay;
use towpath_fastpath::leg::{Change, Leg};
use towpath_rpc::limits::MESSAGE_BYTES_MAX_DEFAULT;
use towpath_rpc::{Completion, RequestId, RpcClient};
use towpath_transport::{Class, Device, Endpoint, Event, LinkId, Region, Time};

use super::super::limits::{PEER_IDLE, PEERS_MAX};

/// Requests under way to one server: as many as it takes of a link.
const REQUESTS_MAX: usize = 256;

/// Which server something is passed on to, as which class, and at which rank of a ring or tree; 0
/// of a stripe, and of a part that is made anew.
///
/// Each rank has a link of its own, and so credit of its own: what a server of one rank holds waits
/// for those of higher ranks alone, and what the last rank has waits for nobody. So rings that pass
/// each through the servers of the others never wait for each other in a circle.
pub(super) type Of = (SocketAddr, Class, u8);

/// The number of a peer.
pub(in crate::service) type PeerId = usize;

#[derive(Debug)]
struct Peer {
    of: Of,
    leg: Leg,
    rpc: Option<RpcClient>,
    /// Makes the proofs of what goes over this link.
    proofs: Relay,
    /// Writes that need it.
    holders: usize,
    /// When the last one did.
    used: Time,
    is_closing: bool,
    /// Another server needs its place.
    gives_way: bool,
}

/// What a peer has done.
#[derive(Debug)]
pub(super) enum News {
    /// A request has ended.
    Ended(PeerId, Completion),
    /// It is ready for the last bytes of these requests.
    Ready(PeerId, Vec<u64>),
    /// It cannot be reached.
    Gone(PeerId),
}

/// The servers that this one has passed writes on to lately, each with a link that is made when it
/// is first needed.
#[derive(Debug)]
pub(super) struct Peers {
    peers: Slab<Peer>,
    by_server: HashMap<Of, PeerId>,
    by_link: HashMap<LinkId, PeerId>,
    /// Those that could not be reached, or whose link was lost.
    gone: Vec<PeerId>,
    prng: Prng,
    /// Its owner makes the links: in virtual time there is no TCP.
    by_hand: bool,
}

impl Peers {
    pub(super) fn new(seed: u64) -> Self {
        let (by_server, by_link) = (HashMap::new(), HashMap::new());
        Self {
            peers: Slab::new(),
            by_server,
            by_link,
            gone: Vec::new(),
            prng: Prng::new(seed),
            by_hand: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Takes hold of a server; none where as many are held as may be.
    pub(super) fn hold(&mut self, of: Of, now: Time) -> Option<PeerId> {
        if self.peers.len() == PEERS_MAX && !self.by_server.contains_key(&of) {
            self.make_room();
        }
        let id = match self.by_server.get(&of) {
            Some(id) => *id,
            None if self.peers.len() < PEERS_MAX => {
                let leg = Leg::new(of.0).class(of.1);
                let (rpc, holders, is_closing) = (None, 0, false);
                let proofs = Relay::new(ChunkId::random().0 as u64);
                let id = self.peers.insert(Peer {
                    of,
                    leg,
                    rpc,
                    proofs,
                    holders,
                    used: now,
                    is_closing,
                    gives_way: false,
                });
                self.by_server.insert(of, id);
                id
            }
            None => return None,
        };
        let peer = &mut self.peers[id];
        peer.used = now;
        if peer.is_closing {
            return None;
        }
        peer.holders += 1;
        Some(id)
    }

    /// Forgets servers without a link that nobody needs; where there are none, has the link closed
    /// that has been idle for longest.
    fn make_room(&mut self) {
        let (by_server, gone) = (&mut self.by_server, &self.gone);
        self.peers.retain(|id, peer| {
            let is_down = peer.rpc.is_none() && peer.leg.next_due() < Time::NEVER;
            // What has happened to it is still to be told.
            let is_kept = peer.holders > 0 || !is_down || gone.contains(&id);
            if !is_kept {
                by_server.remove(&peer.of);
            }
            is_kept
        });
        if self.peers.len() < PEERS_MAX {
            return;
        }
        let is_idle = |peer: &&mut Peer| {
            peer.holders == 0 && peer.rpc.as_ref().is_some_and(|rpc| rpc.held() == 0)
        };
        let idle = self.peers.iter_mut().map(|(_, peer)| peer).filter(is_idle);
        idle.min_by_key(|peer| peer.used).into_iter().for_each(|peer| peer.gives_way = true);
    }

    /// A write needs it no more.
    pub(super) fn release(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.holders = peer.holders.saturating_sub(1);
        }
    }

    /// What sends requests to it while its link is up, and what makes their proofs.
    pub(super) fn link(&mut self, id: PeerId) -> Option<(&mut RpcClient, &mut Relay)> {
        let peer = self.peers.get_mut(id)?;
        Some((peer.rpc.as_mut()?, &mut peer.proofs))
    }

    pub(super) fn cancel<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        id: PeerId,
        request: RequestId,
    ) {
        if let Some((rpc, _)) = self.link(id) {
            rpc.cancel(endpoint, request);
        }
    }

    /// Takes an event in; gives back what is for others too.
    pub(super) fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) -> Option<Event> {
        let mut event = event;
        let Some(link) = event.link() else {
            // A connection's outcome.
            for id in self.unsettled() {
                event = self.pass(endpoint, id, event)?;
            }
            return Some(event);
        };
        match self.by_link.get(&link) {
            Some(id) => self.pass(endpoint, *id, event),
            None if !is_about_links(&event) => Some(event),
            None => {
                for id in self.unsettled() {
                    event = self.pass(endpoint, id, event)?;
                }
                Some(event)
            }
        }
    }

    /// Peers without a link that is up.
    fn unsettled(&self) -> Vec<PeerId> {
        let of = |(id, peer): (PeerId, &Peer)| peer.rpc.is_none().then_some(id);
        self.peers.iter().filter_map(of).collect()
    }

    /// Passes an event to one peer.
    fn pass<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        id: PeerId,
        event: Event,
    ) -> Option<Event> {
        let peer = &mut self.peers[id];
        let (event, change) = peer.leg.on_event(endpoint, event, &mut self.prng);
        let event = match (event, &mut peer.rpc) {
            (Some(event), Some(rpc)) => rpc.on_event(endpoint, event),
            (event, _) => event,
        };
        match change {
            None => {}
            Some(Change::Up(link, channel)) => {
                let mut rpc = RpcClient::new(link, channel).requests_max(REQUESTS_MAX);
                // A server takes pieces as they come.
                rpc.set_longest_request(MESSAGE_BYTES_MAX_DEFAULT);
                peer.rpc = Some(rpc);
                self.by_link.insert(link, id);
            }
            Some(Change::Failed(error)) => {
                let server = peer.of.0;
                tracing::warn!(%server, ?error, "a server that writes go on to cannot be reached");
                self.gone.push(id);
            }
            // Its requests have ended by the event, and are told first.
            Some(Change::Lost(_)) => self.gone.push(id),
        }
        event
    }

    /// Connects where that is wanted and due, ends requests whose time is over, and leaves servers
    /// that nobody needs.
    pub(super) fn turn<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        let now = endpoint.now();
        for (id, peer) in &mut self.peers {
            match &mut peer.rpc {
                Some(rpc) => {
                    rpc.expire(endpoint);
                    let is_idle = peer.holders == 0 && rpc.held() == 0;
                    let is_old = peer.gives_way || now.since(peer.used) >= PEER_IDLE;
                    if is_idle && !peer.is_closing && is_old {
                        peer.is_closing = true;
                        peer.leg.refuse(endpoint);
                    }
                }
                None if self.by_hand => {}
                None if peer.holders > 0 => {
                    if let Some(Change::Failed(error)) = peer.leg.begin(endpoint, &mut self.prng) {
                        let server = peer.of.0;
                        tracing::warn!(%server, ?error, "cannot connect to pass writes on");
                        self.gone.push(id);
                    }
                }
                None => {}
            }
        }
    }

    /// Has its owner make the links.
    pub(super) fn join_by_hand(&mut self) {
        self.by_hand = true;
    }

    /// The servers that links are to be made to now.
    pub(super) fn wanted(&self, now: Time) -> Vec<(PeerId, Of)> {
        let is_due = |peer: &&Peer| peer.rpc.is_none() && peer.leg.next_due() <= now;
        let wanted = self.peers.iter().filter(|(_, peer)| is_due(peer) && peer.holders > 0);
        wanted.map(|(id, peer)| (id, peer.of)).collect()
    }

    /// A link was made to one of them, or could not be.
    pub(super) fn join<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        id: PeerId,
        link: Option<LinkId>,
    ) {
        let failed = self.peers[id].leg.joined(endpoint, link, &mut self.prng);
        self.gone.extend(failed.map(|_| id));
    }

    /// Writes that need a server, and requests under way to one.
    #[cfg(test)]
    pub(super) fn left(&self) -> (usize, usize) {
        let held = self.peers.iter().filter_map(|(_, peer)| Some(peer.rpc.as_ref()?.held()));
        (self.peers.iter().map(|(_, peer)| peer.holders).sum(), held.sum())
    }

    /// What has happened since: to be called until there is nothing more.
    pub(super) fn news(&mut self) -> Option<News> {
        for (id, peer) in &mut self.peers {
            let Some(rpc) = &mut peer.rpc else { continue };
            if let Some(completion) = rpc.poll() {
                return Some(News::Ended(id, completion));
            }
            if let Some(push) = rpc.next_push() {
                let numbers = push.body.as_chunks::<8>().0.iter();
                return Some(News::Ready(id, numbers.map(|n| u64::from_le_bytes(*n)).collect()));
            }
        }
        let id = self.gone.pop()?;
        let Some(peer) = self.peers.get_mut(id) else { return Some(News::Gone(id)) };
        if let Some(rpc) = peer.rpc.take() {
            self.by_link.remove(&rpc.link());
        }
        if peer.is_closing || peer.holders == 0 {
            self.by_server.remove(&peer.of);
            self.peers.remove(id);
        }
        Some(News::Gone(id))
    }
}

/// Whether it may be about a link that is being made.
fn is_about_links(event: &Event) -> bool {
    matches!(
        event,
        Event::Connected { .. }
            | Event::ChannelOpened { .. }
            | Event::ChannelClosed { .. }
            | Event::LinkDown { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: usize) -> Of {
        (([10, 0, (number / 200) as u8, (number % 200) as u8], 7400).into(), Class::Silver, 1)
    }

    #[test]
    fn servers_that_nobody_needs_give_way_to_others_and_those_in_use_do_not() {
        let mut peers = Peers::new(1);
        let held: Vec<PeerId> =
            (0..PEERS_MAX).map(|n| peers.hold(server(n), Time::ZERO).expect("room")).collect();
        assert_eq!(peers.hold(server(PEERS_MAX), Time::ZERO), None);
        assert_eq!(peers.hold(server(3), Time::ZERO), Some(held[3]), "it is held already");
        let (address, class, rank) = server(3);
        assert_eq!(peers.hold((address, class, rank + 1), Time::ZERO), None, "that is another");
        peers.release(held[3]);
        peers.release(held[4]);
        let new = peers.hold(server(PEERS_MAX), Time::ZERO);
        assert_eq!(new, Some(held[4]), "in the place of the one that nobody needs");
        assert_eq!(peers.hold(server(4), Time::ZERO), None);
        held.iter().for_each(|id| peers.release(*id));
        assert!(peers.hold(server(4), Time::ZERO).is_some());
        assert_eq!((peers.peers.len(), peers.by_server.len()), (1, 1));
    }
}
