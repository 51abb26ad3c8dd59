//! Which carrier a link rides on: down when it is silent and a worse one answers, up when a better
//! one answers again (docs/protocol.md section 10).

use super::loss::LossWatch;
use super::table::bit;
use crate::carrier::{Carrier, CarrierReason};
use crate::limits::{
    CARRIER_PROBE_MAX, CARRIER_PROBE_MIN, CARRIER_STAY_DOUBLINGS, DARK_AFTER, FORGIVE_AFTER,
    PROBES_TO_RETURN, PROBES_TO_RETURN_AFTER_LOSS,
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
    /// The rung on which the peer's last chunk came.
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
    pub(crate) fn new(carriers: &[Carrier], (after, stay): (Nanos, Nanos), now: Time) -> Self {
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
            heard_at: 0,
            loss: LossWatch::new(after, now),
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

    /// Whether a carrier is worse than ours.
    pub(crate) fn is_below(&self, carrier: Carrier) -> bool {
        carrier as usize > self.at
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
        let is_low = (0..self.at).any(|rung| self.is_asked_after(rung));
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
    /// long since.
    pub(crate) fn dark(&self, now: Time) -> u16 {
        let is_dark = |rung: &&Rung| !rung.is_lossy && now >= rung.heard_at + DARK_AFTER;
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

    /// A path of another carrier has answered; true if that is a reason to go there.
    pub(crate) fn on_answer_of(&mut self, now: Time, carrier: Carrier) -> bool {
        let rung = carrier as usize;
        if !core::mem::take(&mut self.rungs[rung].is_asked) {
            return false;
        }
        self.rungs[rung].answered += 1;
        self.rungs[rung].heard_at = now;
        let silent = self.is_silent(now);
        let Rung { answered, is_lossy, .. } = self.rungs[rung];
        if rung > self.at {
            let flees = self.is_hopeless && self.refuge() == Some(rung);
            silent || (flees && answered >= PROBES_TO_RETURN)
        } else {
            let rested = now >= self.since + self.stay_now();
            let enough = if is_lossy { PROBES_TO_RETURN_AFTER_LOSS } else { PROBES_TO_RETURN };
            silent || (rested && answered >= enough)
        }
    }

    /// How long we stay on a lower rung at least.
    fn stay_now(&self) -> Nanos {
        let doublings = self.falls.saturating_sub(1).min(CARRIER_STAY_DOUBLINGS);
        self.stay.saturating_mul(1 << doublings)
    }

    /// The peer was heard on a carrier; true if we follow: it has gone down just now, and what we
    /// send is not answered either or has not been of late. That it is still down when we have
    /// found a better way is no reason.
    #[inline]
    pub(crate) fn on_heard(&mut self, now: Time, carrier: Carrier) -> bool {
        let rung = carrier as usize;
        let went_down = rung > core::mem::replace(&mut self.heard_at, rung);
        let is_quiet = || now >= self.answered_at + Nanos(self.after.0 / 2);
        went_down && rung > self.at && is_quiet() && self.works(rung)
    }

    /// A path of a carrier has failed, and so have these in all: where to go if no other path of it
    /// works, and we rode on it.
    pub(crate) fn on_failed(&mut self, carrier: Carrier, failed: u16) -> Option<Carrier> {
        let rung = carrier as usize;
        if self.rungs[rung].paths & !failed != 0 {
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
    pub(crate) fn on_renewed(&mut self, now: Time, carrier: Carrier) {
        let rung = carrier as usize;
        let was_gone = core::mem::take(&mut self.rungs[rung].has_failed);
        if was_gone {
            (self.rungs[rung].is_asked, self.rungs[rung].answered) = (false, 0);
        }
        self.look_around();
        if rung < self.at && self.probe_at == Time::NEVER {
            self.probe_at = now + self.interval();
        }
    }

    /// Why we go to a carrier that has answered.
    pub(crate) fn reason(&self, now: Time, to: Carrier) -> CarrierReason {
        if (to as usize) < self.at {
            CarrierReason::Recovered
        } else if self.is_silent(now) {
            CarrierReason::Silent
        } else {
            CarrierReason::Lossy
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
mod tests;
