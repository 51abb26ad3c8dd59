//! Dialling, and the answer.

use super::Setup;
use super::wire::{Inbox, Outbox, ReadError};
use crate::asks::Asks;
use crate::config::EndpointConfig;
use crate::error::ConnectError;
use crate::ids::{ConnectId, LinkId};
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use towpath_base::{Nanos, Time};
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
    stage: Stage,
}

enum Stage {
    Dialling(Receiver<io::Result<TcpStream>>),
    /// The peer is there; our half of the link is to be made.
    Dialled(TcpStream),
    Talking {
        stream: TcpStream,
        outbox: Outbox,
        inbox: Inbox,
        half: LinkId,
    },
}

/// What is to be done for a connection that is being made.
pub(crate) enum Step {
    /// Nothing now.
    Wait,
    /// Make our half, and [go on](Setup::talk) with it.
    Offer { addr: SocketAddr, class: Class, asks: Asks },
    /// Join our half with the peer's, and [end](Setup::end_connecting).
    Join { addr: SocketAddr, half: LinkId, hello: Hello },
    /// It has failed: [ask for less](Setup::asks_for_less), or [end](Setup::end_connecting).
    Fail(ConnectError),
}

/// Starts to dial. std offers a TCP connect only as a blocking call, and without unsafe code there
/// is no other; so each dial has a thread for as long as it takes, at most `timeout`.
fn dial(addr: SocketAddr, timeout: Nanos) -> io::Result<Stage> {
    let (tell, told) = bounded(1);
    let span = Duration::from(timeout).max(Duration::from_millis(1));
    std::thread::Builder::new().name("towpath-dial".into()).spawn(move || {
        // Nobody listens any more when the endpoint is gone: then the result is dropped.
        let _ = tell.send(TcpStream::connect_timeout(&addr, span));
    })?;
    Ok(Stage::Dialling(told))
}

impl Outgoing {
    pub(super) fn dial(
        connect: ConnectId,
        (addr, class): (SocketAddr, Class),
        asks: Asks,
        timeout: Nanos,
        now: Time,
    ) -> io::Result<Self> {
        let stage = dial(addr, timeout)?;
        Ok(Self { connect, addr, class, asks, deadline: now + timeout, stage })
    }

    /// Takes the connection on, as far as it goes without waiting.
    fn step(&mut self, ours: AppProtocol) -> Result<Step, ConnectError> {
        let (addr, class, asks) = (self.addr, self.class, self.asks);
        if let Stage::Dialling(told) = &self.stage {
            let dialled = match told.try_recv() {
                Err(TryRecvError::Empty) => return Ok(Step::Wait),
                Err(TryRecvError::Disconnected) => Err(io::ErrorKind::Interrupted.into()),
                Ok(dialled) => dialled,
            };
            let ready = dialled.and_then(|stream| {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok(stream)
            });
            self.stage =
                Stage::Dialled(ready.map_err(|source| ConnectError::Dial { addr, source })?);
        }
        let Stage::Talking { stream, outbox, inbox, half } = &mut self.stage else {
            return Ok(Step::Offer { addr, class, asks });
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
    /// What is to be done for a connection that is being made, to speak a protocol; none behind the
    /// last of them.
    pub(crate) fn step(&mut self, place: usize, app: AppProtocol, now: Time) -> Option<Step> {
        let outgoing = self.outgoing.get_mut(place)?;
        let (addr, after) = (outgoing.addr, self.timeout);
        Some(match outgoing.step(app) {
            Ok(Step::Wait) if now >= outgoing.deadline => {
                Step::Fail(ConnectError::Timeout { addr, after })
            }
            Ok(step) => step,
            Err(error) => Step::Fail(error),
        })
    }

    /// Our half of a link that is being connected is made: the peer is told.
    pub(crate) fn talk(&mut self, place: usize, hello: &Hello, half: LinkId) {
        let outgoing = self.outgoing.swap_remove(place);
        if let Stage::Dialled(stream) = outgoing.stage {
            let (outbox, inbox) = (Outbox::new(hello.emit()), Inbox::default());
            let stage = Stage::Talking { stream, outbox, inbox, half };
            self.outgoing.push(Outgoing { stage, ..outgoing });
        }
    }

    /// Our half of a connection that is being made, if there is one.
    pub(crate) fn half_of(&self, place: usize) -> Option<LinkId> {
        match self.outgoing.get(place)?.stage {
            Stage::Talking { half, .. } => Some(half),
            Stage::Dialling(_) | Stage::Dialled(_) => None,
        }
    }

    /// Whether a peer that refused is asked again for less.
    pub(crate) fn asks_for_less(
        &mut self,
        place: usize,
        error: &ConnectError,
        (config, verbs): (&EndpointConfig, &VerbSet),
        now: Time,
    ) -> bool {
        let Some(outgoing) = self.outgoing.get_mut(place) else { return false };
        let Some(asks) = outgoing.asks.after(error, config, verbs) else { return false };
        let dialling = dial(outgoing.addr, outgoing.deadline.since(now));
        let Ok(stage) = dialling else { return false };
        (outgoing.asks, outgoing.stage) = (asks, stage);
        true
    }

    /// A connection is made, or is not: its name, and its stream if the peer was there.
    pub(crate) fn end_connecting(&mut self, place: usize) -> (ConnectId, Option<TcpStream>) {
        let Outgoing { connect, stage, .. } = self.outgoing.swap_remove(place);
        match stage {
            Stage::Talking { stream, .. } | Stage::Dialled(stream) => (connect, Some(stream)),
            Stage::Dialling(_) => (connect, None),
        }
    }
}
