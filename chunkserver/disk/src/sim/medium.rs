//! The handle to a simulated medium: its content, its clock, its power and its faults.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towpath_base::{Nanos, Prng, Time};

use super::SimDisk;
use super::faults::{Failing, Mischief};
use super::power::Loss;
use super::state::State;
use crate::disk::DurableWrites;
use crate::gate::Gate;
use crate::op::{PageNumber, What};

/// How long an operation takes: some time between the two, as the seed has it. So operations under
/// way together end in another order than that in which they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// At least.
    pub least: Nanos,
    /// At most.
    pub most: Nanos,
}

/// How long the operations of a medium take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A read.
    pub read: Spread,
    /// A write, or pages given back.
    pub write: Spread,
    /// A flush.
    pub flush: Spread,
}

impl Default for Timing {
    /// About those of a virtual disk on flash.
    fn default() -> Self {
        let spread = |least, most| Spread {
            least: Nanos::from_micros(least),
            most: Nanos::from_micros(most),
        };
        Self { read: spread(50, 200), write: spread(30, 150), flush: spread(80, 400) }
    }
}

/// A handle to a simulated medium; clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Medium {
    state: Arc<Mutex<State>>,
}

impl Medium {
    /// A medium of `page_count` pages of zeros, all of which have their room. `seed` decides how
    /// long operations take and what power cuts leave.
    #[must_use]
    pub fn new(seed: u64, page_count: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed, page_count))) }
    }

    /// Another medium with the same content, clock and faults, whose further fate `seed` decides.
    /// Nobody has it open: what was under way is neither done nor lost, as after
    /// [`end_process`](Self::end_process).
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let state = self.state().fork(Prng::new(seed));
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens it, for `depth` operations at a time.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] while it is open, [`io::ErrorKind::BrokenPipe`] while the
    /// power is off.
    pub fn open(&self, depth: usize) -> io::Result<SimDisk> {
        let mut state = self.state();
        let session = state.open()?;
        let gate = Gate::new(state.page_count, depth, true);
        let gate = gate.with(state.durable_writes);
        drop(state);
        Ok(SimDisk { medium: self.clone(), session, gate })
    }

    /// What durable writes of disks that are opened from now on make last: their own bytes, unless
    /// this says something else.
    pub fn set_durable_writes(&self, durable_writes: DurableWrites) {
        self.state().durable_writes = durable_writes;
    }

    /// From now on operations take as long as this.
    pub fn set_timing(&self, timing: Timing) {
        self.state().timing = timing;
    }

    /// The time on its clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.state().now
    }

    /// When the next operation under way is done.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        let state = self.state();
        state.next_at(state.session?)
    }

    /// Lets time pass. What is done by then is found by the next poll.
    pub fn advance_to(&self, time: Time) {
        let mut state = self.state();
        state.now = state.now.max(time);
    }

    /// How often a write, a flush or a discard has begun, or was done: the boundaries at which the
    /// power can be cut.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.state().events
    }

    /// Cuts the power at event number `event` (the first one is 1), when the operation has begun,
    /// or right before it would be done. All that is under way fails then, and so does everything
    /// after it until [`power_on`](Self::power_on).
    pub fn cut_power_at(&self, event: u64) {
        self.state().cut_at = Some(event);
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Cuts the power now, decides what the medium kept, and turns it on again. Whoever had it open
    /// has it no more; faults are gone, but for spoiled pages.
    pub fn power_on(&self, loss: Loss) {
        self.state().power_cycle(loss);
    }

    /// Ends the process that had it open, and not the power. Each operation under way is carried
    /// out or is not, as the seed has it. What was done stays to be seen, and what is not durable
    /// can still be lost.
    pub fn end_process(&self) {
        self.state().end_process();
    }

    /// Makes it a sparse file on a file system that has room for `bytes` of it, what is there
    /// included. A write to a page without room fails from then on when there is none left.
    pub fn limit_room(&self, bytes: u64) {
        self.state().room_pages = Some(bytes / crate::PAGE_BYTES as u64);
    }

    /// Lets the flush after `passed` more ones fail. Of what it should have made durable the seed
    /// decides at once which sectors are, and a later flush changes nothing of that.
    pub fn fail_flush(&self, passed: u64) {
        self.state().faults.flush_fails_after = Some(passed);
    }

    /// Lets the next `times` operations of one kind, reads or writes, that touch a page fail. Such
    /// a write leaves any part of it.
    pub fn fail(&self, what: What, page: PageNumber, times: u32) {
        self.state().faults.failing.push(Failing { what, page: page.0, times });
    }

    /// Makes a page unreadable until it is written.
    pub fn spoil(&self, page: PageNumber) {
        self.state().faults.spoiled.insert(page.0);
    }

    /// Mistreats one write that touches `pages`, after `passed` good ones.
    pub fn mistreat_write(&self, pages: Range<u64>, passed: u64, mischief: Mischief) {
        self.state().faults.mischief = Some((pages, passed, mischief));
    }

    /// Flips the lowest bit of a byte, for readers and for good.
    pub fn flip_bit(&self, byte_offset: u64) {
        self.state().flip_bit(byte_offset);
    }
}
