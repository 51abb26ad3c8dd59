//! What the driver of a store tells of its store without being asked.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use super::room::Room;
use super::state::StoreCore;
use crate::store::stats::StoreStats;

/// How a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum DiskState {
    /// It takes reads and changes.
    #[default]
    Serving = 0,
    /// It takes reads only: a flush failed, or changes are lost to damage.
    ReadOnly = 1,
    /// It takes nothing: it could not be opened, or nobody drives it any more.
    Failed = 2,
}

/// What the driver of a store told last.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Its counters.
    pub stats: StoreStats,
    /// How much room is left.
    pub room: Room,
    /// Why it does not serve all that it is asked; empty while it does.
    pub reason: String,
}

/// Where the driver of a store tells how the store is.
#[derive(Debug, Default)]
pub(super) struct Condition {
    state: AtomicU8,
    told: Mutex<Told>,
    has_ended: AtomicBool,
}

impl Condition {
    /// Says how the store is now; gives how much room is left.
    pub(super) fn tell<W: AsRef<[u8]>>(&self, core: &StoreCore<W>) -> Room {
        let stats = core.stats();
        let room = core.room_by(&stats);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        (told.stats, told.room) = (stats, room);
        if told.stats.failed && told.reason.is_empty() {
            told.reason = told.stats.read_only.map_or_else(String::new, |why| why.to_string());
            self.state.store(DiskState::ReadOnly as u8, Ordering::Release);
        }
        room
    }

    /// Says that nobody drives it any more, after the last answer was given out.
    pub(super) fn say_ended(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Says that the driver ends, and why.
    pub(super) fn end(&self, why: String) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).reason = why;
        self.state.store(DiskState::Failed as u8, Ordering::Release);
    }

    pub(super) fn told(&self) -> Told {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn state(&self) -> DiskState {
        match self.state.load(Ordering::Acquire) {
            0 => DiskState::Serving,
            1 => DiskState::ReadOnly,
            _ => DiskState::Failed,
        }
    }
}
