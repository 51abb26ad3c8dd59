//! Proofs of requests: where they are in a message, and what a request needs leave for
//! (docs/storage-protocol.md section 10).

use crate::change::Clear;
use crate::server::{Rejection, StorageRequest};
use crate::slice::SLICE_BYTES;
use crate::wire::{Method, ReadHeader, WireError, WriteHeader};
use std::time::SystemTime;
use towpath_cap::{Capability, Checker, Demand, Denied, Grant, PROOF_BYTES, Prover, Rights};

/// In the method of a request whose body begins with a proof.
pub const PROVED: u16 = 0x8000;

/// A request apart from its proof.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    code: u16,
    proof: Option<&'a [u8; PROOF_BYTES]>,
    body: &'a [u8],
    data_len: usize,
}

impl<'a> Shown<'a> {
    /// From the method, the body and the length of the data as they came.
    ///
    /// # Errors
    /// [`Rejection`] where the method says that there is a proof and there is not.
    pub fn new(code: u16, body: &'a [u8], data_len: usize) -> Result<Self, Rejection> {
        let (proof, body) = if code & PROVED == 0 {
            (None, body)
        } else {
            let short = WireError::Short { found: body.len(), needed: PROOF_BYTES };
            let (proof, body) = body.split_first_chunk().ok_or(Rejection::Malformed(short))?;
            (Some(proof), body)
        };
        Ok(Self { code: code & !PROVED, proof, body, data_len })
    }

    /// Its method.
    ///
    /// # Errors
    /// [`Rejection::UnknownMethod`].
    pub fn method(&self) -> Result<Method, Rejection> {
        Method::from_code(self.code).ok_or(Rejection::UnknownMethod(self.code))
    }

    /// Its body without the proof.
    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Bytes of its data.
    pub(crate) fn data_len(&self) -> usize {
        self.data_len
    }

    /// Whether the request may be done, and on which capability: none where it needs no leave.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check(
        &self,
        checker: &Checker,
        now_ms: u64,
        request: &StorageRequest,
        tenant: u32,
    ) -> Result<Option<Capability>, Denied> {
        let Some(demand) = demand(request, tenant) else { return Ok(None) };
        let proof = self.proof.ok_or(Denied::Missing)?;
        // The tag covers the length of the data and its checksums, which are in the body.
        let data_len = u32::try_from(self.data_len).map_err(|_| Denied::Forged)?;
        checker.check(now_ms, proof, self.code, data_len, self.body, &demand).map(Some)
    }
}

/// What a request needs leave for; none where anybody may ask for it: what says how the server is.
#[must_use]
pub fn demand(request: &StorageRequest, tenant: u32) -> Option<Demand> {
    let on = |rights, chunk: crate::ChunkId| Demand {
        rights,
        chunk: Some(chunk.0),
        tenant: Some(tenant),
        ..Demand::default()
    };
    // A change has the layout of one copy.
    let changes = |rights, chunk| Demand { layout: Some(0), ..on(rights, chunk) };
    let bytes = |demand, start: u64, end| Demand { range: Some((start, end)), ..demand };
    let ends = |start: u64, byte_len: u64| Some(start.saturating_add(byte_len));
    let about_all =
        |rights| Demand { rights, all_chunks: true, tenant: Some(tenant), ..Demand::default() };
    Some(match request {
        StorageRequest::Health { .. } | StorageRequest::Info | StorageRequest::Qos => return None,
        // Any capability, of whichever tenant: a link enters its session before it joins.
        StorageRequest::Session { .. } => Demand::default(),
        // Which tenant a capability is for is compared with the one that is joined.
        StorageRequest::Join(join) => {
            let tenant = Some(crate::wire::tenant_number(&join.tenant));
            Demand { tenant, ..Demand::default() }
        }
        StorageRequest::List { .. } | StorageRequest::Scrub { .. } => about_all(Rights::READ),
        StorageRequest::Revoke { .. } => about_all(Rights::ADMIN),
        StorageRequest::Stat { chunk } => {
            let any = Rights::READ | Rights::WRITE | Rights::CREATE | Rights::DELETE;
            on(any | Rights::ONE_SIDED, *chunk)
        }
        StorageRequest::Locate { chunk, first_slice } => {
            let start = first_slice.saturating_mul(SLICE_BYTES as u64);
            bytes(on(Rights::ONE_SIDED, *chunk), start, None)
        }
        StorageRequest::Digest { chunk, range } | StorageRequest::Sketch { chunk, range, .. } => {
            bytes(on(Rights::READ, *chunk), range.offset, ends(range.offset, range.length.into()))
        }
        StorageRequest::Create { chunk, .. } => changes(Rights::CREATE, *chunk),
        StorageRequest::Delete { chunk, .. } => changes(Rights::DELETE, *chunk),
        StorageRequest::Finish { chunk, .. } | StorageRequest::Chain { chunk, .. } => {
            changes(Rights::WRITE, *chunk)
        }
        StorageRequest::Read(ReadHeader { chunk, offset, length, .. }) => {
            bytes(on(Rights::READ, *chunk), *offset, ends(*offset, (*length).into()))
        }
        StorageRequest::Write { header: WriteHeader { chunk, offset, length, .. }, .. } => {
            bytes(changes(Rights::WRITE, *chunk), *offset, ends(*offset, (*length).into()))
        }
        StorageRequest::Forward { route, header, .. } => {
            let WriteHeader { chunk, offset, length, terms, .. } = *header;
            let layout = Some(route.digest(terms.chain.into()));
            // A server that passes it on is of no tenant: whose it is was checked there.
            let tenant = route.is_first().then_some(tenant);
            let demand = Demand { layout, tenant, ..on(Rights::WRITE, chunk) };
            bytes(demand, offset, ends(offset, length.into()))
        }
        StorageRequest::Rebuild { plan, .. } => {
            let target = plan.target();
            let demand = match plan.helper() {
                Some(helper) => on(Rights::READ, helper.chunk),
                None => changes(Rights::WRITE, target.chunk),
            };
            // As of a write that is passed on.
            let tenant = (plan.rank() == 0).then_some(tenant);
            let demand = Demand { tenant, ..demand };
            bytes(demand, target.offset, ends(target.offset, target.length.into()))
        }
        StorageRequest::Clear(header) => {
            let demand = changes(Rights::WRITE, header.chunk);
            match header.clear {
                Clear::Trim { offset, byte_len } | Clear::Zero { offset, byte_len } => {
                    bytes(demand, offset, ends(offset, byte_len))
                }
                Clear::Truncate { byte_len } => bytes(demand, byte_len, None),
            }
        }
    })
}

/// Milliseconds since the Unix epoch, by the system's clock.
#[must_use]
pub fn system_ms() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Makes the proofs of a client's requests.
#[derive(Clone, Debug)]
pub(crate) struct ClientProofs {
    prover: Prover,
    clock: fn() -> u64,
}

impl ClientProofs {
    pub(crate) fn new(grant: Grant, clock: fn() -> u64) -> Self {
        Self { prover: Prover::new(grant, crate::session::random() as u64), clock }
    }

    pub(crate) fn prove(
        &mut self,
        method: Method,
        data_len: usize,
        body: &[&[u8]],
    ) -> [u8; PROOF_BYTES] {
        let data_len = u32::try_from(data_len).unwrap_or(u32::MAX);
        self.prover.prove((self.clock)(), method as u16, data_len, body)
    }
}
