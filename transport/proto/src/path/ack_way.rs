//! Which way acks leave: by the first path while that is good, else by another one.

use super::state::PathState;
use super::table::{PathTable, bit};
use crate::limits::{FORGIVE_AFTER, QUARANTINE_FIRST, QUARANTINE_LONGEST};
use towpath_base::{Nanos, Time};

/// The way that acks take.
#[derive(Debug, Default)]
pub(super) struct AckWay {
    /// The path; acks of the first one go by the control queue pair.
    pub(super) path: usize,
    /// When they left a way, while it is not known that the next one works.
    turned_at: Option<Time>,
    /// The first path is taken again no sooner.
    pub(super) return_at: Time,
    turns: u32,
}

impl AckWay {
    /// The way was changed: each further change waits twice as long for the next.
    pub(super) fn back_off(&mut self, now: Time, (first, longest): (Nanos, Nanos)) {
        if now > self.return_at + FORGIVE_AFTER {
            self.turns = 0;
        }
        self.return_at = now + first.saturating_mul(1 << self.turns.min(16)).min(longest);
        self.turns += 1;
    }
}

impl PathTable {
    /// The path whose way acks take: the first as long as it is good.
    pub(crate) fn ack_way(&self) -> usize {
        self.acks.path
    }

    /// Lets acks take the first way again when it is good and its time has come.
    pub(crate) fn choose_ack_way(&mut self, now: Time) {
        let before = self.acks.path;
        if self.good() & bit(0) != 0 && now >= self.acks.return_at {
            self.acks.path = 0;
        } else if !self.leads_back(before) && self.has_better_than(before) {
            // An ack needs no number, so a good way whose numbers are used up is one.
            self.acks.path = match self.good() {
                0 => self.pick(bit(before)).unwrap_or(0),
                good => self.draw(good),
            };
        }
        if self.acks.path != before && !self.leads_back(before) {
            // What took that way may have been swallowed.
            self.acks_due |= self.received();
        }
    }

    /// Whether another way than this one is known to be better for acks. While none is good they
    /// stay, but for what [`turn_acks`](Self::turn_acks) tries.
    fn has_better_than(&self, way: usize) -> bool {
        self.good() != 0 || self.mask() & bit(way) == 0
    }

    /// Whether acks may go this way: it is good, or was held back until the peer was heard there.
    fn leads_back(&self, index: usize) -> bool {
        (self.good() | self.in_state(PathState::Probing)) & bit(index) != 0
    }

    /// Acks go another way than `before`: that on which the peer gets through if it is good, and
    /// was not just tried. The way back is taken later each time.
    pub(crate) fn turn_acks(&mut self, now: Time, before: usize, heard_on: usize) {
        self.acks.back_off(now, (QUARANTINE_FIRST, QUARANTINE_LONGEST));
        self.acks.turned_at = Some(now);
        let may_try = self.leads_back(heard_on) || !self.has_better_than(heard_on);
        if heard_on != before && may_try {
            self.acks.path = heard_on;
        } else if self.acks.path == before {
            self.acks.path = self.pick(bit(before)).unwrap_or(before);
        }
    }

    /// A path has answered to what was sent at this time. When acks have left a way, all other ways
    /// were asked, and the first that answers is theirs.
    #[inline]
    pub(super) fn settle_ack_way(&mut self, index: usize, sent_at: Time) {
        let is_awaited = self.acks.turned_at.is_some_and(|turned_at| sent_at >= turned_at);
        if is_awaited && self.good() & bit(index) != 0 {
            (self.acks.turned_at, self.acks.path) = (None, index);
            self.acks_due |= self.received();
        }
    }

    /// The paths whose acks may tell news that nothing has asked for: where the peer has been
    /// heard, if that is on a carrier worse than ours. None where nothing was accepted there yet,
    /// for then there is nothing to acknowledge either.
    pub(crate) fn news_way(&self) -> u16 {
        let heard_on = self.answers.heard_on;
        let way = if self.is_below(heard_on) { bit(heard_on) } else { u16::MAX };
        way & self.received()
    }

    /// Paths on which something came in.
    pub(crate) fn received(&self) -> u16 {
        self.set_of(|path| path.rx.largest().is_some())
    }
}
