//! The square root that `core` does not have.

/// The root of `x` by Newton's iteration, to a few units in the last place; zero where `x` is not
/// a positive number.
pub(crate) fn sqrt(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 {
        return 0.0;
    }
    if x.is_infinite() {
        return x;
    }
    // Half the exponent is within a factor of 1.5 of the root: five steps square that error away.
    let mut root = f64::from_bits((x.to_bits() >> 1) + (1023u64 << 51));
    for _ in 0..5 {
        root = (root + x / root) / 2.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_that_of_the_standard_library_over_every_magnitude() {
        let mut x = 1e-300;
        while x < 1e300 {
            assert!((sqrt(x) / x.sqrt() - 1.0).abs() < 1e-14, "{x}");
            x *= 1.37;
        }
    }

    #[test]
    fn what_has_no_root_gives_zero_or_itself() {
        assert_eq!([0.0, -1.0, f64::NAN].map(sqrt), [0.0; 3]);
        assert_eq!(sqrt(f64::INFINITY), f64::INFINITY);
    }
}
