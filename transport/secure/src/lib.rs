//! Secure links: who a host is, and whom it trusts.
//!
//! A host has an Ed25519 key pair ([`HostKey`]) and a file of the peers that it trusts
//! ([`PeersFile`]).
//!
//! | module | what is there |
//! |---|---|
//! | `identity` | the key pair of a host, public keys, their files |
//! | `peers` | `authorized_peers`: who is trusted, as what, until when |
//! | `clock` | the wall clock, which expiry depends on |
//! | `random` | random bytes of the system |
//! | [`limits`] | every constant, with its reason |

#![forbid(unsafe_code)]

mod clock;
mod identity;
pub mod limits;
mod peers;
mod random;
#[cfg(test)]
mod testing;

pub use clock::WallTime;
pub use identity::{FileError, Fingerprint, HostKey, HostKeyError, PublicKey, PublicKeyError};
pub use peers::{
    Change, LineError, Peer, PeerName, PeerRefused, Peers, PeersError, PeersFile, PeersFileError,
    Role, Roles, UnknownRole,
};
pub use random::{RandomError, SecureRandom, system_random};
