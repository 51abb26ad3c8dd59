//! Secure links: who a host is, whom it trusts, and packets that nobody else can read or forge.
//!
//! A host has an Ed25519 key pair ([`HostKey`]) and a file of the peers that it trusts
//! ([`PeersFile`]). Two hosts prove their keys to each other by TLS 1.3, once ([`Handshake`]), and
//! share a secret from then on ([`PairSecret`]). Any number of links have their keys from that
//! secret and from the HELLOs that set them up ([`LinkSecret`]). A link seals each of its packets,
//! and opens those of its peer or counts why not ([`SealedLink`], [`Refusal`]). Threat model, key
//! schedule, layout of packets and golden values are in `docs/secure-links.md`, and what the owner
//! of links calls when is in its section 10.
//!
//! Nothing here opens a socket or starts a thread. Bytes, `now` and the wall clock are arguments;
//! [`WallTime::now`] reads that clock for callers. Files are read and written where a path is
//! given.
//!
//! ```
//! use std::sync::Arc;
//! use towpath_base::Time;
//! use towpath_secure::{
//!     Handshake, Host, HostKey, Peers, Role, RollOver, SealedLink, Sealing, Stream, Trust,
//!     WallTime, system_random,
//! };
//!
//! let (wall, now) = (WallTime::now(), Time(0));
//! let [a, b] = [HostKey::generate(system_random())?, HostKey::generate(system_random())?];
//! let host = |own: &HostKey, line: String| -> Result<Host, Box<dyn std::error::Error>> {
//!     let peers = Arc::new(Peers::parse(&line)?);
//!     Ok(Host::new(own, Trust::Keys(peers), Sealing::Encrypt, system_random())?)
//! };
//! let a_host = host(&a, format!("{} b", b.public()))?;
//! let b_host = host(&b, format!("{} a expires=2400-01-01 roles=client", a.public()))?;
//!
//! // The handshake, whose bytes any stream carries.
//! let mut client = Handshake::client(&a_host, None, wall, now)?;
//! let mut server = Handshake::server(&b_host, wall, now)?;
//! while !(client.is_done() && server.is_done()) {
//!     let (mut there, mut back) = (Vec::new(), Vec::new());
//!     client.transmit(&mut there);
//!     server.receive(now, &there)?;
//!     server.transmit(&mut back);
//!     client.receive(now, &back)?;
//! }
//! let (client, server) = (client.finish()?, server.finish()?);
//! assert_eq!(server.peer.name.as_str(), "a");
//!
//! // A link, whose HELLOs hold a `Salt` each, and a packet of it.
//! let end = |secret: &towpath_secure::PairSecret, side| {
//!     let link = secret.link(b"the client's HELLO", b"the server's HELLO");
//!     SealedLink::new(&link, side, Sealing::Encrypt, 4, RollOver::default(), now)
//! };
//! let mut sender = end(&client.secret, Role::Client);
//! let mut receiver = end(&server.secret, Role::Server);
//! let (mut header, mut body) = ([0; 64], b"a body".to_vec());
//! let tag = sender.seal(now, Stream::Chunks(0), &mut header, &mut body)?;
//! body.extend_from_slice(&tag);
//! assert_eq!(receiver.open(now, &header, &mut body)?.body, b"a body");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what is there |
//! |---|---|
//! | `identity` | the key pair of a host, public keys, their files |
//! | `peers` | `authorized_peers`: who is trusted, as what, until when |
//! | `handshake` | TLS 1.3 between two hosts, by raw public keys or by certificates |
//! | [`front`] | TLS for listeners that anybody may connect to, by a certificate |
//! | `schedule` | which key comes from which |
//! | `secrets` | the secrets that a host has, by their ids |
//! | `packet` | what a sealed packet says in clear |
//! | `seal` | numbers that are used once, the cipher, roll-over, both ends of a link |
//! | `refusal` | why packets and HELLOs are refused, a file and a counter for each kind |
//! | `mode` | how much of a link is protected |
//! | `clock` | the wall clock, which expiry depends on |
//! | `random` | random bytes of the system |
//! | [`limits`] | every constant, with its reason |

#![forbid(unsafe_code)]

mod clock;
pub mod front;
mod handshake;
mod identity;
pub mod limits;
mod mode;
mod packet;
mod peers;
mod random;
mod refusal;
mod schedule;
mod seal;
mod secrets;
#[cfg(test)]
mod testing;

pub use clock::WallTime;
pub use handshake::{
    Authority, AuthorityError, CertificateError, Handshake, HandshakeError, Host, HostError,
    Outcome, PeerIdentity, Trust,
};
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
pub use secrets::{KnownSecret, Secrets};
