//! How long I/Os took: counts by duration, exact to three percent.

use towpath_base::Nanos;

/// Parts that each power of two is divided into, as a power of two.
const PART_BITS: u32 = 5;

/// Durations below this have a count of their own.
const EXACT: u64 = 1 << PART_BITS;

/// How many I/Os took how long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    counts: Vec<u64>,
    all: u64,
    sum: u128,
}

fn place_of(nanos: u64) -> usize {
    if nanos < EXACT {
        return nanos as usize;
    }
    let shift = nanos.ilog2() - PART_BITS;
    ((u64::from(shift) << PART_BITS) + (nanos >> shift)) as usize
}

/// The longest duration that is counted at a place.
fn end_of(place: usize) -> u64 {
    let place = place as u64;
    if place < EXACT {
        return place;
    }
    let shift = (place >> PART_BITS) - 1;
    (((place & (EXACT - 1)) + EXACT + 1) << shift) - 1
}

impl Latency {
    pub(super) fn add(&mut self, span: Nanos) {
        let place = place_of(span.0);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
        self.all += 1;
        self.sum += u128::from(span.0);
    }

    /// Counts what another one did, too.
    pub fn merge(&mut self, other: &Self) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(to, from)| *to += from);
        self.all += other.all;
        self.sum += other.sum;
    }

    /// The mean, in microseconds; 0 of none.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.sum as f64 / self.all.max(1) as f64 / 1e3
    }

    /// What the share `p` of all did not exceed, in microseconds; 0 of none.
    #[must_use]
    pub fn percentile_us(&self, p: f64) -> f64 {
        let rank = ((p * self.all as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0.0, |place| end_of(place) as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_within_three_percent_of_what_it_is() {
        for nanos in (0..200).chain([1_000, 4_095, 4_096, 123_456, 999_999_999, u64::MAX >> 1]) {
            let end = end_of(place_of(nanos));
            assert!(end >= nanos && end - nanos <= nanos / 32, "{nanos}: {end}");
        }
    }

    #[test]
    fn mean_and_percentiles_are_those_of_all() {
        let mut latency = Latency::default();
        (1..=1_000).for_each(|us| latency.add(Nanos::from_micros(us)));
        assert_eq!(latency.mean_us(), 500.5);
        for (p, us) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let found = latency.percentile_us(p);
            assert!((us..us * 1.04).contains(&found), "{p}: {found}");
        }
    }
}
