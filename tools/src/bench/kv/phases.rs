//! When the clients of a process begin together, and when they may leave.

use std::sync::{Condvar, Mutex, PoisonError};

/// What all threads wait for. None is left waiting where one could not be started.
#[derive(Debug, Default)]
pub(super) struct Phases {
    state: Mutex<State>,
    changed: Condvar,
}

/// One that has begun: it ends with this, also where it panics.
#[derive(Debug)]
pub(super) struct Begun<'a>(&'a Phases);

#[derive(Debug, Default)]
struct State {
    has_begun: bool,
    may_leave: bool,
    ended: usize,
}

impl Phases {
    fn change(&self, change: impl FnOnce(&mut State)) {
        // Nothing that is done under the lock leaves it half done.
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn wait(&self, is_so: impl Fn(&State) -> bool) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.changed.wait_while(state, |state| !is_so(state) && !state.may_leave);
        is_so(&state.unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the beginning; none where there is none.
    pub(super) fn begins(&self) -> Option<Begun<'_>> {
        self.wait(|state| state.has_begun).then(|| Begun(self))
    }

    /// All begin.
    pub(super) fn begin(&self) {
        self.change(|state| state.has_begun = true);
    }

    /// Waits until so many have ended.
    pub(super) fn ended(&self, count: usize) {
        self.wait(|state| state.ended >= count);
    }

    /// All may leave, whatever they wait for.
    pub(super) fn leave(&self) {
        self.change(|state| state.may_leave = true);
    }
}

impl Drop for Begun<'_> {
    /// One has ended, and stays until all may leave.
    fn drop(&mut self) {
        self.0.change(|state| state.ended += 1);
        self.0.wait(|state| state.may_leave);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn one_that_panics_has_ended() {
        let phases = Phases::default();
        phases.begin();
        // None waits for the others, so that this ends whatever is counted.
        phases.leave();
        thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _begun = phases.begins().expect("it has begun");
                panic!("as a client's thread may");
            });
            assert!(panics.join().is_err());
        });
        assert_eq!(phases.state.lock().expect("no panic under the lock").ended, 1);
    }

    #[test]
    fn none_begins_where_all_may_leave_before() {
        let phases = Phases::default();
        phases.leave();
        assert!(phases.begins().is_none());
        assert_eq!(phases.state.lock().expect("no panic under the lock").ended, 0);
    }
}
