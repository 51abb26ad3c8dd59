//! The check interval: the monitor looks at the pool (step S1), and asks for reports when it is
//! used (steps S2, S3); what clients say tells who is behind.

use super::capacity::Waiting;
use super::{Look, Monitor, Slot, Words};
use crate::even;
use crate::limits::BEHIND_TICKS;
use crate::messages::Notice;
use crate::words::{PoolWord, Report};
use towpath_base::{Nanos, Time};

impl Monitor {
    /// Looks at all words, once a tick, and converts what nobody will use.
    pub fn tick(&mut self, now: Time, words: &mut impl Words) -> Look {
        let mut look = Look::default();
        let seen = self.see_pool(words, &mut look);
        self.looks += 1;
        // Step S2: somebody has used up its reservation.
        let asks = !self.is_reporting && seen < self.pool_set;
        self.is_reporting |= asks;
        if self.is_reporting && !asks {
            self.hear(words);
        }
        let passed = self.passed(now);
        look.behind = self.behind(passed);
        let turns = look.behind > 0 && !self.is_careful && self.config.rules.reserved_first;
        self.is_careful |= turns;
        self.was_behind |= look.behind > 0;
        let waiting = self.waiting_now();
        self.saturated_looks += usize::from(waiting != Waiting::Few);
        self.contended_looks += usize::from(waiting == Waiting::Several);
        let wanting = self.wanting_now();
        self.wanting_looks += usize::from(wanting != Waiting::Few);
        self.shared_looks += usize::from(wanting == Waiting::Several);
        if asks || turns {
            let (epoch, is_careful) = (self.epoch, self.is_careful);
            look.notice = Some(Notice { epoch, reports: self.is_reporting, is_careful });
        }
        if self.is_reporting && self.converts() {
            self.convert(now, look.behind > 0, words);
        }
        look
    }

    /// The pool's tokens (step S1). A word that no engine makes is set right.
    fn see_pool(&mut self, words: &mut impl Words, look: &mut Look) -> i64 {
        let word = PoolWord::unpack(words.pool());
        let is_sound = !self.config.rules.checks_epoch
            || word.epoch == self.epoch && word.tokens <= self.pool_set;
        if is_sound {
            return word.tokens;
        }
        self.spoilt += 1;
        look.was_spoilt = true;
        words.overwrite_pool(PoolWord { epoch: self.epoch, tokens: 0 }.pack());
        self.note_pool(0);
        0
    }

    /// Counts what was taken from the pool since it was set.
    pub(super) fn note_pool(&mut self, tokens: i64) {
        let taken = self.pool_set.max(0) - tokens.max(0);
        self.pool_taken += u64::try_from(taken).unwrap_or(0);
        self.pool_set = tokens;
    }

    pub(super) fn hear(&mut self, words: &mut impl Words) {
        let (epoch, shift) = (self.epoch, self.unit_shift());
        let checks = self.config.rules.checks_epoch;
        for (place, client) in self.clients.iter_mut().enumerate() {
            let Some(client) = client else { continue };
            let word = words.report(Slot(place as u16));
            // As published, whatever is there is believed.
            let epoch = if checks { epoch } else { Report::epoch_of(word) };
            let report = Report::unpack(word, epoch, shift);
            client.hear(word, report);
        }
    }

    /// How many clients that have enough to do lag an even use of their reservation.
    fn behind(&mut self, passed: Nanos) -> usize {
        let period = even::careful(self.config.period, self.config.tick);
        let span = self.config.tick.saturating_mul(BEHIND_TICKS) + self.report_every();
        let mut count = 0;
        for client in self.clients.iter_mut().flatten() {
            let slack = even::used(client.reservation, span, period).max(1);
            let is_behind = client.behind(passed, period) > slack;
            client.was_behind |= is_behind;
            count += usize::from(is_behind);
        }
        count
    }

    /// How many clients wait for the server.
    fn waiting_now(&mut self) -> Waiting {
        if core::mem::take(&mut self.is_full) {
            return Waiting::Several;
        }
        self.enough(|client| client.is_at_server())
    }

    /// How many clients have enough to do, whatever they wait for: in careful periods engines hold
    /// I/Os back that a server has no room for.
    fn wanting_now(&self) -> Waiting {
        self.enough(|client| client.is_backlogged())
    }

    /// Whether such clients can use the server up.
    fn enough(&self, is_one: impl Fn(&super::clients::Client) -> bool) -> Waiting {
        let one = self.config.profiled.one;
        let (mut count, mut most) = (0, 0);
        for client in self.live().filter(|client| is_one(client)) {
            count += 1;
            most += u64::from(client.bound(one));
        }
        match count {
            0 => Waiting::Few,
            _ if most < u64::from(self.capacity.estimate()) => Waiting::Few,
            1 => Waiting::One,
            _ => Waiting::Several,
        }
    }
}
