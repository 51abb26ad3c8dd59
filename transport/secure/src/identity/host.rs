//! The key pair of this host, and its file.

use super::files::{self, FileError};
use super::public::PublicKey;
use crate::limits::KEY_FILE_BYTES_MAX;
use crate::random::{self, RandomError, SecureRandom};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::Path;
use zeroize::Zeroizing;

/// What stands before the 32 bytes of an Ed25519 key in PKCS#8 (RFC 8410 section 7).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const SEED_BYTES: usize = 32;

/// The Ed25519 key pair of a host. Its file holds PKCS#8 in PEM, as `openssl genpkey -algorithm
/// ed25519` writes it, and only its owner may read it.
pub struct HostKey {
    pkcs8: Zeroizing<Vec<u8>>,
    public: PublicKey,
}

/// Why there is no key pair.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// The file.
    #[error(transparent)]
    File(#[from] FileError),
    /// No random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The file holds no private key in PEM.
    #[error("it holds no `PRIVATE KEY` in PEM: make one with `towpath keygen`")]
    Pem,
    /// The file holds another kind of key.
    #[error("its key is no Ed25519 key in PKCS#8: make one with `towpath keygen`")]
    Algorithm,
}

impl HostKey {
    /// A new key pair.
    ///
    /// # Errors
    /// [`HostKeyError::Random`].
    pub fn generate(random: &dyn SecureRandom) -> Result<Self, HostKeyError> {
        let seed = Zeroizing::new(random::bytes::<SEED_BYTES>(random)?);
        let mut pkcs8 = Zeroizing::new(Vec::with_capacity(PKCS8_PREFIX.len() + SEED_BYTES));
        pkcs8.extend_from_slice(&PKCS8_PREFIX);
        pkcs8.extend_from_slice(&seed[..]);
        Self::from_pkcs8(pkcs8)
    }

    /// Makes a new key pair and its file. A file that exists stays as it is.
    ///
    /// # Errors
    /// [`HostKeyError`].
    pub fn create(path: &Path, random: &dyn SecureRandom) -> Result<Self, HostKeyError> {
        let key = Self::generate(random)?;
        files::create_private(path, key.to_pem().as_bytes())?;
        Ok(key)
    }

    /// Reads the file of a key pair.
    ///
    /// # Errors
    /// [`HostKeyError`].
    pub fn read(path: &Path) -> Result<Self, HostKeyError> {
        let (pem, _) = files::read_private(path, KEY_FILE_BYTES_MAX)?;
        Self::from_pem(&pem)
    }

    /// From PEM. What stands around the key is ignored.
    ///
    /// # Errors
    /// [`HostKeyError::Pem`], [`HostKeyError::Algorithm`].
    pub fn from_pem(pem: &[u8]) -> Result<Self, HostKeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| HostKeyError::Pem)?;
        Self::from_pkcs8(Zeroizing::new(der.secret_pkcs8_der().to_vec()))
    }

    fn from_pkcs8(pkcs8: Zeroizing<Vec<u8>>) -> Result<Self, HostKeyError> {
        // OpenSSL leaves the public key out of the file; `maybe_unchecked` takes both forms, and
        // checks the public key where there is one.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8);
        let pair = pair.map_err(|_| HostKeyError::Algorithm)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| HostKeyError::Algorithm)?;
        Ok(Self { pkcs8, public: PublicKey::from_bytes(public) })
    }

    /// The PEM of the file.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        let body = Zeroizing::new(STANDARD.encode(&self.pkcs8[..]));
        Zeroizing::new(format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            body.as_str()
        ))
    }

    /// The public key, which peers add to their `authorized_peers`.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The private key for the handshake.
    pub(crate) fn pkcs8(&self) -> PrivatePkcs8KeyDer<'_> {
        PrivatePkcs8KeyDer::from(&self.pkcs8[..])
    }
}

impl fmt::Debug for HostKey {
    // The private half is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostKey").field(&self.public).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::system_random;

    /// RFC 8410 section 10.3, both forms.
    const WITHOUT_PUBLIC: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE";

    #[test]
    fn the_key_of_the_rfc_reads_back_and_is_written_alike() {
        let key = HostKey::from_pem(WITHOUT_PUBLIC.as_bytes()).expect("a key");
        assert_eq!(key.public().to_string(), PUBLIC);
        assert_eq!(key.to_pem().as_str(), WITHOUT_PUBLIC);
        assert!(!format!("{key:?}").contains("MC4"), "{key:?}");
    }

    #[test]
    fn a_new_key_has_a_file_that_reads_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("host.key");
        let key = HostKey::create(&path, system_random()).expect("a key");
        assert_eq!(HostKey::read(&path).expect("the key").public(), key.public());
        let again = HostKey::create(&path, system_random());
        assert!(matches!(again, Err(HostKeyError::File(FileError::Exists { .. }))), "{again:?}");
        let other = HostKey::generate(system_random()).expect("a key");
        assert_ne!(other.public(), key.public());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let empty = HostKey::from_pem(b"");
        assert!(matches!(empty, Err(HostKeyError::Pem)), "{empty:?}");
        let cut = HostKey::from_pem(&WITHOUT_PUBLIC.as_bytes()[..60]);
        assert!(matches!(cut, Err(HostKeyError::Pem)), "{cut:?}");
        let other = WITHOUT_PUBLIC.replace("MC4CAQAwBQYDK2Vw", "MC4CAQAwBQYDK2Vx");
        let other = HostKey::from_pem(other.as_bytes());
        assert!(matches!(other, Err(HostKeyError::Algorithm)), "{other:?}");
    }

    #[test]
    fn without_random_bytes_there_is_no_key() {
        let none = HostKey::generate(&crate::testing::NoRandom);
        assert!(matches!(none, Err(HostKeyError::Random(RandomError))), "{none:?}");
    }
}
