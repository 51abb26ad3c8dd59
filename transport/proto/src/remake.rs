//! A queue pair that is made anew: its lives, which both ends count alike.
//!
//! An end whose queue pair failed makes its half of the next life and tells the peer. An end that
//! hears of a later life than its own ends its own and makes its half of that life. When an end has
//! both halves of one life it joins them. The queue pairs of paths and of lanes are remade in this
//! way.

use crate::limits::{FORGIVE_AFTER, RENEWAL_DOUBLINGS, RENEWAL_FIRST};
use towpath_base::serial::Psn;
use towpath_base::{Nanos, Time};
use towpath_verbs::QpNum;

/// One end of a queue pair, as the other end needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpHalf {
    /// Its number.
    pub qp_num: QpNum,
    /// The number of the first packet that it sends.
    pub psn: Psn,
    /// What headers carry that are sent to it.
    pub generation: u32,
}

/// How long the next life waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// So many lives may end soon, one after the other, before the next one waits.
    pub(crate) free: u32,
    /// The first wait; each further life that ends soon doubles it.
    pub(crate) first: Nanos,
    /// The longest wait.
    pub(crate) longest: Nanos,
    /// A life of this length makes up for one that ended soon.
    pub(crate) forgive_after: Nanos,
}

impl Backoff {
    /// For the queue pairs of paths.
    pub(crate) const PATH: Self = Self {
        free: 0,
        first: RENEWAL_FIRST,
        longest: Nanos(RENEWAL_FIRST.0 << RENEWAL_DOUBLINGS),
        forgive_after: FORGIVE_AFTER,
    };
}

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<H> {
    /// Destroy what there is, and make our half of the next life.
    Make,
    /// Join our half to this one of the peer.
    Join(H),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no queue pair, and none is wanted.
    Absent,
    /// Our half is to be made at this time.
    Wanted(Time),
    /// The driver makes our half.
    Making,
    /// Our half is made and told; the peer's is awaited.
    Made,
    /// Both halves are joined.
    Joined,
}

/// The lives of one queue pair. `H` is what the peer tells of its half.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remake<H> {
    backoff: &'static Backoff,
    /// The life that is on, or the next one until that is joined.
    life: u32,
    stage: Stage,
    /// The newest half that the peer has told of, and its life.
    theirs: Option<(u32, H)>,
    /// Lives that ended soon: each doubles the wait for the next.
    ends: u32,
    /// When the last life began or ended.
    since: Time,
}

impl<H: Copy> Remake<H> {
    /// The queue pair that was exchanged at set-up: life 0.
    pub(crate) fn joined(backoff: &'static Backoff, now: Time) -> Self {
        Self { backoff, life: 0, stage: Stage::Joined, theirs: None, ends: 0, since: now }
    }

    /// No queue pair until one is [wanted](Self::want), or the peer tells of its half.
    pub(crate) fn absent(backoff: &'static Backoff, now: Time) -> Self {
        Self { stage: Stage::Absent, ..Self::joined(backoff, now) }
    }

    /// How often the queue pair was made anew, at either end.
    pub(crate) fn life(&self) -> u32 {
        self.life
    }

    /// When our half is to be made; `NEVER` while nothing is to be made.
    pub(crate) fn due(&self) -> Time {
        if let Stage::Wanted(at) = self.stage { at } else { Time::NEVER }
    }

    /// The first queue pair is wanted now.
    pub(crate) fn want(&mut self, now: Time) {
        if self.stage == Stage::Absent {
            (self.life, self.stage) = (1, Stage::Wanted(now));
        }
    }

    /// This life is over. The next one begins soon, or later if lives have ended soon before.
    pub(crate) fn fail(&mut self, now: Time) {
        let clean = (now.since(self.since).0 / self.backoff.forgive_after.0).min(64) as u32;
        self.ends = self.ends.saturating_sub(clean);
        let told = self.theirs.map_or(0, |(life, _)| life);
        self.life = self.life.saturating_add(1).max(told);
        self.since = now;
        self.wait(now);
    }

    /// This life is over although nothing failed. The next one begins now.
    pub(crate) fn renew(&mut self, now: Time) {
        let ends = self.ends;
        self.fail(now);
        (self.ends, self.stage) = (ends, Stage::Wanted(now));
    }

    /// This life has proved itself: those that ended before count no more.
    pub(crate) fn forgive(&mut self) {
        self.ends = 0;
    }

    /// The driver could not make our half: it is asked again later.
    pub(crate) fn on_make_failed(&mut self, now: Time) {
        if self.stage == Stage::Making {
            self.ends = self.ends.max(self.backoff.free);
            self.wait(now);
        }
    }

    fn wait(&mut self, now: Time) {
        let Backoff { free, first, longest, .. } = *self.backoff;
        let wait = self.ends.checked_sub(free).map_or(Nanos::ZERO, |doublings| {
            first.saturating_mul(1 << doublings.min(16)).min(longest)
        });
        self.ends = self.ends.saturating_add(1);
        self.stage = Stage::Wanted(now + wait);
    }

    /// Our half is made: the life that the peer is told.
    pub(crate) fn on_made(&mut self) -> Option<u32> {
        let is_awaited = self.stage == Stage::Making;
        if is_awaited {
            self.stage = Stage::Made;
        }
        is_awaited.then_some(self.life)
    }

    /// The peer has told of its half of a life. True if ours is of an earlier life, which
    /// [has ended](Self::fail) by that.
    pub(crate) fn on_told(&mut self, now: Time, life: u32, half: H) -> bool {
        if life == 0 || self.theirs.is_some_and(|(known, _)| life <= known) {
            return false;
        }
        self.theirs = Some((life, half));
        let is_newer = life > self.life;
        match self.stage {
            Stage::Absent => self.stage = Stage::Wanted(now),
            Stage::Wanted(_) | Stage::Making => {}
            Stage::Made | Stage::Joined => return is_newer,
        }
        // Ours is not made yet: it becomes one of that life.
        self.life = self.life.max(life);
        false
    }

    /// What the driver has to do now.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Step<H>> {
        match (self.stage, self.theirs) {
            (Stage::Wanted(at), _) if at <= now => {
                self.stage = Stage::Making;
                Some(Step::Make)
            }
            (Stage::Made, Some((life, half))) if life == self.life => {
                (self.stage, self.since) = (Stage::Joined, now);
                Some(Step::Join(half))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(generation: u32) -> QpHalf {
        QpHalf { qp_num: QpNum(generation), psn: Psn::new(generation), generation }
    }

    /// Makes our half when its time has come.
    fn make(remake: &mut Remake<QpHalf>) -> u32 {
        assert_eq!(remake.poll(remake.due()), Some(Step::Make));
        remake.on_made().expect("it was asked for")
    }

    #[test]
    fn both_ends_come_to_the_same_life_whoever_notices_first() {
        let now = Time(1);
        let mut near = Remake::joined(&Backoff::PATH, now);
        let mut far = near;
        near.fail(now);
        let life = make(&mut near);
        assert_eq!((life, near.poll(now)), (1, None), "the peer knows nothing of it");
        assert!(far.on_told(now, life, half(7)), "its own has come to its end");
        far.fail(now);
        assert_eq!(make(&mut far), 1);
        assert_eq!(far.poll(now), Some(Step::Join(half(7))));
        assert!(!near.on_told(now, 1, half(8)));
        assert_eq!(near.poll(now), Some(Step::Join(half(8))));
        assert!(!near.on_told(now, 1, half(9)), "what comes again tells nothing");
        assert_eq!(near.poll(now), None);
    }

    #[test]
    fn an_end_that_is_lives_behind_catches_up_and_old_halves_join_nothing() {
        let now = Time(1);
        let mut remake = Remake::joined(&Backoff::PATH, now);
        remake.fail(now);
        assert_eq!(make(&mut remake), 1);
        assert!(remake.on_told(now, 3, half(3)), "ours of life 1 waits in vain");
        remake.fail(now);
        assert!(!remake.on_told(now, 2, half(2)), "it comes late");
        assert_eq!(make(&mut remake), 3);
        assert_eq!(remake.poll(now), Some(Step::Join(half(3))));
        remake.fail(now);
        assert_eq!(remake.poll(remake.due()), Some(Step::Make));
        assert!(!remake.on_told(now, 6, half(6)), "being made, it is made for that life");
        assert_eq!((remake.on_made(), remake.poll(now)), (Some(6), Some(Step::Join(half(6)))));
    }

    #[test]
    fn one_that_fails_again_and_again_is_made_less_and_less_often_until_it_has_lived() {
        let mut remake = Remake::joined(&Backoff::PATH, Time::ZERO);
        let mut now = Time::ZERO;
        let mut spans = alloc::vec::Vec::new();
        for life in 1..=12 {
            remake.fail(now);
            spans.push(remake.due().since(now).0 / RENEWAL_FIRST.0);
            now = remake.due();
            assert_eq!(make(&mut remake), life);
            remake.on_told(now, life, half(life));
            assert!(remake.poll(now).is_some());
        }
        assert_eq!(spans[..4], [1, 2, 4, 8]);
        assert_eq!(spans[10..], [1 << RENEWAL_DOUBLINGS; 2]);
        now += FORGIVE_AFTER.saturating_mul(12);
        remake.fail(now);
        assert_eq!(remake.due().since(now), RENEWAL_FIRST);
    }
}
