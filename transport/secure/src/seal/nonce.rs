//! Numbers that are used once, and the nonces that come of them.
//!
//! A nonce under which two different packets were sealed gives an attacker the difference of both
//! and the means to forge more. So a nonce for sealing is a value that cannot be copied, that only
//! [`Numbers`] makes, and that [`SealKey::seal`](super::aead::SealKey::seal) consumes.

use super::sealer::SealError;
use crate::limits::PATHS_MAX;
use crate::packet::Stream;
use crate::peers::Role;
use crate::schedule::Iv;

/// Of each stream, the first number that was not sealed. Numbers are never counted anew while a
/// link lives: not by a new key, a new queue pair, another port or another carrier.
#[derive(Debug)]
pub(super) struct Numbers {
    sender: Role,
    next: [u64; 2 * PATHS_MAX],
}

/// Where the bytes of a nonce come from, before they are combined with those of a key. Neither
/// `Clone` nor `Copy`.
#[derive(Debug)]
pub(super) struct FreshNonce([u8; 12]);

impl Numbers {
    pub(super) fn new(sender: Role) -> Self {
        Self { sender, next: [0; 2 * PATHS_MAX] }
    }

    /// For tests that look at a nonce before it is consumed.
    #[cfg(test)]
    pub(super) fn clone_for_test(&self) -> Self {
        Self { sender: self.sender, next: self.next }
    }

    /// Uses up a number of a stream, and with it all below.
    pub(super) fn claim(&mut self, stream: Stream, number: u64) -> Result<FreshNonce, SealError> {
        if usize::from(stream.path()) >= PATHS_MAX {
            return Err(SealError::NoSuchPath { path: stream.path() });
        }
        let next = &mut self.next[stream.index()];
        if number < *next {
            return Err(SealError::NumberUsed { stream, number });
        }
        // The highest number has none behind it and is never used.
        *next = number.checked_add(1).ok_or(SealError::NumberUsed { stream, number })?;
        Ok(FreshNonce(bytes(stream, self.sender, number)))
    }
}

impl FreshNonce {
    /// The nonce under a key.
    pub(super) fn under(self, iv: &Iv) -> ring::aead::Nonce {
        combine(&self.0, iv)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> [u8; 12] {
        self.0
    }
}

/// The nonce of a packet that came, under a key.
pub(super) fn of_received(stream: Stream, sender: Role, number: u64, iv: &Iv) -> ring::aead::Nonce {
    combine(&bytes(stream, sender, number), iv)
}

/// The byte of stream and sender, three zero bytes, and the number, little-endian.
fn bytes(stream: Stream, sender: Role, number: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0] = stream.code(sender);
    bytes[4..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn combine(bytes: &[u8; 12], iv: &Iv) -> ring::aead::Nonce {
    ring::aead::Nonce::assume_unique_for_key(core::array::from_fn(|at| bytes[at] ^ iv[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_claimed_once_and_in_order() {
        let mut numbers = Numbers::new(Role::Client);
        let mut claim = |stream, number| numbers.claim(stream, number).is_ok();
        assert!(claim(Stream::Chunks(0), 0) && !claim(Stream::Chunks(0), 0));
        assert!(claim(Stream::Acks(0), 0) && claim(Stream::Chunks(1), 0));
        assert!(claim(Stream::Chunks(0), 7) && !claim(Stream::Chunks(0), 6));
        assert!(claim(Stream::Chunks(31), u64::MAX - 1) && !claim(Stream::Chunks(31), u64::MAX));
        assert!(!claim(Stream::Chunks(32), 0) && !claim(Stream::Acks(255), 0));
    }
}
