//! What messages contain when their content is checked.

use super::error::RunError;
use towpath_base::Prng;

/// Bytes at the start of a message that hold its number, as far as they fit.
const STAMP_BYTES: usize = 8;

/// The content is the same for both ends of every run: it need not be secret, only unlikely.
const CONTENT_SEED: u64 = 0x746f_7770_6174_6821;

/// Makes and checks the content of messages of one size.
///
/// Each message begins with its number and goes on with bytes that are fixed for their place. The
/// digests of numbers sent and received are equal when every message arrived exactly once, in
/// whatever order.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Vec<u8>,
    checked: bool,
    next: u64,
    sent: u64,
    received: u64,
}

impl Content {
    pub(crate) fn new(size: u32, checked: bool) -> Self {
        let mut bytes = vec![0; size as usize];
        Prng::new(CONTENT_SEED).fill(&mut bytes);
        Self { bytes, checked, next: 0, sent: 0, received: 0 }
    }

    /// The bytes of a message without a number.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether messages are numbered and looked at.
    pub(crate) fn checked(&self) -> bool {
        self.checked
    }

    /// Numbers a message that is about to be sent.
    pub(crate) fn stamp(&mut self, message: &mut [u8]) {
        let stamp = self.next.to_le_bytes();
        let len = message.len().min(STAMP_BYTES);
        message[..len].copy_from_slice(&stamp[..len]);
        self.sent = self.sent.wrapping_add(mix(&stamp[..len]));
        self.next += 1;
    }

    /// Looks at a piece of a message. The first piece must hold the whole number.
    pub(crate) fn check(&mut self, offset: usize, piece: &[u8]) -> Result<(), RunError> {
        let stamp = self.bytes.len().min(STAMP_BYTES);
        let mut skip = 0;
        if offset == 0 {
            let Some(number) = piece.get(..stamp) else { return Err(RunError::BadFrame) };
            self.received = self.received.wrapping_add(mix(number));
            skip = stamp;
        }
        let start = offset + skip;
        let wanted = self.bytes.get(start..offset + piece.len());
        let (Some(wanted), got) = (wanted, &piece[skip..]) else {
            let (wanted, got) = (self.bytes.len() as u32, (offset + piece.len()) as u32);
            return Err(RunError::Length { wanted, got });
        };
        if wanted != got {
            let at = wanted.iter().zip(got).position(|(a, b)| a != b).unwrap_or(0);
            let (wanted, got) = (wanted[at], got[at]);
            return Err(RunError::Content { offset: start + at, wanted, got });
        }
        Ok(())
    }

    /// The digest of all numbers sent.
    pub(crate) fn sent_digest(&self) -> u64 {
        self.sent
    }

    /// The digest of all numbers received.
    pub(crate) fn received_digest(&self) -> u64 {
        self.received
    }
}

/// A number spread over 64 bits, so that sums of different sets differ.
fn mix(number: &[u8]) -> u64 {
    let mut bytes = [0; STAMP_BYTES];
    bytes[..number.len()].copy_from_slice(number);
    Prng::new(u64::from_le_bytes(bytes)).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(content: &mut Content) -> Vec<u8> {
        let mut message = content.bytes().to_vec();
        content.stamp(&mut message);
        message
    }

    #[test]
    fn messages_in_any_order_and_pieces_give_the_same_digest() {
        let mut near = Content::new(20, true);
        let mut far = Content::new(20, true);
        let messages: Vec<_> = (0..3).map(|_| message(&mut near)).collect();
        for number in [2, 0, 1] {
            far.check(0, &messages[number][..9]).unwrap();
            far.check(9, &messages[number][9..]).unwrap();
        }
        assert_eq!(near.sent_digest(), far.received_digest());
    }

    #[test]
    fn one_twice_and_another_never_gives_another_digest() {
        let mut near = Content::new(8, true);
        let mut far = Content::new(8, true);
        let messages: Vec<_> = (0..3).map(|_| message(&mut near)).collect();
        for number in [0, 1, 1] {
            far.check(0, &messages[number]).unwrap();
        }
        assert_ne!(near.sent_digest(), far.received_digest());
    }

    #[test]
    fn a_flipped_bit_is_found_at_its_place() {
        let mut content = Content::new(100, true);
        let mut bytes = message(&mut content);
        bytes[70] ^= 1;
        let error = content.check(0, &bytes).unwrap_err();
        assert!(matches!(error, RunError::Content { offset: 70, .. }), "{error}");
        let error = content.check(64, &bytes[64..]).unwrap_err();
        assert!(matches!(error, RunError::Content { offset: 70, .. }), "{error}");
    }

    #[test]
    fn messages_shorter_than_a_number_carry_what_fits_of_it() {
        let mut near = Content::new(2, true);
        let mut far = Content::new(2, true);
        for _ in 0..70_000 {
            let bytes = message(&mut near);
            far.check(0, &bytes).unwrap();
        }
        assert_eq!(near.sent_digest(), far.received_digest());
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let mut content = Content::new(10, true);
        let error = content.check(0, &[0; 11]).unwrap_err();
        assert!(matches!(error, RunError::Length { wanted: 10, got: 11 }), "{error}");
    }
}
