//! The secret of a pair of hosts: what one handshake leaves behind.

use super::hkdf::{SECRET_BYTES, Secret, expand};
use super::link::LinkSecret;
use crate::peers::Role;
use crate::random::{self, RandomError, SecureRandom};
use core::fmt;
use ring::digest::{SHA256, digest};
use ring::hmac;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Bytes of the tag of a HELLO.
pub const HELLO_TAG_BYTES: usize = 16;
/// Bytes of the salt that each HELLO carries.
pub const SALT_BYTES: usize = 16;

/// What a pair secret is known by. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretId(pub [u8; 16]);

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Random bytes that an end puts into its HELLO, so that no two links have the same keys even where
/// somebody sends an old HELLO again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub [u8; SALT_BYTES]);

impl Salt {
    /// A new one.
    ///
    /// # Errors
    /// [`RandomError`].
    pub fn new(random: &dyn SecureRandom) -> Result<Self, RandomError> {
        random::bytes(random).map(Self)
    }
}

/// A HELLO bears a wrong tag: somebody changed it, or made it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the HELLO was not made by the peer whose secret it names, or was changed on its way: if this \
     comes again, somebody between the hosts changes it"
)]
pub struct HelloForged;

/// The secret of a pair of hosts, from one handshake of them, with the id that later HELLOs name it
/// by. The client of that handshake connects the links that are made of it; the other direction
/// has a handshake of its own. A process keeps it in memory only.
#[derive(Clone)]
pub struct PairSecret {
    id: SecretId,
    secret: Secret,
}

impl PairSecret {
    /// From the exporter of a handshake. Any 32 random bytes that both ends know would do.
    #[must_use]
    pub fn new(exported: impl Into<Zeroizing<[u8; SECRET_BYTES]>>) -> Self {
        let exported = exported.into();
        let id = SecretId(*expand(&exported, b"id", &[]));
        Self { id, secret: exported }
    }

    /// What both ends know it by.
    #[must_use]
    pub fn id(&self) -> SecretId {
        self.id
    }

    /// The tag that `side` appends to its HELLO.
    #[must_use]
    pub fn hello_tag(&self, side: Role, hello: &[u8]) -> [u8; HELLO_TAG_BYTES] {
        let label: &[u8] = match side {
            Role::Client => b"hello client",
            Role::Server => b"hello server",
        };
        let key = expand::<SECRET_BYTES>(&self.secret, label, &[]);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key[..]), hello);
        let mut cut = [0; HELLO_TAG_BYTES];
        cut.copy_from_slice(&tag.as_ref()[..HELLO_TAG_BYTES]);
        cut
    }

    /// Compares the tag of a HELLO that came from `side`, in a time that tells nothing of it.
    ///
    /// # Errors
    /// [`HelloForged`].
    pub fn check_hello(&self, side: Role, hello: &[u8], tag: &[u8]) -> Result<(), HelloForged> {
        let wanted = self.hello_tag(side, hello);
        if bool::from(wanted[..].ct_eq(tag)) { Ok(()) } else { Err(HelloForged) }
    }

    /// The secret of the link that two HELLOs agreed on. Each HELLO holds a [`Salt`] of its sender,
    /// so each end alone makes sure that no link before had these keys.
    #[must_use]
    pub fn link(&self, client_hello: &[u8], server_hello: &[u8]) -> LinkSecret {
        let [client, server] = [client_hello, server_hello].map(|hello| digest(&SHA256, hello));
        let secret = expand(&self.secret, b"link", &[client.as_ref(), server.as_ref()]);
        LinkSecret::new(secret)
    }
}

impl fmt::Debug for PairSecret {
    // The secret stays one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PairSecret").field(&self.id).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::system_random;
    use crate::testing::NoRandom;

    fn pair() -> PairSecret {
        PairSecret::new(Zeroizing::new([0x42; SECRET_BYTES]))
    }

    #[test]
    fn a_hello_is_good_as_it_was_sent_and_from_its_side_alone() {
        let pair = pair();
        let tag = pair.hello_tag(Role::Client, b"hello");
        assert_eq!(pair.check_hello(Role::Client, b"hello", &tag), Ok(()));
        assert_eq!(pair.check_hello(Role::Client, b"hellp", &tag), Err(HelloForged));
        assert_eq!(pair.check_hello(Role::Server, b"hello", &tag), Err(HelloForged));
        assert_eq!(pair.check_hello(Role::Client, b"hello", &tag[..15]), Err(HelloForged));
        let other = PairSecret::new(Zeroizing::new([0x43; SECRET_BYTES]));
        assert_eq!(other.check_hello(Role::Client, b"hello", &tag), Err(HelloForged));
    }

    #[test]
    fn a_salt_needs_random_bytes() {
        assert_eq!(Salt::new(&NoRandom), Err(RandomError));
        let salt = Salt::new(system_random()).expect("random bytes");
        assert_ne!(Salt::new(system_random()), Ok(salt));
    }

    #[test]
    fn the_secret_is_not_shown() {
        let text = format!("{:?}", pair());
        assert!(text.contains(&pair().id().to_string()) && !text.contains("4242"), "{text}");
    }
}
