//! Why a peer is refused, and what helps.

use super::line::PeerName;
use super::roles::Role;
use crate::clock::WallTime;
use crate::identity::PublicKey;

/// Why a peer that proved who it is may not be linked with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerRefused {
    /// No line has its key: it was never there, or was removed.
    #[error(
        "the peer's key is not in authorized_peers; its fingerprint is {}. If the peer shows the \
         same one, add this line, with the name of the host:\n{key} NAME",
        key.fingerprint()
    )]
    Unknown {
        /// Its key.
        key: PublicKey,
    },
    /// Its time is over.
    #[error(
        "{name} was trusted until {expired}, and the clock here says {now}: write a later \
         `expires=` into authorized_peers, or set the clock"
    )]
    Expired {
        /// The peer.
        name: PeerName,
        /// When it expired.
        expired: WallTime,
        /// What this host's clock says.
        now: WallTime,
    },
    /// This host's clock is wrong, so that nothing can be said about expiry.
    #[error(
        "{name} is trusted for a limited time, and the clock here says {now}, which is before the \
         files of this host were written ({evidence}): set the clock"
    )]
    ClockBehind {
        /// The peer.
        name: PeerName,
        /// What this host's clock says.
        now: WallTime,
        /// A moment that has passed.
        evidence: WallTime,
    },
    /// It may be something else.
    #[error(
        "{name} may not be a {role} of this host: add `{role}` to its `roles=` in authorized_peers"
    )]
    Role {
        /// The peer.
        name: PeerName,
        /// What it would be.
        role: Role,
    },
    /// Another host answered.
    #[error(
        "{found} answered where {wanted} was expected: the address leads to another host, or the \
         name in authorized_peers is another one"
    )]
    Name {
        /// Who answered.
        found: PeerName,
        /// Who was expected.
        wanted: PeerName,
    },
}
