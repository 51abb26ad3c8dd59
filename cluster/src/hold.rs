//! Holding a key that at most one of many holds: who leads, and that a server is there.
//!
//! A [`Hold`] asks the map's store for a lease, puts its key with it where nobody else has, and
//! keeps the lease. It does nothing by itself: its owner submits [what it asks](Hold::next) and
//! tells it [what came of that](Hold::on_done).
//!
//! # What may be relied on
//!
//! While [`is_held`](Hold::is_held) says so, nobody else holds the key: its deadline is counted
//! from before the lease was asked for or kept, by our own clock, and is shorter than the lease by
//! as much as clocks may differ. The store counts from later on and ends no lease sooner. Between
//! a look at `is_held` and what is done because of it, time passes all the same, so whoever writes
//! for the holder also checks [`fence`](Hold::fence): the revision at which the key was taken
//! rises with each holder.

use towpath_base::{Nanos, Time};

use crate::meta::{Expect, LeaseId, MetaError, Op, Outcome, Revision, Transaction};

/// By how much of their time two clocks may differ.
const DRIFT: f64 = 0.1;

/// How many times a lease is kept within its time, if all goes well.
const KEEPS: u64 = 4;

/// A key that is to be held.
#[derive(Debug)]
pub struct Hold {
    key: String,
    value: Vec<u8>,
    time: Nanos,
    state: State,
    /// Nothing is asked sooner.
    next_at: Time,
    /// When what is under way was asked.
    under_way: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no lease.
    Without,
    /// The lease is there; the key is to be put.
    Takes { lease: LeaseId, until: Time },
    /// Whether the key was put is to be seen.
    Looks { lease: LeaseId, until: Time },
    /// The key is ours.
    Holds { lease: LeaseId, until: Time, since: Revision },
    /// Somebody else has the key: the lease is of no use.
    GivesUp { lease: LeaseId },
}

impl Hold {
    /// Of a key and what its entry says, for so long after it was kept last.
    pub fn new(key: impl Into<String>, value: impl Into<Vec<u8>>, time: Nanos) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            time,
            state: State::Without,
            next_at: Time::ZERO,
            under_way: None,
        }
    }

    /// Whether the key is ours, for sure.
    pub fn is_held(&self, now: Time) -> bool {
        matches!(self.state, State::Holds { until, .. } if now < until)
    }

    /// The revision at which the key was taken, where it is ours or was until lately. No later
    /// holder has a lower one.
    pub fn fence(&self) -> Option<Revision> {
        match self.state {
            State::Holds { since, .. } => Some(since),
            _ => None,
        }
    }

    /// When [`next`](Self::next) has something to ask, and when `is_held` ends.
    pub fn due(&self) -> Time {
        let until = match self.state {
            State::Holds { until, .. } => until,
            _ => Time::NEVER,
        };
        if self.under_way.is_some() { until } else { until.min(self.next_at) }
    }

    /// What to ask the store now. The next thing comes after [`on_done`](Self::on_done).
    pub fn next(&mut self, now: Time) -> Option<Op> {
        if self.under_way.is_some() || now < self.next_at {
            return None;
        }
        self.under_way = Some(now);
        Some(match self.state {
            State::Without => Op::Grant { time: self.time },
            State::Takes { lease, .. } => {
                Op::Commit(Transaction::new().check(&*self.key, Expect::Absent).put_leased(
                    &*self.key,
                    &*self.value,
                    lease,
                ))
            }
            State::Looks { .. } => Op::Get { key: self.key.clone() },
            State::Holds { lease, .. } => Op::Keep(lease),
            State::GivesUp { lease } => Op::Revoke(lease),
        })
    }

    /// What came of what [`next`](Self::next) asked.
    pub fn on_done(&mut self, result: &Result<Outcome, MetaError>, now: Time) {
        let Some(asked_at) = self.under_way.take() else { return };
        let until = asked_at + self.held_for();
        let soon = now + self.pause();
        (self.state, self.next_at) = match (self.state, result) {
            (State::Without, Ok(Outcome::Granted(lease))) => {
                (State::Takes { lease: *lease, until }, now)
            }
            (State::Takes { lease, until }, Ok(Outcome::Committed(since))) => {
                (State::Holds { lease, until, since: *since }, asked_at + self.pause())
            }
            (State::Takes { lease, until }, Err(MetaError::Unknown(_))) => {
                (State::Looks { lease, until }, now)
            }
            (State::Takes { lease, .. }, Ok(Outcome::Refused { .. })) => {
                (State::GivesUp { lease }, now)
            }
            (State::Looks { lease, until }, Ok(Outcome::Got(found))) => match found {
                Some(entry) if entry.lease == Some(lease) => {
                    (State::Holds { lease, until, since: entry.created }, now)
                }
                Some(_) => (State::GivesUp { lease }, now),
                // It may be done later still: the check sees that, and so does another look.
                None => (State::Takes { lease, until }, now),
            },
            (State::Holds { lease, since, .. }, Ok(Outcome::Kept)) => {
                (State::Holds { lease, until, since }, asked_at + self.pause())
            }
            (_, Err(MetaError::NoLease(_))) | (State::GivesUp { .. }, _) => (State::Without, soon),
            // Nothing was done, or it does no harm to do it again.
            (state, _) => (state, soon),
        };
    }

    fn pause(&self) -> Nanos {
        Nanos(self.time.0 / KEEPS)
    }

    fn held_for(&self) -> Nanos {
        Nanos((self.time.0 as f64 * (1.0 - DRIFT)) as u64)
    }
}
