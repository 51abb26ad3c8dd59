//! Requests to other servers, whose data follows, with proofs of this server's own.

use towpath_fastpath::cap::Capability;
use towpath_fastpath::proof::PROVED;
use towpath_fastpath::{ErrorReply, Method};
use towpath_rpc::{Call, CallError, NoBuffer, Outgoing, RequestId};
use towpath_transport::{Device, Endpoint, Region, SendBuffers, SubmitError, Time};

use super::Onward;
use super::peers::PeerId;
use crate::guard::Guard;

/// What another server is asked: the method and how many bytes of data follow, the body in parts,
/// and until when.
pub(super) type Asking<'a> = ((Method, u32), &'a [&'a [u8]], Time);

/// Whether a server was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// By that request.
    As(RequestId),
    /// It waits for a link, a buffer or a place.
    Waits,
}

impl Onward {
    /// Sends a server a request whose data follows, by what it was proved with here.
    ///
    /// # Errors
    /// Why the server cannot have it, where that is not for a reason of its own.
    pub(super) fn call<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        guard: Option<&Guard>,
        peer: PeerId,
        capability: Option<&Capability>,
        ((method, byte_len), parts, deadline): Asking<'_>,
    ) -> Result<Called, Option<ErrorReply>> {
        let Some((rpc, proofs)) = self.peers.link(peer) else { return Ok(Called::Waits) };
        if rpc.under_way() >= rpc.capacity() {
            return Ok(Called::Waits);
        }
        let proof = match (guard, capability) {
            (Some(guard), Some(capability)) => {
                let proof = guard.prove_on(proofs, capability, (method, byte_len), parts);
                Some(proof.map_err(|why| Some(ErrorReply::Denied { why }))?)
            }
            _ => None,
        };
        let proved = if proof.is_some() { PROVED } else { 0 };
        let proof: &[u8] = proof.as_ref().map_or(&[], |proof| proof);
        let buffers = endpoint.buffers_of(rpc.link());
        let Ok(out) = message(&buffers, proof, parts) else { return Ok(Called::Waits) };
        let (method, token) = (method as u16 | proved, 0);
        let call = Call { method, token, deadline, ask_fate: true };
        match rpc.call_growing(endpoint, call, out, byte_len) {
            Ok(request) => Ok(Called::As(request)),
            Err(refused) => match refused.error {
                CallError::Full { .. }
                | CallError::NoBuffer(_)
                | CallError::Submit(SubmitError::Full) => Ok(Called::Waits),
                _ => Err(None),
            },
        }
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
