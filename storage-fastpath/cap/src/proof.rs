//! What a request carries, and how a client makes it.

use crate::capability::CAPABILITY_BYTES;
use crate::grant::{Grant, SECRET_BYTES};
use bytemuck::{Pod, Zeroable};
use core::hash::Hasher as _;
use core::mem::size_of;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 120;

/// What tags of requests begin with, so that no other use of a secret gives the same one.
const DOMAIN: &[u8; 16] = b"towpath request1";

/// Tells a request from all others: no two of a source have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Nonce {
    source: u64,
    number: u64,
    made_ms: u64,
}

impl Nonce {
    /// Whose number it is, the number, and when the request was made.
    pub(crate) fn parts(self) -> (u64, u64, u64) {
        (u64::from_le(self.source), u64::from_le(self.number), u64::from_le(self.made_ms))
    }
}

/// The parts of a proof.
pub(crate) struct Parts<'a> {
    pub(crate) capability: &'a [u8; CAPABILITY_BYTES],
    pub(crate) nonce: Nonce,
    pub(crate) tag: &'a [u8],
}

const NONCE_BYTES: usize = size_of::<Nonce>();
const _: () = assert!(PROOF_BYTES == CAPABILITY_BYTES + NONCE_BYTES + 16);

impl<'a> Parts<'a> {
    pub(crate) fn of(proof: &'a [u8; PROOF_BYTES]) -> Option<Self> {
        let (capability, rest) = proof.split_first_chunk()?;
        let (nonce, tag) = rest.split_at_checked(NONCE_BYTES)?;
        Some(Self { capability, nonce: bytemuck::pod_read_unaligned(nonce), tag })
    }
}

/// The tag of a request under a secret.
pub(crate) fn tag<'a>(
    secret: &[u8; SECRET_BYTES],
    nonce: &Nonce,
    (method, data_len): (u16, u32),
    body: impl IntoIterator<Item = &'a [u8]>,
) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(DOMAIN);
    hasher.write(bytemuck::bytes_of(nonce));
    hasher.write(&method.to_le_bytes());
    hasher.write(&data_len.to_le_bytes());
    body.into_iter().for_each(|part| hasher.write(part));
    hasher.finish128().as_bytes()
}

/// Makes proofs for whatever capability a request came with, for a server that passes it on: it has
/// the keys, so it can show that the request is what it makes of it.
#[derive(Clone, Debug)]
pub struct Relay {
    source: u64,
    number: u64,
}

impl Relay {
    /// `source` is drawn at random for each.
    #[must_use]
    pub fn new(source: u64) -> Self {
        Self { source, number: 0 }
    }

    /// As [`Prover::prove`], for a grant that [`Checker::grant`](crate::Checker::grant) gives.
    pub fn prove(
        &mut self,
        grant: Grant,
        now_ms: u64,
        method: u16,
        data_len: u32,
        body: &[&[u8]],
    ) -> [u8; PROOF_BYTES] {
        let mut prover = Prover { number: self.number, ..Prover::new(grant, self.source) };
        self.number += 1;
        prover.prove(now_ms, method, data_len, body)
    }
}

/// Makes the proofs of one link's requests.
#[derive(Clone, Debug)]
pub struct Prover {
    grant: Grant,
    capability: [u8; CAPABILITY_BYTES],
    source: u64,
    number: u64,
}

impl Prover {
    /// Of a grant. `source` is drawn at random for each prover: its numbers are told from those of
    /// others by it.
    #[must_use]
    pub fn new(grant: Grant, source: u64) -> Self {
        Self { grant, capability: grant.capability.emit(), source, number: 0 }
    }

    /// What it proves with.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The proof of a request that is made now: of its method, the length of its data, and its body
    /// in parts. It goes with one request alone: one that is sent again needs another.
    pub fn prove(
        &mut self,
        now_ms: u64,
        method: u16,
        data_len: u32,
        body: &[&[u8]],
    ) -> [u8; PROOF_BYTES] {
        self.number += 1;
        let nonce = Nonce {
            source: self.source.to_le(),
            number: self.number.to_le(),
            made_ms: now_ms.to_le(),
        };
        let body = body.iter().copied();
        let tag = tag(&self.grant.secret, &nonce, (method, data_len), body);
        let mut proof = [0; PROOF_BYTES];
        let (capability, rest) = proof.split_at_mut(CAPABILITY_BYTES);
        let (numbers, shown) = rest.split_at_mut(NONCE_BYTES);
        capability.copy_from_slice(&self.capability);
        numbers.copy_from_slice(bytemuck::bytes_of(&nonce));
        shown.copy_from_slice(&tag);
        proof
    }
}
