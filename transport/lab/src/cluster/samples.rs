//! Many measured values, and what can be said of them.

/// Values in the order in which they were taken.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    values: Vec<f64>,
}

impl Samples {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn add(&mut self, value: f64) {
        self.values.push(value);
    }

    /// In the order in which they were taken.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// The value that the share `p` (0.0 to 1.0) of all is not above; 0 of none.
    #[must_use]
    pub fn percentile(&self, p: f64) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let rank = (p * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
    }

    /// The one in the middle; 0 of none.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.percentile(0.5)
    }

    /// The median distance from the median; 0 of none.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let median = self.median();
        self.values.iter().map(|value| (value - median).abs()).collect::<Self>().median()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The largest; 0 of none.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }

    /// The mean; 0 of none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len().max(1) as f64
    }
}

/// What is no number does not count.
impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self { values: values.into_iter().filter(|value| !value.is_nan()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_taken() {
        let mut samples = Samples::new();
        assert_eq!((samples.percentile(0.5), samples.max(), samples.mean()), (0.0, 0.0, 0.0));
        (1..=100).rev().for_each(|value| samples.add(f64::from(value)));
        assert_eq!(samples.percentile(0.5), 50.0);
        assert_eq!(samples.percentile(0.99), 99.0);
        assert_eq!((samples.percentile(0.0), samples.percentile(1.0)), (1.0, 100.0));
        assert_eq!((samples.max(), samples.mean()), (100.0, 50.5));
    }

    #[test]
    fn an_outlier_moves_neither_median_nor_spread() {
        let samples: Samples = [3.0, 1.0, 2.0, 1000.0, 4.0, f64::NAN].into_iter().collect();
        assert_eq!((samples.len(), samples.median(), samples.spread()), (5, 3.0, 1.0));
        assert_eq!(Samples::new().spread(), 0.0);
        assert!(Samples::new().is_empty());
    }
}
