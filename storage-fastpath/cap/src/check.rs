//! How a server checks what a request carries.

use crate::capability::{CAPABILITY_BYTES, Capability, Rights, Scope};
use crate::denied::Denied;
use crate::grant::{Grant, SECRET_BYTES};
use crate::keys::{Key, KeyRing};
use crate::limits::SECRETS_KEPT;
use crate::proof::{PROOF_BYTES, Parts, tag};
use crate::replay::Replays;
use crate::revoked::Revoked;
use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// As the tenant of this number, which is 0 for none; none where it does not matter.
    pub tenant: Option<u32>,
    /// The digest of its layout; none where it does not matter, as for what changes nothing.
    pub layout: Option<u128>,
}

/// Checks proofs: one for all threads of a server.
pub struct Checker {
    state: Mutex<State>,
}

struct State {
    ring: KeyRing,
    /// Rises when the keys change.
    generation: u64,
    /// Secrets of capabilities that were proved, where they are looked for.
    secrets: Vec<Option<([u8; CAPABILITY_BYTES], [u8; SECRET_BYTES])>>,
    replays: Replays,
    revoked: Arc<Revoked>,
}

/// A secret that is known, or what makes it.
enum Found {
    Secret([u8; SECRET_BYTES]),
    Key(Key),
}

impl Found {
    fn secret(self, bytes: &[u8; CAPABILITY_BYTES]) -> [u8; SECRET_BYTES] {
        match self {
            Self::Secret(secret) => secret,
            Self::Key(key) => key.secret(bytes),
        }
    }
}

fn place(bytes: &[u8; CAPABILITY_BYTES]) -> usize {
    towpath_base::crc::crc32c(bytes) as usize % SECRETS_KEPT
}

impl State {
    fn find(&self, key: u32, bytes: &[u8; CAPABILITY_BYTES]) -> Option<Found> {
        match &self.secrets[place(bytes)] {
            Some((of, secret)) if of == bytes => Some(Found::Secret(*secret)),
            _ => self.ring.key(key).map(Found::Key),
        }
    }

    /// Whether a secret that was found when the keys were of that generation still holds.
    fn holds(
        &self,
        generation: u64,
        key: u32,
        bytes: &[u8; CAPABILITY_BYTES],
        secret: &[u8; SECRET_BYTES],
    ) -> bool {
        let again = || self.ring.key(key).map(|key| key.secret(bytes));
        self.generation == generation || again().is_some_and(|again| again == *secret)
    }
}

impl Checker {
    /// With these keys, of a server that starts at `now_ms`.
    #[must_use]
    pub fn new(ring: KeyRing, now_ms: u64) -> Self {
        let secrets = vec![None; SECRETS_KEPT];
        let (replays, revoked) = (Replays::new(now_ms), Arc::default());
        Self { state: Mutex::new(State { ring, generation: 0, secrets, replays, revoked }) }
    }

    /// With other keys from now on.
    pub fn set_keys(&self, ring: KeyRing) {
        let mut state = self.state();
        state.ring = ring;
        state.generation += 1;
        // They may be of a key that is gone.
        state.secrets.fill(None);
    }

    /// With these capabilities revoked from now on.
    pub fn set_revoked(&self, revoked: Revoked) {
        // The list before is dropped without the lock.
        let _before = core::mem::replace(&mut self.state().revoked, Arc::new(revoked));
    }

    /// The grant of a capability that a request was proved with: whoever has the keys can make it.
    ///
    /// # Errors
    /// [`Denied::Key`] where its key is gone.
    pub fn grant(&self, capability: &Capability) -> Result<Grant, Denied> {
        let bytes = capability.emit();
        let found = self.state().find(capability.key, &bytes).ok_or(Denied::Key)?;
        Ok(Grant { capability: *capability, secret: found.secret(&bytes) })
    }

    /// The capabilities that are revoked.
    #[must_use]
    pub fn revoked(&self) -> Arc<Revoked> {
        Arc::clone(&self.state().revoked)
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
        let (found, generation) = {
            let state = self.state();
            (state.find(capability.key, bytes).ok_or(Denied::Key)?, state.generation)
        };
        // Without the lock: it takes a while, and whoever comes may ask for it.
        let secret = found.secret(bytes);
        let expected = tag(&secret, &nonce, (method, data_len), [body]);
        if !bool::from(expected[..].ct_eq(shown)) {
            return Err(Denied::Forged);
        }
        if now_ms > capability.expires_ms {
            return Err(Denied::Expired);
        }
        may(&capability, demand)?;
        let mut state = self.state();
        if !state.holds(generation, capability.key, bytes, &secret) {
            return Err(Denied::Key);
        }
        if state.revoked.contains(capability.serial) {
            return Err(Denied::Revoked);
        }
        // Two capabilities have the same secret by chance alone.
        let holder = u64::from_le_bytes(*secret.first_chunk().ok_or(Denied::Forged)?);
        state.replays.use_up(now_ms, holder, nonce.parts())?;
        // Only now: forged ones displace nothing.
        state.secrets[place(bytes)] = Some((*bytes, secret));
        Ok(capability)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; if something did, what it holds is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Checker {
    // What it keeps are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").finish_non_exhaustive()
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
    if tenant.is_some_and(|tenant| ![0, tenant].contains(&capability.tenant)) {
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
