//! Whether two sets of measurements differ: medians, spreads, the Mann-Whitney U test.

/// Below this chance of seeing such a difference between equals, it counts as one.
pub(crate) const P_MAX: f64 = 0.05;

/// Above this many in both sets together the normal approximation is used, which is good there.
const EXACT_MAX: usize = 40;

/// The middle of the values; the mean of the two middle ones for an even count.
///
/// The values must not be empty.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        return sorted[middle];
    }
    f64::midpoint(sorted[middle - 1], sorted[middle])
}

/// The median distance from the median: how far a single run lies off, as a rule.
pub(crate) fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

/// The two-sided p-value of the Mann-Whitney U test that both sets come from one distribution.
///
/// Exact where no two values are equal and the sets are small; else the normal approximation,
/// corrected for ties and continuity.
pub(crate) fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let beats = |x: f64, y: f64| if x > y { 1.0 } else { f64::from(u8::from(x == y)) / 2.0 };
    let u: f64 = a.iter().flat_map(|&x| b.iter().map(move |&y| beats(x, y))).sum();
    let pairs = (a.len() * b.len()) as f64;
    let low = u.min(pairs - u);
    let mut all = [a, b].concat();
    all.sort_by(f64::total_cmp);
    let ties: f64 = all
        .chunk_by(|x, y| x == y)
        .map(|equal| (equal.len() as f64).powi(3) - equal.len() as f64)
        .sum();
    if ties == 0.0 && all.len() <= EXACT_MAX {
        return exact(a.len(), b.len(), low as usize);
    }
    approximate(a.len(), b.len(), low, ties)
}

/// The normal approximation; `ties` sums t^3 - t over the groups of t equal values.
fn approximate(a: usize, b: usize, low: f64, ties: f64) -> f64 {
    let (pairs, n) = ((a * b) as f64, (a + b) as f64);
    let variance = pairs / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = (pairs / 2.0 - low - 0.5).max(0.0) / variance.sqrt();
    (2.0 * upper_tail(z)).min(1.0)
}

/// Twice the share of all arrangements whose U is at most `low`.
fn exact(a: usize, b: usize, low: usize) -> f64 {
    let most = a * b;
    // ways[i][u]: arrangements of `i` of the first set among the ones placed so far with that U.
    let mut ways = vec![vec![0.0_f64; most + 1]; a + 1];
    ways[0][0] = 1.0;
    for placed in 0..a + b {
        for i in (1..=a.min(placed + 1)).rev() {
            // The one placed now as the i-th of its set beats the others placed before it.
            let beaten = placed + 1 - i;
            if beaten > b {
                continue;
            }
            for u in beaten..=most {
                ways[i][u] += ways[i - 1][u - beaten];
            }
        }
    }
    let total: f64 = ways[a].iter().sum();
    let tail: f64 = ways[a][..=low].iter().sum();
    (2.0 * tail / total).min(1.0)
}

/// The share of the normal distribution above `z`, which is at least zero (Abramowitz and Stegun
/// 26.2.17, off by at most 7.5e-8).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    sum * (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, most: f64) -> bool {
        (a - b).abs() <= most
    }

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(spread(&[1.0, 2.0, 3.0, 100.0, 2.0]), 1.0);
    }

    #[test]
    fn the_exact_test_agrees_with_counting() {
        // Of the 20 ways to arrange three and three, one has U = 0 and one U = 1.
        assert!(near(mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1, 1e-12));
        assert!(near(mann_whitney(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0]), 0.2, 1e-12));
        assert!(near(
            mann_whitney(&[4.0, 5.0, 6.0, 7.0], &[1.0, 2.0, 3.0, 0.0]),
            2.0 / 70.0,
            1e-12
        ));
        // Tables give U = 2 as the last significant value of five and five at 5 %.
        let five = |shift: f64| [1.0, 2.0, 3.0, 4.0, 5.0].map(|x| x * 10.0 + shift);
        assert!(mann_whitney(&five(0.0), &five(31.0)) <= 0.05);
        assert!(mann_whitney(&five(0.0), &five(21.0)) > 0.05);
    }

    #[test]
    fn the_approximation_agrees_with_the_exact_test_where_both_hold() {
        for low in 0..=112 {
            let (exact, near_to) = (exact(15, 15, low), approximate(15, 15, low as f64, 0.0));
            assert!(near(exact, near_to, 0.01), "U = {low}: {exact} and {near_to}");
        }
        assert!(near(upper_tail(1.96), 0.025, 1e-4) && near(upper_tail(0.0), 0.5, 1e-7));
    }

    #[test]
    fn equal_sets_are_never_told_apart() {
        assert_eq!(mann_whitney(&[1.0; 8], &[1.0; 8]), 1.0);
        let same = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert!(mann_whitney(&same, &same) > 0.9);
    }
}
