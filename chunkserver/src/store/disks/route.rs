//! Which disk a request goes to.

use std::sync::atomic::Ordering;

use towpath_memory::Buf;
use towpath_transport::Class;

use super::{Disks, Unsent};
use crate::store::core::{DiskState, Room, StoreThread};
use crate::store::request::Request;
use crate::store::slice::ChunkId;
use crate::store::stats::StoreStats;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A chunk that is to be made.
    New(ChunkId),
    /// A chunk.
    Chunk(ChunkId),
    /// All chunks.
    All,
    /// The next piece of whatever disk it is the turn of.
    Any,
    /// Something that a disk has, by its number.
    Disk(usize),
    /// The state of the server.
    Server,
}

impl Target {
    /// What a request to the store is about.
    pub fn of<W>(request: &Request<W, Buf>) -> Self {
        match request {
            Request::Create { chunk, .. } => Self::New(*chunk),
            Request::Clear { chunk, .. }
            | Request::Delete { chunk, .. }
            | Request::Chain { chunk, .. }
            | Request::Digest { chunk, .. }
            | Request::Finish { chunk, .. }
            | Request::Locate { chunk, .. }
            | Request::MayWrite { chunk, .. }
            | Request::Read { chunk, .. }
            | Request::Stage { chunk, .. }
            | Request::Stat { chunk }
            | Request::Write { chunk, .. } => Self::Chunk(*chunk),
            Request::List { .. } => Self::All,
            Request::Scrub { .. } => Self::Any,
            Request::Stats => Self::Server,
            Request::Unstage { disk, .. } => Self::Disk(*disk),
        }
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    One(usize),
    All,
    /// It is answered at once: a disk that hangs must not keep anybody from hearing of it.
    Here,
}

impl<W> Disks<W> {
    pub(super) fn route(&self, class: Class, target: Target) -> Result<Route, Unsent> {
        if !self.has_several() {
            return Ok(Route::One(0));
        }
        if let Target::New(chunk) | Target::Chunk(chunk) = target
            && let Some(other) = self.shared.directory.other_disk(chunk)
        {
            // One of the copies is older, and nothing tells which.
            return Err(Unsent::Down(other));
        }
        match target {
            Target::All => Ok(Route::All),
            Target::Server => Ok(Route::Here),
            Target::Disk(disk) if disk < self.threads.len() && self.runs(disk) => {
                Ok(Route::One(disk))
            }
            Target::Disk(disk) => Err(Unsent::Down(disk)),
            Target::Any => {
                let at = self.shared.scrub.load(Ordering::Relaxed);
                let disks = (0..self.threads.len()).map(|step| (at + step) % self.threads.len());
                let mut running = disks.filter(|disk| self.runs(*disk));
                running.next().map(Route::One).ok_or(Unsent::Down(at))
            }
            Target::Chunk(chunk) => match self.shared.directory.disk(chunk) {
                Some(disk) if self.runs(disk) => Ok(Route::One(disk)),
                Some(disk) => Err(Unsent::Down(disk)),
                None => self.of_unknown(class),
            },
            Target::New(chunk) => match self.shared.directory.disk(chunk) {
                Some(disk) if self.runs(disk) => Ok(Route::One(disk)),
                Some(disk) => Err(Unsent::Down(disk)),
                None => Ok(Route::One(self.choose(class)?)),
            },
        }
    }

    fn runs(&self, disk: usize) -> bool {
        self.threads[disk].as_ref().is_some_and(StoreThread::is_running)
    }

    /// A chunk that no open disk has: one that could not be opened may have it; otherwise any disk
    /// can say that it is not there.
    fn of_unknown(&self, class: Class) -> Result<Route, Unsent> {
        if let Some(disk) = self.threads.iter().position(Option::is_none) {
            return Err(Unsent::Down(disk));
        }
        let running = || self.open_disks().filter(|(_, thread)| thread.is_running());
        // One that hangs should not be asked for what another can say.
        let found = running().find(|(_, thread)| thread.has_room(class)).or(running().next());
        found.map(|(disk, _)| Route::One(disk)).ok_or(Unsent::Down(0))
    }

    /// The disk for a new chunk: each that serves gets as many as it has room, of all that is free.
    /// Where none has room or none serves, one that says so.
    fn choose(&self, class: Class) -> Result<usize, Unsent> {
        let mut weights = [0_u64; super::DISKS_MAX];
        let (mut total, mut fallback) = (0_u128, None);
        for (disk, thread) in self.open_disks() {
            match thread.state() {
                DiskState::Serving => {
                    let told = thread.told();
                    if told.room != Room::None && thread.has_room(class) {
                        weights[disk] = told.stats.free_bytes;
                        total += u128::from(weights[disk]);
                    }
                    fallback = fallback.filter(|(serves, _)| *serves).or(Some((true, disk)));
                }
                DiskState::ReadOnly => fallback = fallback.or(Some((false, disk))),
                DiskState::Failed => {}
            }
        }
        if total == 0 {
            return fallback.map(|(_, disk)| disk).ok_or(Unsent::Down(0));
        }
        // Multiples of the golden ratio, modulo one, lie as evenly as can be.
        let number = self.shared.placed.fetch_add(1, Ordering::Relaxed);
        let point = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut left = (u128::from(point) * total) >> 64;
        for (disk, weight) in weights.iter().enumerate() {
            match left.checked_sub(u128::from(*weight)) {
                Some(rest) => left = rest,
                None => return Ok(disk),
            }
        }
        fallback.map(|(_, disk)| disk).ok_or(Unsent::Down(0))
    }

    /// Whether a request of a class about this, which [may be held](Request::may_be_held) or not,
    /// would find room in the queue it goes to, or be answered at once: it may also be refused.
    #[must_use]
    pub fn has_room_for(&self, class: Class, target: Target, may_be_held: bool) -> bool {
        let has_room = |thread: &StoreThread<W>| {
            thread.has_room_for(class, may_be_held) || !thread.is_running()
        };
        match (target, self.has_several()) {
            (Target::New(chunk) | Target::Chunk(chunk), true) => {
                match self.shared.directory.disk(chunk) {
                    Some(disk) => self.threads[disk].as_ref().is_none_or(has_room),
                    // Any can be asked to make it, or say that it is not there.
                    None => self.open_disks().any(|(_, thread)| has_room(thread)),
                }
            }
            (Target::Server, true) => true,
            _ => self.open_disks().all(|(_, thread)| has_room(thread)),
        }
    }

    /// Whether some request would find room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let has_room = |thread: &StoreThread<W>| {
            let has_room = |of: &Class| [false, true].map(|held| thread.has_room_for(*of, held));
            Class::ALL.iter().flat_map(has_room).any(|has_room| has_room)
        };
        self.open_disks().any(|(_, thread)| has_room(thread))
    }

    /// The disk that has a chunk, as far as that is known.
    #[must_use]
    pub fn disk_of(&self, chunk: ChunkId) -> usize {
        if self.has_several() { self.shared.directory.disk(chunk).unwrap_or(0) } else { 0 }
    }

    /// The counters of all disks together.
    pub(super) fn sum(&self) -> StoreStats {
        let mut sum = StoreStats::default();
        let mut takes_changes = false;
        for status in self.status() {
            takes_changes |= status.state == DiskState::Serving;
            if status.state != DiskState::Failed {
                sum += status.told.stats;
            }
        }
        sum.failed = !takes_changes;
        sum
    }
}
