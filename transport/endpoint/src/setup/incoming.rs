//! Listeners, and peers that connect.

use super::Setup;
use super::crowd::first_to_go;
use super::lingering::Lingering;
use super::wire::{Inbox, Outbox, ReadError};
use crate::error::AcceptError;
use crate::event::Event;
use crate::limits::{
    ACCEPTS_PER_POLL, HANDSHAKES_MAX, HANDSHAKES_PER_LOOK, INCOMING_LOOKS_PER_AGE, INCOMING_MAX,
};
use crate::secure::{Secure, Shake, ShakeError};
use crate::workers::Placed;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use towpath_base::{Nanos, Time};
use towpath_proto::wire::{Hello, HelloError, Refusal, Welcome};
use towpath_secure::Role;

/// A peer whose HELLO is coming in.
pub(super) struct Incoming {
    stream: TcpStream,
    from: SocketAddr,
    talk: Talk,
    since: Time,
    look_at: Time,
}

/// What comes next on a set-up connection.
enum Talk {
    Hello(Inbox),
    /// A handshake, and then a HELLO.
    Handshake(Box<Shake>),
}

/// The end of a conversation: a HELLO, or why there is none, and what the peer is told of that if
/// it was shaking hands.
type End = Result<Hello, (AcceptError, Option<Outbox>)>;

/// What all conversations of a look share.
struct Look<'a> {
    now: Time,
    timeout: Nanos,
    secure: Option<&'a Secure>,
    /// How many more handshakes may work in this look.
    handshakes_left: usize,
}

impl Incoming {
    fn new(stream: TcpStream, from: SocketAddr, now: Time) -> Self {
        let talk = Talk::Hello(Inbox::default());
        Self { stream, from, talk, since: now, look_at: now }
    }

    /// Reads on when it is time to; what came of it, once there is an end.
    fn look(&mut self, look: &mut Look<'_>) -> Option<End> {
        if look.now < self.look_at {
            return None;
        }
        let (now, timeout) = (look.now, look.timeout);
        match self.read(look) {
            Ok(None) => {
                let age = now.since(self.since);
                if age >= timeout {
                    return Some(Err((AcceptError::Timeout(timeout), None)));
                }
                // Each look is a system call. Who has let us wait for long may wait a little.
                let deadline = self.since + timeout;
                self.look_at = (now + Nanos(age.0 / INCOMING_LOOKS_PER_AGE)).min(deadline);
                None
            }
            Ok(Some(hello)) => Some(Ok(hello)),
            Err(AcceptError::Handshake(error)) => {
                look.secure.inspect(|secure| secure.note_failed());
                Some(Err((AcceptError::Handshake(error), self.last_words())))
            }
            Err(error) => Some(Err((error, None))),
        }
    }

    /// Takes in what has come, until a HELLO is whole.
    fn read(&mut self, look: &mut Look<'_>) -> Result<Option<Hello>, AcceptError> {
        loop {
            match &mut self.talk {
                Talk::Hello(inbox) => match (inbox.read(&mut self.stream), look.secure) {
                    (Ok(None), _) => return Ok(None),
                    (Ok(Some(Welcome::Hello(hello))), _) => return Ok(Some(hello)),
                    (Ok(Some(Welcome::Refused(refusal))), _) => {
                        return Err(AcceptError::Unasked(refusal));
                    }
                    (Err(ReadError::Hello(HelloError::Magic)), Some(secure)) => {
                        let mut shake = Box::new(secure.shake(Role::Server, look.now)?);
                        let begun = shake.begin_with(look.now, inbox.bytes());
                        self.talk = Talk::Handshake(shake);
                        begun?;
                    }
                    (Err(ReadError::Hello(error)), _) => return Err(AcceptError::Hello(error)),
                    (Err(ReadError::Broken(error)), _) => return Err(AcceptError::Broken(error)),
                },
                Talk::Handshake(_) if look.handshakes_left == 0 => return Ok(None),
                Talk::Handshake(shake) => {
                    let progress =
                        shake.step(&mut self.stream, look.now).map_err(|error| match error {
                            ShakeError::Handshake(error) => AcceptError::Handshake(error),
                            ShakeError::Broken(error) => AcceptError::Broken(Some(error)),
                        })?;
                    look.handshakes_left -= usize::from(progress.has_worked);
                    if !progress.is_done {
                        return Ok(None);
                    }
                    let done = std::mem::replace(&mut self.talk, Talk::Hello(Inbox::default()));
                    if let (Talk::Handshake(shake), Some(secure)) = (done, look.secure) {
                        secure.keep_taken(shake.finish()?, look.now);
                    }
                }
            }
        }
    }

    /// What tells the peer why its handshake has failed.
    fn last_words(&mut self) -> Option<Outbox> {
        match std::mem::replace(&mut self.talk, Talk::Hello(Inbox::default())) {
            Talk::Handshake(shake) => Some(shake.last_words()),
            Talk::Hello(_) => None,
        }
    }
}

impl Setup {
    /// Reads the HELLOs that are coming in, and returns the peers whose are whole. The others are
    /// told of.
    pub(crate) fn take_hellos(&mut self, now: Time, told: &mut VecDeque<Event>) -> Vec<Placed> {
        let (mut place, mut whole) = (0, Vec::new());
        let (timeout, secure) = (self.timeout, self.secure.clone());
        let secure = secure.as_ref();
        let mut look = Look { now, timeout, secure, handshakes_left: HANDSHAKES_PER_LOOK };
        while let Some(peer) = self.incoming.get_mut(place) {
            let Some(outcome) = peer.look(&mut look) else {
                place += 1;
                continue;
            };
            let Incoming { stream, from, .. } = self.incoming.remove(place);
            match outcome {
                Ok(hello) => whole.push(Placed { stream, from, hello, seat: None }),
                Err((error, None)) => told.push_back(self.turn_away(stream, from, error, now)),
                Err((error, Some(words))) => {
                    self.linger(stream, words, now);
                    told.push_back(Event::AcceptFailed { from, error });
                }
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
            AcceptError::Broken(_) | AcceptError::Handshake(_) => {
                return Event::AcceptFailed { from, error };
            }
        };
        self.linger(stream, Outbox::new(refusal.emit()), now);
        Event::AcceptFailed { from, error }
    }

    /// Tells a peer why it was refused.
    fn linger(&mut self, stream: TcpStream, words: Outbox, now: Time) {
        if self.lingering.len() == HANDSHAKES_MAX {
            self.lingering.remove(0);
        }
        self.lingering.push(Lingering::new(stream, words, now));
    }
}
