//! What a simulated medium does wrong.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::op::What;

/// What happens to a write that the medium mistreats, and still reports as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// It goes nowhere.
    Lost,
    /// It goes this many pages further on, past the last page to the first.
    Misdirected(u64),
    /// Of each page some sectors stay as they were, and others do not, as the seed has it.
    Torn,
}

/// Operations on a page that fail.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failing {
    pub(super) what: What,
    pub(super) page: u64,
    pub(super) times: u32,
}

/// All that is wrong, or going to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) failing: Vec<Failing>,
    pub(super) spoiled: BTreeSet<u64>,
    /// Flushes that still succeed, and whether one fails then.
    pub(super) flush_fails_after: Option<u64>,
    pub(super) mischief: Option<(Range<u64>, u64, Mischief)>,
}

impl Faults {
    /// What lasts longer than the power.
    pub(super) fn lasting(&self) -> Self {
        Self { spoiled: self.spoiled.clone(), ..Self::default() }
    }

    /// Whether this operation on these pages fails, as it was told to.
    pub(super) fn fails(&mut self, what: What, pages: Range<u64>) -> bool {
        let hit = |one: &Failing| one.what == what && pages.contains(&one.page) && one.times > 0;
        let Some(at) = self.failing.iter().position(hit) else { return false };
        self.failing[at].times -= 1;
        true
    }

    /// Whether this flush fails.
    pub(super) fn flush_fails(&mut self) -> bool {
        match &mut self.flush_fails_after {
            Some(0) => {
                self.flush_fails_after = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    /// What becomes of a write of these pages, where it is not what should.
    pub(super) fn mistreats(&mut self, pages: &Range<u64>) -> Option<Mischief> {
        let (range, passed, mischief) = self.mischief.as_mut()?;
        if pages.end <= range.start || range.end <= pages.start {
            return None;
        }
        if *passed > 0 {
            *passed -= 1;
            return None;
        }
        let mischief = *mischief;
        self.mischief = None;
        Some(mischief)
    }
}
