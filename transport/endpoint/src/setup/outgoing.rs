//! Dials a peer, and reads its answer.

use super::Setup;
use super::wire::{Inbox, Outbox, ReadError};
use crate::asks::Asks;
use crate::config::EndpointConfig;
use crate::error::ConnectError;
use crate::ids::{ConnectId, LinkId};
use crate::secure::{Secure, Shake, ShakeError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::net::{SocketAddr, TcpStream};
use towpath_base::Time;
use towpath_proto::Class;
use towpath_proto::wire::{AppProtocol, Hello, Refusal, Welcome};
use towpath_secure::{HandshakeError, KnownSecret, Role};
use towpath_verbs::VerbSet;

/// A connection that is being made.
pub(super) struct Outgoing {
    connect: ConnectId,
    addr: SocketAddr,
    class: Class,
    asks: Asks,
    deadline: Time,
    /// Our half that the peer refused before it was asked again.
    refused: Option<LinkId>,
    /// What our HELLO is sealed with.
    secret: Option<KnownSecret>,
    /// The peer was shaken hands with.
    has_shaken: bool,
    stage: Stage,
}

enum Stage {
    /// An error when the system refused at once.
    Dialling(io::Result<TcpStream>),
    Shaking(TcpStream, Box<Shake>),
    /// Our half is to be made.
    Ready(TcpStream),
    Talking {
        stream: TcpStream,
        outbox: Outbox,
        inbox: Inbox,
        half: LinkId,
    },
}

/// The next step of a connection that is being made.
pub(crate) enum Step {
    /// Nothing now.
    Wait,
    /// Make our half, and [send](Setup::talk) it. A half that the peer refused before is `after`:
    /// its place has to be free first.
    Offer { offer: Offer, after: Option<LinkId> },
    /// Join our half with the peer's, and [end](Setup::end_connecting).
    Join { addr: SocketAddr, half: LinkId, hello: Hello },
    /// It has failed: [ask for less](Setup::asks_for_less), or [end](Setup::end_connecting).
    Fail(ConnectError),
}

/// What our half is to be.
pub(crate) struct Offer {
    pub(crate) addr: SocketAddr,
    pub(crate) class: Class,
    pub(crate) asks: Asks,
    /// What it is sealed with.
    pub(crate) secret: Option<KnownSecret>,
}

/// Starts to dial; the stream does not block.
fn dial(addr: SocketAddr) -> io::Result<TcpStream> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let stream = TcpStream::from(socket_with(family, SocketType::STREAM, flags, None)?);
    stream.set_nodelay(true)?;
    match connect(&stream, &addr) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}

/// Whether the TCP connection is made.
fn is_dialled(dialling: &mut io::Result<TcpStream>) -> io::Result<bool> {
    let stream = match dialling {
        Ok(stream) => stream,
        Err(error) => return Err(std::mem::replace(error, io::ErrorKind::NotConnected.into())),
    };
    match (stream.take_error()?, stream.peer_addr()) {
        (Some(error), _) => Err(error),
        (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        (None, peer) => peer.map(|_| true),
    }
}

impl Outgoing {
    pub(super) fn dial(
        connect: ConnectId,
        (addr, class): (SocketAddr, Class),
        asks: Asks,
        deadline: Time,
    ) -> Self {
        let stage = Stage::Dialling(dial(addr));
        let (refused, secret, has_shaken) = (None, None, false);
        Self { connect, addr, class, asks, deadline, refused, secret, has_shaken, stage }
    }

    /// Goes on to where our half can be made: true when it can.
    fn get_ready(&mut self, secure: Option<&Secure>, now: Time) -> Result<bool, ConnectError> {
        let addr = self.addr;
        loop {
            let nothing = Stage::Dialling(Err(io::ErrorKind::NotConnected.into()));
            self.stage = match std::mem::replace(&mut self.stage, nothing) {
                Stage::Dialling(mut dialling) => {
                    let is_there = is_dialled(&mut dialling);
                    let is_there =
                        is_there.map_err(|source| ConnectError::Dial { addr, source })?;
                    match dialling {
                        Ok(stream) if is_there => self.begin(stream, secure, now)?,
                        dialling => {
                            self.stage = Stage::Dialling(dialling);
                            return Ok(false);
                        }
                    }
                }
                Stage::Shaking(mut stream, mut shake) => {
                    match (shake.step(&mut stream, now), secure) {
                        (Ok(progress), Some(secure)) if progress.is_done => {
                            let outcome = shake.finish();
                            let outcome =
                                outcome.map_err(|error| shaken_off(addr, error, secure))?;
                            self.secret = Some(secure.keep_made(addr, outcome, now));
                            self.has_shaken = true;
                            Stage::Ready(stream)
                        }
                        (Err(ShakeError::Handshake(error)), Some(secure)) => {
                            // What tells the peer why fits the buffer of a socket.
                            let _ = shake.last_words().write(&mut stream);
                            return Err(shaken_off(addr, error, secure));
                        }
                        (Err(ShakeError::Broken(error)), _) => {
                            return Err(ConnectError::Broken { addr, source: Some(error) });
                        }
                        _ => {
                            self.stage = Stage::Shaking(stream, shake);
                            return Ok(false);
                        }
                    }
                }
                stage => {
                    self.stage = stage;
                    return Ok(true);
                }
            }
        }
    }

    /// A connection is there: hands are shaken on it unless that was done before.
    fn begin(
        &mut self,
        stream: TcpStream,
        secure: Option<&Secure>,
        now: Time,
    ) -> Result<Stage, ConnectError> {
        let Some(secure) = secure else { return Ok(Stage::Ready(stream)) };
        self.secret = secure.secret_at(self.addr, now);
        if self.secret.is_some() {
            return Ok(Stage::Ready(stream));
        }
        let shake = secure.shake(Role::Client, now);
        let shake = shake.map_err(|error| shaken_off(self.addr, error, secure))?;
        Ok(Stage::Shaking(stream, Box::new(shake)))
    }

    /// Advances the connection as far as that goes without waiting.
    fn step(
        &mut self,
        ours: AppProtocol,
        secure: Option<&Secure>,
        now: Time,
    ) -> Result<Step, ConnectError> {
        let is_ready = self.get_ready(secure, now)?;
        let (addr, class, asks, after) = (self.addr, self.class, self.asks, self.refused);
        let Stage::Talking { stream, outbox, inbox, half } = &mut self.stage else {
            let offer = Offer { addr, class, asks, secret: self.secret.clone() };
            return Ok(if is_ready { Step::Offer { offer, after } } else { Step::Wait });
        };
        // A peer that refuses may close before all is written: its answer says more than our error.
        let written = outbox.write(stream);
        match (inbox.read(stream), written) {
            (Ok(None), Ok(_)) => Ok(Step::Wait),
            (Ok(None), Err(error)) => Err(ConnectError::Broken { addr, source: Some(error) }),
            (Ok(Some(Welcome::Hello(hello))), _) => Ok(Step::Join { addr, half: *half, hello }),
            (Ok(Some(Welcome::Refused(refusal))), _) => Err(match refusal {
                Refusal::App { served: theirs } => ConnectError::App { addr, theirs, ours },
                Refusal::Full => ConnectError::Full { addr },
                Refusal::Class => ConnectError::Class { addr, class },
                _ => ConnectError::Refused { addr, refusal },
            }),
            (Err(ReadError::Hello(error)), _) => Err(ConnectError::Hello { addr, error }),
            (Err(ReadError::Broken(source)), _) => Err(ConnectError::Broken { addr, source }),
        }
    }
}

impl Setup {
    /// The next step of the connection at `place`, for the protocol `app`; none past the last
    /// connection.
    pub(crate) fn step(&mut self, place: usize, app: AppProtocol, now: Time) -> Option<Step> {
        let outgoing = self.outgoing.get_mut(place)?;
        let (addr, after) = (outgoing.addr, self.timeout);
        Some(match outgoing.step(app, self.secure.as_ref(), now) {
            Ok(Step::Wait | Step::Offer { .. }) if now >= outgoing.deadline => {
                Step::Fail(ConnectError::Timeout { addr, after })
            }
            Ok(step) => step,
            Err(error) => Step::Fail(error),
        })
    }

    /// Sends the peer our half of the link, which is made by now.
    pub(crate) fn talk(&mut self, place: usize, hello: &Hello, half: LinkId) {
        let outgoing = self.outgoing.swap_remove(place);
        if let Stage::Ready(stream) = outgoing.stage {
            let (outbox, inbox) = (Outbox::new(hello.emit()), Inbox::default());
            let stage = Stage::Talking { stream, outbox, inbox, half };
            self.outgoing.push(Outgoing { stage, ..outgoing });
        }
    }

    /// Our half of a connection that is being made, if there is one.
    pub(crate) fn half_of(&self, place: usize) -> Option<LinkId> {
        match self.outgoing.get(place)?.stage {
            Stage::Talking { half, .. } => Some(half),
            _ => None,
        }
    }

    /// Asks a peer that refused again, for less; false when there is nothing less to ask for.
    pub(crate) fn asks_for_less(
        &mut self,
        place: usize,
        error: &ConnectError,
        (config, verbs): (&EndpointConfig, &VerbSet),
    ) -> bool {
        let refused = self.half_of(place);
        let Some(outgoing) = self.outgoing.get_mut(place) else { return false };
        let is_forgotten = matches!(
            error,
            ConnectError::Refused { refusal: Refusal::UnknownSecret | Refusal::Forged, .. }
        );
        if let Some(secure) = self.secure.as_ref().filter(|_| is_forgotten) {
            // The peer was started anew, say: hands are shaken again, once.
            secure.forget(outgoing.addr);
            if outgoing.has_shaken {
                return false;
            }
        } else {
            let Some(asks) = outgoing.asks.after(error, config, verbs) else { return false };
            outgoing.asks = asks;
        }
        outgoing.refused = refused;
        outgoing.stage = Stage::Dialling(dial(outgoing.addr));
        true
    }

    /// Ends a connection that was made or has failed: its id, and its stream if there is one.
    pub(crate) fn end_connecting(&mut self, place: usize) -> (ConnectId, Option<TcpStream>) {
        let Outgoing { connect, stage, .. } = self.outgoing.swap_remove(place);
        match stage {
            Stage::Talking { stream, .. } => (connect, Some(stream)),
            _ => (connect, None),
        }
    }
}

/// A handshake has failed.
fn shaken_off(addr: SocketAddr, error: HandshakeError, secure: &Secure) -> ConnectError {
    secure.note_failed();
    ConnectError::Handshake { addr, error }
}
