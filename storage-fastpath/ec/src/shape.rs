//! How many shards a stripe has, and sets of them.

use core::fmt;

/// Shards of a stripe at most, data and parity together.
///
/// A set of them is one word, and the layouts that name servers stay small. The field would carry
/// 256.
pub const SHARDS_MAX: usize = 32;

/// How many data shards (`k`) and parity shards (`m`) a stripe has.
///
/// Shards are numbered: data from 0 to `k - 1`, parity from `k` to `k + m - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    k: u8,
    m: u8,
}

/// A stripe cannot have so many shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no stripe has {k} data and {m} parity shards: at least 1 data shard, {SHARDS_MAX} in all")]
pub struct ShapeError {
    /// Data shards that were asked for.
    pub k: usize,
    /// Parity shards that were asked for.
    pub m: usize,
}

impl Shape {
    /// `k` data shards and `m` parity shards.
    ///
    /// # Errors
    /// [`ShapeError`] without a data shard, or if there are more than [`SHARDS_MAX`] in all.
    pub const fn new(k: usize, m: usize) -> Result<Self, ShapeError> {
        if k == 0 || k > SHARDS_MAX || m > SHARDS_MAX - k {
            return Err(ShapeError { k, m });
        }
        Ok(Self { k: k as u8, m: m as u8 })
    }

    /// Data shards.
    #[must_use]
    pub const fn k(self) -> usize {
        self.k as usize
    }

    /// Parity shards: so many of all may be lost.
    #[must_use]
    pub const fn m(self) -> usize {
        self.m as usize
    }

    /// Both.
    #[must_use]
    pub const fn shards(self) -> usize {
        self.k() + self.m()
    }

    /// The numbers of the data shards.
    #[must_use]
    pub const fn data(self) -> ShardSet {
        ShardSet(below(self.k()))
    }

    /// The numbers of the parity shards.
    #[must_use]
    pub const fn parity(self) -> ShardSet {
        ShardSet(below(self.shards()) & !below(self.k()))
    }

    /// The numbers of all shards.
    #[must_use]
    pub const fn all(self) -> ShardSet {
        ShardSet(below(self.shards()))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.k, self.m)
    }
}

/// The bits below `count`, which is at most 32.
const fn below(count: usize) -> u32 {
    ((1_u64 << count) - 1) as u32
}

/// Some shards of a stripe, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardSet(u32);

impl ShardSet {
    /// None.
    pub const NONE: Self = Self(0);

    /// The shards whose bits are set.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// A bit for each shard.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Puts a shard in. False if it was there, or if no stripe has a shard of that number.
    pub fn insert(&mut self, shard: usize) -> bool {
        let is_new = shard < SHARDS_MAX && !self.contains(shard);
        if is_new {
            self.0 |= 1 << shard;
        }
        is_new
    }

    /// Takes a shard out. False if it was not there.
    pub fn remove(&mut self, shard: usize) -> bool {
        let was_there = self.contains(shard);
        if was_there {
            self.0 &= !(1 << shard);
        }
        was_there
    }

    /// Whether a shard is in it.
    #[must_use]
    pub const fn contains(self, shard: usize) -> bool {
        shard < SHARDS_MAX && self.0 >> shard & 1 == 1
    }

    /// How many there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those of this set that are not in the other one.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those of either set.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Their numbers, lowest first.
    pub fn iter(self) -> impl Iterator<Item = usize> + Clone {
        (0..SHARDS_MAX).filter(move |&shard| self.contains(shard))
    }
}

/// Numbers that no stripe has are left out.
impl FromIterator<usize> for ShardSet {
    fn from_iter<I: IntoIterator<Item = usize>>(shards: I) -> Self {
        let mut set = Self::NONE;
        for shard in shards {
            set.insert(shard);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn shapes_have_a_data_shard_and_at_most_32_shards() {
        for k in 0..40 {
            for m in 0..40 {
                let is_shape = k >= 1 && k + m <= 32;
                let shape = Shape::new(k, m);
                assert_eq!(shape.is_ok(), is_shape, "{k}+{m}");
                assert!(shape.is_ok() || shape == Err(ShapeError { k, m }));
            }
        }
        for (k, m) in [(usize::MAX, 1), (1, usize::MAX), (usize::MAX, usize::MAX), (257, 0)] {
            assert_eq!(Shape::new(k, m), Err(ShapeError { k, m }));
        }
    }

    #[test]
    fn sets_of_a_shape_have_the_numbers_of_its_shards() {
        let shape = Shape::new(20, 12).unwrap();
        assert_eq!(shape.data().iter().collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
        assert_eq!(shape.parity().iter().collect::<Vec<_>>(), (20..32).collect::<Vec<_>>());
        assert_eq!(shape.all(), shape.data().with(shape.parity()));
        assert_eq!(shape.all().len(), 32);
        assert!(Shape::new(4, 0).unwrap().parity().is_empty());
    }

    #[test]
    fn a_set_takes_each_number_once_and_none_that_no_stripe_has() {
        let mut set = ShardSet::NONE;
        assert!(set.insert(31) && set.insert(3) && !set.insert(3));
        assert!(!set.insert(32) && !set.insert(usize::MAX) && !set.contains(32));
        assert_eq!(set.iter().collect::<Vec<_>>(), vec![3, 31]);
        assert!(set.remove(31) && !set.remove(31) && !set.remove(64));
        assert_eq!(set, ShardSet::from_bits(8));
    }
}
