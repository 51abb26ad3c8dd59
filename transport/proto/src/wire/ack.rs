//! The ack frame (docs/protocol.md section 4).

use super::{VERSION, field, header, is_sealed, put, seal};
use crate::limits::{ACK_BYTES_MAX, ACK_CREDITS_MAX, HEADER_BYTES, NUMBER_MAX, NUMBER_WINDOW};
use towpath_base::crc::crc32c;

pub(crate) const KIND_ACK: u8 = 16;

/// `hold` of an ack that tells again what was told before: it gives no sample.
pub(crate) const HOLD_UNKNOWN: u32 = u32::MAX;

const WORDS_MAX: usize = NUMBER_WINDOW as usize / 64;

header! {
    /// The fixed part of an ack. Field meanings: docs/protocol.md section 4.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Ack [] {
        /// Index of the acknowledged path.
        2 => path: u16,
        /// Generation of the control queue pair, issued by the receiver of the ack.
        4 => generation: u32,
        /// Generation of the acknowledged path, issued by the sender of the ack.
        8 => acked_generation: u32,
        /// Numbers of the path that came behind larger ones, low bits.
        14 => disordered: u16,
        /// Counts the acks of a path.
        16 => ack_number: u64,
        /// Largest transmission number received.
        24 => largest: u64,
        /// Everything below was received or lies below the sender's floor.
        32 => base: u64,
        /// When `largest` came in, ns on the acker's clock.
        40 => receive_time: u64,
        /// Nanoseconds from then to the sending of this ack; `u32::MAX` when it is not the first.
        48 => hold: u32,
        /// What the receiver of this ack may have in flight, KiB.
        52 => window_kib: u32,
    }
}

/// A received ack: the fixed part, and the variable parts in place.
#[derive(Clone, Copy, Debug)]
pub struct AckFrame<'a> {
    /// The fixed part.
    pub ack: Ack,
    bitmap: &'a [u8],
    credits: &'a [u8],
}

/// Why bytes are no ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AckError {
    /// Shorter than its parts, or longer.
    #[error("length does not match words and credits")]
    Length,
    /// Another protocol version.
    #[error("version {0}, expected {VERSION}")]
    Version(u8),
    /// A checksum does not match.
    #[error("header_crc or body_crc does not match")]
    Crc,
    /// Not an ack.
    #[error("kind {0} is no ack")]
    Kind(u8),
    /// `words`, `credits`, `base` or `largest` out of range.
    #[error("words, credits, base or largest out of range")]
    Range,
}

impl<'a> AckFrame<'a> {
    /// Reads and checks an ack frame.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AckError> {
        let (head, body) = bytes.split_first_chunk().ok_or(AckError::Length)?;
        if head[0] != VERSION {
            return Err(AckError::Version(head[0]));
        }
        if !is_sealed(head) {
            return Err(AckError::Crc);
        }
        if head[1] != KIND_ACK {
            return Err(AckError::Kind(head[1]));
        }
        let (words, credits) = (usize::from(head[12]), usize::from(head[13]));
        if words > WORDS_MAX || credits > ACK_CREDITS_MAX {
            return Err(AckError::Range);
        }
        if body.len() != (words + credits) * 8 {
            return Err(AckError::Length);
        }
        if crc32c(body) != field!(head, 56, u32) {
            return Err(AckError::Crc);
        }
        let ack = Ack::read(head);
        let span = words as u64 * 64;
        if ack.largest > NUMBER_MAX {
            return Err(AckError::Range);
        }
        let next = ack.largest + 1;
        if ack.base > next || next - ack.base > span {
            return Err(AckError::Range);
        }
        let (bitmap, credits) = body.split_at(words * 8);
        Ok(Self { ack, bitmap, credits })
    }

    /// The bitmap, 64 numbers at a time: the first number of the word and its bits.
    pub fn words(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let base = self.ack.base;
        let numbered = self.bitmap.chunks_exact(8).zip(0u64..);
        numbered.map(move |(word, i)| (base + i * 64, field!(word, 0, u64)))
    }

    /// Credit entries: channel and cumulative credit (low 32 bits).
    pub fn credits(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        self.credits.chunks_exact(8).map(|entry| (field!(entry, 0, u32), field!(entry, 4, u32)))
    }
}

impl Ack {
    /// Writes an ack frame; returns its length. `word_at` gives the 64 bits from a number on.
    /// Credit entries beyond [`ACK_CREDITS_MAX`] are left to the caller: pass no more.
    pub fn emit(
        &self,
        out: &mut [u8; ACK_BYTES_MAX],
        word_at: impl Fn(u64) -> u64,
        credits: impl Iterator<Item = (u32, u32)>,
    ) -> usize {
        let words = (self.largest + 1 - self.base).div_ceil(64) as usize;
        let mut at = HEADER_BYTES;
        for i in 0..words as u64 {
            put!(out, at, word_at(self.base + i * 64));
            at += 8;
        }
        let mut entries = 0u8;
        for (channel, credit) in credits.take(ACK_CREDITS_MAX) {
            put!(out, at, channel);
            put!(out, at + 4, credit);
            at += 8;
            entries += 1;
        }
        let body_crc = crc32c(&out[HEADER_BYTES..at]);
        let head = out.first_chunk_mut().expect("an ack begins with a header");
        let mut fields = self.words();
        fields[0] |= u64::from(VERSION) | u64::from(KIND_ACK) << 8;
        // At most 64 words.
        fields[1] |= (words as u64) << 32 | u64::from(entries) << 40;
        fields[7] = u64::from(body_crc);
        seal(head, fields);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn emitted(ack: &Ack, bits: u64, credits: &[(u32, u32)]) -> Vec<u8> {
        let mut out = [0xa5; ACK_BYTES_MAX];
        let len = ack.emit(
            &mut out,
            |n| bits.rotate_left((n - ack.base) as u32),
            credits.iter().copied(),
        );
        out[..len].to_vec()
    }

    fn sample() -> Ack {
        Ack {
            path: 3,
            generation: 7,
            acked_generation: 9,
            ack_number: 2,
            largest: 1_099,
            base: 1_000,
            receive_time: 5,
            hold: 6,
            window_kib: 512,
            disordered: 0x1234,
        }
    }

    #[test]
    fn what_was_emitted_is_parsed_bitmap_and_credits_included() {
        let credits = [(1, 10), (0x8000_0001, u32::MAX)];
        let bytes = emitted(&sample(), 0b1010, &credits);
        let frame = AckFrame::parse(&bytes).unwrap();
        assert_eq!(frame.ack, sample());
        assert_eq!(frame.words().collect::<Vec<_>>(), [(1_000, 0b1010), (1_064, 0b1010)]);
        assert_eq!(frame.credits().collect::<Vec<_>>(), credits);
    }

    #[test]
    fn nothing_missing_needs_no_bitmap() {
        let bytes = emitted(&Ack { base: 1_100, ..sample() }, 0, &[]);
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(AckFrame::parse(&bytes).unwrap().words().count(), 0);
    }

    #[test]
    fn every_flipped_bit_and_every_other_length_is_noticed() {
        let bytes = emitted(&sample(), 5, &[(1, 1)]);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(AckFrame::parse(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(AckFrame::parse(&bytes[..len]).is_err(), "length {len}");
        }
    }

    #[test]
    fn a_base_beyond_largest_plus_one_is_refused() {
        let mut bytes = emitted(&Ack { base: 1_100, ..sample() }, 0, &[]);
        put!(bytes, 32, 1_101u64);
        let crc = crc32c(&bytes[..60]);
        put!(bytes, 60, crc);
        assert_eq!(AckFrame::parse(&bytes).unwrap_err(), AckError::Range);
    }

    #[test]
    fn a_bitmap_never_reaches_past_the_numbers_that_there_are() {
        let last = emitted(&Ack { largest: NUMBER_MAX, base: NUMBER_MAX, ..sample() }, 1, &[]);
        let frame = AckFrame::parse(&last).unwrap();
        assert_eq!(frame.words().collect::<Vec<_>>(), [(NUMBER_MAX, 1)]);
        let largest = NUMBER_MAX + 1;
        let beyond = emitted(&Ack { largest, base: largest, ..sample() }, 1, &[]);
        assert_eq!(AckFrame::parse(&beyond).unwrap_err(), AckError::Range);
    }
}
