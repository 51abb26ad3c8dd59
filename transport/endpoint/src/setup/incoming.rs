//! Listeners, and peers that connect.

use super::Setup;
use super::crowd::first_to_go;
use super::lingering::Lingering;
use super::wire::{Inbox, ReadError};
use crate::error::AcceptError;
use crate::event::Event;
use crate::limits::{ACCEPTS_PER_POLL, HANDSHAKES_MAX, INCOMING_LOOKS_PER_AGE, INCOMING_MAX};
use crate::workers::Placed;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use towpath_base::{Nanos, Time};
use towpath_proto::wire::{Hello, HelloError, Refusal, Welcome};

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
    /// Reads the HELLOs that are coming in, and returns the peers whose are whole. The others are
    /// told of.
    pub(crate) fn take_hellos(&mut self, now: Time, told: &mut VecDeque<Event>) -> Vec<Placed> {
        let (mut place, mut whole) = (0, Vec::new());
        while let Some(peer) = self.incoming.get_mut(place) {
            let Some(outcome) = peer.look(now, self.timeout) else {
                place += 1;
                continue;
            };
            let Incoming { stream, from, .. } = self.incoming.remove(place);
            match outcome {
                Ok(hello) => whole.push(Placed { stream, from, hello, seat: None }),
                Err(error) => told.push_back(self.turn_away(stream, from, error, now)),
            }
        }
        whole
    }

    /// Accepts peers. Returns whether it stopped before all listeners had nobody left: nobody tells
    /// of them again.
    pub(crate) fn accept_peers(&mut self, now: Time, told: &mut VecDeque<Event>) -> bool {
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
                told.push_back(Event::AcceptFailed {
                    from,
                    error: AcceptError::Broken(Some(error)),
                });
                continue;
            }
            if self.incoming.len() == INCOMING_MAX {
                told.extend(self.send_one_away(now));
            }
            self.incoming.push(Incoming::new(stream, from, now));
        }
        true
    }

    /// Of those whose HELLOs are coming in one gives way to a newcomer.
    fn send_one_away(&mut self, now: Time) -> Option<Event> {
        let all = self.incoming.iter().enumerate().map(|(place, peer)| (peer.from.ip(), place));
        let Incoming { stream, from, .. } = self.incoming.remove(first_to_go(all)?);
        Some(self.turn_away(stream, from, AcceptError::GaveWay { max: INCOMING_MAX }, now))
    }

    /// Refuses a peer; returns what is told of that.
    pub(crate) fn turn_away(
        &mut self,
        stream: TcpStream,
        from: SocketAddr,
        error: AcceptError,
        now: Time,
    ) -> Event {
        let refusal = match &error {
            AcceptError::Hello(HelloError::Version(_)) => Refusal::Version,
            AcceptError::Hello(HelloError::HeaderBytes(_)) => Refusal::Limits,
            AcceptError::Hello(_) | AcceptError::Unasked(_) => Refusal::Malformed,
            AcceptError::Timeout(_) => Refusal::Malformed,
            AcceptError::Busy { .. } | AcceptError::GaveWay { .. } => Refusal::Full,
            AcceptError::Link(error) => error.refusal(),
            AcceptError::Broken(_) => return Event::AcceptFailed { from, error },
        };
        if self.lingering.len() == HANDSHAKES_MAX {
            self.lingering.remove(0);
        }
        self.lingering.push(Lingering::new(stream, refusal, now));
        Event::AcceptFailed { from, error }
    }
}
