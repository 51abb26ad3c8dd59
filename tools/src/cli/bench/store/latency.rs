//! Latencies and counts of one direction.

use std::time::Duration;

use hdrhistogram::{CreationError, Histogram};
use serde::Serialize;
use towpath_transport::Nanos;

/// Significant digits of a percentile.
const DIGITS: u8 = 3;

/// The longest latency that is told apart: a request is given up long before.
const NS_MAX: u64 = 3_600_000_000_000;

/// Percentiles that are shown, with their keys in JSON, which are fio's.
pub(super) const PERCENTILES: [(f64, &str); 5] = [
    (50.0, "50.000000"),
    (90.0, "90.000000"),
    (99.0, "99.000000"),
    (99.9, "99.900000"),
    (99.99, "99.990000"),
];

/// What the requests of one direction took.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u128,
    bytes: u64,
    least_ns: u64,
    most_ns: u64,
}

impl Latencies {
    /// Of no request.
    pub(super) fn new() -> Result<Self, CreationError> {
        let histogram = Histogram::new_with_bounds(1, NS_MAX, DIGITS)?;
        Ok(Self { histogram, sum_ns: 0, bytes: 0, least_ns: u64::MAX, most_ns: 0 })
    }

    /// A request of so many bytes took so long.
    pub(super) fn add(&mut self, took: Nanos, bytes: u64) {
        let ns = took.0;
        self.histogram.saturating_record(ns.max(1));
        self.sum_ns += u128::from(ns);
        self.bytes += bytes;
        self.least_ns = self.least_ns.min(ns);
        self.most_ns = self.most_ns.max(ns);
    }

    /// Those of another job.
    pub(super) fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.histogram.add(&other.histogram);
        self.sum_ns += other.sum_ns;
        self.bytes += other.bytes;
        self.least_ns = self.least_ns.min(other.least_ns);
        self.most_ns = self.most_ns.max(other.most_ns);
    }

    /// Requests.
    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// What is shown of them, of a measurement of so long; none where there were none.
    pub(super) fn direction(&self, span: Duration) -> Option<Direction> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let seconds = span.as_secs_f64();
        let rate = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        let percentiles =
            PERCENTILES.map(|(percent, _)| self.histogram.value_at_percentile(percent));
        Some(Direction {
            total_ios: count,
            io_bytes: self.bytes,
            runtime_ms: seconds * 1e3,
            iops: rate(count),
            bw_bytes: rate(self.bytes),
            lat_ns: Lat {
                min: self.least_ns,
                max: self.most_ns,
                mean: self.sum_ns as f64 / count as f64,
                stddev: self.histogram.stdev(),
                // A bucket may end behind the longest one.
                percentiles: percentiles.map(|ns| ns.clamp(self.least_ns, self.most_ns)),
            },
        })
    }
}

/// What is shown of one direction; the names are fio's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Direction {
    pub(super) total_ios: u64,
    pub(super) io_bytes: u64,
    /// fio's `runtime`, which is in milliseconds.
    #[serde(rename = "runtime")]
    pub(super) runtime_ms: f64,
    pub(super) iops: f64,
    /// Bytes a second.
    pub(super) bw_bytes: f64,
    pub(super) lat_ns: Lat,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Lat {
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) mean: f64,
    pub(super) stddev: f64,
    /// Of [`PERCENTILES`].
    #[serde(rename = "percentile", serialize_with = "as_fio_has_them")]
    pub(super) percentiles: [u64; PERCENTILES.len()],
}

fn as_fio_has_them<S: serde::Serializer>(
    values: &[u64; PERCENTILES.len()],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(PERCENTILES.iter().map(|(_, key)| key).zip(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_all_requests() {
        let mut latencies = Latencies::new().expect("bounds that fit");
        assert_eq!(latencies.direction(Duration::from_secs(1)), None);
        (1..=1000_u64).for_each(|us| latencies.add(Nanos::from_micros(us), 4096));
        let shown = latencies.direction(Duration::from_secs(2)).expect("there were some");
        assert_eq!((shown.total_ios, shown.io_bytes), (1000, 4_096_000));
        assert_eq!((shown.iops, shown.bw_bytes), (500.0, 2_048_000.0));
        assert_eq!((shown.lat_ns.min, shown.lat_ns.max), (1_000, 1_000_000));
        assert_eq!(shown.lat_ns.mean, 500_500.0);
        assert!((shown.lat_ns.stddev / 288_675.0 - 1.0).abs() < 0.01, "{}", shown.lat_ns.stddev);
        let near = |ns: u64, us: u64| (ns as f64 / (us as f64 * 1e3) - 1.0).abs() < 0.002;
        let percentiles = shown.lat_ns.percentiles;
        let wanted = [500, 900, 990, 999, 1000];
        assert!(percentiles.iter().zip(wanted).all(|(ns, us)| near(*ns, us)), "{percentiles:?}");
    }

    #[test]
    fn jobs_are_added_up() {
        let new = || Latencies::new().expect("bounds that fit");
        let (mut one, mut other) = (new(), new());
        one.add(Nanos(100), 1);
        other.add(Nanos(300), 2);
        other.add(Nanos(200), 2);
        one.merge(&other);
        let shown = one.direction(Duration::from_secs(1)).expect("there were some");
        assert_eq!((shown.total_ios, shown.io_bytes), (3, 5));
        assert_eq!((shown.lat_ns.min, shown.lat_ns.max, shown.lat_ns.mean), (100, 300, 200.0));
    }

    #[test]
    fn the_names_in_json_are_fios() {
        let mut latencies = Latencies::new().expect("bounds that fit");
        latencies.add(Nanos(1000), 512);
        let shown = latencies.direction(Duration::from_millis(500)).expect("there was one");
        let json = serde_json::to_value(shown).expect("JSON");
        assert_eq!(json["runtime"], 500.0);
        assert_eq!(json["lat_ns"]["percentile"]["99.990000"], 1000);
        assert_eq!(json["lat_ns"]["percentile"].as_object().expect("a map").len(), 5);
    }
}
