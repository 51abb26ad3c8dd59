//! A queue pair that is made anew: which life of it is on, and how far the next one is.

use crate::limits::{
    FORGIVE_AFTER, QUARANTINE_FIRST, QUARANTINE_LONGEST, RENEWAL_DOUBLINGS, RENEWAL_FIRST,
};
use towpath_base::Time;
use towpath_base::serial::Psn;
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Both halves are joined.
    Whole,
    /// They are, but what we send from our port is swallowed; something is done about it then.
    Dark(Time),
    /// It has failed; another is made then.
    Broken(Time),
    /// The driver makes our half.
    Making,
    /// Our half is made and told; the peer's is awaited.
    Made,
}

/// The lives of a path's queue pair, counted alike at both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    /// The life that is on, or the next while that is not whole.
    life: u32,
    stage: Stage,
    /// The newest half that the peer has told of, and which life it is of.
    theirs: Option<(u32, QpHalf)>,
    /// Lives that ended of late: each doubles the wait for the next.
    ends: u32,
    /// When this one began.
    since: Time,
    /// When its port may be left next, and how often that was in a row.
    leaves_at: Time,
    leaves: u32,
    /// The next life begins on another port.
    is_dark: bool,
}

impl Renewal {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            life: 0,
            stage: Stage::Whole,
            theirs: None,
            ends: 0,
            since: now,
            leaves_at: now,
            leaves: 0,
            is_dark: false,
        }
    }

    /// The queue pair is of no use any more. The next is made soon, or later if this one had not
    /// lived for long.
    pub(crate) fn on_failed(&mut self, now: Time) {
        let clean = (now.since(self.since).0 / FORGIVE_AFTER.0).min(64) as u32;
        self.ends = self.ends.saturating_sub(clean);
        let span = RENEWAL_FIRST.saturating_mul(1 << self.ends.min(RENEWAL_DOUBLINGS));
        self.ends = self.ends.saturating_add(1);
        let told = self.theirs.map_or(0, |(life, _)| life);
        self.life = self.life.saturating_add(1).max(told);
        (self.stage, self.since) = (Stage::Broken(now + span), now);
    }

    /// What is sent from its port is swallowed. The port is left at `at`, if it was not just left:
    /// each time twice as long is waited for the next.
    pub(crate) fn on_dark(&mut self, now: Time, at: Time) -> bool {
        if self.stage != Stage::Whole || now < self.leaves_at {
            return false;
        }
        if now > self.leaves_at + FORGIVE_AFTER {
            self.leaves = 0;
        }
        let span = QUARANTINE_FIRST.saturating_mul(1 << self.leaves.min(16));
        (self.leaves_at, self.leaves) = (at + span.min(QUARANTINE_LONGEST), self.leaves + 1);
        self.stage = Stage::Dark(at);
        true
    }

    /// Whether its port is to be left when [`due`](Self::due) has come; then that is done.
    pub(crate) fn take_dark(&mut self) -> bool {
        let is_dark = matches!(self.stage, Stage::Dark(_));
        if is_dark {
            self.stage = Stage::Whole;
        }
        is_dark
    }

    /// Whichever end begins the next life, it is to be on another port.
    pub(crate) fn ask_for_port(&mut self) {
        self.is_dark = true;
    }

    /// Whether the next life is to be on another port.
    pub(crate) fn asks_for_port(&self) -> bool {
        self.is_dark
    }

    /// How often it was made anew, at either end.
    pub(crate) fn life(&self) -> u32 {
        self.life
    }

    /// When another is to be made, or the port left; `NEVER` while neither is so.
    pub(crate) fn due(&self) -> Time {
        match self.stage {
            Stage::Dark(at) | Stage::Broken(at) => at,
            Stage::Whole | Stage::Making | Stage::Made => Time::NEVER,
        }
    }

    /// The driver is told to make our half.
    pub(crate) fn begin(&mut self) {
        self.stage = Stage::Making;
    }

    /// Our half is made: the life that it is of.
    pub(crate) fn on_made(&mut self) -> Option<u32> {
        let is_awaited = self.stage == Stage::Making;
        if is_awaited {
            self.stage = Stage::Made;
        }
        is_awaited.then_some(self.life)
    }

    /// The peer has told of its half of a life. True if what is on here is of an earlier one, and
    /// so has come to its end.
    pub(crate) fn on_told(&mut self, life: u32, half: QpHalf) -> bool {
        if life == 0 || self.theirs.is_some_and(|(known, _)| life <= known) {
            return false;
        }
        self.theirs = Some((life, half));
        let is_newer = life > self.life;
        // One that is made anew anyway is made for that life; a half that was told for an earlier
        // one waits in vain.
        if is_newer && matches!(self.stage, Stage::Broken(_) | Stage::Making) {
            self.life = life;
            return false;
        }
        is_newer
    }

    /// The peer's half, once both are there: from here on they are whole.
    pub(crate) fn join(&mut self, now: Time) -> Option<QpHalf> {
        let theirs = self.theirs.filter(|&(life, _)| life == self.life)?;
        if self.stage != Stage::Made {
            return None;
        }
        (self.stage, self.since, self.is_dark) = (Stage::Whole, now, false);
        Some(theirs.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Nanos;

    fn half(generation: u32) -> QpHalf {
        QpHalf { qp_num: QpNum(generation), psn: Psn::new(generation), generation }
    }

    fn make(renewal: &mut Renewal) -> u32 {
        renewal.begin();
        renewal.on_made().expect("it was asked for")
    }

    #[test]
    fn both_ends_come_to_the_same_life_whoever_notices_first() {
        let now = Time(1);
        let (mut near, mut far) = (Renewal::new(now), Renewal::new(now));
        near.on_failed(now);
        let life = make(&mut near);
        assert_eq!((life, near.join(now)), (1, None), "the peer knows nothing of it");
        assert!(far.on_told(life, half(7)), "its own has come to its end");
        far.on_failed(now);
        assert_eq!(make(&mut far), 1);
        assert_eq!(far.join(now), Some(half(7)));
        assert!(!near.on_told(1, half(8)));
        assert_eq!(near.join(now), Some(half(8)));
        assert!(!near.on_told(1, half(9)), "what comes again tells nothing");
        assert_eq!(near.join(now), None);
    }

    #[test]
    fn an_end_that_is_lives_behind_catches_up_and_old_halves_join_nothing() {
        let now = Time(1);
        let mut renewal = Renewal::new(now);
        renewal.on_failed(now);
        assert_eq!(make(&mut renewal), 1);
        assert!(renewal.on_told(3, half(3)), "ours of life 1 waits in vain");
        renewal.on_failed(now);
        assert!(!renewal.on_told(2, half(2)), "it comes late");
        assert_eq!(make(&mut renewal), 3);
        assert_eq!(renewal.join(now), Some(half(3)));
        renewal.on_failed(now);
        renewal.begin();
        assert!(!renewal.on_told(6, half(6)), "being made, it is made for that life");
        assert_eq!((renewal.on_made(), renewal.join(now)), (Some(6), Some(half(6))));
    }

    #[test]
    fn one_that_fails_again_and_again_is_made_less_and_less_often_until_it_has_lived() {
        let mut renewal = Renewal::new(Time::ZERO);
        let mut now = Time::ZERO;
        let mut spans = alloc::vec::Vec::new();
        for life in 1..=12 {
            renewal.on_failed(now);
            spans.push(renewal.due().since(now).0 / RENEWAL_FIRST.0);
            now = renewal.due();
            assert_eq!(make(&mut renewal), life);
            renewal.on_told(life, half(life));
            assert!(renewal.join(now).is_some());
        }
        assert_eq!(spans[..4], [1, 2, 4, 8]);
        assert_eq!(spans[10..], [1 << RENEWAL_DOUBLINGS; 2]);
        now += FORGIVE_AFTER.saturating_mul(12);
        renewal.on_failed(now);
        assert_eq!(renewal.due().since(now), RENEWAL_FIRST);
    }

    #[test]
    fn a_port_is_left_less_and_less_often_and_only_by_a_queue_pair_that_is_whole() {
        let mut renewal = Renewal::new(Time::ZERO);
        let mut at = alloc::vec::Vec::new();
        for ms in 0..20_000 {
            let now = Time::ZERO + Nanos::from_millis(ms);
            if renewal.on_dark(now, now) {
                assert!(!renewal.on_dark(now, now), "once");
                assert_eq!(renewal.due(), now);
                assert!(renewal.take_dark() && !renewal.take_dark());
                at.push(ms / 1_000);
            }
        }
        assert_eq!(at, [0, 1, 3, 7, 15]);
        let now = Time::ZERO + Nanos::from_secs(100);
        renewal.on_failed(now);
        assert!(!renewal.on_dark(now, now), "another is made anyway");
    }
}
