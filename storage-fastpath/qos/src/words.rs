//! The words of eight bytes that engines and monitor share, each with the period in it.
//!
//! A word says which period it is of, so that what comes late from an earlier one is known, whoever
//! stalled: an engine that adds to the pool of a period that it does not know yet gets nothing, and
//! a report that arrives a period late is not believed.

/// Which period: counts on from any number, and wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epoch(pub u16);

impl Epoch {
    /// The period after this.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// What a report has room for.
    fn low(self) -> u8 {
        self.0 as u8
    }
}

/// The word of the pool: tokens that any client may take. Epoch in the highest 16 bits, below it
/// the tokens with a bias, so that a debt never borrows from the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolWord {
    /// The period that the tokens are of.
    pub epoch: Epoch,
    /// How many there are; a debt when more was asked for than there was.
    pub tokens: i64,
}

/// What an addition to the pool's word got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// So many tokens, which may be fewer than were asked for, or none.
    Tokens(u32),
    /// None: the word is of another period.
    OtherEpoch,
}

impl PoolWord {
    /// Bits of the tokens.
    const BITS: u32 = 48;
    /// What no tokens at all look like. Debts reach it only after 140,000 billion tokens were asked
    /// for in vain in one period: a thousand clients with batches of a thousand, once each
    /// millisecond, come to a billion in a second.
    const BIAS: i64 = 1 << (Self::BITS - 1);
    const MASK: u64 = (1 << Self::BITS) - 1;

    /// The word. Tokens beyond what it has room for are cut off.
    #[must_use]
    pub fn pack(self) -> u64 {
        let biased = self.tokens.clamp(-Self::BIAS, Self::BIAS - 1) + Self::BIAS;
        u64::from(self.epoch.0) << Self::BITS | biased as u64
    }

    /// What a word says.
    #[must_use]
    pub fn unpack(word: u64) -> Self {
        let tokens = (word & Self::MASK) as i64 - Self::BIAS;
        Self { epoch: Epoch((word >> Self::BITS) as u16), tokens }
    }

    /// What to add to the word to take `count` tokens.
    #[must_use]
    pub fn operand(count: u32) -> u64 {
        u64::from(count).wrapping_neg()
    }

    /// What an addition got that asked for `count` tokens of the period `epoch` and fetched `was`:
    /// as many as were there, and not more.
    #[must_use]
    pub fn taken(was: u64, epoch: Epoch, count: u32) -> Taken {
        let was = Self::unpack(was);
        if was.epoch != epoch {
            return Taken::OtherEpoch;
        }
        Taken::Tokens(u32::try_from(was.tokens.max(0)).unwrap_or(u32::MAX).min(count))
    }
}

/// What a client tells of itself, written silently once a tick. Counts are in units, which the
/// start of the period tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The other way round in each report of a client, so that one that says the same as the one
    /// before is known from silence.
    pub beat: bool,
    /// It had enough to do in all of the tick: half of what it may have was under way, or something
    /// waited for tokens.
    pub is_backlogged: bool,
    /// It waited for the server in all of the tick, and not for tokens.
    pub is_at_server: bool,
    /// Tokens that were given to it and whose I/Os the server has yet to do: of the pool, not used,
    /// and of I/Os that are under way.
    pub held: u32,
    /// Reservation tokens that it holds and may still use.
    pub residual: u32,
    /// I/Os that were completed in this period, in tokens.
    pub done: u32,
}

impl Report {
    const HELD_BITS: u32 = 13;
    const COUNT_BITS: u32 = 20;
    /// The most units that a report can say of reserved tokens and of those that were used.
    pub const COUNT_MAX: u32 = (1 << Self::COUNT_BITS) - 1;
    /// And of held ones.
    pub const HELD_MAX: u32 = (1 << Self::HELD_BITS) - 1;

    /// How many tokens one unit stands for, as a power of two, so that a report can say `most`.
    #[must_use]
    pub fn unit_shift(most: u32) -> u8 {
        let bits = u32::BITS - most.leading_zeros();
        bits.saturating_sub(Self::COUNT_BITS) as u8
    }

    /// The report of a period as a word: what may still be used is rounded up, what was done down,
    /// so that a monitor never takes more to be free than is.
    #[must_use]
    pub fn pack(self, epoch: Epoch, unit_shift: u8) -> u64 {
        let up = |tokens: u32| {
            let unit = 1u64 << unit_shift;
            (u64::from(tokens).div_ceil(unit)).min(u64::from(u32::MAX)) as u32
        };
        let held = up(self.held).min(Self::HELD_MAX);
        let residual = up(self.residual).min(Self::COUNT_MAX);
        let done = (self.done >> unit_shift).min(Self::COUNT_MAX);
        u64::from(epoch.low()) << 56
            | u64::from(self.beat) << 55
            | u64::from(self.is_backlogged) << 54
            | u64::from(self.is_at_server) << 53
            | u64::from(held) << (2 * Self::COUNT_BITS)
            | u64::from(residual) << Self::COUNT_BITS
            | u64::from(done)
    }

    /// Of which period a word is, as far as it says.
    #[must_use]
    pub fn epoch_of(word: u64) -> Epoch {
        Epoch((word >> 56) as u16)
    }

    /// What a word says; none when it is of another period.
    #[must_use]
    pub fn unpack(word: u64, epoch: Epoch, unit_shift: u8) -> Option<Self> {
        if (word >> 56) as u8 != epoch.low() {
            return None;
        }
        let bits = |at: u32, count: u32| (word >> at) & ((1 << count) - 1);
        let tokens = |units: u64| u32::try_from(units << unit_shift).unwrap_or(u32::MAX);
        Some(Self {
            beat: bits(55, 1) != 0,
            is_backlogged: bits(54, 1) != 0,
            is_at_server: bits(53, 1) != 0,
            held: tokens(bits(2 * Self::COUNT_BITS, Self::HELD_BITS)),
            residual: tokens(bits(Self::COUNT_BITS, Self::COUNT_BITS)),
            done: tokens(bits(0, Self::COUNT_BITS)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    #[test]
    fn words_say_what_they_were_made_of() {
        let mut prng = Prng::new(1);
        for _ in 0..10_000 {
            let epoch = Epoch(prng.next_u32() as u16);
            let tokens = (prng.next_u64() >> 17) as i64 - (1 << 46);
            let pool = PoolWord { epoch, tokens };
            assert_eq!(PoolWord::unpack(pool.pack()), pool);
            let shift = prng.below(5) as u8;
            let unit = 1 << shift;
            let report = Report {
                beat: prng.below(2) == 1,
                is_backlogged: prng.below(2) == 1,
                is_at_server: prng.below(2) == 1,
                held: prng.below(1 << 13) as u32 * unit,
                residual: prng.below(1 << 20) as u32 * unit,
                done: prng.below(1 << 20) as u32 * unit,
            };
            let word = report.pack(epoch, shift);
            assert_eq!(Report::unpack(word, epoch, shift), Some(report));
            assert_eq!(Report::unpack(word, epoch.next(), shift), None);
        }
    }

    #[test]
    fn a_debt_leaves_the_epoch_alone_however_deep_it_is() {
        let epoch = Epoch(7);
        let mut word = PoolWord { epoch, tokens: 5 }.pack();
        for _ in 0..1_000_000 {
            let was = word;
            word = word.wrapping_add(PoolWord::operand(1_000));
            let expected = if was == (PoolWord { epoch, tokens: 5 }).pack() { 5 } else { 0 };
            assert_eq!(PoolWord::taken(was, epoch, 1_000), Taken::Tokens(expected));
        }
        assert_eq!(PoolWord::unpack(word), PoolWord { epoch, tokens: 5 - 1_000_000_000 });
    }

    #[test]
    fn nobody_takes_more_than_is_there_nor_of_another_period() {
        let word = PoolWord { epoch: Epoch(3), tokens: 400 }.pack();
        assert_eq!(PoolWord::taken(word, Epoch(3), 1_000), Taken::Tokens(400));
        assert_eq!(PoolWord::taken(word, Epoch(3), 100), Taken::Tokens(100));
        assert_eq!(PoolWord::taken(word, Epoch(2), 100), Taken::OtherEpoch);
    }

    #[test]
    fn what_a_report_rounds_it_rounds_so_that_nothing_is_given_twice() {
        let report = Report { held: 5, residual: 9, done: 15, ..Report::default() };
        let told = Report::unpack(report.pack(Epoch(1), 3), Epoch(1), 3).expect("of this period");
        assert_eq!((told.held, told.residual, told.done), (8, 16, 8));
        assert_eq!(Report::unit_shift(Report::COUNT_MAX), 0);
        assert_eq!(Report::unit_shift(Report::COUNT_MAX + 1), 1);
        assert_eq!(
            u64::from(u32::MAX) >> Report::unit_shift(u32::MAX),
            u64::from(Report::COUNT_MAX)
        );
    }
}
