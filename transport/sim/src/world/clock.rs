//! The one clock of a virtual world.

use std::cell::Cell;
use std::rc::Rc;
use towpath_base::Time;

/// A handle on a world's clock; all handles read the same time.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    now: Rc<Cell<Time>>,
}

impl VirtualClock {
    pub(super) fn new() -> Self {
        Self { now: Rc::new(Cell::new(Time::ZERO)) }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now.get()
    }

    /// Goes to `time`, never back.
    pub(super) fn go_to(&self, time: Time) {
        self.now.set(self.now.get().max(time));
    }
}
