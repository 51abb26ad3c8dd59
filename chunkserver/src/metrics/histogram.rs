//! A histogram of times that one thread writes and others read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bounds of the buckets: 1, 2, 4 ... microseconds, up to 16.8 s. One more bucket has what is
/// longer.
pub(crate) const BOUNDS: usize = 25;

/// Times in nanoseconds, by powers of two of a microsecond.
///
/// One thread records; a record is three loads and three stores, and no other instruction of the
/// memory system. A reader sees each number as it was at some instant, not all of them at one.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

/// What a histogram held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many times fell into each bucket.
    pub(crate) buckets: [u64; BOUNDS + 1],
    pub(crate) sum_ns: u64,
}

/// Adds to a number that no other thread writes.
pub(crate) fn add(to: &AtomicU64, count: u64) {
    to.store(to.load(Relaxed).wrapping_add(count), Relaxed);
}

/// The upper bound of a bucket, seconds.
pub(crate) fn bound_seconds(bucket: usize) -> f64 {
    (1u64 << bucket) as f64 / 1e6
}

impl Histogram {
    pub(crate) fn record(&self, ns: u64) {
        let above = ns.div_ceil(1000).saturating_sub(1);
        let bucket = (u64::BITS - above.leading_zeros()) as usize;
        add(&self.buckets[bucket.min(BOUNDS)], 1);
        add(&self.sum_ns, ns);
    }

    /// Adds what it holds to `counts`.
    pub(crate) fn add_to(&self, counts: &mut Counts) {
        for (count, bucket) in counts.buckets.iter_mut().zip(&self.buckets) {
            *count += bucket.load(Relaxed);
        }
        counts.sum_ns += self.sum_ns.load(Relaxed);
    }
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count;
        }
        self.sum_ns += other.sum_ns;
    }

    pub(crate) fn total(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_pass() {
        for (ns, bucket) in [
            (0, 0),
            (1, 0),
            (1_000, 0),
            (1_001, 1),
            (2_000, 1),
            (2_001, 2),
            (4_000, 2),
            (16_777_216_000, 24),
            (16_777_216_001, 25),
            (u64::MAX, 25),
        ] {
            let histogram = Histogram::default();
            histogram.record(ns);
            let mut counts = Counts::default();
            histogram.add_to(&mut counts);
            let found = counts.buckets.iter().position(|count| *count == 1);
            assert_eq!((found, counts.total(), counts.sum_ns), (Some(bucket), 1, ns));
            assert!(bucket == BOUNDS || ns as f64 / 1e9 <= bound_seconds(bucket), "{ns}");
            assert!(bucket == 0 || ns as f64 / 1e9 > bound_seconds(bucket - 1), "{ns}");
        }
    }
}
