//! What names a layout in a capability.

use sha2::{Digest as _, Sha256};

/// What digests of layouts begin with, so that they are digests of nothing else.
const DOMAIN: &[u8] = b"towpath digest 1";

/// The digest of a layout's bytes, for [`Capability::layout`](crate::Capability::layout): the first
/// half of a SHA-256, little-endian. Never zero, which stands for any layout.
#[must_use]
pub fn layout_digest(bytes: &[u8]) -> u128 {
    let digest = Sha256::new().chain_update(DOMAIN).chain_update(bytes).finalize();
    let half = digest.first_chunk::<16>().map_or(0, |half| u128::from_le_bytes(*half));
    half.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_stays_what_it_is_and_another_byte_gives_another() {
        assert_eq!(layout_digest(b"abc"), layout_digest(b"abc"));
        assert_ne!(layout_digest(b"abc"), layout_digest(b"abd"));
        assert_ne!(layout_digest(b""), 0);
    }
}
