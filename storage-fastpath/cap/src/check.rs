//! How a server checks what a request carries.

use crate::capability::{CAPABILITY_BYTES, Capability, Rights, Scope};
use crate::denied::Denied;
use crate::grant::SECRET_BYTES;
use crate::keys::KeyRing;
use crate::limits::SECRETS_KEPT;
use crate::proof::{PROOF_BYTES, Parts, tag};
use crate::replay::Replays;
use crate::revoked::Revoked;
use std::sync::{Mutex, MutexGuard, PoisonError};
use subtle::ConstantTimeEq as _;

/// What a request needs leave for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// One of these rights.
    pub rights: Rights,
    /// With this chunk; none where it is not about one.
    pub chunk: Option<u128>,
    /// It is about all chunks.
    pub all_chunks: bool,
    /// Bytes from the first on, up to the second or to the end of the chunk where that is none.
    pub range: Option<(u64, Option<u64>)>,
    /// As this tenant; 0 where it does not matter.
    pub tenant: u32,
    /// The digest of its layout; none where it does not matter, as for what changes nothing.
    pub layout: Option<u128>,
}

/// Checks proofs: one for all threads of a server.
#[derive(Debug)]
pub struct Checker {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ring: KeyRing,
    /// Secrets that were derived, where they are looked for.
    secrets: Vec<Option<([u8; CAPABILITY_BYTES], [u8; SECRET_BYTES])>>,
    replays: Replays,
    revoked: Revoked,
}

impl State {
    fn secret(&self, key: u32, bytes: &[u8; CAPABILITY_BYTES]) -> Option<[u8; SECRET_BYTES]> {
        let place = towpath_base::crc::crc32c(bytes) as usize % SECRETS_KEPT;
        if let Some((of, secret)) = &self.secrets[place]
            && of == bytes
        {
            return Some(*secret);
        }
        self.ring.secret(key, bytes)
    }

    /// Keeps the secret of a capability that was proved: forged ones displace nothing.
    fn keep(&mut self, bytes: &[u8; CAPABILITY_BYTES], secret: [u8; SECRET_BYTES]) {
        let place = towpath_base::crc::crc32c(bytes) as usize % SECRETS_KEPT;
        self.secrets[place] = Some((*bytes, secret));
    }
}

impl Checker {
    /// With these keys, of a server that starts at `now_ms`.
    #[must_use]
    pub fn new(ring: KeyRing, now_ms: u64) -> Self {
        let secrets = vec![None; SECRETS_KEPT];
        let (replays, revoked) = (Replays::new(now_ms), Revoked::default());
        Self { state: Mutex::new(State { ring, secrets, replays, revoked }) }
    }

    /// With other keys from now on.
    pub fn set_keys(&self, ring: KeyRing) {
        let mut state = self.state();
        state.ring = ring;
        // They may be of a key that is gone.
        state.secrets.fill(None);
    }

    /// With these capabilities revoked from now on.
    pub fn set_revoked(&self, revoked: Revoked) {
        self.state().revoked = revoked;
    }

    /// The capabilities that are revoked.
    #[must_use]
    pub fn revoked(&self) -> Revoked {
        self.state().revoked.clone()
    }

    /// Whether a request may be done: by its proof, its method, the length of its data, its body,
    /// and what it needs leave for. Its number is used up then, and only then. Says what its
    /// capability is.
    ///
    /// # Errors
    /// [`Denied`]. What has no right tag is [`Denied::Forged`], whatever else is wrong with it, but
    /// for [`Denied::Key`].
    pub fn check(
        &self,
        now_ms: u64,
        proof: &[u8; PROOF_BYTES],
        method: u16,
        data_len: u32,
        body: &[u8],
        demand: &Demand,
    ) -> Result<Capability, Denied> {
        let Parts { capability: bytes, nonce, tag: shown } =
            Parts::of(proof).ok_or(Denied::Forged)?;
        let capability = Capability::parse(bytes).map_err(|_| Denied::Forged)?;
        let secret = self.state().secret(capability.key, bytes).ok_or(Denied::Key)?;
        // Without the lock: the checksums of a long write take a while.
        let expected = tag(&secret, &nonce, (method, data_len), [body]);
        if !bool::from(expected[..].ct_eq(shown)) {
            return Err(Denied::Forged);
        }
        if now_ms > capability.expires_ms {
            return Err(Denied::Expired);
        }
        may(&capability, demand)?;
        let mut state = self.state();
        if state.revoked.contains(capability.serial) {
            return Err(Denied::Revoked);
        }
        state.replays.use_up(now_ms, nonce.parts())?;
        state.keep(bytes, secret);
        Ok(capability)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; if something did, what it holds is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a capability allows what is demanded.
fn may(capability: &Capability, demand: &Demand) -> Result<(), Denied> {
    let &Demand { rights, chunk, all_chunks, range, tenant, layout } = demand;
    if rights != Rights::NONE && !capability.rights.touch(rights) {
        return Err(Denied::Rights);
    }
    let is_in_scope = chunk.is_none_or(|chunk| capability.scope.contains(chunk))
        && (!all_chunks || capability.scope == Scope::ALL);
    if !is_in_scope || range.is_some_and(|(start, end)| !capability.covers(start, end)) {
        return Err(Denied::OutOfRange);
    }
    if ![0, tenant].contains(&capability.tenant) {
        return Err(Denied::Tenant);
    }
    match layout {
        Some(layout) if capability.layout != 0 && capability.layout != layout => {
            Err(Denied::Layout)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
