//! Numbers by Zipf's law, as YCSB draws them.

use towpath_base::Prng;

/// YCSB's exponent.
pub const THETA: f64 = 0.99;

/// How many items YCSB's scrambled distribution draws from, before it maps them to keys.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;

/// The sum of `i^-0.99` over these, as YCSB has it: adding it up takes a minute.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Draws ranks from 0 on, each less often than the one before: rank `r` of `n` with a probability
/// of about `(r + 1)^-theta / zeta(n)`.
///
/// The algorithm is that of J. Gray et al., "Quickly Generating Billion-Record Synthetic Databases"
/// (SIGMOD 1994), which YCSB has: ranks 0 and 1 are drawn exactly, the others by a power whose
/// whole part is the rank. Where items are added the sum goes on from where it is. YCSB then goes
/// on with the number of items of the begin in one place of the formula (`eta`); here it is the
/// number that there are.
#[derive(Clone, Debug)]
pub struct Zipf {
    items: u64,
    theta: f64,
    /// Of this many items.
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Over `items` items, at least one. Takes time in proportion to them.
    ///
    /// # Panics
    /// If `theta` is not between 0 and 1.
    #[must_use]
    pub fn new(items: u64, theta: f64) -> Self {
        assert!(theta > 0.0 && theta < 1.0, "the formula holds between 0 and 1");
        let mut zipf = Self { items: 0, theta, zeta: 0.0, eta: 0.0 };
        zipf.grow(items.max(1));
        zipf
    }

    /// The many items that YCSB scrambles.
    pub(super) fn of_scrambled() -> Self {
        let (items, theta, zeta) = (SCRAMBLED_ITEMS, THETA, SCRAMBLED_ZETA);
        Self { items, theta, zeta, eta: eta(items, theta, zeta) }
    }

    /// Over this many items from now on; fewer than there are change nothing.
    pub fn grow(&mut self, items: u64) {
        if items <= self.items {
            return;
        }
        let theta = self.theta;
        let more = (self.items + 1..=items).map(|rank| (rank as f64).powf(-theta));
        self.zeta += more.sum::<f64>();
        self.items = items;
        self.eta = eta(items, theta, self.zeta);
    }

    /// How many items there are.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// What Zipf's law gives a rank.
    #[must_use]
    pub fn probability(&self, rank: u64) -> f64 {
        if rank < self.items { (rank as f64 + 1.0).powf(-self.theta) / self.zeta } else { 0.0 }
    }

    /// Draws a rank.
    pub fn draw(&self, prng: &mut Prng) -> u64 {
        let unit = prng.unit();
        let upto = unit * self.zeta;
        if upto < 1.0 || self.items == 1 {
            return 0;
        }
        if upto < 1.0 + 0.5_f64.powf(self.theta) || self.items == 2 {
            return 1;
        }
        let power = (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
        ((self.items as f64 * power) as u64).min(self.items - 1)
    }
}

fn eta(items: u64, theta: f64, zeta: f64) -> f64 {
    // Up to two items are drawn without it, and two would divide by zero.
    if items <= 2 {
        return 0.0;
    }
    let zeta_two = 1.0 + 0.5_f64.powf(theta);
    (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta)
}

/// Keys by Zipf's law of which the popular ones lie apart: YCSB's scrambled distribution.
#[derive(Clone, Debug)]
pub struct Scrambled {
    ranks: Zipf,
    keys: u64,
}

impl Scrambled {
    /// Over `keys` keys, at least one.
    #[must_use]
    pub fn new(keys: u64) -> Self {
        Self { ranks: Zipf::of_scrambled(), keys: keys.max(1) }
    }

    /// Draws a key.
    pub fn draw(&self, prng: &mut Prng) -> u64 {
        scramble(self.ranks.draw(prng)) % self.keys
    }
}

/// YCSB's `fnvhash64`: FNV-1a over eight bytes, and its absolute value as a signed number.
#[must_use]
pub fn scramble(number: u64) -> u64 {
    let hash = number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed().unsigned_abs()
}
