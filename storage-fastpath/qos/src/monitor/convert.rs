//! Token conversion (step T2): what the server can still do and nobody has tokens for is the
//! pool's.

use super::{Monitor, Words};
use crate::even;
use crate::limits::AHEAD_TICKS;
use crate::rules::Conversion;
use crate::words::PoolWord;
use towpath_base::Time;

impl Monitor {
    /// Sets the pool's word to what it should have.
    pub(super) fn convert(&mut self, now: Time, is_behind: bool, words: &mut impl Words) {
        if self.config.rules.conversion == Conversion::Overwrite {
            let tokens = self.target(now, is_behind, 0);
            words.overwrite_pool(PoolWord { epoch: self.epoch, tokens }.pack());
            self.pool_set = tokens;
            return;
        }
        let mut seen = words.pool();
        // Each failure means that an engine has taken something, which it does once a tick.
        for _ in 0..=self.clients.len() {
            let word = PoolWord::unpack(seen);
            if word.epoch != self.epoch {
                return;
            }
            self.note_pool(word.tokens);
            let tokens = self.target(now, is_behind, self.taken_of_late());
            // A debt is set, not added to: it would hide what is given.
            match words.exchange_pool(seen, PoolWord { epoch: self.epoch, tokens }.pack()) {
                Ok(()) => {
                    let more = tokens.saturating_sub(word.tokens.max(0));
                    self.converted += u64::try_from(more).unwrap_or(0);
                    self.pool_set = tokens;
                    break;
                }
                Err(other) => seen = other,
            }
        }
        self.remember();
    }

    /// How many looks a report may be old.
    fn report_looks(&self) -> usize {
        let looks = self.report_every().0.div_ceil(self.config.tick.0.max(1));
        usize::try_from(looks).unwrap_or(1) + 1
    }

    fn remember(&mut self) {
        // With that of the look at which the oldest report was written.
        let most = self.report_looks() + 1;
        self.taken_then.push(self.pool_taken);
        if self.taken_then.len() > most {
            self.taken_then.remove(0);
        }
    }

    /// Tokens that were taken so lately that reports may not tell of them: no more than were taken
    /// since the oldest report was written, nor than those that no report tells of.
    fn taken_of_late(&self) -> u64 {
        let oldest = self.taken_then.first().copied().unwrap_or(0);
        let since = self.pool_taken.saturating_sub(oldest);
        // What a report tells is in units: two of its counts are rounded up, and one down.
        let unit = 3u64 << self.unit_shift();
        let told: u64 = self.live().map(|client| client.pooled().saturating_sub(unit)).sum();
        since.min(self.pool_taken.saturating_sub(told))
    }

    /// What the pool should have: the paper's C (T - t) - L, less what clients hold of the pool.
    fn target(&self, now: Time, is_behind: bool, taken_of_late: u64) -> i64 {
        let (config, passed) = (&self.config, self.passed(now));
        let rules = &config.rules;
        if rules.reserved_first && is_behind {
            return 0;
        }
        let all = self.capacity.tokens();
        let mut gone = even::used(all, passed, config.period);
        if rules.counts_held {
            // A server that is ahead of its estimate has done what it was to do later: without this
            // the tokens of the time to come are given again as often as they are used up.
            gone = gone.max(u32::try_from(self.done()).unwrap_or(u32::MAX).min(all));
        }
        let left = all - gone;
        let residual = |client: &super::clients::Client| {
            u64::from(client.residual(passed, config.period, rules.leases))
        };
        let mut given: u64 = self.live().map(residual).sum();
        if rules.counts_held {
            given += taken_of_late + self.held();
        }
        let tokens = i64::from(left) - i64::try_from(given).unwrap_or(i64::MAX);
        let tokens = tokens.max(0);
        if self.is_careful { self.released(now, tokens, taken_of_late) } else { tokens }
    }

    /// What was done in this period, by those that have left as well.
    fn done(&self) -> u64 {
        self.done_by_gone + self.live().map(|client| u64::from(client.last.done)).sum::<u64>()
    }

    fn held(&self) -> u64 {
        let live = self.live().filter(|client| !client.is_lost());
        live.map(|client| u64::from(client.last.held)).sum()
    }

    /// How many of `tokens` the pool may have now in a careful period: what the server will have
    /// done in some ticks, less what it did and what reservations are due until then. So the pool
    /// is spread over the period as reservations are, and never in front of them.
    pub(super) fn released(&self, now: Time, tokens: i64, taken_of_late: u64) -> i64 {
        let config = &self.config;
        let until = self.passed(now) + config.tick.saturating_mul(AHEAD_TICKS);
        let by_then = even::used(self.capacity.tokens(), until, config.period);
        let mut spoken_for = taken_of_late + self.held() + self.done();
        let careful = even::careful(config.period, config.tick);
        for client in self.live() {
            let later = client.reservation - even::used(client.reservation, until, careful);
            let residual = client.residual(self.passed(now), config.period, config.rules.leases);
            spoken_for += u64::from(residual.saturating_sub(later));
        }
        let due = i64::from(by_then) - i64::try_from(spoken_for).unwrap_or(i64::MAX);
        due.clamp(0, tokens.max(0))
    }
}
