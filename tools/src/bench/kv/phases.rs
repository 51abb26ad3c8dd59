//! When the clients of a process begin together, and when they may leave.

use std::sync::{Condvar, Mutex, PoisonError};

/// What all threads wait for. None is left waiting where one could not be started.
#[derive(Debug, Default)]
pub(super) struct Phases {
    state: Mutex<State>,
    changed: Condvar,
}

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

    /// Waits for the beginning; false where there is none.
    pub(super) fn begins(&self) -> bool {
        self.wait(|state| state.has_begun)
    }

    /// All begin.
    pub(super) fn begin(&self) {
        self.change(|state| state.has_begun = true);
    }

    /// One has ended, and stays until all may leave.
    pub(super) fn end(&self) {
        self.change(|state| state.ended += 1);
        self.wait(|state| state.may_leave);
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
