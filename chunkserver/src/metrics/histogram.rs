//! A histogram of times that one thread writes and others read.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use towpath_fastpath::health::{TIME_BUCKETS, time_bucket};

/// Bounds that are told to Prometheus: 1, 2, 4 ... microseconds, up to 16.8 s. What is longer
/// comes after the last.
pub(crate) const BOUNDS: usize = (TIME_BUCKETS - 1) / STEPS;

/// Buckets between two of those bounds.
const STEPS: usize = 4;

/// Times in nanoseconds, four buckets for each power of two of a microsecond.
///
/// One thread records; a record is three loads and three stores, and no other instruction of the
/// memory system. A reader sees each number as it was at some instant, not all of them at one.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; TIME_BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; TIME_BUCKETS], sum_ns: AtomicU64::new(0) }
    }
}

/// What a histogram held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many times fell into each bucket.
    pub(crate) buckets: [u64; TIME_BUCKETS],
    pub(crate) sum_ns: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { buckets: [0; TIME_BUCKETS], sum_ns: 0 }
    }
}

/// Adds to a number that no other thread writes.
pub(crate) fn add(to: &AtomicU64, count: u64) {
    to.store(to.load(Relaxed).wrapping_add(count), Relaxed);
}

/// A bound, seconds.
pub(crate) fn bound_seconds(bound: usize) -> f64 {
    (1u64 << bound) as f64 / 1e6
}

impl Histogram {
    pub(crate) fn record(&self, ns: u64) {
        add(&self.buckets[time_bucket(ns)], 1);
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

    /// How many times lie between each bound and the one before; those beyond the last one are
    /// the last.
    pub(crate) fn coarse(&self) -> [u64; BOUNDS + 1] {
        let mut coarse = [0; BOUNDS + 1];
        for (sum, counts) in coarse.iter_mut().zip(self.buckets.chunks(STEPS)) {
            *sum = counts.iter().sum();
        }
        coarse
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
            let found = counts.coarse().iter().position(|count| *count == 1);
            assert_eq!((found, counts.total(), counts.sum_ns), (Some(bucket), 1, ns));
            assert!(bucket == BOUNDS || ns as f64 / 1e9 <= bound_seconds(bucket), "{ns}");
            assert!(bucket == 0 || ns as f64 / 1e9 > bound_seconds(bucket - 1), "{ns}");
        }
    }
}
