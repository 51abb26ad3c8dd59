//! The header that is expected next: it follows the one before as chunks of one run do.
//!
//! Chunks that leave in one go differ in few fields (`link::run`), so that one behind another can
//! be checked by comparing words, and need not be taken apart. What does not compare is no mistake:
//! it is parsed.

use super::{ChunkFlags, field, is_sealed};
use crate::limits::{HEADER_BYTES, MESSAGE_BYTES_MAX, NUMBER_MAX, NUMBER_WINDOW};

/// Where the flags lie in the first word, and LAST among them.
const LAST: u64 = 1 << 16;
/// The first of two fields in a word.
const LOW: u64 = u32::MAX as u64;
/// A transmission more, of which the oldest outstanding one is the same: in the sixth word.
const FLOOR_ONE_MORE: u64 = 1 << 32;
/// A chunk more, in the fourth word.
const INDEX_ONE_MORE: u64 = 1 << 32;

/// What a chunk that follows says of itself alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes of payload.
    pub(crate) length: u32,
    /// Bytes of the whole message.
    pub(crate) message_len: u32,
    /// The last of its message.
    pub(crate) is_last: bool,
    /// CRC32C of the payload, where headers tell it.
    pub(crate) payload_crc: Option<u32>,
}

/// The header that follows: it says the same of its path, its channel, acks and credit, and has the
/// next number. It goes on with the same message or, behind the last chunk of one, begins the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follower {
    /// The first words as they are expected, but for LAST, `length`, and `message_len` where a
    /// message begins: those are clear.
    words: [u64; 7],
    goes_on: bool,
}

impl Follower {
    /// What follows a valid header of data.
    #[inline(always)]
    pub(crate) fn of(header: &[u8; HEADER_BYTES]) -> Self {
        let mut words = words(header);
        let (is_last, length) = (words[0] & LAST != 0, words[5] as u32);
        let message_len = (words[4] >> 32) as u32;
        words[0] &= !LAST;
        words[5] &= !LOW;
        let mut follower = Self { words, goes_on: true };
        follower.step(&Piece { length, message_len, is_last, payload_crc: None });
        follower
    }

    /// Expects what follows a chunk that was expected here.
    #[inline(always)]
    pub(crate) fn step(&mut self, piece: &Piece) {
        self.words[1] += 1;
        self.words[5] += FLOOR_ONE_MORE;
        self.goes_on = !piece.is_last;
        if piece.is_last {
            self.words[2] = self.words[2].wrapping_add(1);
            self.words[3] &= LOW;
            self.words[4] = 0;
        } else {
            // The end lies below the length of the message: nothing is carried.
            let end = (self.words[4] & LOW) + u64::from(piece.length);
            self.words[3] += INDEX_ONE_MORE;
            self.words[4] = end | u64::from(piece.message_len) << 32;
        }
    }

    /// The channel.
    #[inline(always)]
    pub(crate) fn channel(&self) -> u32 {
        self.words[3] as u32
    }

    /// The message.
    #[inline(always)]
    pub(crate) fn message(&self) -> u64 {
        self.words[2]
    }

    /// The transmission number.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.words[1]
    }

    /// The place in the message: index and byte offset.
    #[inline(always)]
    pub(crate) fn place(&self) -> (u32, u32) {
        ((self.words[3] >> 32) as u32, self.words[4] as u32)
    }

    /// Whether it goes on with the message, or begins the next.
    #[inline(always)]
    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// The flags, but for LAST.
    #[inline(always)]
    pub(crate) fn flags(&self) -> ChunkFlags {
        ChunkFlags((self.words[0] >> 16) as u16)
    }

    /// The credit, of which headers have the low bits.
    #[inline(always)]
    pub(crate) fn credit(&self) -> u16 {
        (self.words[5] >> 48) as u16
    }

    /// What the header says, if it is the one that is expected and valid.
    #[inline(always)]
    pub(crate) fn find(&self, header: &[u8; HEADER_BYTES]) -> Option<Piece> {
        let (found, expected) = (words(header), &self.words);
        let length = found[5] as u32;
        let is_last = found[0] & LAST != 0;
        // That of a message that goes on is expected.
        let begun = if self.goes_on { 0 } else { found[4] & !LOW };
        let place = expected[4] | begun;
        let (offset, message_len) = (place as u32, (place >> 32) as u32);
        let end = u64::from(offset) + u64::from(length);
        let differs = (found[0] & !LAST) ^ expected[0]
            | found[1] ^ expected[1]
            | found[2] ^ expected[2]
            | found[3] ^ expected[3]
            | found[4] ^ place
            | (found[5] ^ expected[5]) >> 32
            | found[6] ^ expected[6];
        let is_valid = length > 0
            && end <= u64::from(message_len)
            && is_last == (end == u64::from(message_len))
            && message_len <= MESSAGE_BYTES_MAX
            && expected[1] <= NUMBER_MAX
            && (expected[5] >> 32) % (1 << 16) < NUMBER_WINDOW;
        if differs != 0 || !is_valid || !is_sealed(header) {
            return None;
        }
        let has_crc = self.flags().has(ChunkFlags::PAYLOAD_CRC);
        let payload_crc = has_crc.then(|| field!(header, 56, u32));
        Some(Piece { length, message_len, is_last, payload_crc })
    }
}

/// The words of a header before its last two fields, the payload's checksum and its own.
#[inline(always)]
fn words(header: &[u8; HEADER_BYTES]) -> [u64; 7] {
    let (words, _) = header.as_chunks::<8>();
    core::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

#[cfg(test)]
mod tests {
    use super::super::{ChunkHeader, Kind};
    use super::*;
    use towpath_base::Prng;

    fn emitted(header: &ChunkHeader) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        bytes
    }

    fn first(prng: &mut Prng) -> ChunkHeader {
        let message_len = prng.between(1, 40) as u32;
        let number = [prng.below(100), 1 << 32, NUMBER_MAX - prng.below(3)][prng.below(3) as usize];
        let flags = ChunkFlags::default();
        ChunkHeader {
            kind: Kind::Data,
            flags: flags.with(ChunkFlags::PAYLOAD_CRC, true).with_ack_of(prng.below(3) as usize),
            generation: prng.next_u32(),
            number,
            message: [prng.below(9), u64::MAX - prng.below(3)][prng.below(2) as usize],
            channel: prng.next_u32(),
            index: 0,
            offset: 0,
            message_len,
            length: prng.between(1, u64::from(message_len)) as u32,
            floor_delta: [0, 4_090][prng.below(2) as usize].min(number) as u16,
            credit: prng.next_u32() as u16,
            ack_largest: prng.next_u32(),
            ack_hold: prng.next_u32(),
            payload_crc: prng.next_u32(),
        }
        .last_where_it_ends()
    }

    impl ChunkHeader {
        fn last_where_it_ends(mut self) -> Self {
            let is_last = self.offset + self.length == self.message_len;
            self.flags = self.flags.with(ChunkFlags::LAST, is_last);
            self
        }

        /// A header that follows.
        fn next(self, prng: &mut Prng) -> Self {
            let mut next = self;
            next.number += 1;
            next.floor_delta += 1;
            next.payload_crc = prng.next_u32();
            if self.flags.has(ChunkFlags::LAST) {
                next.message = self.message.wrapping_add(1);
                next.message_len = prng.between(1, 40) as u32;
                (next.index, next.offset) = (0, 0);
                next.length = prng.between(1, u64::from(next.message_len)) as u32;
            } else {
                (next.index, next.offset) = (self.index + 1, self.offset + self.length);
                let left = next.message_len - next.offset;
                next.length = prng.between(1, u64::from(left)) as u32;
            }
            next.last_where_it_ends()
        }

        /// With something about it that may be otherwise.
        fn spoilt(self, prng: &mut Prng) -> Self {
            let mut next = self;
            match prng.below(160) {
                0 => next.number += 1,
                1 => next.message ^= 1,
                2 => next.index += 1,
                3 => next.offset += 1,
                4 => next.length += 1,
                5 => next.message_len += 1,
                6 => next.floor_delta ^= 1,
                7 => next.credit ^= 1,
                8 => next.ack_largest ^= 1,
                9 => next.ack_hold ^= 1,
                10 => next.channel ^= 1,
                11 => next.generation ^= 1,
                12 => next.flags.0 ^= 1 << prng.below(16),
                13 => next.kind = Kind::Ping,
                14 => next.length = 0,
                15 => next.floor_delta = 4_095,
                16 => next.message_len = MESSAGE_BYTES_MAX + 1,
                17 => {
                    next.length = next.message_len + 1;
                    next.flags = next.flags.with(ChunkFlags::LAST, false);
                }
                _ => {}
            }
            next
        }
    }

    #[test]
    fn what_is_found_is_what_parsing_finds_and_what_follows_is_found() {
        let (mut found, mut spoilt) = (0, 0);
        for seed in 0..20_000 {
            let mut prng = Prng::new(seed);
            let mut last = first(&mut prng);
            let mut bytes = emitted(&last);
            assert_eq!(ChunkHeader::parse(&bytes), Ok(last), "seed {seed}");
            let mut follower = Follower::of(&bytes);
            for _ in 0..10 {
                let follows = last.next(&mut prng);
                let next = follows.spoilt(&mut prng);
                bytes = emitted(&next);
                let is_damaged = prng.chance(0.02);
                if is_damaged {
                    bytes[prng.below(HEADER_BYTES as u64) as usize] ^= 1;
                }
                let parsed = ChunkHeader::parse(&bytes);
                let Some(piece) = follower.find(&bytes) else {
                    assert!(next != follows || parsed.is_err(), "seed {seed}: {next:?}");
                    spoilt += 1;
                    break;
                };
                assert_eq!(parsed, Ok(next), "seed {seed}");
                let says = (follower.number(), follower.message(), follower.channel());
                assert_eq!(says, (next.number, next.message, next.channel), "seed {seed}");
                let says = (follower.place(), follower.credit(), follower.flags());
                let flags = next.flags.with(ChunkFlags::LAST, false);
                assert_eq!(says, ((next.index, next.offset), next.credit, flags), "seed {seed}");
                let is_last = next.flags.has(ChunkFlags::LAST);
                let (length, message_len) = (next.length, next.message_len);
                let payload_crc = Some(next.payload_crc);
                assert_eq!(piece, Piece { length, message_len, is_last, payload_crc });
                follower.step(&piece);
                (last, found) = (next, found + 1);
            }
        }
        assert!(found > 50_000 && spoilt > 10_000, "{found} {spoilt}");
    }
}
