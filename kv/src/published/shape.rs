//! How published memory is laid out: 64 bytes that say so, then buckets.
//!
//! ```text
//! 0 "TKVP"  4 version (u16)  6 slots of a bucket (u16)  8 buckets (u64, a power of two)
//! 16 bytes of a slot (u32)  20 CRC-32C of the 20 bytes before (u32)  24 zero
//! ```

use super::bucket::SLOTS;
use crate::limits::{PUBLISHED_BUCKETS_MIN, PUBLISHED_BYTES_MAX, PUBLISHED_SLOT_BYTES_MAX};
use towpath_base::crc::crc32c;

/// Bytes that say how the memory is laid out.
pub const SHAPE_BYTES: usize = 64;

const MAGIC: [u8; 4] = *b"TKVP";
const VERSION: u16 = 1;

/// Slots of a bucket: with two, at half as many keys as slots, five of six keys have one.
const WAYS: usize = 2;

/// The most slots that a client believes in.
const WAYS_MAX: usize = 64;

/// Buckets begin at multiples of this: a line of cache.
const ALIGN: usize = 64;

/// What a client needs to know to find a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Buckets: a power of two.
    pub buckets: u64,
    /// Slots of each.
    pub ways: usize,
    /// Bytes of each slot: four, a key and its value.
    pub slot_bytes: usize,
}

/// What is wrong with what memory begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// It is not published memory, or not of this version.
    #[error("this is no published memory, or of another version")]
    NotOurs,
    /// It changed on its way.
    #[error("its checksum does not fit")]
    Checksum,
    /// A number has no meaning, or there is less memory than it says.
    #[error("the {0} has no meaning")]
    Field(&'static str),
}

impl Shape {
    /// The largest that fits `bytes`.
    pub(super) fn fitting(bytes: usize, slot_bytes: usize) -> Option<Self> {
        let one = Self { buckets: 1, ways: WAYS, slot_bytes };
        if !(8..=PUBLISHED_SLOT_BYTES_MAX).contains(&slot_bytes) || bytes > PUBLISHED_BYTES_MAX {
            return None;
        }
        let room = bytes.checked_sub(SHAPE_BYTES)? / one.bucket_bytes();
        // A power of two, so that a look-up needs no division.
        let buckets = 1u64.checked_shl(room.checked_ilog2()?)?;
        (buckets >= PUBLISHED_BUCKETS_MIN).then_some(Self { buckets, ..one })
    }

    /// Bytes of a bucket.
    #[must_use]
    pub fn bucket_bytes(&self) -> usize {
        (SLOTS + self.ways * self.slot_bytes).next_multiple_of(ALIGN)
    }

    /// Bytes of all.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.place(self.buckets)
    }

    /// Where a bucket begins.
    #[must_use]
    pub fn place(&self, bucket: u64) -> usize {
        SHAPE_BYTES + bucket as usize * self.bucket_bytes()
    }

    /// The bucket that a key is in.
    #[must_use]
    pub fn bucket_of(&self, key: &[u8]) -> u64 {
        // FNV-1a, mixed so that its low bits depend on all. Who makes keys of one bucket on
        // purpose has them served by the server, and no more.
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, step);
        let mixed = (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) & (self.buckets - 1)
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; SHAPE_BYTES] {
        let mut bytes = [0; SHAPE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&(self.ways as u16).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.buckets.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.slot_bytes as u32).to_le_bytes());
        let crc = crc32c(&bytes[..20]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The shape of memory that begins so, and of which `granted` bytes may be read.
    ///
    /// # Errors
    /// [`ShapeError`]
    pub fn parse(bytes: &[u8; SHAPE_BYTES], granted: u64) -> Result<Self, ShapeError> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        if bytes[..4] != MAGIC || half(4) != VERSION {
            return Err(ShapeError::NotOurs);
        }
        if word(20) != crc32c(&bytes[..20]) {
            return Err(ShapeError::Checksum);
        }
        let buckets = u64::from(word(8)) | u64::from(word(12)) << 32;
        let (ways, slot_bytes) = (usize::from(half(6)), word(16) as usize);
        if !(1..=WAYS_MAX).contains(&ways) {
            return Err(ShapeError::Field("number of slots"));
        }
        if !(8..=PUBLISHED_SLOT_BYTES_MAX).contains(&slot_bytes) {
            return Err(ShapeError::Field("length of a slot"));
        }
        let shape = Self { buckets, ways, slot_bytes };
        let needed = (shape.bucket_bytes() as u64).checked_mul(buckets);
        let needed = needed.and_then(|bytes| bytes.checked_add(SHAPE_BYTES as u64));
        let fits = needed.is_some_and(|needed| needed <= granted);
        if !buckets.is_power_of_two() || !fits || granted > PUBLISHED_BYTES_MAX as u64 {
            return Err(ShapeError::Field("number of buckets"));
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { buckets: 1 << 12, ways: 2, slot_bytes: 320 };

    #[test]
    fn a_shape_comes_back_as_it_went_where_the_memory_is_all_granted() {
        let (bytes, granted) = (SHAPE.emit(), SHAPE.bytes() as u64);
        assert_eq!(Shape::parse(&bytes, granted), Ok(SHAPE));
        let fewer = Shape::parse(&bytes, granted - 1);
        assert_eq!(fewer, Err(ShapeError::Field("number of buckets")));
    }

    #[test]
    fn each_wrong_field_is_named() {
        let with = |change: &dyn Fn(&mut Shape)| {
            let mut shape = SHAPE;
            change(&mut shape);
            Shape::parse(&shape.emit(), 1 << 30)
        };
        let field = |name| Err(ShapeError::Field(name));
        assert_eq!(with(&|shape| shape.ways = 0), field("number of slots"));
        assert_eq!(with(&|shape| shape.ways = 65), field("number of slots"));
        assert_eq!(with(&|shape| shape.slot_bytes = 7), field("length of a slot"));
        assert_eq!(with(&|shape| shape.slot_bytes = 1 << 20), field("length of a slot"));
        assert_eq!(with(&|shape| shape.buckets = 0), field("number of buckets"));
        assert_eq!(with(&|shape| shape.buckets = 3), field("number of buckets"));
        assert_eq!(with(&|shape| shape.buckets = 1 << 60), field("number of buckets"));
        let mut bytes = SHAPE.emit();
        bytes[9] ^= 1;
        assert_eq!(Shape::parse(&bytes, 1 << 30), Err(ShapeError::Checksum));
        bytes[0] ^= 1;
        assert_eq!(Shape::parse(&bytes, 1 << 30), Err(ShapeError::NotOurs));
    }

    #[test]
    fn what_is_too_small_or_too_large_has_no_shape() {
        let one = SHAPE.bucket_bytes();
        let least = SHAPE_BYTES + PUBLISHED_BUCKETS_MIN as usize * one;
        let shape = Shape::fitting(least, 320).expect("room");
        assert_eq!((shape.buckets, shape.bytes()), (PUBLISHED_BUCKETS_MIN, least));
        assert_eq!(Shape::fitting(least - 1, 320), None);
        assert_eq!(Shape::fitting(PUBLISHED_BYTES_MAX + 1, 320), None);
        assert_eq!(Shape::fitting(least, 7), None);
    }

    #[test]
    fn a_bucket_has_room_for_each_of_its_slots_whatever_their_length() {
        for slot_bytes in 8..=400 {
            for ways in 1..=4 {
                let shape = Shape { ways, slot_bytes, ..SHAPE };
                let room = shape.bucket_bytes() - SLOTS;
                assert!(room / slot_bytes >= ways, "{ways} of {slot_bytes} bytes");
            }
        }
    }
}
