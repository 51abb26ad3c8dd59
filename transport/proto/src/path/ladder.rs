//! Which carrier a link rides on: down when it is silent and a worse one answers, up when a better
//! one answers again (docs/protocol.md section 10).

use super::loss::LossWatch;
use super::table::bit;
use crate::carrier::Carrier;
use crate::limits::{
    CARRIER_PROBE_MAX, CARRIER_PROBE_MIN, CARRIER_STAY_DOUBLINGS, FORGIVE_AFTER, PROBES_TO_RETURN,
    PROBES_TO_RETURN_AFTER_LOSS,
};
use towpath_base::{Nanos, Time};

/// The paths of each carrier are a rung, the best on top. A link stands on one of them: new chunks
/// and lost ones take its paths only, and the others are asked now and then.
#[derive(Debug)]
pub(crate) struct Ladder {
    /// The paths of each carrier, and what is known of them.
    rungs: [Rung; Carrier::ALL.len()],
    at: usize,
    /// No other one works.
    is_only: bool,
    /// Since when nothing that was sent on our rung was answered; `NEVER` when nothing is due.
    asked_at: Time,
    /// The last answer on our rung.
    answered_at: Time,
    /// When we came to it.
    since: Time,
    probe_at: Time,
    /// Falls that are not forgiven: each doubles the stay on the lower rung.
    falls: u32,
    /// The path that the peer's last chunk came on, and its rung.
    pub(crate) heard_on: usize,
    heard_at: usize,
    /// What is lost on our rung although it answers.
    pub(crate) loss: LossWatch,
    /// That is too much.
    is_hopeless: bool,
    after: Nanos,
    stay: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rung {
    paths: u16,
    /// A probe is under way.
    is_asked: bool,
    /// Rounds of probes that were answered, in a row.
    answered: u32,
    has_failed: bool,
    /// It was left because it lost too much, or goes over the same network as one that did.
    is_lossy: bool,
    /// It last answered, or was left.
    heard_at: Time,
}

impl Ladder {
    pub(crate) fn new(
        carriers: &[Carrier],
        (after, stay): (Nanos, Nanos),
        hopeless_loss: f64,
        now: Time,
    ) -> Self {
        let mut rungs = [Rung::default(); Carrier::ALL.len()];
        for (index, &carrier) in carriers.iter().enumerate() {
            rungs[carrier as usize].paths |= bit(index);
        }
        let mut ladder = Self {
            rungs,
            at: Carrier::best(carriers) as usize,
            is_only: false,
            asked_at: Time::NEVER,
            answered_at: now,
            since: now,
            probe_at: Time::NEVER,
            falls: 0,
            heard_on: 0,
            heard_at: 0,
            loss: LossWatch::new(hopeless_loss, after, now),
            is_hopeless: false,
            after,
            stay,
        };
        ladder.look_around();
        ladder
    }

    /// What the link rides on.
    pub(crate) fn carrier(&self) -> Carrier {
        Carrier::ALL[self.at]
    }

    /// Whether no other carrier works.
    #[inline]
    pub(crate) fn is_only(&self) -> bool {
        self.is_only
    }

    /// The paths of that.
    #[inline]
    pub(crate) fn paths(&self) -> u16 {
        self.rungs[self.at].paths
    }

    /// Whether a path belongs to a worse carrier than ours.
    pub(crate) fn is_below(&self, index: usize) -> bool {
        self.rungs[self.at + 1..].iter().any(|rung| rung.paths & bit(index) != 0)
    }

    fn rung_of(&self, index: usize) -> Option<usize> {
        self.rungs.iter().position(|rung| rung.paths & bit(index) != 0)
    }

    fn works(&self, rung: usize) -> bool {
        self.rungs[rung].paths != 0 && !self.rungs[rung].has_failed
    }

    /// Looks again whether there is another rung to go to.
    fn look_around(&mut self) {
        self.is_only = (0..self.rungs.len()).all(|rung| rung == self.at || !self.works(rung));
    }

    fn interval(&self) -> Nanos {
        Nanos(self.after.0 / 4).clamp(CARRIER_PROBE_MIN, CARRIER_PROBE_MAX)
    }

    /// Something went out on our rung.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Time) {
        if self.asked_at == Time::NEVER {
            self.asked_at = now;
        }
    }

    /// Our rung has answered; more is outstanding there or not.
    pub(crate) fn on_answer(&mut self, now: Time, is_outstanding: bool) {
        self.answered_at = now;
        self.asked_at = if is_outstanding { now } else { Time::NEVER };
        if self.is_only {
            return;
        }
        let is_hopeless = self.loss.is_hopeless(now) && self.refuge().is_some();
        if is_hopeless && !self.is_hopeless {
            self.probe_at = now;
        }
        self.is_hopeless = is_hopeless;
    }

    /// Where to go when ours answers and loses too much. RC goes over the same network, and repeats
    /// more for each loss than we do.
    fn refuge(&self) -> Option<usize> {
        let tcp = Carrier::Tcp as usize;
        (self.at < tcp && self.works(tcp)).then_some(tcp)
    }

    /// What was sent on our rung has had no answer for too long.
    fn is_silent(&self, now: Time) -> bool {
        self.asked_at != Time::NEVER && now >= self.asked_at + self.after
    }

    /// When [`on_due`](Self::on_due) has something to do.
    #[inline]
    pub(crate) fn due(&self) -> Time {
        if self.is_only {
            return Time::NEVER;
        }
        if self.probe_at != Time::NEVER {
            return self.probe_at;
        }
        if self.asked_at == Time::NEVER { Time::NEVER } else { self.asked_at + self.after }
    }

    /// The paths to probe now. Our own rung is asked first: its silence may be that of chunks that
    /// are refused, which a probe never is. Then the next one below, then the one below that; those
    /// above all the time.
    pub(crate) fn on_due(&mut self, now: Time) -> u16 {
        let mut ask = 0;
        let interval = self.interval();
        if self.is_silent(now) {
            ask |= self.paths();
            let mut at = self.asked_at + self.after;
            for rung in self.at + 1..self.rungs.len() {
                at += interval;
                if self.works(rung) && now >= at {
                    ask |= self.ask(rung);
                    at += self.after;
                }
            }
        }
        if let Some(refuge) = self.refuge().filter(|_| self.is_hopeless) {
            ask |= self.ask(refuge);
        }
        for rung in 0..self.at {
            if self.is_asked_after(rung) {
                ask |= self.ask(rung);
            }
        }
        let is_low = (0..self.at).any(|rung| self.works(rung));
        let goes_on = is_low || self.is_silent(now) || self.is_hopeless;
        self.probe_at = if goes_on { now + interval } else { Time::NEVER };
        ask
    }

    /// Whether a better rung is probed. That of RC hides what is lost there: whether the network is
    /// well again UC tells, where that was left for loss too.
    fn is_asked_after(&self, rung: usize) -> bool {
        let hides = rung == Carrier::Rc as usize && self.rungs[rung].is_lossy;
        self.works(rung) && !(hides && self.works(Carrier::Uc as usize))
    }

    /// The paths of better carriers than ours that were left for silence, and have been silent for
    /// so long since.
    pub(crate) fn dark(&self, now: Time, span: Nanos) -> u16 {
        let is_dark = |rung: &&Rung| !rung.is_lossy && now >= rung.heard_at + span;
        self.rungs[..self.at].iter().filter(is_dark).fold(0, |set, rung| set | rung.paths)
    }

    fn ask(&mut self, rung: usize) -> u16 {
        let rung = &mut self.rungs[rung];
        if core::mem::replace(&mut rung.is_asked, true) {
            rung.answered = 0;
        }
        // Of many that lose much some always answer; one tells more.
        let only = rung.paths & rung.paths.wrapping_neg();
        if rung.is_lossy { only } else { rung.paths }
    }

    /// A path of another rung has answered: the rung to go to, if that is a reason.
    pub(crate) fn on_answer_of(&mut self, now: Time, index: usize) -> Option<Carrier> {
        let rung = self.rung_of(index)?;
        if !core::mem::take(&mut self.rungs[rung].is_asked) {
            return None;
        }
        self.rungs[rung].answered += 1;
        self.rungs[rung].heard_at = now;
        let silent = self.is_silent(now);
        let Rung { answered, is_lossy, .. } = self.rungs[rung];
        let goes = if rung > self.at {
            let flees = self.is_hopeless && self.refuge() == Some(rung);
            silent || (flees && answered >= PROBES_TO_RETURN)
        } else {
            let rested = now >= self.since + self.stay_now();
            let enough = if is_lossy { PROBES_TO_RETURN_AFTER_LOSS } else { PROBES_TO_RETURN };
            silent || (rested && answered >= enough)
        };
        goes.then_some(Carrier::ALL[rung])
    }

    /// How long we stay on a lower rung at least.
    fn stay_now(&self) -> Nanos {
        let doublings = self.falls.saturating_sub(1).min(CARRIER_STAY_DOUBLINGS);
        self.stay.saturating_mul(1 << doublings)
    }

    /// The peer was heard on a path. When it has gone down just now, and what we send is not
    /// answered either or has not been of late: where we follow. That it is still down when we have
    /// found a better way is no reason.
    #[inline]
    pub(crate) fn on_heard(&mut self, now: Time, index: usize) -> Option<Carrier> {
        self.heard_on = index;
        let is_same = self.rungs[self.heard_at].paths & bit(index) != 0;
        if is_same { None } else { self.on_heard_elsewhere(now, index) }
    }

    #[inline(never)]
    fn on_heard_elsewhere(&mut self, now: Time, index: usize) -> Option<Carrier> {
        let rung = self.rung_of(index)?;
        let went_down = rung > core::mem::replace(&mut self.heard_at, rung);
        let quiet = now >= self.answered_at + Nanos(self.after.0 / 2);
        (went_down && rung > self.at && quiet && self.works(rung)).then(|| Carrier::ALL[rung])
    }

    /// No path of a carrier works any more: where to go if we rode on it.
    pub(crate) fn on_failed(&mut self, index: usize, still_works: bool) -> Option<Carrier> {
        let rung = self.rung_of(index)?;
        if still_works {
            return None;
        }
        self.rungs[rung].has_failed = true;
        self.look_around();
        if rung != self.at {
            return None;
        }
        let below = (rung + 1..self.rungs.len()).find(|&rung| self.works(rung));
        below.or_else(|| (0..rung).find(|&rung| self.works(rung))).map(|rung| Carrier::ALL[rung])
    }

    /// A path of a carrier works again.
    pub(crate) fn on_renewed(&mut self, now: Time, index: usize) {
        let Some(rung) = self.rung_of(index) else { return };
        let was_gone = core::mem::take(&mut self.rungs[rung].has_failed);
        if was_gone {
            (self.rungs[rung].is_asked, self.rungs[rung].answered) = (false, 0);
        }
        self.look_around();
        if rung < self.at && self.probe_at == Time::NEVER {
            self.probe_at = now + self.interval();
        }
    }

    /// Goes to another rung.
    pub(crate) fn go(&mut self, now: Time, to: Carrier) {
        let to = to as usize;
        if to > self.at {
            let clean = (now.since(self.since).0 / FORGIVE_AFTER.0).min(64) as u32;
            self.falls = self.falls.saturating_sub(clean) + 1;
        }
        // Whatever made us go: one that loses much is gone back to when it does no more.
        let flees = to > self.at && self.loss.was_bad();
        for (place, rung) in self.rungs.iter_mut().enumerate() {
            (rung.is_asked, rung.answered, rung.heard_at) = (false, 0, now);
            rung.is_lossy = place < to && (flees || rung.is_lossy);
        }
        self.is_hopeless = false;
        self.loss.begin(now);
        (self.at, self.since, self.answered_at) = (to, now, now);
        self.asked_at = Time::NEVER;
        self.probe_at = Time::NEVER;
        self.look_around();
        if (0..to).any(|rung| self.works(rung)) {
            self.probe_at = now + self.interval();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Carrier::{Rc, Tcp, Uc};
    use alloc::vec::Vec;

    const AFTER: Nanos = Nanos::from_millis(100);
    const STAY: Nanos = Nanos::from_secs(1);

    fn ladder() -> Ladder {
        Ladder::new(&[Uc, Uc, Rc, Tcp], (AFTER, STAY), 0.25, Time::ZERO)
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Nanos::from_millis(ms)
    }

    #[test]
    fn a_silent_rung_is_asked_first_then_the_next_below_then_the_last() {
        let mut ladder = ladder();
        assert_eq!(ladder.due(), Time::NEVER, "nothing is under way");
        ladder.on_sent(ms(5));
        assert_eq!(ladder.due(), ms(105));
        let mut asked = Vec::new();
        while ladder.due() < ms(400) {
            let now = ladder.due();
            asked.push(ladder.on_due(now));
        }
        assert_eq!(asked[0], 0b0011);
        assert_eq!(asked[1], 0b0111);
        assert!(asked.contains(&0b1111), "{asked:?}");
        ladder.on_answer(ms(400), false);
        ladder.on_due(ms(410));
        assert_eq!(ladder.due(), Time::NEVER, "it has answered after all");
    }

    #[test]
    fn silence_alone_is_no_reason_to_go_and_an_answer_without_silence_is_none_either() {
        let mut ladder = ladder();
        assert_eq!(ladder.on_answer_of(ms(1), 3), None, "nobody asked");
        ladder.on_sent(ms(0));
        ladder.on_due(ms(100));
        ladder.on_due(ms(130));
        assert_eq!(ladder.on_answer_of(ms(131), 2), Some(Rc));
        let mut other = self::ladder();
        other.on_sent(ms(0));
        other.on_due(ms(100));
        other.on_due(ms(130));
        other.on_answer(ms(131), true);
        assert_eq!(other.on_answer_of(ms(132), 2), None, "ours has answered meanwhile");
    }

    #[test]
    fn the_way_up_takes_answers_in_a_row_and_a_stay_that_doubles_with_each_fall() {
        let mut ladder = ladder();
        let mut now = Time::ZERO;
        let mut stays = Vec::new();
        for _ in 0..4 {
            ladder.go(now, Tcp);
            let start = now;
            loop {
                now = ladder.due();
                assert_eq!(ladder.on_due(now) & 0b0111, 0b0111, "both above are asked");
                if ladder.on_answer_of(now, 0) == Some(Uc) {
                    break;
                }
            }
            stays.push(now.since(start).0 / STAY.0);
            ladder.go(now, Uc);
        }
        assert_eq!(stays, [1, 2, 4, 8]);
        ladder.go(now + Nanos::from_secs(60), Tcp);
        assert_eq!(ladder.stay_now(), STAY, "clean conduct makes up for it");
    }

    #[test]
    fn an_unanswered_round_starts_the_count_anew() {
        let mut ladder = ladder();
        ladder.go(Time::ZERO, Tcp);
        let mut now = ladder.due();
        for round in 0..200 {
            ladder.on_due(now);
            if round % 3 != 2 {
                assert_eq!(ladder.on_answer_of(now, 0), None, "two in a row, never three");
            }
            now = ladder.due();
        }
    }

    #[test]
    fn a_peer_that_goes_down_is_followed_and_one_that_stays_down_is_not() {
        let mut ladder = ladder();
        assert_eq!(ladder.on_heard(ms(60), 0), None);
        ladder.on_answer(ms(70), false);
        assert_eq!(ladder.on_heard(ms(71), 3), None, "ours was well just now");
        ladder.on_heard(ms(72), 0);
        assert_eq!(ladder.on_heard(ms(130), 3), Some(Tcp));
        ladder.go(ms(130), Tcp);
        assert_eq!(ladder.on_heard(ms(200), 3), None, "we are there");
        ladder.go(ms(2_000), Uc);
        assert_eq!(ladder.on_heard(ms(3_000), 3), None, "we have found a better way");
    }

    #[test]
    fn a_failed_rung_is_left_at_once_and_never_asked_again() {
        let mut ladder = ladder();
        assert_eq!(ladder.on_failed(0, true), None, "another path of it works");
        assert_eq!(ladder.on_failed(1, false), Some(Rc));
        ladder.go(ms(1), Rc);
        assert_eq!(ladder.on_failed(3, false), None, "we do not ride on it");
        assert_eq!(ladder.due(), Time::NEVER, "nothing else is left");
        assert_eq!(ladder.on_failed(2, false), None);
    }

    /// Answers come all the time for so many spans, and of a hundred packets in each so many are
    /// lost; TCP answers each question. Where that leads.
    fn lose(ladder: &mut Ladder, (from, spans): (u64, u64), lost: u32) -> Option<Carrier> {
        for span in 1..=spans {
            ladder.loss.on_sent(100);
            ladder.loss.on_lost(lost);
            for part in 0..4 {
                let now = ms(from + 100 * span + 25 * part);
                ladder.on_answer(now, true);
                if ladder.due() <= now && ladder.on_due(now) & 0b1000 != 0 {
                    let to = ladder.on_answer_of(now, 3);
                    if to.is_some() {
                        return to;
                    }
                }
            }
        }
        None
    }

    #[test]
    fn a_rung_that_answers_and_loses_too_much_for_long_is_left_for_tcp() {
        assert_eq!(lose(&mut ladder(), (0, 40), 10), None);
        assert_eq!(lose(&mut ladder(), (0, 3), 60), None, "not for long");
        assert_eq!(lose(&mut ladder(), (0, 40), 30), Some(Tcp));
        let carriers = [Uc, Rc];
        let mut without = Ladder::new(&carriers, (AFTER, STAY), 0.25, Time::ZERO);
        assert_eq!(lose(&mut without, (0, 40), 60), None, "RC loses as much");
        let mut never = Ladder::new(&[Uc, Tcp], (AFTER, STAY), 1.0, Time::ZERO);
        assert_eq!(lose(&mut never, (0, 40), 100), None);
    }

    #[test]
    fn one_that_was_left_for_loss_is_gone_back_to_after_many_answers_of_one_path() {
        let mut ladder = ladder();
        assert_eq!(lose(&mut ladder, (0, 40), 50), Some(Tcp));
        let start = ms(10_000);
        ladder.go(start, Tcp);
        let mut rounds = 0;
        loop {
            let now = ladder.due();
            assert_eq!(ladder.on_due(now), 0b0001, "one path of UC, and RC not at all");
            rounds += 1;
            // The stay alone takes forty rounds; an answer is missing now and then.
            if rounds % 11 != 0 || rounds > 70 {
                match ladder.on_answer_of(now, 0) {
                    None => continue,
                    to => break assert_eq!(to, Some(Uc)),
                }
            }
        }
        assert!(rounds >= 66 + PROBES_TO_RETURN_AFTER_LOSS, "{rounds}");
        ladder.go(ladder.due(), Uc);
        assert!(ladder.rungs.iter().all(|rung| !rung.is_lossy));
    }

    #[test]
    fn a_failed_rung_that_is_made_anew_is_asked_and_gone_back_to() {
        let mut ladder = ladder();
        assert_eq!(ladder.on_failed(1, false), Some(Rc));
        ladder.go(ms(0), Rc);
        assert_eq!(ladder.on_failed(3, false), None);
        assert_eq!(ladder.due(), Time::NEVER, "nothing else is left");
        ladder.on_renewed(ms(500), 0);
        let mut now = ladder.due();
        assert_eq!(now, ms(525));
        while now < ms(1_000) {
            assert_eq!(ladder.on_due(now), 0b0011);
            assert_eq!(ladder.on_answer_of(now, 0), None, "not yet");
            now = ladder.due();
        }
        ladder.on_due(now);
        assert_eq!(ladder.on_answer_of(now, 0), Some(Uc));
    }
}
