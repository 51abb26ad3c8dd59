//! What the hosts of a run write down: I/Os by period and client, and what must not happen.

use super::latency::Latency;
use towpath_base::{Nanos, Time};
use towpath_fastpath::qos::wire::PeriodReport;

/// Troubles that are kept; the first ones tell all that there is to tell.
const TROUBLES_MAX: usize = 8;

/// Parts of a period in which I/Os are counted apart.
pub(super) const COURSE_PARTS: usize = 250;

/// What the server knows of a client that does not keep to the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// I/Os that it did beyond the tokens that it can have had.
    pub overrun: u64,
    /// Periods in which its reports and the READs that the device answered differ.
    pub misreports: u64,
    /// Periods in which it counted as lost, because it did not report.
    pub lost: u64,
}

/// What hosts share.
pub(super) struct Books {
    /// When the first client with tokens joined; [`Time::NEVER`] until then.
    pub(super) first_join: Time,
    /// When the first period begins; [`Time::NEVER`] until all are ready.
    pub(super) start: Time,
    pub(super) period: Nanos,
    warm_up: usize,
    /// I/Os that ended, by measured period and client.
    pub(super) done: Vec<Vec<u32>>,
    /// I/Os that ended in each part of a measured period, of all of them together.
    pub(super) course: Vec<u64>,
    /// How long those took, by client.
    pub(super) latency: Vec<Latency>,
    /// What the monitor said at the end of each period, those of the warm-up too.
    pub(super) ends: Vec<PeriodReport>,
    /// What the server knows of each client.
    pub(super) accounts: Vec<Account>,
    /// Clients that have all that they need to begin.
    pub(super) ready: usize,
    pub(super) troubles: Vec<String>,
    /// Over who was done when: packets carry addresses of the process, and no hash of theirs
    /// would replay.
    pub(super) hash: u64,
}

impl Books {
    pub(super) fn new(period: Nanos, (warm_up, periods): (usize, usize), clients: usize) -> Self {
        Self {
            first_join: Time::NEVER,
            start: Time::NEVER,
            period,
            warm_up,
            done: vec![vec![0; clients]; periods],
            course: vec![0; COURSE_PARTS],
            latency: vec![Latency::default(); clients],
            ends: Vec::new(),
            accounts: vec![Account::default(); clients],
            ready: 0,
            troubles: Vec::new(),
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// When the measured period of that number begins.
    pub(super) fn begin_of(&self, number: usize) -> Time {
        self.start + self.period.saturating_mul((self.warm_up + number) as u64)
    }

    /// An I/O of a client has ended.
    pub(super) fn on_done(&mut self, client: usize, asked_at: Time, now: Time) {
        let span = now.since(asked_at);
        let seen = now.0 ^ span.0.rotate_left(40) ^ (client as u64).rotate_left(20);
        self.hash = (self.hash ^ seen).wrapping_mul(0x0000_0100_0000_01b3);
        let passed = now.since(self.start).0;
        let number = (passed / self.period.0) as usize;
        let measured = number.checked_sub(self.warm_up);
        if let Some(done) = measured.and_then(|number| self.done.get_mut(number))
            && let Some(done) = done.get_mut(client)
        {
            *done += 1;
            let part = u128::from(passed % self.period.0) * COURSE_PARTS as u128;
            self.course[(part / u128::from(self.period.0)) as usize] += 1;
            self.latency[client].add(span);
        }
    }

    pub(super) fn note(&mut self, trouble: impl FnOnce() -> String) {
        if self.troubles.len() < TROUBLES_MAX {
            self.troubles.push(trouble());
        }
    }
}
