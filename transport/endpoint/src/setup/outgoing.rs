//! Dials a peer, and reads its answer.

use super::Setup;
use super::wire::{Inbox, Outbox, ReadError};
use crate::asks::Asks;
use crate::config::EndpointConfig;
use crate::error::ConnectError;
use crate::ids::{ConnectId, LinkId};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::io;
use std::net::{SocketAddr, TcpStream};
use towpath_base::Time;
use towpath_proto::Class;
use towpath_proto::wire::{AppProtocol, Hello, Refusal, Welcome};
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
    stage: Stage,
}

enum Stage {
    /// An error when the system refused at once.
    Dialling(io::Result<TcpStream>),
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
    Offer { addr: SocketAddr, class: Class, asks: Asks, after: Option<LinkId> },
    /// Join our half with the peer's, and [end](Setup::end_connecting).
    Join { addr: SocketAddr, half: LinkId, hello: Hello },
    /// It has failed: [ask for less](Setup::asks_for_less), or [end](Setup::end_connecting).
    Fail(ConnectError),
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
        Self { connect, addr, class, asks, deadline, refused: None, stage }
    }

    /// Advances the connection as far as that goes without waiting.
    fn step(&mut self, ours: AppProtocol) -> Result<Step, ConnectError> {
        let (addr, class, asks, after) = (self.addr, self.class, self.asks, self.refused);
        let (stream, outbox, inbox, half) = match &mut self.stage {
            Stage::Dialling(dialling) => {
                let is_there = is_dialled(dialling);
                let is_there = is_there.map_err(|source| ConnectError::Dial { addr, source })?;
                let offer = Step::Offer { addr, class, asks, after };
                return Ok(if is_there { offer } else { Step::Wait });
            }
            Stage::Talking { stream, outbox, inbox, half } => (stream, outbox, inbox, half),
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
        Some(match outgoing.step(app) {
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
        if let Stage::Dialling(Ok(stream)) = outgoing.stage {
            let (outbox, inbox) = (Outbox::new(hello.emit()), Inbox::default());
            let stage = Stage::Talking { stream, outbox, inbox, half };
            self.outgoing.push(Outgoing { stage, ..outgoing });
        }
    }

    /// Our half of a connection that is being made, if there is one.
    pub(crate) fn half_of(&self, place: usize) -> Option<LinkId> {
        match self.outgoing.get(place)?.stage {
            Stage::Talking { half, .. } => Some(half),
            Stage::Dialling(_) => None,
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
        let Some(asks) = outgoing.asks.after(error, config, verbs) else { return false };
        (outgoing.asks, outgoing.refused) = (asks, refused);
        outgoing.stage = Stage::Dialling(dial(outgoing.addr));
        true
    }

    /// Ends a connection that was made or has failed: its id, and its stream if there is one.
    pub(crate) fn end_connecting(&mut self, place: usize) -> (ConnectId, Option<TcpStream>) {
        let Outgoing { connect, stage, .. } = self.outgoing.swap_remove(place);
        match stage {
            Stage::Talking { stream, .. } => (connect, Some(stream)),
            Stage::Dialling(_) => (connect, None),
        }
    }
}
