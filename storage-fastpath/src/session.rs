//! A session: what lets a client repeat over a new link what it asked for over an old one.

use crate::request::StorageRequest;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ties the links together that a client uses for the same work, one after the other.
///
/// A client whose link ends does not know which of its changes the server still has. Over a new
/// link of the same session it may repeat them: when the new link has entered the session, the
/// server refuses what is left of the older links, so no old write can land after a repeated one
/// (docs/storage-protocol.md section 7).
///
/// Clones are the same session. Only one link of a session is in use at a time: each new one
/// replaces the one before it.
#[derive(Clone)]
pub struct ClientSession {
    id: u128,
    /// The epoch of the newest link.
    epoch: Arc<AtomicU64>,
}

impl ClientSession {
    /// A new session with a random number, which nobody else can guess: who knows it can end the
    /// work of its links.
    #[must_use]
    pub fn new() -> Self {
        Self::with_id(random())
    }

    /// A session with a number of the caller's own choice: one drawn at random.
    #[must_use]
    pub fn with_id(id: u128) -> Self {
        Self { id, epoch: Arc::default() }
    }

    /// The number of the session.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.id
    }

    /// What makes the next link the newest of the session. When it has ended well, nothing of what
    /// was asked for over older links is still to come, and whatever of it is not done is refused.
    /// It is the first operation of a link; others wait until it has ended.
    #[must_use]
    pub fn enter(&self) -> StorageRequest {
        StorageRequest::Session { id: self.id, epoch: self.next_epoch() }
    }

    /// The epoch of the next link, higher than that of each link before it.
    #[must_use]
    pub fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Default for ClientSession {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ClientSession {
    // The number is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSession").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// std keys each `RandomState` from the system's randomness.
pub(crate) fn random() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(0u64));
    half() << 64 | half()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_their_epochs_and_new_sessions_do_not() {
        let session = ClientSession::new();
        let clone = session.clone();
        assert_eq!((session.next_epoch(), clone.next_epoch(), session.next_epoch()), (1, 2, 3));
        assert_eq!(clone.id(), session.id());
        let other = ClientSession::new();
        assert_ne!(other.id(), session.id());
        assert_eq!(other.next_epoch(), 1);
        assert!(!format!("{session:?}").contains(&session.id().to_string()));
    }
}
