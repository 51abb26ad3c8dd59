//! Listeners, and peers that connect.

use super::crowd::first_to_go;
use super::watch::Lingering;
use super::wire::{Inbox, ReadError};
use super::{Host, Setup};
use crate::error::{AcceptError, LinkError};
use crate::event::Event;
use crate::limits::{ACCEPTS_PER_POLL, HANDSHAKES_MAX, INCOMING_LOOKS_PER_AGE, INCOMING_MAX};
use crate::workers::{Member, Placed, Placement};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use towpath_base::{Nanos, Time};
use towpath_proto::wire::{Hello, Refusal, Welcome};

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

impl Setup {
    /// Returns whether more peers may be waiting to be accepted: nobody tells of them again.
    pub(super) fn poll_incoming(&mut self, host: &mut impl Host, now: Time) -> bool {
        let may_be_more = self.accept_peers(host, now);
        let mut place = 0;
        while let Some(peer) = self.incoming.get_mut(place) {
            let Some(outcome) = peer.look(now, self.timeout) else {
                place += 1;
                continue;
            };
            let Incoming { stream, from, .. } = self.incoming.remove(place);
            match outcome {
                Ok(hello) => {
                    self.place(host, Placed { stream, from, hello, seat: None }, now);
                }
                Err(error) => self.turn_away(host, stream, from, error, now),
            }
        }
        may_be_more
    }

    /// Links a peer here, or leaves it to the worker that it is placed with.
    fn place(&mut self, host: &mut impl Host, peer: Placed, now: Time) {
        let placement = match host.member() {
            Some(member) => member.place(peer),
            None => Placement::Here(peer),
        };
        match placement {
            Placement::Here(peer) => self.link_to(host, peer, now),
            Placement::There => {}
            Placement::Refused(Placed { stream, from, .. }, error) => {
                self.turn_away(host, stream, from, error, now);
            }
        }
    }

    /// Links the peers that other workers have placed here.
    pub(super) fn take_placed(&mut self, host: &mut impl Host, now: Time) {
        while let Some(peer) = host.member().and_then(Member::next_placed) {
            self.link_to(host, peer, now);
        }
    }

    /// Links a peer here, behind those who wait for that.
    fn link_to(&mut self, host: &mut impl Host, peer: Placed, now: Time) {
        let is_first = self.waiting.is_empty();
        let left = if is_first { self.try_to_link(host, peer, now) } else { Some(peer) };
        if let Some(peer) = left {
            self.await_place(host, peer, now);
        }
    }

    /// Links a peer here, or turns it away. Gives it back when all links are in use.
    pub(super) fn try_to_link(
        &mut self,
        host: &mut impl Host,
        peer: Placed,
        now: Time,
    ) -> Option<Placed> {
        let welcomed = host.welcome(&peer.hello, peer.from);
        if let Err(LinkError::Full { .. }) = welcomed {
            return Some(peer);
        }
        // Its seat counts until the link has one of its own.
        let Placed { stream, from, seat: _seat, .. } = peer;
        match welcomed {
            Ok((link, hello)) => {
                self.keep(host, stream, link, hello.emit());
                self.next_watch = now;
                if let Some(peer) = host.peer(link) {
                    host.tell(Event::Accepted { link, peer });
                }
            }
            Err(error) => self.turn_away(host, stream, from, error.into(), now),
        }
        None
    }

    /// Returns whether it stopped before all listeners had nobody left.
    fn accept_peers(&mut self, host: &mut impl Host, now: Time) -> bool {
        for _ in 0..ACCEPTS_PER_POLL {
            let mut has_failed = false;
            let accepted = self.listeners.iter().find_map(|listener| {
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
                host.tell(Event::AcceptFailed { from, error: AcceptError::Broken(Some(error)) });
                continue;
            }
            if self.incoming.len() == INCOMING_MAX {
                self.send_one_away(host, now);
            }
            self.incoming.push(Incoming::new(stream, from, now));
        }
        true
    }

    /// Of those whose HELLOs are coming in one gives way to a newcomer.
    fn send_one_away(&mut self, host: &mut impl Host, now: Time) {
        let all = self.incoming.iter().enumerate().map(|(place, peer)| (peer.from.ip(), place));
        let Some(place) = first_to_go(all) else { return };
        let Incoming { stream, from, .. } = self.incoming.remove(place);
        self.turn_away(host, stream, from, AcceptError::GaveWay { max: INCOMING_MAX }, now);
    }

    pub(super) fn turn_away(
        &mut self,
        host: &mut impl Host,
        stream: TcpStream,
        from: SocketAddr,
        error: AcceptError,
        now: Time,
    ) {
        let refusal = match &error {
            AcceptError::Hello(towpath_proto::wire::HelloError::Version(_)) => Refusal::Version,
            AcceptError::Hello(towpath_proto::wire::HelloError::HeaderBytes(_)) => Refusal::Limits,
            AcceptError::Hello(_) | AcceptError::Unasked(_) => Refusal::Malformed,
            AcceptError::Timeout(_) => Refusal::Malformed,
            AcceptError::Busy { .. } | AcceptError::GaveWay { .. } => Refusal::Full,
            AcceptError::Link(error) => error.refusal(),
            AcceptError::Broken(_) => {
                host.tell(Event::AcceptFailed { from, error });
                return;
            }
        };
        if self.lingering.len() == HANDSHAKES_MAX {
            self.lingering.remove(0);
        }
        self.lingering.push(Lingering::new(stream, refusal, now));
        host.tell(Event::AcceptFailed { from, error });
    }
}
