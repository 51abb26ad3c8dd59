//! A page of the listing that several disks have parts of.

use super::directory::Directory;
use crate::store::ChunkStat;
use crate::store::slice::ChunkId;

/// What has come of it so far.
#[derive(Debug)]
pub(super) struct Listing {
    /// Name, whether another disk comes first with it, and what is known of it.
    chunks: Vec<(ChunkId, bool, ChunkStat)>,
    /// Disks that have not answered, one bit each.
    left: u64,
    /// The last name up to which the pages of all disks are complete: a disk whose page is full may
    /// have more behind its last one.
    end: Option<ChunkId>,
    count_max: usize,
}

impl Listing {
    /// A page of `count_max` chunks, of the disks whose bits are set.
    pub(super) fn new(disks: u64, count_max: usize) -> Self {
        Self { chunks: Vec::new(), left: disks, end: None, count_max }
    }

    pub(super) fn waits_for(&self, disk: usize) -> bool {
        self.left & (1 << disk) != 0
    }

    /// Takes in the page of a disk; none of a disk that is gone. Gives the whole once all are
    /// there.
    pub(super) fn add(
        &mut self,
        disk: usize,
        page: &[ChunkStat],
        directory: &Directory,
    ) -> Option<Vec<ChunkStat>> {
        self.left &= !(1 << disk);
        if page.len() >= self.count_max
            && let Some(last) = page.last()
            && self.end.is_none_or(|end| last.chunk < end)
        {
            self.end = Some(last.chunk);
        }
        // A chunk that two disks have is listed once.
        let hides = |chunk| directory.disk(chunk) != Some(disk);
        self.chunks.extend(page.iter().map(|stat| (stat.chunk, hides(stat.chunk), *stat)));
        (self.left == 0).then(|| {
            self.chunks.sort_unstable_by_key(|(chunk, hidden, _)| (*chunk, *hidden));
            self.chunks.dedup_by_key(|(chunk, ..)| *chunk);
            let whole = |chunk: ChunkId| self.end.is_none_or(|end| chunk <= end);
            let chunks = self.chunks.iter().filter(|(chunk, ..)| whole(*chunk));
            chunks.take(self.count_max).map(|(.., stat)| *stat).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: impl IntoIterator<Item = u128>, version: u64) -> Vec<ChunkStat> {
        let stat = |name| ChunkStat { chunk: ChunkId(name), version, ..ChunkStat::default() };
        names.into_iter().map(stat).collect()
    }

    #[test]
    fn a_page_goes_as_far_as_all_disks_have_told_and_names_no_chunk_twice() {
        let directory = Directory::default();
        let had = |names: &[u128], version| names.iter().map(|n| (ChunkId(*n), version)).collect();
        directory.fill(vec![had(&[1, 3, 4, 9], 5), had(&[2, 3, 5, 6], 8)]);
        let mut listing = Listing::new(0b11, 3);
        assert_eq!(listing.add(0, &page([1, 3, 4], 5), &directory), None);
        assert!(listing.waits_for(1) && !listing.waits_for(0));
        let found = listing.add(1, &page([2, 3, 5], 8), &directory).expect("both have told");
        let found: Vec<_> = found.iter().map(|stat| (stat.chunk.0, stat.version)).collect();
        assert_eq!(found, [(1, 5), (2, 8), (3, 5)]);
        let mut rest = Listing::new(0b11, 3);
        assert_eq!(rest.add(1, &page([5, 6], 8), &directory), None);
        // The first disk is gone, and has nothing to say.
        let found = rest.add(0, &[], &directory).expect("both are done");
        assert_eq!(found.len(), 2);
    }
}
