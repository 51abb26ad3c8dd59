//! Who a host is: its key pair, its public key as text, and the files of both.
//!
//! | module | content |
//! |---|---|
//! | `public` | public keys as text, as bytes of a certificate, and their fingerprints |
//! | `host` | the key pair of this host and its file |
//! | `files` | files that only their owner may read, written at once or not at all |

pub(crate) mod files;
mod host;
mod public;

pub use files::FileError;
pub use host::{HostKey, HostKeyError};
pub use public::{Fingerprint, PublicKey, PublicKeyError};
