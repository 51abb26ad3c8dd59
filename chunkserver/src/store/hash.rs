//! A hash of chunk names that costs one multiplication.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes names with a random key. Clients choose the names and do not know the key, so they cannot
/// choose names that collide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHash {
    key: [u64; 2],
}

impl Default for NameHash {
    fn default() -> Self {
        let random = RandomState::new();
        Self { key: [random.hash_one(0), random.hash_one(1)] }
    }
}

impl BuildHasher for NameHash {
    type Hasher = NameHasher;

    fn build_hasher(&self) -> NameHasher {
        NameHasher { key: self.key }
    }
}

/// The hash of one name, by [`NameHash`].
#[derive(Debug)]
pub(crate) struct NameHasher {
    key: [u64; 2],
}

impl Hasher for NameHasher {
    fn write_u128(&mut self, name: u128) {
        let [low, high] = [name as u64 ^ self.key[0], (name >> 64) as u64 ^ self.key[1]];
        let product = u128::from(low) * u128::from(high);
        self.key[0] = product as u64 ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(16) {
            let mut name = [0; 16];
            name[..part.len()].copy_from_slice(part);
            self.write_u128(u128::from_le_bytes(name));
        }
    }

    fn finish(&self) -> u64 {
        self.key[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ChunkId;

    #[test]
    fn names_spread_over_all_buckets_whichever_half_they_differ_in() {
        let hash = NameHash::default();
        for shift in [0, 20, 64, 100] {
            let mut buckets = [0; 64];
            for name in 0..64 * 64_u128 {
                buckets[(hash.hash_one(ChunkId(name << shift)) % 64) as usize] += 1;
            }
            // Some 64 in each, and far fewer than all in any.
            assert!(buckets.into_iter().all(|count| count < 1024), "{shift}: {buckets:?}");
        }
        assert_ne!(hash.hash_one(ChunkId(1)), NameHash::default().hash_one(ChunkId(1)));
    }
}
