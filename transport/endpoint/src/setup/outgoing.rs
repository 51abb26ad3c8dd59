//! Dialling, and the answer.

use super::wire::{Inbox, Outbox, ReadError};
use super::{Host, Setup};
use crate::asks::Asks;
use crate::conn::PendingLink;
use crate::error::{ConnectError, LinkError};
use crate::event::Event;
use crate::ids::{ConnectId, LinkId};
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_proto::Class;
use towpath_proto::wire::{AppProtocol, Refusal, Welcome};

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
    Talking {
        stream: TcpStream,
        outbox: Outbox,
        inbox: Inbox,
        pending: PendingLink,
    },
    /// Moved on, or over.
    Done,
}

impl Outgoing {
    /// Starts to dial. std offers a TCP connect only as a blocking call, and without unsafe code
    /// there is no other; so each dial has a thread for as long as it takes, at most `timeout`.
    pub(super) fn dial(
        connect: ConnectId,
        (addr, class): (SocketAddr, Class),
        asks: Asks,
        timeout: Nanos,
        now: Time,
    ) -> io::Result<Self> {
        let stage = Stage::dialling(addr, timeout)?;
        Ok(Self { connect, addr, class, asks, deadline: now + timeout, stage })
    }
}

impl Stage {
    fn dialling(addr: SocketAddr, timeout: Nanos) -> io::Result<Self> {
        let (tell, told) = bounded(1);
        let span = Duration::from(timeout).max(Duration::from_millis(1));
        std::thread::Builder::new().name("towpath-dial".into()).spawn(move || {
            // Nobody listens any more when the endpoint is gone: then the result is dropped.
            let _ = tell.send(TcpStream::connect_timeout(&addr, span));
        })?;
        Ok(Self::Dialling(told))
    }
}

/// What became of a connection in one look.
enum Progress {
    Waiting,
    Joined(TcpStream, LinkId),
    Failed(ConnectError),
}

impl Setup {
    pub(super) fn poll_outgoing(&mut self, host: &mut impl Host, now: Time) {
        let mut place = 0;
        while let Some(outgoing) = self.outgoing.get_mut(place) {
            let mut progress = advance(host, outgoing);
            if matches!(progress, Progress::Waiting) {
                if now < outgoing.deadline {
                    place += 1;
                    continue;
                }
                let (addr, after) = (outgoing.addr, self.timeout);
                progress = Progress::Failed(ConnectError::Timeout { addr, after });
            }
            if let Progress::Failed(error) = &progress
                && asks_for_less(host, outgoing, error, now)
            {
                place += 1;
                continue;
            }
            let outgoing = self.outgoing.swap_remove(place);
            let connect = outgoing.connect;
            if let Stage::Talking { pending, .. } = outgoing.stage {
                host.withdraw(pending);
            }
            match progress {
                Progress::Joined(stream, link) => {
                    self.keep(host, stream, link, Vec::new());
                    if let Some(peer) = host.peer(link) {
                        host.tell(Event::Connected { connect, link, peer });
                    }
                }
                Progress::Failed(error) => {
                    host.tell(Event::ConnectFailed { connect, error });
                }
                Progress::Waiting => {}
            }
        }
    }
}

/// Whether the peer, which refused, is asked again for less.
fn asks_for_less(
    host: &mut impl Host,
    outgoing: &mut Outgoing,
    error: &ConnectError,
    now: Time,
) -> bool {
    let Some(asks) = outgoing.asks.after(error, host.config(), &host.verbs()) else { return false };
    let Ok(dialling) = Stage::dialling(outgoing.addr, outgoing.deadline.since(now)) else {
        return false;
    };
    outgoing.asks = asks;
    if let Stage::Talking { pending, .. } = std::mem::replace(&mut outgoing.stage, dialling) {
        host.withdraw(pending);
    }
    true
}

/// Takes a connection on, as far as it goes without waiting.
fn advance(host: &mut impl Host, outgoing: &mut Outgoing) -> Progress {
    let (addr, class, app) = (outgoing.addr, outgoing.class, host.config().app);
    if let Stage::Dialling(told) = &outgoing.stage {
        let dialled = match told.try_recv() {
            Err(TryRecvError::Empty) => return Progress::Waiting,
            Err(TryRecvError::Disconnected) => Err(io::ErrorKind::Interrupted.into()),
            Ok(dialled) => dialled,
        };
        let ready = dialled.and_then(|stream| {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        let stream = match ready {
            Ok(stream) => stream,
            Err(source) => return Progress::Failed(ConnectError::Dial { addr, source }),
        };
        let (hello, pending) = match host.offer_to(addr, class, outgoing.asks) {
            Ok(half) => half,
            Err(error) => return Progress::Failed(ConnectError::Local { addr, error }),
        };
        let (outbox, inbox) = (Outbox::new(hello.emit()), Inbox::default());
        outgoing.stage = Stage::Talking { stream, outbox, inbox, pending };
    }
    let Stage::Talking { stream, outbox, inbox, .. } = &mut outgoing.stage else {
        return Progress::Waiting;
    };
    // A peer that refuses may close before all is written: its answer says more than our error.
    let written = outbox.write(stream);
    let answer = match (inbox.read(stream), written) {
        (Ok(None), Ok(_)) => return Progress::Waiting,
        (Ok(None), Err(error)) => Err(ConnectError::Broken { addr, source: Some(error) }),
        (Ok(Some(Welcome::Hello(hello))), _) => Ok(hello),
        (Ok(Some(Welcome::Refused(refusal))), _) => Err(refused((addr, class, app), refusal)),
        (Err(ReadError::Hello(error)), _) => Err(ConnectError::Hello { addr, error }),
        (Err(ReadError::Broken(source)), _) => Err(ConnectError::Broken { addr, source }),
    };
    let hello = match answer {
        Ok(hello) => hello,
        Err(error) => return Progress::Failed(error),
    };
    let stage = std::mem::replace(&mut outgoing.stage, Stage::Done);
    let Stage::Talking { stream, pending, .. } = stage else { return Progress::Waiting };
    match host.join(pending, &hello, addr) {
        Ok(link) => Progress::Joined(stream, link),
        Err(LinkError::App { theirs, ours }) => {
            Progress::Failed(ConnectError::App { addr, theirs, ours })
        }
        Err(error) => Progress::Failed(ConnectError::Local { addr, error }),
    }
}

/// What a refusal means of what was asked for: where, which class, for what.
fn refused(
    (addr, class, ours): (SocketAddr, Class, AppProtocol),
    refusal: Refusal,
) -> ConnectError {
    match refusal {
        Refusal::App { served: theirs } => ConnectError::App { addr, theirs, ours },
        Refusal::Full => ConnectError::Full { addr },
        Refusal::Class => ConnectError::Class { addr, class },
        _ => ConnectError::Refused { addr, refusal },
    }
}
