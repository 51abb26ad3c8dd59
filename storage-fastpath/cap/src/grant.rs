//! A capability and its secret, as text.

use crate::capability::{CAPABILITY_BYTES, Capability, CapabilityError};
use crate::hex;
use core::fmt;
use core::hash::Hasher as _;
use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Bytes of the secret of a capability.
pub(crate) const SECRET_BYTES: usize = 16;

const WORD: &str = "towpath-capability";

/// A capability and the secret that proves it: what a client is given.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// What may be done.
    pub capability: Capability,
    pub(crate) secret: [u8; SECRET_BYTES],
}

/// Why a text is no grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// Not the form of one.
    #[error("it is not of the form `{WORD} CAPABILITY SECRET`, as `towpath cap mint` prints it")]
    Form,
    /// The capability in it is wrong.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
}

impl Grant {
    /// The text that [`parse`](Self::parse) reads: one line, which is a secret.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{WORD} {} {}", hex::encode(&self.capability.emit()), hex::encode(&self.secret))
    }

    /// Signs something with the secret, for those who have the same: SipHash-2-4 with 128 bits over
    /// what it is (no two uses have the same) and the bytes.
    #[must_use]
    pub fn sign(&self, what: &[u8; 16], bytes: &[u8]) -> u128 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(what);
        hasher.write(bytes);
        hasher.finish128().as_u128()
    }

    /// From its text.
    ///
    /// # Errors
    /// [`GrantError`].
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let mut words = text.split_ascii_whitespace();
        let (Some(WORD), Some(capability), Some(secret), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(GrantError::Form);
        };
        let capability = hex::decode::<CAPABILITY_BYTES>(capability).ok_or(GrantError::Form)?;
        let secret = hex::decode(secret).ok_or(GrantError::Form)?;
        Ok(Self { capability: Capability::parse(&capability)?, secret })
    }
}

impl fmt::Debug for Grant {
    // The secret is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("capability", &self.capability).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_from_its_text_and_nothing_else_is() {
        let grant = Grant { capability: Capability::everything(), secret: [0xab; SECRET_BYTES] };
        let text = grant.to_text();
        assert_eq!(Grant::parse(&format!("  {text}\n")), Ok(grant));
        for wrong in ["", "towpath-capability", &text[1..], &text[..text.len() - 1], "a b c"] {
            assert_eq!(Grant::parse(wrong), Err(GrantError::Form), "{wrong}");
        }
        let version = text.replacen(" 01", " 02", 1);
        assert_eq!(Grant::parse(&version), Err(CapabilityError::Version(2).into()));
        assert!(!format!("{grant:?}").contains("171"), "a secret is not shown");
    }
}
