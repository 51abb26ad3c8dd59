//! Sessions of clients: a newer link of a session ends the work of its older links.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::limits::SESSIONS_SWEEP_MIN;

/// A newer link of the session is in use, or was: this one may change nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced;

/// The sessions of all clients of a store, whichever worker serves them.
///
/// A client that reconnects must know that nothing of what it asked for over the old link is still
/// to come: otherwise an old write could land after a repeated one
/// (docs/storage-protocol.md section 7). So it names its session and an epoch that rises with each
/// link. From the moment that a link enters, requests of links with lower epochs are refused; what
/// the store already has of them ends before the entry is answered.
///
/// There are at most as many sessions as links and requests with the store: a session is forgotten
/// with the last [`Pass`] to it.
#[derive(Debug, Default)]
pub struct Fences {
    sessions: Mutex<Sessions>,
}

#[derive(Debug, Default)]
struct Sessions {
    by_id: HashMap<u128, Weak<Session>>,
    /// Sessions at which those that ended are swept out.
    sweep_at: usize,
}

#[derive(Debug)]
struct Session {
    /// The highest epoch that a link has entered with.
    epoch: AtomicU64,
    /// Changes with the store, of each link that is not forgotten.
    under_way: Mutex<Vec<Weak<AtomicUsize>>>,
}

/// What lets one link of a session change the store, until a newer link enters.
#[derive(Debug)]
pub struct Pass {
    session: Arc<Session>,
    epoch: u64,
    /// Changes of this link that the store has.
    under_way: Arc<AtomicUsize>,
    /// The same of the older links that had any when this one entered, which end before this one
    /// begins.
    older: Vec<Weak<AtomicUsize>>,
}

impl Fences {
    /// Enters session `id` with `epoch`: older links are refused from now on.
    ///
    /// # Errors
    /// [`Fenced`] when a link has entered with this epoch or a higher one.
    pub fn enter(&self, id: u128, epoch: u64) -> Result<Pass, Fenced> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.sweep();
        let known = sessions.by_id.get(&id).and_then(Weak::upgrade);
        let session = known.unwrap_or_else(|| {
            let session = Arc::new(Session { epoch: 0.into(), under_way: Mutex::default() });
            sessions.by_id.insert(id, Arc::downgrade(&session));
            session
        });
        // Under the lock of all sessions: no other link enters meanwhile.
        if session.epoch.load(Ordering::SeqCst) >= epoch {
            return Err(Fenced);
        }
        session.epoch.store(epoch, Ordering::SeqCst);
        let under_way = Arc::default();
        let older = {
            let mut all = session.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|count| count.strong_count() > 0);
            // The epoch is set: a link that has none here can begin none any more.
            let older = all.iter().filter(|count| !is_idle(count)).cloned().collect();
            all.push(Arc::downgrade(&under_way));
            older
        };
        Ok(Pass { session, epoch, under_way, older })
    }
}

impl Sessions {
    fn sweep(&mut self) {
        if self.by_id.len() >= self.sweep_at {
            self.by_id.retain(|_, session| session.strong_count() > 0);
            self.sweep_at = (2 * self.by_id.len()).max(SESSIONS_SWEEP_MIN);
        }
    }
}

impl Pass {
    /// The epoch of the link.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Counts in a change that goes to the store, which ends by [`end`](Self::end).
    ///
    /// # Errors
    /// [`Fenced`] when a newer link has entered: the change must not go to the store.
    pub fn begin(&self) -> Result<(), Fenced> {
        // Counted before the look: whoever enters sets the epoch and then looks at the count. One
        // of the two sees the other.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        if self.session.epoch.load(Ordering::SeqCst) == self.epoch {
            return Ok(());
        }
        self.end();
        Err(Fenced)
    }

    /// The store has done a change that began.
    pub fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether the store has nothing of older links any more.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.older.iter().all(is_idle)
    }
}

/// Whether the store has no change of the link with this count.
fn is_idle(count: &Weak<AtomicUsize>) -> bool {
    count.upgrade().is_none_or(|count| count.load(Ordering::SeqCst) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_link_refuses_older_ones_and_waits_for_what_the_store_has_of_them() {
        let fences = Fences::default();
        let first = fences.enter(7, 1).expect("a new session");
        assert!(first.is_clear());
        first.begin().expect("it is the newest");
        first.begin().expect("it is the newest");
        let second = fences.enter(7, 2).expect("a newer link");
        assert_eq!(first.begin(), Err(Fenced));
        assert!(!second.is_clear());
        first.end();
        assert!(!second.is_clear());
        let third = fences.enter(7, 3).expect("a newer link still");
        first.end();
        assert!(second.is_clear() && third.is_clear());
        assert_eq!((second.begin(), third.begin()), (Err(Fenced), Ok(())));
    }

    #[test]
    fn a_link_keeps_in_view_only_those_older_ones_that_have_changes_under_way() {
        let fences = Fences::default();
        let mut links = vec![fences.enter(7, 1).expect("a new session")];
        links[0].begin().expect("it is the newest");
        for epoch in 2..100 {
            links.push(fences.enter(7, epoch).expect("a newer link"));
        }
        assert!(links[1..].iter().all(|link| link.older.len() == 1 && !link.is_clear()));
        links[0].end();
        assert!(links.iter().all(Pass::is_clear));
    }

    #[test]
    fn an_epoch_is_used_once_and_sessions_do_not_touch_each_other() {
        let fences = Fences::default();
        let one = fences.enter(1, 5).expect("a new session");
        assert!(matches!(fences.enter(1, 5), Err(Fenced)));
        assert!(matches!(fences.enter(1, 4), Err(Fenced)));
        let other = fences.enter(2, 6).expect("another session");
        assert_eq!((one.begin(), other.begin()), (Ok(()), Ok(())));
        assert!(other.is_clear());
    }

    #[test]
    fn sessions_without_links_are_forgotten() {
        let fences = Fences::default();
        let kept = fences.enter(0, 1).expect("a new session");
        for id in 1..10 * SESSIONS_SWEEP_MIN as u128 {
            drop(fences.enter(id, 1).expect("a new session"));
        }
        let count = fences.sessions.lock().expect("nobody panics with it").by_id.len();
        assert!(count <= SESSIONS_SWEEP_MIN, "{count} sessions are kept of one in use");
        assert!(matches!(fences.enter(0, 1), Err(Fenced)), "one in use is not forgotten");
        assert_eq!(kept.begin(), Ok(()));
    }

    #[test]
    fn a_change_that_begins_while_a_newer_link_enters_is_refused_or_waited_for() {
        for _ in 0..200 {
            let fences = Fences::default();
            let old = fences.enter(1, 1).expect("a new session");
            let (began, new) = std::thread::scope(|scope| {
                let changing = scope.spawn(|| old.begin().is_ok());
                let new = fences.enter(1, 2).expect("a newer link");
                let clear = new.is_clear();
                (changing.join().expect("it ends"), (new, clear))
            });
            let (new, was_clear) = new;
            // Whatever began after the look was refused.
            assert!(!(began && was_clear && !new.is_clear()), "a change slipped past the entry");
        }
    }
}
