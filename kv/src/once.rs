//! That a change which a client repeats is made once.
//!
//! A client that gets no reply cannot know whether its request came, and repeats it, perhaps over
//! another connection. The replies to its last changes are kept, by its number of each. Reads are
//! not kept: one that is repeated may be answered anew.
//!
//! A client makes itself known by a PING before its first change. So a change of one that is not
//! known is none of a new client, but of one that was forgotten, perhaps since it made that change:
//! it is not made.

use crate::limits::{SESSIONS_MAX, UNDER_WAY_MAX};
use crate::wire::{Failure, Method};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towpath_base::Time;

/// The clients that are known.
#[derive(Debug, Default)]
pub struct Sessions {
    known: Mutex<Known>,
    repeated: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    sessions: HashMap<u64, Session>,
}

/// What is kept of one client.
pub(crate) type Session = Arc<Mutex<Kept>>;

/// What a change came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Sum(i64),
    Failed(Failure),
}

/// The replies to the last changes of one client.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    outcomes: BTreeMap<u64, (Method, Outcome)>,
    /// The highest number whose reply was dropped: nothing is known up to it.
    dropped: u64,
    /// When the client came, or last asked for a change.
    used: Time,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked while it held one may have left out a reply, and no more.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// The outcome of a change: what it was before, or what `make` comes to; none where it is too
    /// old to know. One with the number of another change is refused, since the outcome of that is
    /// not one of this.
    pub(crate) fn once(
        &mut self,
        (sequence, method): (u64, Method),
        now: Time,
        make: impl FnOnce() -> Outcome,
    ) -> Option<Outcome> {
        self.used = self.used.max(now);
        if let Some((of, outcome)) = self.outcomes.get(&sequence) {
            return Some(if *of == method {
                *outcome
            } else {
                Outcome::Failed(Failure::Malformed)
            });
        }
        if sequence <= self.dropped {
            return None;
        }
        let outcome = make();
        self.outcomes.insert(sequence, (method, outcome));
        if self.outcomes.len() > UNDER_WAY_MAX
            && let Some((oldest, _)) = self.outcomes.pop_first()
        {
            self.dropped = oldest;
        }
        Some(outcome)
    }
}

impl Sessions {
    /// What is kept of a client that is known.
    pub(crate) fn find(&self, client: u64) -> Option<Session> {
        lock(&self.known).sessions.get(&client).map(Arc::clone)
    }

    /// Makes a client known, if it is not; none where as many as may be are connected.
    pub(crate) fn meet(&self, client: u64, now: Time) -> Option<Session> {
        let mut known = lock(&self.known);
        if let Some(session) = known.sessions.get(&client) {
            return Some(Arc::clone(session));
        }
        if known.sessions.len() >= SESSIONS_MAX {
            known.forget_half();
        }
        if known.sessions.len() >= SESSIONS_MAX {
            return None;
        }
        let session = Session::new(Mutex::new(Kept { used: now, ..Kept::default() }));
        known.sessions.insert(client, Arc::clone(&session));
        Some(session)
    }

    /// A change came again, and was answered as before.
    pub(crate) fn note_repeated(&self) {
        self.repeated.fetch_add(1, Relaxed);
    }

    /// Changes that came again and were not made again, whatever they were answered.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Relaxed)
    }

    /// Clients that are known.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.known).sessions.len()
    }
}

impl Known {
    /// Forgets those clients, of which no connection is, that asked for a change the longest ago:
    /// half of them, so that it is seldom done.
    fn forget_half(&mut self) {
        let is_idle = |session: &Session| Arc::strong_count(session) == 1;
        // Nobody else holds the lock of an idle one.
        let idle = self.sessions.values().filter(|session| is_idle(session));
        let mut used: Vec<Time> = idle.map(|session| lock(session).used).collect();
        if used.is_empty() {
            return;
        }
        let middle = used.len() / 2;
        let (_, &mut until, _) = used.select_nth_unstable(middle);
        self.sessions.retain(|_, session| !is_idle(session) || lock(session).used > until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Nanos;

    #[test]
    fn a_change_is_made_once_however_often_and_in_which_order_it_comes() {
        let (mut kept, mut made) = (Kept::default(), Vec::new());
        for sequence in [2, 1, 2, 1, 3, 2] {
            let outcome = kept.once((sequence, Method::Incr), Time::ZERO, || {
                made.push(sequence);
                Outcome::Sum(made.len() as i64)
            });
            let at = made.iter().position(|&made| made == sequence).expect("made");
            assert_eq!(outcome, Some(Outcome::Sum(at as i64 + 1)));
        }
        assert_eq!(made, [2, 1, 3]);
    }

    #[test]
    fn what_is_older_than_all_that_is_kept_is_not_made() {
        let mut kept = Kept::default();
        for sequence in 1..=UNDER_WAY_MAX as u64 + 2 {
            assert_eq!(
                kept.once((sequence, Method::Incr), Time::ZERO, || Outcome::Done),
                Some(Outcome::Done)
            );
        }
        for sequence in [1, 2] {
            assert_eq!(
                kept.once((sequence, Method::Incr), Time::ZERO, || panic!("made again")),
                None
            );
        }
        assert_eq!(
            kept.once((3, Method::Incr), Time::ZERO, || panic!("made again")),
            Some(Outcome::Done)
        );
    }

    #[test]
    fn those_that_are_gone_the_longest_are_forgotten_and_none_that_is_connected() {
        let (sessions, at) = (Sessions::default(), |at| Time::ZERO + Nanos::from_secs(at));
        let connected = sessions.meet(1, at(1)).expect("room");
        let _ = lock(&connected).once((9, Method::Set), Time::ZERO, || Outcome::Done);
        for client in 2..=SESSIONS_MAX as u64 {
            assert!(sessions.meet(client, at(client)).is_some());
        }
        assert_eq!(sessions.count(), SESSIONS_MAX);
        let last = SESSIONS_MAX as u64 + 1;
        assert!(sessions.meet(last, at(last)).is_some());
        assert!(sessions.count() <= SESSIONS_MAX / 2 + 2, "{}", sessions.count());
        let again = sessions.meet(1, at(last)).expect("known");
        assert_eq!(
            lock(&again).once((9, Method::Set), Time::ZERO, || panic!("forgotten")),
            Some(Outcome::Done)
        );
    }

    #[test]
    fn a_client_that_came_first_and_asked_last_is_known_after_its_connection_broke() {
        let (sessions, at) = (Sessions::default(), |at| Time::ZERO + Nanos::from_secs(at));
        let last = SESSIONS_MAX as u64 + 1;
        let connection = sessions.meet(1, at(1)).expect("room");
        for client in 2..last {
            assert!(sessions.meet(client, at(client)).is_some());
        }
        let _ = lock(&connection).once((9, Method::Set), at(last), || Outcome::Done);
        drop(connection);
        assert!(sessions.meet(last, at(last)).is_some());
        assert!(sessions.count() <= SESSIONS_MAX / 2 + 2, "{}", sessions.count());
        let again = sessions.meet(1, at(last)).expect("room");
        let outcome = lock(&again).once((9, Method::Set), at(last), || panic!("forgotten"));
        assert_eq!(outcome, Some(Outcome::Done));
    }
}
