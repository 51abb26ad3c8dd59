//! Listeners, and peers that connect.

use super::Setup;
use super::watch::Lingering;
use super::wire::{Inbox, ReadError};
use crate::endpoint::Endpoint;
use crate::error::AcceptError;
use crate::event::{Event, LinkId};
use crate::limits::{ACCEPTS_PER_POLL, HANDSHAKES_MAX};
use std::net::{SocketAddr, TcpStream};
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::Side;
use towpath_proto::wire::{Hello, Refusal, Welcome};
use towpath_verbs::Device;

/// A peer whose HELLO is coming in.
pub(super) struct Incoming {
    stream: TcpStream,
    from: SocketAddr,
    inbox: Inbox,
    deadline: Time,
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    pub(super) fn poll_incoming(&mut self, setup: &mut Setup, now: Time) {
        self.accept_peers(setup, now);
        let mut place = 0;
        while let Some(peer) = setup.incoming.get_mut(place) {
            let outcome = match peer.inbox.read(&mut peer.stream) {
                Ok(None) if now < peer.deadline => {
                    place += 1;
                    continue;
                }
                Ok(None) => Err(AcceptError::Timeout(setup.timeout)),
                Ok(Some(Welcome::Hello(hello))) => self.welcome(&hello, peer.from),
                Ok(Some(Welcome::Refused(refusal))) => Err(AcceptError::Unasked(refusal)),
                Err(ReadError::Hello(error)) => Err(AcceptError::Hello(error)),
                Err(ReadError::Broken(error)) => Err(AcceptError::Broken(error)),
            };
            let peer = setup.incoming.swap_remove(place);
            match outcome {
                Ok((link, hello)) => {
                    self.keep(setup, peer.stream, link, hello.emit());
                    setup.next_watch = now;
                    if let Some(who) = self.peer(link) {
                        self.tell(Event::Accepted { link, peer: who });
                    }
                }
                Err(error) => self.turn_away(setup, peer.stream, peer.from, error, now),
            }
        }
    }

    fn accept_peers(&mut self, setup: &mut Setup, now: Time) {
        for _ in 0..ACCEPTS_PER_POLL {
            // What a listener itself reports (out of descriptors, a peer that left) passes: the
            // next look tries again.
            let Some((stream, from)) = setup.listeners.iter().find_map(|l| l.accept().ok()) else {
                return;
            };
            if let Err(error) = stream.set_nonblocking(true).and(stream.set_nodelay(true)) {
                self.tell(Event::AcceptFailed { from, error: AcceptError::Broken(Some(error)) });
                continue;
            }
            if setup.incoming.len() == HANDSHAKES_MAX {
                let error = AcceptError::Busy { max: HANDSHAKES_MAX };
                self.turn_away(setup, stream, from, error, now);
                continue;
            }
            let deadline = now + setup.timeout;
            setup.incoming.push(Incoming { stream, from, inbox: Inbox::default(), deadline });
        }
    }

    /// Makes our half and joins it with the peer's.
    fn welcome(&mut self, peer: &Hello, from: SocketAddr) -> Result<(LinkId, Hello), AcceptError> {
        let (hello, pending) = self.answer(peer)?;
        let link = self.establish_from(pending, peer, Side::Server, Some(from))?;
        Ok((link, hello))
    }

    fn turn_away(
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
            AcceptError::Busy { .. } => Refusal::Full,
            AcceptError::Link(error) => error.refusal(),
            AcceptError::Broken(_) => {
                self.tell(Event::AcceptFailed { from, error });
                return;
            }
        };
        if setup.lingering.len() < HANDSHAKES_MAX {
            setup.lingering.push(Lingering::new(stream, refusal, now));
        }
        self.tell(Event::AcceptFailed { from, error });
    }
}
