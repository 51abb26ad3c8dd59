//! Free pages, and the freed ones that must wait before they are used again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::store::limits::FIT_RUNS_MAX;
use crate::store::record::{Extent, Extents};

/// A promise that the pages which were live when it was given stay as they are.
#[derive(Debug)]
pub(crate) struct Pin(u64);

struct Retired {
    commit: u64,
    extent: Extent,
}

/// Runs of pages that follow each other, by their first page.
#[derive(Default)]
struct Runs {
    runs: BTreeMap<u32, u32>,
    pages: u64,
    /// Where the search for the next run begins.
    next_fit: u32,
}

impl Runs {
    /// Puts pages in that are not in; joins them with their neighbours.
    fn add(&mut self, extent: Extent) {
        if extent.count == 0 {
            return;
        }
        self.pages += u64::from(extent.count);
        let Extent { mut page, mut count } = extent;
        if let Some((&before, &len)) = self.runs.range(..page).next_back()
            && before + len == page
        {
            self.runs.remove(&before);
            page = before;
            count += len;
        }
        if let Some(len) = self.runs.remove(&(extent.page + extent.count)) {
            count += len;
        }
        self.runs.insert(page, count);
    }

    /// Takes `count` pages from the beginning of the run at `start`.
    fn cut(&mut self, start: u32, count: u32) {
        if let Some(len) = self.runs.remove(&start)
            && len > count
        {
            self.runs.insert(start + count, len - count);
        }
        self.pages -= u64::from(count);
    }

    /// The first page of a run of `count` pages, if one is found soon.
    fn fit(&self, count: u32) -> Option<u32> {
        let runs = self.runs.range(self.next_fit..).chain(self.runs.range(..self.next_fit));
        let mut runs = runs.take(FIT_RUNS_MAX);
        runs.find(|(_, len)| **len >= count).map(|(start, _)| *start)
    }

    /// Takes `count` pages from the beginning of the run at `start`, and appends them to `out`.
    fn give(&mut self, start: u32, count: u32, out: &mut Extents) {
        self.cut(start, count);
        self.next_fit = start + count;
        out.push(Extent { page: start, count });
    }

    /// The first run from `page` on, or the first of all.
    fn next(&self, page: u32) -> Option<(u32, u32)> {
        let run = self.runs.range(page..).next().or_else(|| self.runs.iter().next());
        run.map(|(start, len)| (*start, *len))
    }
}

/// The pages that no slice uses.
///
/// A page has room when the medium is known to have backed it, so that writing to it needs none.
/// Only such pages are free; the others get their room first. Where pages give their room back, a
/// free page is stale until it did: it is used again before others are.
///
/// A page that a commit frees is retired first. It is free again only when that commit is on
/// stable media and no pin is older than it: until then a crash, or a reader, may still want it.
/// A page whose write failed is bad, and not used again before the store is opened anew.
pub(crate) struct Pages {
    /// One past the last page. Page zero holds no slice.
    end: u32,
    free: Runs,
    /// Free pages that are to give their room back; none where pages keep it.
    stale: Option<Runs>,
    unbacked: Runs,
    bad: BTreeSet<u32>,
    retired: VecDeque<Retired>,
    retired_pages: u64,
    commit: u64,
    pins: BTreeMap<u64, u32>,
}

/// A page that two slices claim, or that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageClash(pub(crate) u32);

impl Pages {
    /// Pages from 1 up to `end`, none of which has room yet.
    pub(crate) fn new(end: u32) -> Self {
        let mut unbacked = Runs::default();
        unbacked.add(Extent { page: 1, count: end.saturating_sub(1) });
        Self {
            end,
            free: Runs::default(),
            stale: None,
            unbacked,
            bad: BTreeSet::new(),
            retired: VecDeque::new(),
            retired_pages: 0,
            commit: 0,
            pins: BTreeMap::new(),
        }
    }

    /// Pages that become free are to give their room back from now on.
    pub(crate) fn give_room_back(&mut self) {
        self.stale = Some(Runs::default());
    }

    /// Free pages keep their room from now on.
    pub(crate) fn keep_room(&mut self) {
        for (page, count) in self.stale.take().unwrap_or_default().runs {
            self.release(Extent { page, count });
        }
    }

    /// Free pages that are to give their room back.
    pub(crate) fn stale_pages(&self) -> u64 {
        self.stale.as_ref().map_or(0, |stale| stale.pages)
    }

    /// Takes at most `count_max` free pages that follow each other and are to give their room back;
    /// whoever takes them releases them.
    pub(crate) fn take_stale(&mut self, count_max: u32) -> Option<Extent> {
        let stale = self.stale.as_mut()?;
        let (page, len) = stale.next(0)?;
        let count = len.min(count_max);
        stale.cut(page, count);
        Some(Extent { page, count })
    }

    pub(crate) fn free_pages(&self) -> u64 {
        self.free.pages + self.stale_pages()
    }

    /// Pages that have no room yet, and may get it.
    pub(crate) fn unbacked_pages(&self) -> u64 {
        self.unbacked.pages
    }

    pub(crate) fn retired_pages(&self) -> u64 {
        self.retired_pages
    }

    /// Takes the pages that a map uses out of those without room. Nothing is free yet. Gives the
    /// highest of them, or zero.
    ///
    /// # Errors
    /// A page that is claimed twice, or is not there. With `is_lossy` none: what freed the page
    /// may be lost, and the checksum of a slice tells whether the page is still its own.
    pub(crate) fn claim(
        &mut self,
        pages: impl Iterator<Item = u32>,
        is_lossy: bool,
    ) -> Result<u32, PageClash> {
        let mut used = vec![0u64; (self.end as usize).div_ceil(64)];
        let mut highest = 0;
        for page in pages {
            let is_there = (1..self.end).contains(&page);
            let (word, bit) = (page as usize / 64, 1 << (page % 64));
            match used.get_mut(word) {
                Some(word) if is_there && *word & bit == 0 => {
                    *word |= bit;
                }
                _ if is_lossy => continue,
                _ => return Err(PageClash(page)),
            }
            highest = highest.max(page);
        }
        let is_used = |page: u32| used[page as usize / 64] >> (page % 64) & 1 == 1;
        for (mut page, count) in std::mem::take(&mut self.unbacked).runs {
            let end = page + count;
            while page < end {
                let first = page;
                while page < end && is_used(page) {
                    // Whole words at once: most pages of a full store are used.
                    let whole =
                        page % 64 == 0 && end - page >= 64 && used[page as usize / 64] == !0;
                    page += if whole { 64 } else { 1 };
                }
                let free = page;
                while page < end && !is_used(page) {
                    let whole = page % 64 == 0 && end - page >= 64 && used[page as usize / 64] == 0;
                    page += if whole { 64 } else { 1 };
                }
                debug_assert!(page > first);
                self.unbacked.add(Extent { page: free, count: page - free });
            }
        }
        Ok(highest)
    }

    /// The first pages that have no room, at most `count_max`.
    pub(crate) fn unbacked(&self, count_max: u32) -> Option<Extent> {
        let (page, len) = self.unbacked.next(0)?;
        Some(Extent { page, count: len.min(count_max) })
    }

    /// Pages at the beginning of a run without room have got it, and are free.
    pub(crate) fn back(&mut self, extent: Extent) {
        self.unbacked.cut(extent.page, extent.count);
        self.release(extent);
    }

    /// Takes `count` pages, in one run if one is found soon, and appends them to `out`.
    /// Takes none when there are too few.
    pub(crate) fn take(&mut self, count: u32, out: &mut Extents) -> bool {
        if u64::from(count) > self.free_pages() {
            return false;
        }
        // A stale page has its room: nothing is gained by giving that back first.
        for runs in self.stale.iter_mut().chain([&mut self.free]) {
            if let Some(start) = runs.fit(count) {
                runs.give(start, count, out);
                return true;
            }
        }
        let mut left = count;
        for runs in [&mut self.free].into_iter().chain(&mut self.stale) {
            while left > 0 {
                let Some((start, len)) = runs.next(runs.next_fit) else { break };
                let taken = len.min(left);
                runs.give(start, taken, out);
                left -= taken;
            }
        }
        debug_assert_eq!(left, 0, "the runs count their pages");
        true
    }

    /// Gives back pages that no commit has named.
    pub(crate) fn release(&mut self, extent: Extent) {
        if self.bad.is_empty() {
            return self.free.add(extent);
        }
        let Self { bad, free, .. } = self;
        let (mut page, end) = (extent.page, extent.page + extent.count);
        for bad in bad.range(page..end) {
            free.add(Extent { page, count: bad - page });
            page = bad + 1;
        }
        free.add(Extent { page, count: end - page });
    }

    /// Pages of a write that failed: they are not free again when they are released.
    pub(crate) fn quarantine(&mut self, extent: Extent) {
        self.bad.extend(extent.page..extent.page + extent.count);
    }

    /// Sets aside a page that the commit in progress frees.
    pub(crate) fn retire(&mut self, page: u32) {
        self.set_aside(page, self.commit + 1);
    }

    /// Sets aside a page that a commit before has freed; until [`recycle`](Self::recycle).
    pub(crate) fn retire_late(&mut self, page: u32) {
        self.set_aside(page, self.commit);
    }

    fn set_aside(&mut self, page: u32, commit: u64) {
        self.retired_pages += 1;
        match self.retired.back_mut() {
            Some(last) if last.commit == commit && last.extent.page + last.extent.count == page => {
                last.extent.count += 1;
            }
            _ => self.retired.push_back(Retired { commit, extent: Extent { page, count: 1 } }),
        }
    }

    /// The commit in progress is on stable media and visible.
    pub(crate) fn committed(&mut self) {
        self.commit += 1;
        self.recycle();
    }

    pub(crate) fn pin(&mut self) -> Pin {
        *self.pins.entry(self.commit).or_insert(0) += 1;
        Pin(self.commit)
    }

    pub(crate) fn unpin(&mut self, pin: Pin) {
        if let Some(count) = self.pins.get_mut(&pin.0) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&pin.0);
                self.recycle();
            }
        }
    }

    /// Retired pages that nobody can want any more are free again.
    pub(crate) fn recycle(&mut self) {
        let oldest = self.pins.keys().next().copied().unwrap_or(self.commit);
        while let Some(retired) = self.retired.pop_front_if(|r| r.commit <= oldest) {
            self.retired_pages -= u64::from(retired.extent.count);
            match &mut self.stale {
                Some(stale) => stale.add(retired.extent),
                None => self.release(retired.extent),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pages are free.
    fn backed(end: u32) -> Pages {
        let mut space = Pages::new(end);
        back_all(&mut space);
        space
    }

    fn back_all(space: &mut Pages) {
        while let Some(extent) = space.unbacked(3) {
            space.back(extent);
        }
    }

    #[test]
    fn a_freed_page_waits_for_its_commit_and_for_older_readers() {
        let mut space = backed(8);
        let mut out = Extents::new();
        assert!(space.take(7, &mut out));
        assert_eq!(out[..], [Extent { page: 1, count: 7 }]);
        let pin = space.pin();
        space.retire(3);
        assert!(!space.take(1, &mut out), "the commit is not durable");
        space.committed();
        assert!(!space.take(1, &mut out), "a reader is older than the commit");
        let newer = space.pin();
        space.unpin(pin);
        assert!(space.take(1, &mut out), "the newer reader never saw the page");
        assert_eq!(out[1], Extent { page: 3, count: 1 });
        space.unpin(newer);
    }

    #[test]
    fn freed_neighbours_become_one_run() {
        let mut space = backed(16);
        let mut out = Extents::new();
        assert!(space.take(15, &mut out));
        for page in [4, 6, 5] {
            space.release(Extent { page, count: 1 });
        }
        out.clear();
        assert!(space.take(3, &mut out));
        assert_eq!(out[..], [Extent { page: 4, count: 3 }]);
        assert!(!space.take(1, &mut out));
    }

    #[test]
    fn a_request_larger_than_any_run_is_cut_into_pieces() {
        let mut space = backed(16);
        let mut out = Extents::new();
        assert!(space.take(15, &mut out));
        for page in [2, 5, 9] {
            space.release(Extent { page, count: 1 });
        }
        out.clear();
        assert!(space.take(3, &mut out));
        assert_eq!(out.len(), 3);
        assert_eq!(space.free_pages(), 0);
    }

    #[test]
    fn claimed_pages_are_never_given_out_and_a_double_claim_is_refused() {
        let mut space = Pages::new(8);
        assert_eq!(space.claim([2, 4].into_iter(), false), Ok(4));
        back_all(&mut space);
        let mut out = Extents::new();
        assert!(space.take(5, &mut out));
        assert!(out.iter().all(|e| !(e.page..e.page + e.count).any(|p| p == 2 || p == 4)));
        for bad in [vec![0], vec![8], vec![3, 3]] {
            assert!(Pages::new(8).claim(bad.into_iter(), false).is_err());
        }
    }

    #[test]
    fn no_page_is_given_out_before_it_has_room() {
        let mut space = Pages::new(8);
        assert!(space.claim([3].into_iter(), false).is_ok());
        let mut out = Extents::new();
        assert!(!space.take(1, &mut out), "none has room");
        let first = space.unbacked(100).expect("there are some");
        assert_eq!(first, Extent { page: 1, count: 2 });
        space.back(first);
        assert!(space.take(2, &mut out) && !space.take(1, &mut out));
        back_all(&mut space);
        assert_eq!((space.free_pages(), space.unbacked(1)), (4, None), "all but the claimed one");
    }
}
