//! Who may do what: the keys of a server, which capabilities are revoked, and where that is kept.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Guard`]: what all workers of a server check requests by |
//! | `files` | the file of keys, which is read again when it changes, and that of what is revoked |

mod files;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use towpath_fastpath::Method;
use towpath_fastpath::cap::limits::AHEAD_MS;
use towpath_fastpath::cap::{Capability, Checker, Denied, PROOF_BYTES, Relay};
use towpath_fastpath::proof::{Shown, system_ms};
use towpath_fastpath::server::StorageRequest;

pub use files::GuardError;
use files::{Files, Wish};

/// Revocations that wait for the disk: each takes a flush, and its client waits for it.
const WISHES_MAX: usize = 64;

/// What the requests of a server are checked by. Clones are the same, one for each worker.
#[derive(Clone, Debug)]
pub struct Guard {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    checker: Arc<Checker>,
    clock: fn() -> u64,
    takes_from_ms: u64,
    wishes: SyncSender<Wish>,
}

impl Guard {
    /// With the keys of a file, which is read again when it changes, and what was revoked kept in
    /// another one, which is made with the first revocation. A thread looks after both, until the
    /// last clone is gone.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn open(keys: &Path, revoked: &Path) -> Result<Self, GuardError> {
        Self::open_at(keys, revoked, system_ms)
    }

    /// The same by another clock: milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`GuardError`].
    pub fn open_at(keys: &Path, revoked: &Path, clock: fn() -> u64) -> Result<Self, GuardError> {
        let (files, checker) = Files::open(keys, revoked, clock)?;
        let (wishes, asked) = sync_channel(WISHES_MAX);
        std::thread::Builder::new()
            .name("guard".into())
            .spawn(move || files.look_after(&asked))
            .map_err(GuardError::Thread)?;
        let takes_from_ms = clock().saturating_add(AHEAD_MS);
        Ok(Self { shared: Arc::new(Shared { checker, clock, takes_from_ms, wishes }) })
    }

    /// Waits until nothing can come that may have been done before the server was started: one
    /// second from [`open`](Self::open) on, since clocks of clients may be ahead.
    pub fn wait_for_start(&self) {
        let left = self.shared.takes_from_ms.saturating_sub((self.shared.clock)());
        std::thread::sleep(Duration::from_millis(left.min(AHEAD_MS)));
    }

    /// Whether a request of a link that has joined as `tenant` may be done, and by which
    /// capability: none where it needs no leave.
    pub(crate) fn check(
        &self,
        shown: &Shown<'_>,
        request: &StorageRequest,
        tenant: u32,
    ) -> Result<Option<Capability>, Denied> {
        let Shared { checker, clock, .. } = &*self.shared;
        shown.check(checker, clock(), request, tenant)
    }

    /// The proof of a request that this server makes of one that came with a capability.
    pub(crate) fn prove_on(
        &self,
        relay: &mut Relay,
        capability: &Capability,
        (method, data_len): (Method, u32),
        body: &[&[u8]],
    ) -> Result<[u8; PROOF_BYTES], Denied> {
        let Shared { checker, clock, .. } = &*self.shared;
        let grant = checker.grant(capability)?;
        Ok(relay.prove(grant, clock(), method as u16, data_len, body))
    }

    /// Has the capabilities of a serial number hold no more. The answer comes when that is on
    /// stable media, or has failed; none at all where too many wait.
    pub(crate) fn revoke(&self, serial: u64, until_ms: u64) -> Option<Receiver<Revocation>> {
        let (tell, told) = sync_channel(1);
        match self.shared.wishes.try_send(Wish { serial, until_ms, tell }) {
            Ok(()) => Some(told),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => None,
        }
    }
}

/// What became of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Revocation {
    /// It is on stable media, and holds.
    Done,
    /// As many are revoked as are remembered.
    Full,
    /// It holds until the server ends, and could not be written.
    Failed,
}
