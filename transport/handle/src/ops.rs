//! The worker's side of one-sided operations: asks the endpoint for them, and tells the outcomes.

use crate::lane::OpDone;
use crate::limits::COMMANDS_MAX;
use crate::places::Places;
use crate::queue::Sender;
use towpath_memory::{Buf, Region};
use towpath_proto::{OpError, OpOutcome};
use towpath_transport::Endpoint;
use towpath_transport::{LaneError, OpOptions, Place, RejectedOp};
use towpath_verbs::Device;

/// What an operation does.
pub(crate) enum Operation {
    Read { length: u32, buf: Buf },
    Write { buf: Buf },
    WriteWord { value: u64 },
    FetchAdd { add: u64 },
    CmpSwap { compare: u64, swap: u64 },
}

/// An operation that was asked for, and whom its outcome is told.
pub(crate) struct Asked {
    pub(super) place: Place,
    pub(super) operation: Operation,
    pub(super) options: OpOptions,
    pub(super) reply: Sender<OpDone>,
}

impl Asked {
    /// Too many commands wait.
    pub(super) fn refuse_for_now(self) {
        self.refuse(OpError::Full { max: COMMANDS_MAX }.into());
    }

    /// The worker ends.
    pub(super) fn refuse_for_good(self) {
        self.refuse(LaneError::ShutDown);
    }

    fn refuse(self, error: LaneError) {
        let buf = match self.operation {
            Operation::Read { buf, .. } | Operation::Write { buf } => Some(buf),
            _ => None,
        };
        let outcome = Err(error);
        tell(&self.reply, OpDone { token: self.options.token, outcome, word: None, buf });
    }
}

/// Whoever asked may not wait for the answer: then a refusal is logged, and the rest dropped.
fn tell(reply: &Sender<OpDone>, done: OpDone) {
    if let Err(unseen) = reply.send(done) {
        unseen.log_unseen();
    }
}

/// Operations that the endpoint has, by the token that it knows: whom to tell, and the caller's
/// own token.
#[derive(Default)]
pub(super) struct Ops {
    under_way: Places<(Sender<OpDone>, u64)>,
}

impl Ops {
    /// Asks the endpoint for an operation.
    pub(super) fn ask<D: Device<Memory = Region>>(
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
            Err((buf, error)) => {
                let token = options.token;
                tell(&reply, OpDone { token, outcome: Err(error), word: None, buf });
            }
        }
    }

    /// One has ended.
    pub(super) fn on_done(
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

    /// Tells whoever still waits that nobody knows what became of their operations.
    pub(super) fn give_up_all(&mut self) {
        for (reply, token) in self.under_way.drain() {
            let outcome = Ok(OpOutcome::Unknown);
            tell(&reply, OpDone { token, outcome, word: None, buf: None });
        }
    }
}
