//! Which disk has which chunk.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError, RwLock};

use crate::store::core::Watch;
use crate::store::slice::ChunkId;

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Creates of it that the disk has and that are not answered.
    creates: u32,
    disk: u8,
    /// The disk has it, as far as anybody knows.
    is_there: bool,
}

/// The names as bytes: an entry then takes 24 bytes and not 32.
type Places = HashMap<[u8; 16], Place>;

/// A chunk that two disks have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twice {
    /// Its name.
    pub chunk: ChunkId,
    /// A disk that has it, and the version there.
    pub first: (usize, u64),
    /// Another one.
    pub second: (usize, u64),
}

/// The disk of each chunk of a server, the same for all its threads.
///
/// Its chunks are those that the disks had when they were opened, less and more those of which the
/// disks' threads [tell](Watch). The disk of a new chunk is kept from the moment that it is asked
/// for, so two who make the same chunk at a time ask the same disk.
#[derive(Debug, Default)]
pub(crate) struct Directory(RwLock<Found>);

#[derive(Debug, Default)]
struct Found {
    places: Places,
    /// The other disk of a chunk that two have.
    twice: HashMap<ChunkId, u8>,
    /// What the disks had is known: before that, deletes are kept for it.
    is_filled: bool,
    deleted: Vec<(u8, ChunkId)>,
}

impl Directory {
    fn read<T>(&self, look: impl FnOnce(&Found) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut Found) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in what each disk had when it was opened: chunks with their versions. Disks count
    /// versions from random numbers on, so of a chunk that two have nothing tells which copy is the
    /// newer one.
    pub(crate) fn fill(&self, had: Vec<Vec<(ChunkId, u64)>>) -> Vec<Twice> {
        let mut twice = Vec::new();
        let mut versions: HashMap<ChunkId, u64> = HashMap::new();
        let several = had.iter().filter(|chunks| !chunks.is_empty()).count() > 1;
        self.write(|found| {
            found.places.reserve(had.iter().map(Vec::len).sum());
            for (disk, chunks) in had.into_iter().enumerate() {
                for (chunk, version) in chunks {
                    let place = Place { creates: 0, disk: disk as u8, is_there: true };
                    match found.places.entry(chunk.0.to_le_bytes()) {
                        Entry::Vacant(free) => {
                            free.insert(place);
                        }
                        Entry::Occupied(taken) => {
                            let first = (usize::from(taken.get().disk), versions[&chunk]);
                            found.twice.insert(chunk, disk as u8);
                            twice.push(Twice { chunk, first, second: (disk, version) });
                        }
                    }
                    if several {
                        versions.entry(chunk).or_insert(version);
                    }
                }
            }
            found.is_filled = true;
            for (disk, chunk) in std::mem::take(&mut found.deleted) {
                found.deleted(disk, chunk);
            }
        });
        twice
    }

    /// The disk that has a chunk, or is asked to make it.
    pub(crate) fn disk(&self, chunk: ChunkId) -> Option<usize> {
        self.read(|found| found.places.get(&chunk.0.to_le_bytes()).map(|at| at.disk.into()))
    }

    /// The second disk of a chunk that two have.
    pub(crate) fn other_disk(&self, chunk: ChunkId) -> Option<usize> {
        self.read(|found| found.twice.get(&chunk).map(|disk| usize::from(*disk)))
    }

    /// A chunk is asked for, on `disk` where no disk has it or is asked for it; gives the disk to
    /// ask. [`create_answered`](Self::create_answered) follows.
    pub(crate) fn create(&self, chunk: ChunkId, disk: usize) -> usize {
        self.write(|found| {
            let fresh = Place { creates: 0, disk: disk as u8, is_there: false };
            let place = found.places.entry(chunk.0.to_le_bytes()).or_insert(fresh);
            place.creates += 1;
            place.disk.into()
        })
    }

    /// A create is answered. Where it is not known whether the chunk was made, it may be there.
    pub(crate) fn create_answered(&self, chunk: ChunkId, is_known: bool) {
        self.write(|found| {
            let Entry::Occupied(mut at) = found.places.entry(chunk.0.to_le_bytes()) else { return };
            let place = at.get_mut();
            place.creates = place.creates.saturating_sub(1);
            place.is_there |= !is_known;
            if place.creates == 0 && !place.is_there {
                at.remove();
            }
        });
    }

    /// Chunks that it knows.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.read(|found| found.places.len())
    }

    /// What a disk's thread tells of its chunks.
    pub(crate) fn watch(self: Arc<Self>, disk: usize) -> Box<dyn Watch> {
        Box::new(Of { directory: self, disk: disk as u8 })
    }
}

impl Found {
    fn deleted(&mut self, disk: u8, chunk: ChunkId) {
        let Entry::Occupied(mut at) = self.places.entry(chunk.0.to_le_bytes()) else { return };
        // The other copy of a chunk that two had stays as it is, and is served then.
        let other = self.twice.remove(&chunk);
        if at.get().disk != disk {
            return;
        }
        if let Some(other) = other {
            at.get_mut().disk = other;
            return;
        }
        at.get_mut().is_there = false;
        if at.get().creates == 0 {
            at.remove();
        }
    }
}

/// One disk's hold on the directory.
struct Of {
    directory: Arc<Directory>,
    disk: u8,
}

impl Watch for Of {
    fn created(&mut self, chunk: ChunkId) {
        self.directory.write(|found| {
            if let Some(place) = found.places.get_mut(&chunk.0.to_le_bytes())
                && place.disk == self.disk
            {
                place.is_there = true;
            }
        });
    }

    fn deleted(&mut self, chunk: ChunkId) {
        self.directory.write(|found| {
            if !found.is_filled {
                found.deleted.push((self.disk, chunk));
            }
            found.deleted(self.disk, chunk);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ChunkId = ChunkId(1);
    const B: ChunkId = ChunkId(2);

    fn filled(had: Vec<Vec<(ChunkId, u64)>>) -> (Arc<Directory>, Vec<Twice>) {
        let directory = Arc::<Directory>::default();
        let twice = directory.fill(had);
        (directory, twice)
    }

    #[test]
    fn of_a_chunk_on_two_disks_both_are_told_and_what_is_left_of_them_is_served() {
        let (directory, twice) = filled(vec![vec![(A, 5), (B, 9)], vec![(A, 7)], vec![(B, 9)]]);
        let told = |chunk, first, second| Twice { chunk, first, second };
        assert_eq!(twice, [told(A, (0, 5), (1, 7)), told(B, (0, 9), (2, 9))]);
        assert_eq!((directory.other_disk(A), directory.other_disk(B)), (Some(1), Some(2)));
        Arc::clone(&directory).watch(0).deleted(A);
        assert_eq!((directory.disk(A), directory.other_disk(A)), (Some(1), None));
        Arc::clone(&directory).watch(1).deleted(A);
        assert_eq!(directory.disk(A), None);
        Arc::clone(&directory).watch(2).deleted(B);
        assert_eq!((directory.disk(B), directory.other_disk(B)), (Some(0), None));
    }

    #[test]
    fn who_makes_the_same_chunk_asks_the_same_disk_until_the_last_is_refused() {
        let (directory, _) = filled(Vec::new());
        assert_eq!((directory.create(A, 2), directory.create(A, 0)), (2, 2));
        directory.create_answered(A, true);
        assert_eq!(directory.disk(A), Some(2), "one is still under way");
        directory.create_answered(A, true);
        assert_eq!((directory.disk(A), directory.len()), (None, 0));
    }

    #[test]
    fn a_chunk_that_was_made_deleted_and_made_again_is_there_whatever_is_answered_last() {
        let (directory, _) = filled(Vec::new());
        let mut disk = Arc::clone(&directory).watch(1);
        directory.create(A, 1);
        disk.created(A);
        directory.create(A, 0);
        disk.deleted(A);
        disk.created(A);
        directory.create_answered(A, true);
        directory.create_answered(A, true);
        assert_eq!(directory.disk(A), Some(1));
        disk.deleted(A);
        assert_eq!(directory.len(), 0);
    }

    #[test]
    fn a_create_whose_fate_is_not_known_keeps_its_disk() {
        let (directory, _) = filled(Vec::new());
        directory.create(A, 1);
        directory.create_answered(A, false);
        assert_eq!(directory.disk(A), Some(1));
    }

    #[test]
    fn what_is_deleted_before_the_directory_is_filled_is_not_in_it() {
        let directory = Arc::<Directory>::default();
        Arc::clone(&directory).watch(0).deleted(A);
        assert_eq!(directory.fill(vec![vec![(A, 3), (B, 4)]]), []);
        assert_eq!((directory.disk(A), directory.disk(B)), (None, Some(0)));
    }
}
