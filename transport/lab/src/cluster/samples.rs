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
}
