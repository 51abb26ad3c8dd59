//! HKDF-SHA256 (RFC 5869) with labels of Towpath.

use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use zeroize::Zeroizing;

/// Stands before each label, so that no other protocol derives the same bytes.
const PREFIX: &[u8] = b"towpath secure 1 ";

/// A secret from which others are derived, overwritten when it is dropped.
pub(super) type Secret = Zeroizing<[u8; SECRET_BYTES]>;
pub(super) const SECRET_BYTES: usize = 32;

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand of `secret`, with the prefix, the label and the context as its info. A label never
/// begins another one, and a context has one length for each label, so no two infos are alike.
pub(super) fn expand<const N: usize>(
    secret: &[u8; SECRET_BYTES],
    label: &[u8],
    context: &[&[u8]],
) -> Zeroizing<[u8; N]> {
    const { assert!(N <= 255 * SECRET_BYTES) };
    let info: Vec<&[u8]> = [PREFIX, label].into_iter().chain(context.iter().copied()).collect();
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    let mut out = Zeroizing::new([0; N]);
    // Neither call fails for a length that the assertion above allows.
    let filled = prk.expand(&info, Length(N)).and_then(|okm| okm.fill(&mut out[..]));
    assert!(filled.is_ok(), "HKDF gives {N} bytes");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::hkdf::Salt;

    /// RFC 5869, test case 1: the primitive that everything here rests on.
    #[test]
    fn hkdf_is_that_of_the_rfc() {
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let prk = Salt::new(HKDF_SHA256, &salt).extract(&[0x0b; 22]);
        let mut okm = [0; 42];
        let infos = [&info[..]];
        let filled = prk.expand(&infos, Length(42)).and_then(|out| out.fill(&mut okm));
        filled.expect("42 bytes");
        let wanted = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf\
                      34007208d5b887185865";
        assert_eq!(crate::testing::hex(&okm), wanted);
    }

    #[test]
    fn labels_and_contexts_tell_outputs_apart() {
        let secret = [1; SECRET_BYTES];
        let one = expand::<32>(&secret, b"key", &[]);
        assert_ne!(one, expand::<32>(&secret, b"iv", &[]));
        assert_ne!(one, expand::<32>(&secret, b"key", &[&[0]]));
        assert_ne!(one, expand::<32>(&[2; SECRET_BYTES], b"key", &[]));
        assert_eq!(one, expand::<32>(&secret, b"key", &[]));
    }
}
