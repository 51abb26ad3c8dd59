//! AES-128-GCM over a header and a body, which lie apart.
//!
//! The header is the associated data and the body the text, in both modes. To **encrypt**, the body
//! is replaced by its ciphertext. To **authenticate**, a copy of the body is encrypted for the sake
//! of the tag, the ciphertext is thrown away, and the receiver does the same with what came: under
//! one nonce the ciphertext is the body combined with fixed bytes, so the tag depends on every bit
//! of both. GMAC with the body as associated data would say the same without a copy, but the
//! library hashes associated data block by block: 34 us for 64 KiB, where this takes 6.

use super::nonce::FreshNonce;
use crate::limits::{HEADER_BYTES, TAG_BYTES};
use crate::mode::Sealing;
use crate::schedule::{EpochSecret, Iv};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::error::Unspecified;
use std::cell::RefCell;
use subtle::ConstantTimeEq as _;

thread_local! {
    /// Where bodies are encrypted that are sent in clear. One for each thread and not for each
    /// link, because it has room for the longest chunk.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A key with its IV, in one mode.
struct Key {
    key: LessSafeKey,
    iv: Iv,
    sealing: Sealing,
}

impl Key {
    fn new(secret: &EpochSecret, sealing: Sealing) -> Self {
        // A key of 16 bytes is what AES-128 takes.
        let key = UnboundKey::new(&AES_128_GCM, &secret.key()[..]);
        let key = LessSafeKey::new(key.unwrap_or_else(|_| unreachable!("the key has 16 bytes")));
        Self { key, iv: secret.iv(), sealing }
    }

    fn seal(
        &self,
        nonce: Nonce,
        header: &[u8; HEADER_BYTES],
        body: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], Unspecified> {
        let tag = match self.sealing {
            Sealing::Encrypt => {
                self.key.seal_in_place_separate_tag(nonce, Aad::from(header), body)?
            }
            Sealing::Authenticate => SCRATCH.with_borrow_mut(|scratch| {
                scratch.clear();
                scratch.extend_from_slice(body);
                self.key.seal_in_place_separate_tag(nonce, Aad::from(header), scratch)
            })?,
        };
        tag.as_ref().try_into().map_err(|_| Unspecified)
    }
}

/// What one end of a direction seals with, in one epoch.
pub(super) struct SealKey(Key);

impl SealKey {
    pub(super) fn new(secret: &EpochSecret, sealing: Sealing) -> Self {
        Self(Key::new(secret, sealing))
    }

    /// Seals a packet, and returns the tag that follows its body. It fails for a body that is
    /// longer than 2^36 bytes.
    pub(super) fn seal(
        &self,
        nonce: FreshNonce,
        header: &[u8; HEADER_BYTES],
        body: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], Unspecified> {
        self.0.seal(nonce.under(&self.0.iv), header, body)
    }
}

/// What the other end opens with.
pub(super) struct OpenKey(Key);

impl OpenKey {
    pub(super) fn new(secret: &EpochSecret, sealing: Sealing) -> Self {
        Self(Key::new(secret, sealing))
    }

    pub(super) fn iv(&self) -> &Iv {
        &self.0.iv
    }

    /// Opens a packet in place. A body whose tag is wrong is overwritten where it was hidden.
    pub(super) fn open(
        &self,
        nonce: Nonce,
        header: &[u8; HEADER_BYTES],
        body: &mut [u8],
        tag: [u8; TAG_BYTES],
    ) -> Result<(), Unspecified> {
        let Key { key, sealing, .. } = &self.0;
        match sealing {
            Sealing::Encrypt => {
                let (aad, tag) = (Aad::from(header), Tag::from(tag));
                key.open_in_place_separate_tag(nonce, aad, tag, body, 0..).map(|_| ())
            }
            Sealing::Authenticate => {
                let wanted = self.0.seal(nonce, header, body)?;
                if bool::from(wanted[..].ct_eq(&tag)) { Ok(()) } else { Err(Unspecified) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;

    /// Test case 4 of McGrew and Viega, *The Galois/Counter Mode of Operation*: the primitive that
    /// everything here rests on.
    #[test]
    fn the_cipher_is_that_of_its_authors() {
        let key = *b"\xfe\xff\xe9\x92\x86\x65\x73\x1c\x6d\x6a\x8f\x94\x67\x30\x83\x08";
        let nonce = *b"\xca\xfe\xba\xbe\xfa\xce\xdb\xad\xde\xca\xf8\x88";
        let aad = b"\xfe\xed\xfa\xce\xde\xad\xbe\xef\xfe\xed\xfa\xce\xde\xad\xbe\xef\
                    \xab\xad\xda\xd2";
        let mut text = *b"\xd9\x31\x32\x25\xf8\x84\x06\xe5\xa5\x59\x09\xc5\xaf\xf5\x26\x9a\
                          \x86\xa7\xa9\x53\x15\x34\xf7\xda\x2e\x4c\x30\x3d\x8a\x31\x8a\x72\
                          \x1c\x3c\x0c\x95\x95\x68\x09\x53\x2f\xcf\x0e\x24\x49\xa6\xb5\x25\
                          \xb1\x6a\xed\xf5\xaa\x0d\xe6\x57\xba\x63\x7b\x39";
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("16 bytes"));
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), &mut text);
        assert_eq!(hex(tag.expect("sealed").as_ref()), "5bc94fbc3221a5db94fae95ae7121a47");
        assert!(hex(&text).starts_with("42831ec2217774244b7221b784d0d49c"));
    }
}
