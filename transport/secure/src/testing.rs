//! What several unit tests of this crate share.

use crate::random::SecureRandom;
use rustls::crypto::GetRandomFailed;

/// A system without random bytes.
#[derive(Debug)]
pub(crate) struct NoRandom;

impl SecureRandom for NoRandom {
    fn fill(&self, _: &mut [u8]) -> Result<(), GetRandomFailed> {
        Err(GetRandomFailed)
    }
}

/// Bytes as people compare them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
