//! Listeners, and peers that connect.

use super::Setup;
use super::crowd::first_to_go;
use super::watch::Lingering;
use super::wire::{Inbox, ReadError};
use crate::endpoint::Endpoint;
use crate::error::{AcceptError, LinkError};
use crate::event::Event;
use crate::ids::LinkId;
use crate::limits::{ACCEPTS_PER_POLL, HANDSHAKES_MAX, INCOMING_LOOKS_PER_AGE, INCOMING_MAX};
use crate::workers::{Member, Placed, Placement};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::Side;
use towpath_proto::wire::{Hello, Refusal, Welcome};
use towpath_verbs::Device;

/// A peer whose HELLO is coming in.
pub(super) struct Incoming {
    stream: TcpStream,
    from: SocketAddr,
    inbox: Inbox,
    since: Time,
    look_at: Time,
}

impl Incoming {
    fn new(stream: TcpStream, from: SocketAddr, now: Time) -> Self {
        Self { stream, from, inbox: Inbox::default(), since: now, look_at: now }
    }

    /// Reads on when it is time to; what came of it, once there is an end.
    fn look(&mut self, now: Time, timeout: Nanos) -> Option<Result<Hello, AcceptError>> {
        if now < self.look_at {
            return None;
        }
        Some(match self.inbox.read(&mut self.stream) {
            Ok(None) => {
                let age = now.since(self.since);
                if age >= timeout {
                    return Some(Err(AcceptError::Timeout(timeout)));
                }
                // Each look is a system call. Who has let us wait for long may wait a little.
                let deadline = self.since + timeout;
                self.look_at = (now + Nanos(age.0 / INCOMING_LOOKS_PER_AGE)).min(deadline);
                return None;
            }
            Ok(Some(Welcome::Hello(hello))) => Ok(hello),
            Ok(Some(Welcome::Refused(refusal))) => Err(AcceptError::Unasked(refusal)),
            Err(ReadError::Hello(error)) => Err(AcceptError::Hello(error)),
            Err(ReadError::Broken(error)) => Err(AcceptError::Broken(error)),
        })
    }
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Returns whether more peers may be waiting to be accepted: nobody tells of them again.
    pub(super) fn poll_incoming(&mut self, setup: &mut Setup, now: Time) -> bool {
        let may_be_more = self.accept_peers(setup, now);
        let mut place = 0;
        while let Some(peer) = setup.incoming.get_mut(place) {
            let Some(outcome) = peer.look(now, setup.timeout) else {
                place += 1;
                continue;
            };
            let Incoming { stream, from, .. } = setup.incoming.remove(place);
            match outcome {
                Ok(hello) => {
                    self.place(setup, Placed { stream, from, hello, seat: None }, now);
                }
                Err(error) => self.turn_away(setup, stream, from, error, now),
            }
        }
        may_be_more
    }

    /// Links a peer here, or leaves it to the worker that it is placed with.
    fn place(&mut self, setup: &mut Setup, peer: Placed, now: Time) {
        let placement = match self.member() {
            Some(member) => member.place(peer),
            None => Placement::Here(peer),
        };
        match placement {
            Placement::Here(peer) => self.link_to(setup, peer, now),
            Placement::There => {}
            Placement::Refused(Placed { stream, from, .. }, error) => {
                self.turn_away(setup, stream, from, error, now);
            }
        }
    }

    /// Links the peers that other workers have placed here.
    pub(super) fn take_placed(&mut self, setup: &mut Setup, now: Time) {
        while let Some(peer) = self.member().and_then(Member::next_placed) {
            self.link_to(setup, peer, now);
        }
    }

    /// Links a peer here, behind those who wait for that.
    fn link_to(&mut self, setup: &mut Setup, peer: Placed, now: Time) {
        let is_first = setup.waiting.is_empty();
        let left = if is_first { self.try_to_link(setup, peer, now) } else { Some(peer) };
        if let Some(peer) = left {
            self.await_place(setup, peer, now);
        }
    }

    /// Links a peer here, or turns it away. Gives it back when all links are in use.
    pub(super) fn try_to_link(
        &mut self,
        setup: &mut Setup,
        peer: Placed,
        now: Time,
    ) -> Option<Placed> {
        let welcomed = self.welcome(&peer.hello, peer.from);
        if let Err(AcceptError::Link(LinkError::Full { .. })) = welcomed {
            return Some(peer);
        }
        // Its seat counts until the link has one of its own.
        let Placed { stream, from, seat: _seat, .. } = peer;
        match welcomed {
            Ok((link, hello)) => {
                self.keep(setup, stream, link, hello.emit());
                setup.next_watch = now;
                if let Some(peer) = self.peer(link) {
                    self.tell(Event::Accepted { link, peer });
                }
            }
            Err(error) => self.turn_away(setup, stream, from, error, now),
        }
        None
    }

    /// Returns whether it stopped before all listeners had nobody left.
    fn accept_peers(&mut self, setup: &mut Setup, now: Time) -> bool {
        for _ in 0..ACCEPTS_PER_POLL {
            let mut has_failed = false;
            let accepted = setup.listeners.iter().find_map(|listener| {
                let accepted = listener.accept();
                has_failed |= accepted.as_ref().is_err_and(|e| e.kind() != ErrorKind::WouldBlock);
                accepted.ok()
            });
            let Some((stream, from)) = accepted else {
                // What a listener itself reports (out of descriptors, a peer that left) passes:
                // the next look tries again.
                return has_failed;
            };
            if let Err(error) = stream.set_nonblocking(true).and(stream.set_nodelay(true)) {
                self.tell(Event::AcceptFailed { from, error: AcceptError::Broken(Some(error)) });
                continue;
            }
            if setup.incoming.len() == INCOMING_MAX {
                self.send_one_away(setup, now);
            }
            setup.incoming.push(Incoming::new(stream, from, now));
        }
        true
    }

    /// Of those whose HELLOs are coming in one gives way to a newcomer.
    fn send_one_away(&mut self, setup: &mut Setup, now: Time) {
        let all = setup.incoming.iter().enumerate().map(|(place, peer)| (peer.from.ip(), place));
        let Some(place) = first_to_go(all) else { return };
        let Incoming { stream, from, .. } = setup.incoming.remove(place);
        self.turn_away(setup, stream, from, AcceptError::GaveWay { max: INCOMING_MAX }, now);
    }

    /// Makes our half and joins it with the peer's.
    fn welcome(&mut self, peer: &Hello, from: SocketAddr) -> Result<(LinkId, Hello), AcceptError> {
        let (hello, pending) = self.answer(peer, from.ip())?;
        let link = self.establish_from(pending, peer, Side::Server, (Some(from), true))?;
        Ok((link, hello))
    }

    pub(super) fn turn_away(
        &mut self,
        setup: &mut Setup,
        stream: TcpStream,
        from: SocketAddr,
        error: AcceptError,
        now: Time,
    ) {
        let refusal = match &error {
            AcceptError::Hello(towpath_proto::wire::HelloError::Version { .. }) => Refusal::Version,
            AcceptError::Hello(towpath_proto::wire::HelloError::HeaderBytes(_)) => Refusal::Limits,
            AcceptError::Hello(_) | AcceptError::Unasked(_) => Refusal::Malformed,
            AcceptError::Timeout(_) => Refusal::Malformed,
            AcceptError::Busy { .. } | AcceptError::GaveWay { .. } => Refusal::Full,
            AcceptError::Link(error) => error.refusal(),
            AcceptError::Broken(_) => {
                self.tell(Event::AcceptFailed { from, error });
                return;
            }
        };
        if setup.lingering.len() == HANDSHAKES_MAX {
            setup.lingering.remove(0);
        }
        setup.lingering.push(Lingering::new(stream, refusal, now));
        self.tell(Event::AcceptFailed { from, error });
    }
}
