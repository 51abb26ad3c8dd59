//! Secure links: who a host is, whom it trusts, and packets that nobody else can read or forge.
//!
//! A host has an Ed25519 key pair ([`HostKey`]) and a file of the peers that it trusts
//! ([`PeersFile`]). Two hosts share a secret ([`PairSecret`]). Any number of links have their keys
//! from that secret and from the HELLOs that set them up ([`LinkSecret`]). A link seals each of its
//! packets, and opens those of its peer or counts why not ([`SealedLink`], [`Refusal`]). Threat
//! model, key schedule, layout of packets and golden values are in `docs/secure-links.md`, and what
//! the owner of links calls when is in its section 10.
//!
//! Nothing here opens a socket or starts a thread. Bytes, `now` and the wall clock are arguments;
//! [`WallTime::now`] reads that clock for callers. Files are read and written where a path is
//! given.
//!
//! | module | what is there |
//! |---|---|
//! | `identity` | the key pair of a host, public keys, their files |
//! | `peers` | `authorized_peers`: who is trusted, as what, until when |
//! | `schedule` | which key comes from which |
//! | `packet` | what a sealed packet says in clear |
//! | `seal` | numbers that are used once, the cipher, roll-over, both ends of a link |
//! | `refusal` | why packets and HELLOs are refused, a file and a counter for each kind |
//! | `mode` | how much of a link is protected |
//! | `clock` | the wall clock, which expiry depends on |
//! | `random` | random bytes of the system |
//! | [`limits`] | every constant, with its reason |

#![forbid(unsafe_code)]

mod clock;
mod identity;
pub mod limits;
mod mode;
mod packet;
mod peers;
mod random;
mod refusal;
mod schedule;
mod seal;
#[cfg(test)]
mod testing;

pub use clock::WallTime;
pub use identity::{FileError, Fingerprint, HostKey, HostKeyError, PublicKey, PublicKeyError};
pub use mode::{Mode, ModesDiffer, Sealing, UnknownMode};
pub use packet::{Mark, Stream};
pub use peers::{
    Change, LineError, Peer, PeerName, PeerRefused, Peers, PeersError, PeersFile, PeersFileError,
    Role, Roles, UnknownRole,
};
pub use random::{RandomError, SecureRandom, system_random};
pub use refusal::{Refusal, Refusals};
pub use schedule::{
    HELLO_TAG_BYTES, HelloForged, LinkSecret, LinkTag, PairSecret, SALT_BYTES, Salt, SecretId,
};
pub use seal::{LinkState, Opened, RollOver, SealError, SealedLink};
