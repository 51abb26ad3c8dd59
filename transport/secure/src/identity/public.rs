//! Public keys: their text form, their bytes in certificates, their fingerprints.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use core::fmt;
use core::str::FromStr;
use ring::digest::{SHA256, digest};

/// What stands before the key itself in a SubjectPublicKeyInfo of Ed25519 (RFC 8410 section 4).
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const KEY_BYTES: usize = 32;
/// The word before the key in its text form.
const ALGORITHM: &str = "ed25519:";

/// The Ed25519 public key of a host. Its text form is `ed25519:` and the 32 bytes in base64 without
/// padding, so that it is one word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// Why a text or some bytes are no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// Another kind of key, or no key at all.
    #[error("it does not begin with `ed25519:`: take the line that `towpath keygen` prints")]
    Algorithm,
    /// Not base64, or not 32 bytes.
    #[error("behind `ed25519:` stand not 43 characters of base64: copy the whole key again")]
    Bytes,
    /// The peer's certificate message holds another kind of key.
    #[error("the peer's key is no Ed25519 key: make one there with `towpath keygen`")]
    Spki,
}

impl PublicKey {
    /// From the 32 bytes of RFC 8032.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of RFC 8032.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// The SubjectPublicKeyInfo, which a raw public key is in TLS (RFC 7250 section 3).
    #[must_use]
    pub fn to_spki(&self) -> [u8; SPKI_PREFIX.len() + KEY_BYTES] {
        let mut spki = [0; SPKI_PREFIX.len() + KEY_BYTES];
        let (prefix, key) = spki.split_at_mut(SPKI_PREFIX.len());
        prefix.copy_from_slice(&SPKI_PREFIX);
        key.copy_from_slice(&self.0);
        spki
    }

    /// From a SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// [`PublicKeyError::Spki`].
    pub fn from_spki(spki: &[u8]) -> Result<Self, PublicKeyError> {
        let key = spki.strip_prefix(&SPKI_PREFIX[..]).ok_or(PublicKeyError::Spki)?;
        key.try_into().map(Self).map_err(|_| PublicKeyError::Spki)
    }

    /// The SHA-256 of the SubjectPublicKeyInfo, for people who compare two screens.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, &self.to_spki()).as_ref());
        Fingerprint(bytes)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let key = text.strip_prefix(ALGORITHM).ok_or(PublicKeyError::Algorithm)?;
        let mut bytes = [0; KEY_BYTES];
        match STANDARD_NO_PAD.decode_slice(key, &mut bytes) {
            Ok(KEY_BYTES) => Ok(Self(bytes)),
            _ => Err(PublicKeyError::Bytes),
        }
    }
}

/// The fingerprint of a public key. Its text form is that of ssh: `SHA256:` and base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SHA256:{}", STANDARD_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    #[test]
    fn a_key_is_one_word_that_reads_back() {
        let key = PublicKey([7; KEY_BYTES]);
        let text = key.to_string();
        assert_eq!(text, "ed25519:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc");
        assert_eq!(text.parse(), Ok(key));
        assert_eq!(PublicKey::from_spki(&key.to_spki()), Ok(key));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let parse = |text: &str| text.parse::<PublicKey>();
        assert_eq!(parse(""), Err(PublicKeyError::Algorithm));
        assert_eq!(parse("rsa:AAAA"), Err(PublicKeyError::Algorithm));
        assert_eq!(parse("ed25519:"), Err(PublicKeyError::Bytes));
        assert_eq!(parse("ed25519:AAAA"), Err(PublicKeyError::Bytes));
        let long = PublicKey([0; KEY_BYTES]).to_string() + "A";
        assert_eq!(parse(&long), Err(PublicKeyError::Bytes));
        assert_eq!(parse(&format!("ed25519:{}", "!".repeat(43))), Err(PublicKeyError::Bytes));
        let spki = PublicKey([0; KEY_BYTES]).to_spki();
        assert_eq!(PublicKey::from_spki(&spki[..43]), Err(PublicKeyError::Spki));
        assert_eq!(PublicKey::from_spki(&spki[1..]), Err(PublicKeyError::Spki));
    }

    /// RFC 8410 section 10.1. The fingerprint is what `openssl pkey -pubin -outform DER`,
    /// `sha256sum` and base64 make of it.
    #[test]
    fn the_example_of_the_rfc_reads_back() {
        let spki = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";
        let spki = STANDARD.decode(spki).expect("base64");
        let key = PublicKey::from_spki(&spki).expect("a key");
        assert_eq!(key.to_string(), "ed25519:Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE");
        let fingerprint = "SHA256:oekVYFTgT6yJmunydRMs3Ael28TqLCrTof/G4NJTaB8";
        assert_eq!(key.fingerprint().to_string(), fingerprint);
    }
}
