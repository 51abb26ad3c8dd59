//! The secrets of one link, its two directions and their epochs.

use super::hkdf::{Secret, expand};
use crate::peers::Role;
use core::fmt;
use zeroize::Zeroizing;

/// Bytes of a key for AES-128-GCM.
const KEY_BYTES: usize = 16;

/// What a nonce is made of, beside path and number.
pub(crate) type Iv = [u8; 12];

/// What packets name their link by. It is no secret, and two links may have the same by chance: the
/// tag of the packet decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTag(pub [u8; 4]);

/// The secret of a link, from which both of its directions have their keys.
pub struct LinkSecret {
    secret: Secret,
}

impl LinkSecret {
    pub(super) fn new(secret: Secret) -> Self {
        Self { secret }
    }

    /// What the link's packets name it by.
    #[must_use]
    pub fn tag(&self) -> LinkTag {
        LinkTag(*expand(&self.secret, b"tag", &[]))
    }

    /// Epoch 0 of what `side` sends.
    pub(crate) fn direction(&self, side: Role) -> EpochSecret {
        let label: &[u8] = match side {
            Role::Client => b"client",
            Role::Server => b"server",
        };
        EpochSecret { epoch: 0, secret: expand(&self.secret, label, &[]) }
    }
}

impl fmt::Debug for LinkSecret {
    // The secret stays one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LinkSecret").field(&self.tag()).finish()
    }
}

/// The secret of one epoch of one direction. The next epoch comes from it, and no earlier one: what
/// was sealed before is safe from whoever learns it.
pub(crate) struct EpochSecret {
    epoch: u64,
    secret: Secret,
}

impl EpochSecret {
    /// Counts up from 0.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn next(&self) -> Self {
        Self { epoch: self.epoch + 1, secret: expand(&self.secret, b"next", &[]) }
    }

    pub(crate) fn key(&self) -> Zeroizing<[u8; KEY_BYTES]> {
        expand(&self.secret, b"key", &[])
    }

    pub(crate) fn iv(&self) -> Iv {
        *expand(&self.secret, b"iv", &[])
    }
}

#[cfg(test)]
mod tests {
    use super::super::pair::PairSecret;
    use super::*;
    use crate::testing::hex;

    fn link(client: &[u8], server: &[u8]) -> LinkSecret {
        PairSecret::new(Zeroizing::new([0x42; 32])).link(client, server)
    }

    /// The golden values of `docs/secure-links.md` section 8, which another program computed.
    #[test]
    fn the_schedule_is_the_documented_one() {
        let pair = PairSecret::new(Zeroizing::new([0x42; 32]));
        assert_eq!(pair.id().to_string(), "26f87a1c39597850b3d918aae83f138b");
        assert_eq!(
            hex(&pair.hello_tag(Role::Client, b"client hello")),
            "77698d96d4d65cacf137c34b704a6ef2"
        );
        let link = link(b"client hello", b"server hello");
        assert_eq!(hex(&link.tag().0), "b371429d");
        let client = link.direction(Role::Client);
        assert_eq!(hex(&client.key()[..]), "2c156eaf906a7001ab8afc3f8772f6ef");
        assert_eq!(hex(&client.iv()), "d096ed936dde1a03e65d2add");
        let next = client.next();
        assert_eq!(
            (next.epoch(), hex(&next.key()[..]).as_str()),
            (1, "95ea9db415e2382daa20c2d3b89efe70")
        );
        assert_eq!(
            hex(&link.direction(Role::Server).key()[..]),
            "1dfb2136fa21d3bc0abf10f31a948acc"
        );
    }

    #[test]
    fn links_directions_and_epochs_share_no_key() {
        let mut keys = Vec::new();
        for (client, server) in [("a", "b"), ("a", "c"), ("b", "a"), ("b", "b")] {
            let link = link(client.as_bytes(), server.as_bytes());
            for side in [Role::Client, Role::Server] {
                let mut epoch = link.direction(side);
                for _ in 0..4 {
                    keys.push(*epoch.key());
                    epoch = epoch.next();
                }
            }
        }
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
    }
}
