//! Which key comes from which: the exporter of a handshake, pair, link, direction, epoch.
//!
//! ```text
//! exporter of TLS 1.3, 32 bytes: the pair secret
//!   |-- "id"             16 bytes, what the secret is known by
//!   |-- "hello SIDE"     32 bytes, signs the HELLOs of SIDE
//!   `-- "link", SHA-256 of the client's HELLO, SHA-256 of the server's: 32 bytes, the link secret
//!         |-- "tag"      4 bytes, names the link in packets
//!         `-- "SIDE"     32 bytes, epoch 0 of what SIDE sends
//!               |-- "key"   16 bytes, for AES-128-GCM
//!               |-- "iv"    12 bytes, combined with path and number
//!               `-- "next"  32 bytes, the next epoch
//! ```
//!
//! `docs/secure-links.md` section 4 has the labels and golden values.
//!
//! | module | content |
//! |---|---|
//! | `hkdf` | HKDF-SHA256 with our labels |
//! | `pair` | the secret of a pair of hosts, and its HELLOs |
//! | `link` | the secrets of a link, its directions and epochs |

mod hkdf;
mod link;
mod pair;

pub(crate) use link::{EpochSecret, Iv};
pub use link::{LinkSecret, LinkTag};
pub use pair::{HELLO_TAG_BYTES, HelloForged, PairSecret, SALT_BYTES, Salt, SecretId};
