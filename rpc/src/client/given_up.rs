//! Requests that are given up: what their callers are told, and their server.

use super::{Completion, Pending, RpcClient};
use crate::error::RpcError;
use crate::fate::Fate;
use crate::parcel::{Fields, Outgoing};
use crate::wire::{Kind, Status};
use towpath_transport::{Device, Endpoint, Outcome, Region, SendOptions};

/// Why a request is being given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    Deadline,
    Cancel,
}

impl RpcClient {
    pub(super) fn give_up<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        key: usize,
        why: GivenUp,
    ) {
        let now = endpoint.now();
        let pending = &mut self.pending[key];
        if pending.given_up.is_some() {
            return;
        }
        pending.given_up = Some(why);
        self.stats.given_up += 1;
        self.stats.timeouts += u64::from(why == GivenUp::Deadline);
        pending.deadline = now + self.outcome_grace;
        self.next_deadline = self.next_deadline.min(pending.deadline);
        let ask_fate = pending.ask_fate;
        match pending.outcome {
            Some(outcome) => self.on_given_up_sent(endpoint, key, outcome),
            // The outcome says more than is known now; a Sent event brings it, unless the peer is
            // silent. When the send has ended already that event is on its way.
            None => drop(endpoint.cancel(pending.send)),
        }
        if !ask_fate && self.pending.contains(key) {
            self.tell_given_up(key, Fate::Unknown);
        }
    }

    /// A request that was given up is sent or not: the server is told if it has it.
    pub(super) fn on_given_up_sent<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        key: usize,
        outcome: Outcome,
    ) {
        if outcome != Outcome::Delivered || !self.send_cancel(endpoint, key) {
            self.end_given_up(key, Fate::of_send(outcome));
        }
    }

    /// Nothing more is to be learned of a request that was given up.
    pub(super) fn end_given_up(&mut self, key: usize, fate: Fate) {
        if !self.pending[key].told {
            self.tell_given_up(key, fate);
        }
        self.pending.remove(key);
        self.told -= 1;
    }

    /// The caller's completion; what is kept of the request stays until its server is told.
    pub(super) fn tell_given_up(&mut self, key: usize, fate: Fate) {
        let pending = &mut self.pending[key];
        pending.told = true;
        self.told += 1;
        self.stats.happened += u64::from(fate == Fate::Happened);
        self.stats.not_happened += u64::from(fate == Fate::DidNotHappen);
        let error = match pending.given_up {
            Some(GivenUp::Deadline) => RpcError::TimedOut { fate },
            Some(GivenUp::Cancel) => RpcError::Cancelled { fate },
            None => RpcError::PeerGone { fate },
        };
        let &mut Pending { id, token, .. } = pending;
        self.completions.push_back(Completion { request: id, token, result: Err(error) });
    }

    /// Tells the server that nobody waits any more; it says what became of the request. False when
    /// it cannot be told: then it answers in vain.
    pub(super) fn send_cancel<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        key: usize,
    ) -> bool {
        let Pending { id, method, deadline, .. } = self.pending[key];
        let fields =
            Fields { kind: Kind::Cancel, method, status: Status::OK, request: id.0, timeout_us: 0 };
        let Ok(out) = Outgoing::new(endpoint, 0, 0) else { return false };
        // The server gives the request up by itself when its time is over.
        let options = SendOptions::new().token(id.0).deadline(deadline);
        let sent = endpoint.send(self.link, self.channel, out.finish(fields), options).is_ok();
        self.pending[key].asked = sent;
        self.stats.cancels += u64::from(sent);
        sent
    }
}
