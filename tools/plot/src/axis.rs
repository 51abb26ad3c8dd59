//! Where values lie on an axis, and which of them are marked.

use crate::data::{Axis, Scale};

/// Marks on an evenly divided axis, about.
const MARKS: f64 = 5.0;

/// An axis of known range.
pub(crate) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    /// Values that are marked, and their text.
    pub(crate) marks: Vec<(f64, String)>,
}

impl Ruler {
    /// For an axis on which `values` lie.
    pub(crate) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let is_log = axis.scale == Scale::Log;
        let fits = |value: &f64| value.is_finite() && (!is_log || *value > 0.0);
        let (mut low, mut high) = axis.range.unwrap_or_else(|| {
            values.filter(fits).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        });
        if !(low.is_finite() && high.is_finite()) {
            (low, high) = (1.0, 10.0);
        }
        let marks = if is_log {
            if axis.range.is_none() {
                low = 10f64.powf(low.log10().floor());
                high = 10f64.powf(high.log10().ceil()).max(low * 10.0);
            }
            powers(low, high)
        } else {
            if axis.range.is_none() {
                // Amounts are compared from zero on.
                low = low.min(0.0);
                let step = step(low, high);
                high = ((high / step).ceil() * step).max(low + step);
                low = (low / step).floor() * step;
            }
            even(low, high)
        };
        let marks = if axis.ticks.is_empty() { marks } else { axis.ticks.clone() };
        Self { scale: axis.scale, low, high, marks }
    }

    /// From one end to the other.
    pub(crate) fn span(&self) -> f64 {
        self.high - self.low
    }

    /// Where a value lies: 0.0 at the low end, 1.0 at the high end; `None` where it has no place.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        // A hair outside is rounding.
        (-0.001..=1.001).contains(&place).then_some(place)
    }
}

/// A round step that makes about [`MARKS`] marks: 1, 2 or 5 times a power of ten.
fn step(low: f64, high: f64) -> f64 {
    let rough = ((high - low) / MARKS).max(1e-12);
    let power = 10f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= rough * 0.999);
    times.unwrap_or(10.0) * power
}

fn even(low: f64, high: f64) -> Vec<(f64, String)> {
    let step = step(low, high);
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    let first = (low / step).ceil();
    let count = ((high - low) / step * 1.001).floor() as u32;
    let mark = |number: u32| {
        let value = (first + f64::from(number)) * step;
        (value, thousands(value).unwrap_or_else(|| format!("{value:.decimals$}")))
    };
    (0..=count).map(mark).filter(|&(value, _)| value <= high * 1.001 + 1e-12).collect()
}

/// Large numbers in thousands, millions or billions.
fn thousands(value: f64) -> Option<String> {
    // Four digits read well as they are.
    let units = [(1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")];
    let (_, unit, letter) = units.into_iter().find(|&(from, ..)| value.abs() >= from)?;
    Some(format!("{}{letter}", value / unit))
}

fn powers(low: f64, high: f64) -> Vec<(f64, String)> {
    let (first, last) = (low.log10().ceil() as i32, (high.log10() + 1e-9).floor() as i32);
    let each = (last - first) / 8 + 1;
    let text = |power: i32, value: f64| match power {
        -3.. => thousands(value).unwrap_or_else(|| format!("{value}")),
        _ => format!("1e{power}"),
    };
    let power = |power: i32| (10f64.powi(power), text(power, 10f64.powi(power)));
    (first..=last).step_by(each.max(1) as usize).map(power).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ruler: &Ruler) -> Vec<&str> {
        ruler.marks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn even_axes_have_round_marks_from_zero() {
        let ruler = Ruler::new(&Axis::linear("y", ""), [3.0, 97.0].into_iter());
        assert_eq!(texts(&ruler), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(ruler.place(50.0), Some(0.5));
        assert_eq!(ruler.place(150.0), None);
        let ruler = Ruler::new(&Axis::linear("y", ""), [0.31].into_iter());
        assert_eq!(texts(&ruler).first(), Some(&"0.0"));
        assert!(ruler.place(0.31).is_some());
    }

    #[test]
    fn axes_of_powers_have_a_mark_for_each_and_no_place_for_zero() {
        let ruler = Ruler::new(&Axis::log("x", ""), [0.0, 3.0, 5_000.0].into_iter());
        assert_eq!(texts(&ruler), ["1", "10", "100", "1000", "10k"]);
        assert_eq!(ruler.place(100.0), Some(0.5));
        assert_eq!(ruler.place(0.0), None);
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_still_has_a_length() {
        for values in [vec![], vec![0.0], vec![f64::NAN], vec![7.0, 7.0]] {
            for axis in [Axis::linear("x", ""), Axis::log("x", "")] {
                let ruler = Ruler::new(&axis, values.iter().copied());
                assert!(ruler.high > ruler.low, "{values:?}");
            }
        }
    }
}
