//! Statistics of latency samples.

/// What is told of a row's samples, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The median.
    pub(crate) typical: f64,
    pub(crate) mean: f64,
    /// Of the samples as a population.
    pub(crate) stdev: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
}

impl Summary {
    /// Of samples in nanoseconds, smallest first. Percentiles are by nearest rank, so each is a
    /// sample that there was; all is zero when there is none.
    pub(crate) fn of_sorted(samples_ns: &[u64]) -> Self {
        let (Some(&min), Some(&max)) = (samples_ns.first(), samples_ns.last()) else {
            return Self::default();
        };
        let us = |ns: u64| ns as f64 / 1e3;
        let count = samples_ns.len() as f64;
        let mean = samples_ns.iter().map(|&ns| ns as f64).sum::<f64>() / count;
        let squares: f64 = samples_ns.iter().map(|&ns| (ns as f64 - mean).powi(2)).sum();
        Self {
            min: us(min),
            max: us(max),
            typical: us(nearest_rank(samples_ns, 500)),
            mean: mean / 1e3,
            stdev: (squares / count).sqrt() / 1e3,
            p99: us(nearest_rank(samples_ns, 990)),
            p99_9: us(nearest_rank(samples_ns, 999)),
        }
    }
}

/// The smallest sample that at least `per_mille` thousandths of all are not above.
fn nearest_rank(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let samples: Vec<u64> = (1..=1000).map(|n| n * 1000).collect();
        let summary = Summary::of_sorted(&samples);
        assert_eq!((summary.min, summary.max), (1.0, 1000.0));
        assert_eq!((summary.typical, summary.p99, summary.p99_9), (500.0, 990.0, 999.0));
        let few = Summary::of_sorted(&[1000, 2000, 3000]);
        assert_eq!((few.typical, few.p99, few.p99_9), (2.0, 3.0, 3.0));
        let one = Summary::of_sorted(&[7000]);
        assert_eq!((one.typical, one.p99_9), (7.0, 7.0));
    }

    #[test]
    fn the_deviation_keeps_what_is_below_a_microsecond() {
        let summary = Summary::of_sorted(&[2000, 4000, 4000, 4000, 5000, 5000, 7000, 9000]);
        assert_eq!((summary.mean, summary.stdev), (5.0, 2.0));
        let close = Summary::of_sorted(&[3100, 3300]);
        assert!((close.stdev - 0.1).abs() < 1e-12, "{}", close.stdev);
    }

    #[test]
    fn no_samples_make_zeroes() {
        assert_eq!(Summary::of_sorted(&[]), Summary::default());
    }
}
