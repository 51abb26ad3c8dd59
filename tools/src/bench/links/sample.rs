//! Medians, and how far rounds lie apart.

/// What several rounds of one point gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
}

impl Sample {
    /// Of these values; what is no number does not count.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        Self { sorted }
    }

    /// The value that so large a part of all does not exceed, 0 to 1; zero of none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let place = (part.clamp(0.0, 1.0) * last as f64).round() as usize;
        self.sorted.get(place).copied().unwrap_or(0.0)
    }

    /// The value in the middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The median distance from the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let median = self.median();
        Self::of(self.sorted.iter().map(|value| (value - median).abs())).median()
    }

    /// The mean; zero of none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len().max(1) as f64
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Sample;

    #[test]
    fn an_outlier_moves_neither_median_nor_spread() {
        let sample = Sample::of([3.0, 1.0, 2.0, 1000.0, 4.0, f64::NAN]);
        assert_eq!((sample.len(), sample.median(), sample.spread()), (5, 3.0, 1.0));
        assert_eq!((sample.quantile(0.0), sample.quantile(1.0)), (1.0, 1000.0));
        assert_eq!(Sample::default().median(), 0.0);
    }
}
