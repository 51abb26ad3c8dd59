//! One server that something is passed on to, and how it is asked.

use towpath_fastpath::cap::Capability;
use towpath_fastpath::proof::PROVED;
use towpath_fastpath::{ErrorReply, Method};
use towpath_rpc::{Call, CallError, NoBuffer, Outgoing, RequestId, RequestKey};
use towpath_transport::{
    Device, Endpoint, Region, SendBuffers, SubmitError, SupplyError, SupplyFault, Time,
};

use super::peers::PeerId;
use super::{Onward, Part};
use crate::guard::Guard;

/// A server that something is passed on to.
#[derive(Debug)]
pub(in crate::service) struct Hop {
    peer: PeerId,
    rank: u8,
    /// What it was asked by, once it was.
    request: Option<RequestId>,
    /// How it ended: with which version there.
    ended: Option<Result<u64, ErrorReply>>,
}

/// What another server is asked: the method and how many bytes of data follow, the body in parts,
/// what proves it, and until when.
pub(super) struct Asking<'a> {
    pub(super) of: (Method, u32),
    pub(super) parts: &'a [&'a [u8]],
    /// What it was proved with here; none where nobody has to prove anything.
    pub(super) capability: Option<&'a Capability>,
    pub(super) deadline: Time,
}

/// How far something has gone to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All that may go has gone.
    All,
    /// Some of it waits for a link, a buffer or a place.
    Waits,
}

impl Hop {
    pub(super) fn new(peer: PeerId, rank: u8) -> Self {
        Self { peer, rank, request: None, ended: None }
    }

    pub(super) fn peer(&self) -> PeerId {
        self.peer
    }

    pub(super) fn rank(&self) -> u8 {
        self.rank
    }

    /// What it was asked by.
    pub(super) fn request(&self) -> Option<RequestId> {
        self.request
    }

    /// Whether something is to go to a server, and has not.
    pub(in crate::service) fn is_unsent_to(&self, peer: PeerId) -> bool {
        self.peer == peer && self.request.is_none()
    }

    /// Whether a server has it as that request, and has not ended. A server that was lost and is
    /// there again numbers requests from the first one on.
    pub(in crate::service) fn is(&self, (peer, number): (PeerId, u64)) -> bool {
        let is_its = self.request.is_some_and(|request| request.number() == number);
        self.peer == peer && is_its && !self.has_ended()
    }

    /// It has ended; the first end counts.
    pub(super) fn end(&mut self, how: Result<u64, ErrorReply>) {
        self.ended.get_or_insert(how);
    }

    /// It cannot have it: that is not for a reason of its own.
    pub(super) fn refuse(&mut self) {
        self.end(Err(self.refused()));
    }

    pub(super) fn ended(&self) -> Option<Result<u64, ErrorReply>> {
        self.ended
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    pub(super) fn refused(&self) -> ErrorReply {
        ErrorReply::ReplicaRefused { rank: self.rank.into(), code: 0 }
    }
}

impl Onward {
    /// Asks a server for something whose data follows, for a `request` of this server; none while
    /// it waits for a link, a buffer or a place.
    ///
    /// # Errors
    /// Why the server cannot have it.
    pub(super) fn ask<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        guard: Option<&Guard>,
        (hop, request): (&mut Hop, RequestKey),
        Asking { of: (method, byte_len), parts, capability, deadline }: Asking<'_>,
    ) -> Result<Option<RequestId>, ErrorReply> {
        let Some((rpc, proofs)) = self.peers.link(hop.peer) else { return Ok(None) };
        if rpc.under_way() >= rpc.capacity() {
            return Ok(None);
        }
        let proof = match (guard, capability) {
            (Some(guard), Some(capability)) => {
                let proof = guard.prove_on(proofs, capability, (method, byte_len), parts);
                Some(proof.map_err(|why| ErrorReply::Denied { why })?)
            }
            _ => None,
        };
        let proved = if proof.is_some() { PROVED } else { 0 };
        let proof: &[u8] = proof.as_ref().map_or(&[], |proof| proof);
        let buffers = endpoint.buffers_of(rpc.link());
        let Ok(out) = message(&buffers, proof, parts) else { return Ok(None) };
        let (method, token) = (method as u16 | proved, 0);
        let call = Call { method, token, deadline, ask_fate: true };
        match rpc.call_growing(endpoint, call, out, byte_len) {
            Ok(sent) => {
                self.sent.insert((hop.peer, sent.number()), request);
                Ok(Some(*hop.request.insert(sent)))
            }
            Err(refused) => match refused.error {
                CallError::Full { .. }
                | CallError::NoBuffer(_)
                | CallError::Submit(SubmitError::Full) => Ok(None),
                _ => Err(hop.refused()),
            },
        }
    }

    /// Gives data to the link to a server that was asked.
    ///
    /// # Errors
    /// Why the server cannot have it.
    pub(super) fn supply<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        hop: &Hop,
        Part { offset, bytes, crcs }: Part,
    ) -> Result<(), ErrorReply> {
        // The end of one that has lost its link is told by a completion.
        let Some((rpc, _)) = self.peers.link(hop.peer) else { return Ok(()) };
        let Some(request) = hop.request else { return Ok(()) };
        let given = rpc.supply_with_crcs(endpoint, request, offset, bytes, crcs);
        match given.map_err(|rejected| rejected.error) {
            Ok(()) | Err(SupplyFault::Refused(SupplyError::Ended)) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "a piece cannot be passed on");
                Err(hop.refused())
            }
        }
    }

    /// What a server has not made it need not make any more.
    pub(super) fn cancel<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        hop: &Hop,
    ) {
        if let (Some(request), false) = (hop.request, hop.has_ended()) {
            self.sent.remove(&(hop.peer, request.number()));
            self.peers.cancel(endpoint, hop.peer, request);
        }
    }

    /// Leaves a server.
    pub(super) fn leave<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        hop: &Hop,
    ) {
        self.cancel(endpoint, hop);
        self.peers.release(hop.peer);
    }
}

fn message(
    buffers: &impl SendBuffers,
    proof: &[u8],
    parts: &[&[u8]],
) -> Result<Outgoing, NoBuffer> {
    let byte_len = proof.len() + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut out = Outgoing::new(buffers, byte_len, 0)?;
    out.extend(proof)?;
    parts.iter().try_for_each(|part| out.extend(part))?;
    Ok(out)
}
