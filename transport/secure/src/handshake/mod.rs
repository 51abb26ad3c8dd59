//! TLS 1.3 between two hosts, once for each pair and life.
//!
//! A [`Handshake`] takes bytes and gives bytes; it owns no socket and reads no clock. Both ends
//! prove that they have their private key. What it leaves behind is who the peer is and the secret
//! of the pair, not a connection: what follows on the stream is not encrypted by TLS.
//!
//! | module | content |
//! |---|---|
//! | `host` | what all handshakes of a host share: its key, whom it trusts, its mode |
//! | `exchange` | one handshake |
//! | `verifier` | what TLS asks about a peer |
//! | `keys` | peers by their raw public keys (RFC 7250) |
//! | `authority` | peers by certificates of an authority |
//! | `certificate` | expiry and names of a certificate |
//! | `error` | why a handshake failed, and what helps |

mod authority;
mod certificate;
mod error;
mod exchange;
mod host;
mod keys;
mod verifier;

pub use authority::{Authority, AuthorityError};
pub use certificate::CertificateError;
pub use error::HandshakeError;
pub use exchange::{Handshake, Outcome};
pub use host::{Host, HostError, Trust};

use crate::clock::WallTime;
use crate::identity::PublicKey;
use crate::peers::{PeerName, Roles};

/// Who a peer is, as the handshake found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Its key.
    pub key: PublicKey,
    /// Its name in `authorized_peers`, or in its certificate.
    pub name: PeerName,
    /// When it is trusted no longer.
    pub expires: Option<WallTime>,
    /// What it may be.
    pub roles: Roles,
}

impl PeerIdentity {
    /// Whether the peer's time is over. Whoever keeps a link asks this again while it stands.
    #[must_use]
    pub fn has_expired(&self, now: WallTime) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }
}
