//! Keys and values in memory that clients may read by themselves.
//!
//! The memory is a table of buckets, each of which has a key in one of a few slots, with its value
//! beside it: one READ of a bucket finds both. A bucket has a version, which is odd while a key of
//! it changes, and a checksum over the version and all slots. So whoever reads a bucket whose
//! checksum fits has what the store held at the moment at which the version was read, in whichever
//! order its bytes were.
//!
//! The table that serves changes a key only while it holds the key's bucket: from before the change
//! takes effect until the bucket shows it. Therefore a READ that begins after anybody could see a
//! change sees it, or something newer, or nothing, and then asks the server. Only what never
//! expires is here, for a reader's clock is not the server's; what does not fit is not.
//!
//! | file | contents |
//! |---|---|
//! | `shape` | how the memory is laid out: what it begins with, and where a key is |
//! | `bucket` | a bucket as bytes |

mod bucket;
mod shape;

pub use bucket::{Found, find};
pub use shape::{SHAPE_BYTES, Shape, ShapeError};

use crate::limits::{PUBLISHED_BUCKETS_MIN, PUBLISHED_BYTES_MAX};
use bucket::put;
use std::sync::atomic::{AtomicU64, Ordering};
use towpath_memory::{MemoryError, SharedMemory};

/// Why nothing can be published.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The memory is too small for slots of that length, or larger than can be granted.
    #[error(
        "{bytes} bytes of memory for slots of {slot_bytes} are too few ({PUBLISHED_BUCKETS_MIN} \
         buckets are the least), or more than {PUBLISHED_BYTES_MAX}"
    )]
    Size {
        /// What was asked for.
        bytes: usize,
        /// Of each slot.
        slot_bytes: usize,
    },
    /// The system has no memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// What was done with keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishedCounts {
    /// Values that were put where clients can read them.
    pub published: u64,
    /// Of those, how many took the place of another key, which clients have to ask for then.
    pub displaced: u64,
    /// Values that do not fit a slot. Those that expire are not counted.
    pub unpublished: u64,
}

/// The memory, of which the store alone writes.
#[derive(Debug)]
pub struct Published {
    memory: SharedMemory,
    shape: Shape,
    published: AtomicU64,
    displaced: AtomicU64,
    unpublished: AtomicU64,
}

impl Published {
    /// At most so many bytes of memory, with slots of so many bytes for a key and its value.
    ///
    /// # Errors
    /// [`PublishError`]
    pub fn new(bytes: usize, slot_bytes: usize) -> Result<Self, PublishError> {
        let error = PublishError::Size { bytes, slot_bytes };
        let shape = Shape::fitting(bytes, slot_bytes).ok_or(error)?;
        let memory = SharedMemory::new(shape.bytes())?;
        memory.write(0, &shape.emit())?;
        let made = Self {
            memory,
            shape,
            published: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
            unpublished: AtomicU64::new(0),
        };
        for bucket in 0..shape.buckets {
            let mut bytes = vec![0; shape.bucket_bytes()];
            bucket::seal(&mut bytes, 0);
            made.memory.write(shape.place(bucket), &bytes)?;
        }
        Ok(made)
    }

    /// The memory, to grant it for reading.
    #[must_use]
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// How it is laid out.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What was done.
    #[must_use]
    pub fn counts(&self) -> PublishedCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PublishedCounts {
            published: of(&self.published),
            displaced: of(&self.displaced),
            unpublished: of(&self.unpublished),
        }
    }

    fn version(&self, place: usize) -> &AtomicU64 {
        // Buckets begin at multiples of a line within the memory, which was made for them.
        self.memory.word(place).expect("a bucket is aligned and within the memory")
    }

    /// Begins a change of a key, when nobody else changes a key of its bucket. From here on nobody
    /// reads the bucket, until the change ends.
    pub(crate) fn begin(&self, key: &[u8]) -> Change<'_> {
        let mut tries = 0u32;
        loop {
            if let Some(change) = self.try_begin(key) {
                return change;
            }
            // A change takes less than a microsecond, unless its thread lost its processor.
            tries = tries.wrapping_add(1);
            match tries.is_multiple_of(64) {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
        }
    }

    /// Begins a change of a key; none while one of its bucket is under way.
    pub(crate) fn try_begin(&self, key: &[u8]) -> Option<Change<'_>> {
        let place = self.shape.place(self.shape.bucket_of(key));
        let word = self.version(place);
        let version = u64::from_le(word.load(Ordering::Relaxed));
        if !version.is_multiple_of(2) {
            return None;
        }
        let (old, odd) = (version.to_le(), (version | 1).to_le());
        // What follows is not seen before the bucket is closed.
        word.compare_exchange(old, odd, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(Change { published: self, place, version })
    }
}

/// A change of a key that is under way. Where it is dropped the bucket is as it was.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    published: &'a Published,
    place: usize,
    version: u64,
}

impl Change<'_> {
    /// The key has this value now, or none that clients may read by themselves.
    pub(crate) fn end(mut self, key: &[u8], value: Option<&[u8]>) {
        let Published { memory, shape, published, displaced, unpublished, .. } = self.published;
        let mut bytes = vec![0; shape.bucket_bytes()];
        if memory.read(self.place, &mut bytes).is_err() {
            // No bucket lies elsewhere.
            return;
        }
        let turn = self.version / 2;
        let is_changed = match put(&mut bytes, shape.slot_bytes, (key, value), turn) {
            bucket::Done::Nothing => false,
            bucket::Done::Removed => true,
            bucket::Done::Put => {
                published.fetch_add(1, Ordering::Relaxed);
                true
            }
            bucket::Done::Displaced => {
                published.fetch_add(1, Ordering::Relaxed);
                displaced.fetch_add(1, Ordering::Relaxed);
                true
            }
            bucket::Done::TooLong { was_there } => {
                unpublished.fetch_add(1, Ordering::Relaxed);
                was_there
            }
        };
        if is_changed {
            // It stays closed until all of it is there.
            let next = self.version.wrapping_add(2);
            bucket::seal(&mut bytes, next);
            let body = bucket::BODY;
            if memory.write(self.place + body, &bytes[body..]).is_ok() {
                self.version = next;
            }
        }
    }

    /// The key has a value that clients must not read by themselves, or none.
    pub(crate) fn end_without(self, key: &[u8]) {
        self.end(key, None);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let word = self.published.version(self.place);
        word.store(self.version.to_le(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PUBLISHED_SLOT_BYTES_DEFAULT;

    fn published() -> Published {
        Published::new(1 << 20, PUBLISHED_SLOT_BYTES_DEFAULT).expect("memory")
    }

    fn read(published: &Published, key: &[u8]) -> Vec<u8> {
        let shape = published.shape();
        let mut bytes = vec![0; shape.bucket_bytes()];
        published.memory().read(shape.place(shape.bucket_of(key)), &mut bytes).expect("within");
        bytes
    }

    #[test]
    fn a_key_is_found_with_its_value_until_it_has_none() {
        let published = published();
        let slot = published.shape().slot_bytes;
        let see = |key: &[u8]| match find(&read(&published, key), slot, key) {
            Found::Value(value) => Some(value.to_vec()),
            Found::Absent => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(see(b"k"), None);
        published.begin(b"k").end(b"k", Some(b"v"));
        assert_eq!(see(b"k"), Some(b"v".to_vec()));
        drop(published.begin(b"k"));
        assert_eq!(see(b"k"), Some(b"v".to_vec()), "a change that was given up");
        published.begin(b"k").end(b"k", Some(b""));
        assert_eq!(see(b"k"), Some(Vec::new()));
        let longest = vec![7; slot - 5];
        published.begin(b"k").end(b"k", Some(&longest));
        assert_eq!(see(b"k"), Some(longest));
        published.begin(b"k").end(b"k", Some(&vec![7; slot - 4]));
        assert_eq!(see(b"k"), None, "one that does not fit is not there");
        published.begin(b"k").end(b"k", Some(b"v"));
        published.begin(b"k").end_without(b"k");
        assert_eq!(see(b"k"), None);
        let counts = PublishedCounts { published: 4, displaced: 0, unpublished: 1 };
        assert_eq!(published.counts(), counts);
    }

    #[test]
    fn a_bucket_that_is_changed_is_closed_and_takes_one_change_at_a_time() {
        let published = published();
        let slot = published.shape().slot_bytes;
        published.begin(b"k").end(b"k", Some(b"old"));
        let change = published.begin(b"k");
        assert!(published.try_begin(b"k").is_none());
        assert_eq!(find(&read(&published, b"k"), slot, b"k"), Found::Closed);
        change.end(b"k", Some(b"new"));
        assert_eq!(find(&read(&published, b"k"), slot, b"k"), Found::Value(b"new"));
    }

    #[test]
    fn a_bucket_that_is_part_old_and_part_new_is_torn() {
        let published = published();
        let slot = published.shape().slot_bytes;
        published.begin(b"k").end(b"k", Some(&[1; 100]));
        let old = read(&published, b"k");
        published.begin(b"k").end(b"k", Some(&[2; 100]));
        let new = read(&published, b"k");
        let differs: Vec<_> = (0..old.len()).filter(|&at| old[at] != new[at]).collect();
        for cut in differs[0] + 1..=*differs.last().expect("some") {
            for (front, back) in [(&old, &new), (&new, &old)] {
                let mixed = [&front[..cut], &back[cut..]].concat();
                assert_eq!(find(&mixed, slot, b"k"), Found::Torn, "at {cut}");
            }
        }
    }

    #[test]
    fn a_full_bucket_gives_one_key_up_for_another() {
        let published = published();
        let shape = *published.shape();
        let bucket = shape.bucket_of(b"0");
        let all = (0u32..).map(|n| n.to_string().into_bytes());
        let same: Vec<_> = all.filter(|key| shape.bucket_of(key) == bucket).take(9).collect();
        for key in &same {
            published.begin(key).end(key, Some(key));
        }
        let bytes = read(&published, b"0");
        let there = same.iter().filter(|key| find(&bytes, shape.slot_bytes, key) != Found::Absent);
        assert_eq!(
            (there.count(), published.counts().displaced),
            (shape.ways, 9 - shape.ways as u64)
        );
        let last = same.last().expect("nine");
        assert_eq!(find(&bytes, shape.slot_bytes, last), Found::Value(last));
    }

    #[test]
    fn two_keys_of_a_bucket_are_both_found_whatever_the_length_of_slots() {
        for slot_bytes in 64..=400 {
            let published = Published::new(1 << 18, slot_bytes).expect("memory");
            let shape = published.shape();
            let of_one = |n: &u64| shape.bucket_of(&n.to_le_bytes()) == 0;
            let keys: Vec<_> = (0..).filter(of_one).take(shape.ways).collect();
            for key in &keys {
                published.begin(&key.to_le_bytes()).end(&key.to_le_bytes(), Some(b"v"));
            }
            for key in &keys {
                let (name, bucket) = (key.to_le_bytes(), read(&published, &key.to_le_bytes()));
                assert_eq!(find(&bucket, slot_bytes, &name), Found::Value(b"v"), "{slot_bytes}");
            }
            assert_eq!(published.counts().displaced, 0);
        }
    }
}
