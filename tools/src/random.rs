//! Words that nobody can know before.

use std::hash::{BuildHasher as _, RandomState};

/// A fresh one. std keys each `RandomState` from the system's randomness: a source of it without a
/// dependency.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u64)
}
