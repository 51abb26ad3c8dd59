//! One-sided operations: requests of handles, and the worker's side.

use crate::places::Places;
use crate::queue::Sender;
use crate::unseen;
use towpath_memory::{Buf, Region};
use towpath_proto::{Grant, GrantId, OpOutcome};
use towpath_transport::Endpoint;
use towpath_transport::{LaneError, OpOptions, Place, RejectedOp};
use towpath_verbs::Device;

/// A change of what the peer lets this end reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantChange {
    /// The peer lets this end reach a range of its memory.
    Granted(Grant),
    /// The peer has revoked a grant. Operations that wait for it are denied.
    Revoked(GrantId),
}

/// How a one-sided operation ended.
#[derive(Debug)]
pub struct OpDone {
    /// The caller's token ([`OpOptions::token`]).
    pub token: u64,
    /// How it ended; or why it was refused, in which case it did nothing.
    pub outcome: Result<OpOutcome, LaneError>,
    /// The old value of an atomic's word, or the value that
    /// [`write_word`](crate::LinkHandle::write_word) wrote. None if it was not executed.
    pub word: Option<u64>,
    /// The buffer of operations that have one; none if the worker ended while it had the buffer.
    pub buf: Option<Buf>,
}

impl OpDone {
    /// A refused operation.
    pub(crate) fn refused(token: u64, error: LaneError, buf: Option<Buf>) -> Self {
        Self { token, outcome: Err(error), word: None, buf }
    }

    /// Logs a refusal whose ticket was dropped, unless the link or the endpoint is gone.
    pub(crate) fn log_unseen(&self) {
        match &self.outcome {
            Ok(_) | Err(LaneError::NoSuchLink | LaneError::ShutDown) => {}
            Err(error) => unseen::refused("a one-sided operation", error),
        }
    }
}

/// What an operation does.
pub(crate) enum Operation {
    Read { length: u32, buf: Buf },
    Write { buf: Buf },
    WriteWord { value: u64 },
    FetchAdd { add: u64 },
    CmpSwap { compare: u64, swap: u64 },
}

/// A requested operation, and where its outcome goes.
pub(crate) struct Asked {
    pub(crate) place: Place,
    pub(crate) operation: Operation,
    pub(crate) options: OpOptions,
    pub(crate) reply: Sender<OpDone>,
}

impl Asked {
    /// Refuses it, and gives its buffer back.
    pub(crate) fn refuse(self, error: LaneError) {
        let buf = match self.operation {
            Operation::Read { buf, .. } | Operation::Write { buf } => Some(buf),
            _ => None,
        };
        tell(&self.reply, OpDone::refused(self.options.token, error, buf));
    }
}

/// Delivers the outcome. If the ticket was dropped, a refusal is logged and the rest is dropped.
fn tell(reply: &Sender<OpDone>, done: OpDone) {
    if let Err(unseen) = reply.send(done) {
        unseen.log_unseen();
    }
}

/// Operations of the endpoint, by its token: where the outcome goes, and the caller's token.
#[derive(Default)]
pub(crate) struct Ops {
    under_way: Places<(Sender<OpDone>, u64)>,
}

impl Ops {
    /// Requests an operation of the endpoint.
    pub(crate) fn ask<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        asked: Asked,
    ) {
        let Asked { place, operation, options, reply } = asked;
        let here = options.token(self.under_way.next());
        let back = |RejectedOp { buf, error }: RejectedOp| (Some(buf), error);
        let none = |error| (None, error);
        let taken = match operation {
            Operation::Read { length, buf } => {
                endpoint.read(place, length, buf, here).map_err(back)
            }
            Operation::Write { buf } => endpoint.write(place, buf, here).map_err(back),
            Operation::WriteWord { value } => endpoint.write_word(place, value, here).map_err(none),
            Operation::FetchAdd { add } => endpoint.fetch_add(place, add, here).map_err(none),
            Operation::CmpSwap { compare, swap } => {
                endpoint.cmp_swap(place, (compare, swap), here).map_err(none)
            }
        };
        match taken {
            Ok(_) => self.under_way.put((reply, options.token)),
            Err((buf, error)) => tell(&reply, OpDone::refused(options.token, error, buf)),
        }
    }

    /// An operation has ended.
    pub(crate) fn on_done(
        &mut self,
        place: u64,
        outcome: OpOutcome,
        word: Option<u64>,
        buf: Option<Buf>,
    ) {
        if let Some((reply, token)) = self.under_way.take(place) {
            tell(&reply, OpDone { token, outcome: Ok(outcome), word, buf });
        }
    }

    /// Ends all operations with an unknown outcome.
    pub(crate) fn give_up_all(&mut self) {
        for (reply, token) in self.under_way.drain() {
            let outcome = Ok(OpOutcome::Unknown);
            tell(&reply, OpDone { token, outcome, word: None, buf: None });
        }
    }
}
